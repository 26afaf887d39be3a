"""The log of a run, its best model, and what is refused of a folder."""

import dataclasses
import json
import math

import pytest

from data_utils.vocabulary import ByteVocabulary
from testing.full_disk import files_at_most
from testing.tiny_model import tiny_config, tiny_model
from txl_tf.config import ModelConfig, TrainConfig
from txl_tf.model_folder import load_model
from txl_tf.run_folder import BEST, LOG, RESULTS, RunFolder

MODEL = ModelConfig(n_token=256)


def begun(path, step=0):
    """Returns the folder of a run that begins at a step."""
    folder = RunFolder(str(path))
    folder.begin(MODEL, TrainConfig(model_dir=str(path)), {"corpus": "mine"}, ByteVocabulary(), step)
    return folder


def log_of(path):
    return [json.loads(line) for line in (path / LOG).read_text().splitlines()]


def test_what_came_after_the_step_is_taken_from_the_log(tmp_path):
    folder = begun(tmp_path)
    reports = [{"step": step, "nll": 0.1 * step} for step in (3, 6, 9)] + [{"step": 9, "valid": {"nll": 1.0}}]
    for report in reports:
        folder.log(report)
    assert log_of(tmp_path) == reports
    begun(tmp_path, 9)
    assert log_of(tmp_path) == reports
    begun(tmp_path, 8)
    assert log_of(tmp_path) == reports[:2]
    begun(tmp_path)
    assert log_of(tmp_path) == []


@pytest.mark.parametrize("part", ['{"step": 6, "n', '{"step": 6, "valid": {"nll": 1.0}', '{"step', "{", "[]", '{"nll": 1}', '"', "7"])
def test_part_of_a_line_goes(tmp_path, part):
    folder = begun(tmp_path)
    folder.log({"step": 3, "nll": 1.0})
    with open(tmp_path / LOG, "a", encoding="utf-8") as file:
        file.write(part)
    assert not folder.has_logged(6, "valid")
    begun(tmp_path, 6).log({"step": 7, "nll": 1.0})
    assert log_of(tmp_path) == [{"step": 3, "nll": 1.0}, {"step": 7, "nll": 1.0}]


def test_every_line_is_json_also_where_a_number_is_none(tmp_path):
    begun(tmp_path).log({"step": 1, "nll": math.nan, "gradient_norm": math.inf, "tokens": 3})
    assert (tmp_path / LOG).read_text() == '{"step": 1, "nll": null, "gradient_norm": null, "tokens": 3}\n'


def test_has_logged(tmp_path):
    folder = begun(tmp_path)
    assert not folder.has_logged(0, "valid")
    folder.log({"step": 5, "valid": {"nll": 1.0}})
    assert folder.has_logged(5, "valid") and not folder.has_logged(5, "nll") and not folder.has_logged(4, "valid")


@pytest.mark.slow
def test_the_best_is_kept_apart(tmp_path):
    folder = RunFolder(str(tmp_path))

    def kept(seed, nll, settings="a"):
        return folder.keep_if_best(tiny_model(seed=seed), ByteVocabulary(), seed, {"tgt_len": settings}, {"nll": nll})

    assert not kept(1, math.nan) and not (tmp_path / BEST).exists()
    assert [kept(2, 3.0), kept(3, 3.0), kept(4, math.nan), kept(5, 2.5), kept(6, 2.6)] == [True, False, False, True, False]
    assert json.loads((tmp_path / BEST / RESULTS).read_text()) == {"step": 5, "settings": {"tgt_len": "a"}, "valid": {"nll": 2.5}}
    assert (load_model(tmp_path / BEST).get_weights()[0] == tiny_model(seed=5).get_weights()[0]).all()
    assert kept(7, 9.0, settings="b")  # scores with other settings can't be compared
    (tmp_path / BEST / RESULTS).write_text("[")
    assert kept(8, 10.0)


def test_results(tmp_path):
    folder = RunFolder(str(tmp_path))
    assert folder.results() == {}
    for results, kept in (
            ({"step": 1, "settings": {"tgt_len": 5}, "valid": 1}, {"step": 1, "settings": {"tgt_len": 5}, "valid": 1}),
            ({"step": 1, "settings": {"tgt_len": 5}, "test": 2}, {"step": 1, "settings": {"tgt_len": 5}, "valid": 1, "test": 2}),
            ({"step": 1, "settings": {"tgt_len": 6}, "test": 3}, {"step": 1, "settings": {"tgt_len": 6}, "test": 3}),
            ({"step": 2, "settings": {"tgt_len": 6}, "valid": 4}, {"step": 2, "settings": {"tgt_len": 6}, "valid": 4})):
        folder.write_results(results)
        assert folder.results() == kept


def test_the_configuration_and_vocabulary_of_a_run(tmp_path):
    folder = begun(tmp_path)
    assert folder.trained_config(ByteVocabulary()) == MODEL
    (tmp_path / "vocabulary.json").write_text((tmp_path / "vocabulary.json").read_text().replace("byte", "char"))
    with pytest.raises(ValueError):
        folder.trained_config(ByteVocabulary())
    with pytest.raises(ValueError, match="config.json.*Received: folder="):
        RunFolder(str(tmp_path / "nowhere")).trained_config(ByteVocabulary())


def test_weights_without_checkpoints_are_not_overwritten(tmp_path):
    tiny_model().save_to_preset(tmp_path)
    with pytest.raises(ValueError, match="model_dir must be new or hold a run's checkpoints.*Received: model_dir="):
        RunFolder(str(tmp_path)).check_same_run(tiny_config(), {}, has_checkpoints=False)


def test_a_run_from_before_a_setting_was_there_has_its_default(tmp_path):
    folder = begun(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["model"]["pre_lnorm"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    identity = {"corpus": "mine"}
    folder.check_same_run(MODEL, identity, has_checkpoints=True)
    with pytest.raises(ValueError, match="has pre_lnorm=False. Received: pre_lnorm=True"):
        folder.check_same_run(dataclasses.replace(MODEL, pre_lnorm=True), identity, has_checkpoints=True)


def test_a_full_disk_takes_nothing_from_the_folder(tmp_path):
    folder = begun(tmp_path)
    folder.keep_if_best(tiny_model(seed=2), ByteVocabulary(), 2, {}, {"nll": 3.0})
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    for write in (lambda: begun(tmp_path), lambda: folder.log({"step": 1, "text": "a" * 200}), lambda: folder.write_results({"a": "b" * 200}),
                  lambda: folder.save_weights(tiny_model()), lambda: folder.keep_if_best(tiny_model(), ByteVocabulary(), 3, {}, {"nll": 1.0})):
        with pytest.raises(OSError, match="^model_dir must be a folder that can be written, with room .* Received: model_dir="), files_at_most(100):
            write()
        (tmp_path / LOG).unlink(missing_ok=True)  # of which there may be a part of a line
        assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before
