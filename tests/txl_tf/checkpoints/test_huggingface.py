"""Hugging Face's numbers from its own files: log-probabilities, memories, greedy continuations; and what is refused."""

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

import txl_tf
from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.checkpoints.huggingface import POSITIONS, huggingface_config, huggingface_copies, huggingface_entries
from txl_tf.checkpoints.safetensors import read_safetensors, write_safetensors
from txl_tf.checkpoints.torch_files import read_torch

GOLDEN = Path(__file__).parents[2] / "golden" / "hf"
MODELS = ["1_div4_tied", "3_div1", "4_div1_dembed_ne_dmodel", "6_pre_lnorm"]
SEGMENTS, ROWS = 3, 3

every_model = pytest.mark.parametrize("name", MODELS)


@functools.lru_cache(maxsize=None)
def load(name):
    return txl_tf.load_huggingface(GOLDEN / name)


@pytest.fixture
def folder(tmp_path):
    """Returns a function that copies a golden folder with one file of weights and other settings."""
    def copy(name=MODELS[0], weights="model.safetensors", without=(), **settings):
        config = json.loads((GOLDEN / name / "config.json").read_text())
        config = {key: value for key, value in {**config, **settings}.items() if key not in without}
        (tmp_path / "config.json").write_text(json.dumps(config))
        shutil.copy(GOLDEN / name / weights, tmp_path)
        return tmp_path
    return copy


@pytest.mark.slow_but_first
@every_model
def test_log_probabilities_and_memories_of_segments(name):
    model, arrays = load(name), np.load(GOLDEN / name / "segments.npz")
    memory = model.initial_memory(ROWS)
    for index in range(SEGMENTS):
        golden = {key: arrays[f"seg{index}/{key}"] for key in ("input_ids", "next_ids", "prediction_scores", "nll", "mems")}
        nll, _ = model.nll(golden["input_ids"], golden["next_ids"], memory)
        log_probs, memory = model.log_probs(golden["input_ids"], memory)
        np.testing.assert_allclose(log_probs, golden["prediction_scores"], rtol=0, atol=3e-5)
        np.testing.assert_allclose(nll, golden["nll"], rtol=0, atol=3e-5)
        np.testing.assert_allclose(memory["hidden"], golden["mems"].transpose(2, 0, 1, 3), rtol=0, atol=2e-5)


def test_gradients_of_the_second_segment_with_pre_lnorm():
    """The normalisation learns from the memory too; the golden gradients are those of transformers 4.35.2."""
    model, golden = load("6_pre_lnorm"), np.load(GOLDEN / "6_pre_lnorm" / "gradients.npz")
    arrays = np.load(GOLDEN / "6_pre_lnorm" / "segments.npz")
    _, memory = model.nll(arrays["seg0/input_ids"], arrays["seg0/next_ids"], model.initial_memory(ROWS))
    with tf.GradientTape() as tape:
        loss = tf.reduce_mean(model.nll(arrays["seg1/input_ids"], arrays["seg1/next_ids"], memory)[0])
    entries = huggingface_entries(model)
    for name, gradient in tape.gradient(loss, {name: entries[name].variables[0].value for name in golden}).items():
        np.testing.assert_allclose(gradient, golden[name], 1e-4, 5e-6, err_msg=name)


@pytest.mark.slow_but_first
@every_model
def test_greedy_continuations(name):
    arrays = np.load(GOLDEN / name / "generate.npz")
    prompt, greedy, scores = (arrays[key] for key in ("prompt", "generate_greedy", "generate_scores"))
    ids = load(name).generate(prompt, max_new_tokens=greedy.shape[1] - prompt.shape[1], top_k=1)
    np.testing.assert_array_equal(ids, greedy)
    memory, read = load(name).initial_memory(len(prompt)), 0
    for step, golden in enumerate(scores):
        log_probs, memory = load(name).log_probs(greedy[:, read:prompt.shape[1] + step], memory)
        np.testing.assert_allclose(log_probs[:, -1], golden, rtol=0, atol=3e-5)
        read = prompt.shape[1] + step


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name, weights", [*((name, "pytorch_model.bin") for name in MODELS), (MODELS[0], "tf_model.h5")])
def test_every_file_holds_the_same_model(name, weights, folder):
    model = txl_tf.load_huggingface(folder(name, weights))
    for weight, expected in zip(model.get_weights(), load(name).get_weights(), strict=True):
        np.testing.assert_array_equal(weight, expected)


@every_model
def test_what_was_loaded_comes_out_bit_by_bit(name, tmp_path):
    txl_tf.save_huggingface(load(name), tmp_path / "new")
    written, golden = (read_safetensors(path / "model.safetensors") for path in (tmp_path / "new", GOLDEN / name))
    assert written.keys() == golden.keys()
    for tensor, array in golden.items():
        if tensor == POSITIONS:  # computed anew, by another program's powers
            np.testing.assert_allclose(written[tensor], array, rtol=1e-6)
        else:
            np.testing.assert_array_equal(written[tensor].view(np.int32), array.view(np.int32))
    settings, theirs = (json.loads((path / "config.json").read_text()) for path in (tmp_path / "new", GOLDEN / name))
    assert {key: settings.get(key) for key in theirs if key not in ("eos_token_id", "transformers_version")} == {
        key: value for key, value in theirs.items() if key not in ("eos_token_id", "transformers_version")}
    assert huggingface_config(tmp_path / "new").proj_share_all_but_first == load(name).config.proj_share_all_but_first


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [
    {"cutoffs": (), "d_embed": 7}, {"cutoffs": (3, 7), "untie_r": False, "proj_share_all_but_first": True, "div_val": 2},
    {"cutoffs": (3, 7), "tie_weight": False, "same_length": True, "same_length_extra": False, "clamp_len": 5}])
def test_other_models_go_there_and_back(settings, tmp_path):
    model = tiny_model(memory_start="zeros", **settings)
    txl_tf.save_huggingface(model, tmp_path)
    again = txl_tf.load_huggingface(tmp_path)
    tokens = tiny_tokens(2, 6)
    for ours, theirs in zip(model.log_probs(tokens, model.initial_memory(2)), again.log_probs(tokens, again.initial_memory(2))):
        tf.nest.map_structure(np.testing.assert_array_equal, ours, theirs)


@pytest.mark.parametrize("settings, message", [
    ({}, "The model must have memory_start=zeros, as Hugging Face's program has. Received: memory_start=empty"),
    ({"same_length": True, "memory_start": "zeros"}, "must have same_length_extra=False, .*Received: same_length_extra=True"),
    ({"d_model": 13, "memory_start": "zeros"}, "d_model must be even"),
])
def test_what_has_no_counterpart_there_is_not_written(settings, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        txl_tf.save_huggingface(tiny_model(**settings), tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("name, tensor", [("1_div4_tied", "crit.out_projs.2"), ("4_div1_dembed_ne_dmodel", "crit.out_layers.0.weight")])
def test_what_is_tied_must_be_equal(name, tensor, folder):
    arrays = {**read_torch(GOLDEN / name / "pytorch_model.bin")}
    arrays[tensor] = arrays[tensor] + 1
    path = folder(name)
    write_safetensors(path / "model.safetensors", arrays)
    with pytest.raises(ValueError, match=f"{tensor} must be the same as transformer.word_emb.*, as config.json says. Received: folder="):
        txl_tf.load_huggingface(path)


@pytest.mark.parametrize("settings", [
    {"cutoffs": (), "d_embed": 7}, {"untie_r": False, "cutoffs": (3, 7), "div_val": 2, "proj_share_all_but_first": True},
    {"untie_r": True, "cutoffs": (3, 7), "tie_weight": False}])
def test_entries_name_every_variable_once(settings):
    model = tiny_model(**settings)
    entries = huggingface_entries(model)
    named = [id(variable) for entry in entries.values() for variable in entry.variables]
    assert sorted(named) == sorted(id(variable) for variable in model.trainable_variables)
    assert set(huggingface_copies(model).values()) <= entries.keys() and not huggingface_copies(model).keys() & entries.keys()


def test_the_settings():
    config = huggingface_config(GOLDEN / "1_div4_tied")
    assert (config.n_token, config.cutoffs, config.div_val, config.proj_share_all_but_first) == (120, (20, 45, 80), 4, True)
    assert (config.same_length, config.same_length_extra, config.memory_start, config.layer_norm_epsilon) == (True, False, "zeros", 1e-5)


def test_an_older_config_will_do(folder):
    path = folder(n_token=120, tgt_len=128, tie_weight=True, without=("vocab_size", "layer_norm_epsilon", "tie_projs"))
    config = huggingface_config(path)
    assert config == huggingface_config(GOLDEN / MODELS[0]).__class__(**{**vars(huggingface_config(GOLDEN / MODELS[0])), "tgt_len": 128})


def test_what_a_config_lacks_may_be_given(folder):
    path = folder(without=("n_head", "cutoffs", "vocab_size"))
    whole = huggingface_config(GOLDEN / MODELS[0])
    assert huggingface_config(path, {"n_head": 4, "cutoffs": (20, 45, 80), "n_token": 120, "d_model": 1}) == whole


@pytest.mark.parametrize("settings, message", [
    ({"cutoffs": None}, "cutoffs must be a list. Received: cutoffs=None, folder="), ({"tie_projs": "ab"}, "tie_projs must be a list. Received: tie_projs='ab'"),
    ({"n_layer": 10 ** 6}, r"n_layer must be at most \d+, as many variables as the checkpoint has. Received: n_layer=1000000, folder="),
    ({"attn_type": 2}, "attn_type must be 0, for nothing else is known here. Received: attn_type=2, folder="), ({"sample_softmax": 5}, "sample_softmax must be -1"),
    ({"tie_projs": [True] * 4}, "tie_projs must be .*Received: tie_projs="), ({"tie_projs": [False, True, False, True]}, "tie_projs must be"),
    ({"without": ("n_head", "vocab_size")}, "config.json must say n_head, vocab_size, or it must be given. Received: folder="),
    ({"d_inner": 97}, r"CoreNet.* must have the shape \(.*97.*\) that config gives. Received: shape="),
    ({"n_layer": 3}, r"it lacks \['transformer.layers.2.dec_attn.layer_norm.bias', .* and has besides none. Received: folder="),
    ({"n_layer": 1}, r"it lacks none and has besides \['transformer.layers.1.dec_attn.layer_norm.bias'"),
])
def test_what_has_no_counterpart_is_refused_by_name(folder, settings, message):
    with pytest.raises(ValueError, match=message):
        txl_tf.load_huggingface(folder(**settings))


@pytest.mark.parametrize("content", [None, "", "[1]", "null", '"a"', "[" * 10 ** 5])
def test_settings_that_are_none_are_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "config.json").write_text(content)
    with pytest.raises(ValueError, match="folder must hold a config.json .*Received: folder="):
        txl_tf.load_huggingface(tmp_path)


def test_missing_files_are_refused(folder, tmp_path):
    (folder() / "model.safetensors").unlink()
    with pytest.raises(ValueError, match="folder must hold model.safetensors or .*Received: folder="):
        txl_tf.load_huggingface(tmp_path)


def test_values_of_16_bits(folder):
    path = folder()
    arrays = {name: array.astype(np.float16) for name, array in read_safetensors(GOLDEN / MODELS[0] / "model.safetensors").items()}
    _write_halves(path / "model.safetensors", arrays)
    model = txl_tf.load_huggingface(path)
    np.testing.assert_array_equal(model.head.cluster_kernel, arrays["crit.cluster_weight"].astype(np.float32))
    assert all(weight.dtype == tf.float32 for weight in map(tf.convert_to_tensor, model.get_weights()))


def _write_halves(path, arrays):
    header, values = {}, b""
    for name, array in arrays.items():
        header[name] = {"dtype": "F16", "shape": array.shape, "data_offsets": [len(values), len(values) + array.nbytes]}
        values += array.tobytes()
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + values)
