"""A model in a folder: the way there and back, and what is refused."""

import json
import os

import numpy as np
import pytest

import txl_tf.model_folder
from data_utils.vocabulary import ByteVocabulary
from testing.full_disk import files_at_most
from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf import TransformerXLLM
from txl_tf.model_folder import (CONFIG, VOCABULARY, WEIGHTS, load_model, load_model_and_vocabulary, load_vocabulary, read_config,
                                 save_model, write_config)


def nll_of(model):
    """Returns the nll of a fixed segment."""
    tokens = tiny_tokens(2, 6)
    return model.nll(tokens[:, :-1], tokens[:, 1:], model.initial_memory(2))[0]


@pytest.fixture
def folder(tmp_path):
    """Returns a folder with a saved model."""
    save_model(tiny_model(), tmp_path)
    return tmp_path


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{}, {"untie_r": True, "d_embed": 5, "clamp_len": 2}, {"tie_weight": False}])
def test_round_trip(tmp_path, settings):
    model = tiny_model(**settings)
    model.save_to_preset(tmp_path / "new" / "folder")
    copy = TransformerXLLM.from_preset(tmp_path / "new" / "folder")
    assert copy.config == model.config
    np.testing.assert_array_equal(nll_of(copy), nll_of(model))
    assert {path.name for path in (tmp_path / "new" / "folder").iterdir()} == {CONFIG, WEIGHTS}


@pytest.mark.slow
def test_the_weights_do_not_depend_on_the_precision(tmp_path):
    save_model(tiny_model("mixed_bfloat16"), tmp_path)
    assert load_model(tmp_path).compute_dtype == "float32"
    np.testing.assert_array_equal(nll_of(load_model(tmp_path)), nll_of(tiny_model()))
    assert load_model(tmp_path, dtype="mixed_bfloat16").compute_dtype == "bfloat16"


def test_vocabulary_goes_along(tmp_path):
    save_model(tiny_model(n_token=256), tmp_path, ByteVocabulary())
    assert load_vocabulary(tmp_path).decode([104, 105]) == "hi"
    assert (tmp_path / VOCABULARY).exists()


def test_a_folder_without_vocabulary_says_so(folder):
    with pytest.raises(FileNotFoundError):
        load_vocabulary(folder)


def test_both_at_once_or_a_sentence_about_model_dir(folder):
    with pytest.raises(ValueError, match=f"model_dir must hold a trained model and its vocabulary .* Received: model_dir={folder}"):
        load_model_and_vocabulary(folder)
    ByteVocabulary().save(os.path.join(folder, VOCABULARY))
    model, vocabulary = load_model_and_vocabulary(folder)
    assert (model.config, vocabulary.n_token) == (load_model(folder).config, 256)


def test_what_else_is_in_the_config_stays(folder):
    write_config(folder, {**read_config(folder), "corpus": "mine"})
    save_model(tiny_model(clamp_len=3), folder)
    config = read_config(folder)
    assert config["corpus"] == "mine" and config["model"]["clamp_len"] == 3


def test_saving_again_replaces(folder):
    save_model(tiny_model(seed=9), folder)
    np.testing.assert_array_equal(nll_of(load_model(folder)), nll_of(tiny_model(seed=9)))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("share", [0.0, 0.2, 0.9])
def test_a_full_disk_leaves_the_model_that_was_there(tmp_path, share):
    save_model(tiny_model(n_token=256), tmp_path, ByteVocabulary())
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OSError), files_at_most(int(share * len(before[WEIGHTS]))):
        save_model(tiny_model(seed=9, n_token=256, clamp_len=3), tmp_path, ByteVocabulary())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{}, {"n_layer": 6}, {"d_inner": 512, "n_token": 5000}], ids=str)
def test_room_is_looked_for_as_much_as_is_needed(tmp_path, monkeypatch, settings):
    sizes = []
    monkeypatch.setattr(txl_tf.model_folder, "_check_room", lambda path, size: sizes.append(size))
    model = tiny_model(**settings)
    save_model(model, tmp_path)
    assert (tmp_path / WEIGHTS).stat().st_size < sizes[0] < 5 * model.count_params() + 2 ** 14 * len(model.weights)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", ["enwik8_base", "text8_large"])
def test_a_presets_name_alone_is_refused(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=f"a preset's name alone holds no weights, .*preset_config. Received: folder={name}$"):
        TransformerXLLM.from_preset(name)
    save_model(tiny_model(), name)
    np.testing.assert_array_equal(nll_of(TransformerXLLM.from_preset(name)), nll_of(tiny_model()))


def test_missing_weights_are_refused(folder):
    (folder / WEIGHTS).unlink()
    with pytest.raises(ValueError, match=f"folder must hold {WEIGHTS}, .* Received: folder="):
        load_model(folder)


def test_a_missing_folder_is_refused(tmp_path):
    with pytest.raises(ValueError, match=f"folder must hold a model's {CONFIG} .* Received: folder=.*nowhere"):
        load_model(tmp_path / "nowhere")


def changed(config, **model_settings):
    """Returns the text of a config with settings of its model replaced."""
    return json.dumps({**config, "model": {**config["model"], **model_settings}})


@pytest.mark.slow_but_first
@pytest.mark.parametrize("damage, names", [
    (lambda config: "not json", "Expecting value"),
    (lambda config: "[]", ""),
    (lambda config: "{}", "model"),
    (lambda config: changed(config, n_wings=2), "n_wings"),
    (lambda config: changed(config, n_head=0), "n_head"),
    (lambda config: changed(config, d_model="wide"), ""),
    (lambda config: changed(config, cutoffs=3), ""),
])
def test_a_broken_config_is_refused(folder, damage, names):
    (folder / CONFIG).write_text(damage(json.loads((folder / CONFIG).read_text())))
    with pytest.raises(ValueError, match=rf"(?s)folder must hold a model's {CONFIG} \(.*{names}.*\). Received: folder="):
        load_model(folder)


def test_weights_of_another_model_are_refused(folder):
    (folder / CONFIG).write_text(changed(json.loads((folder / CONFIG).read_text()), d_inner=20))
    with pytest.raises(ValueError):
        load_model(folder)


def test_a_folder_at_an_address(tmp_path):
    """As gs://, here TensorFlow's file system in memory: weights are written and read over a local copy."""
    folder = f"ram://{tmp_path}/model"
    save_model(tiny_model(n_token=256, seed=9), folder, ByteVocabulary())
    np.testing.assert_array_equal(nll_of(load_model(folder)), nll_of(tiny_model(n_token=256, seed=9)))
    assert load_vocabulary(folder).n_token == 256
    with pytest.raises(ValueError, match=f"folder must hold a model's {CONFIG} .* Received: folder=ram://nowhere"):
        load_model("ram://nowhere")
