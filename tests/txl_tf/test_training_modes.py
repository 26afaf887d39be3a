"""What a run can be told besides training: which checkpoints and splits to score, where to begin, when to end, where to lie."""

import dataclasses
import json
import os
import shutil
import signal
import typing
from pathlib import Path
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import txl_tf.training
from testing.number_corpus import NumberCorpus
from txl_tf.config import (
    ATTENTIONS, CLIP_SCOPES, DENSE_FORMS, FEED_FORWARDS, INITS, KEY_INDICES, MEMORY_STARTS, MIXTURE_WEIGHTINGS, PRECISIONS, ModelConfig,
    TrainConfig,
)
from txl_tf.language_model import TransformerXLLM
from txl_tf.model_folder import load_model, save_model
from txl_tf.run_state import step_of
from txl_tf.training import Training

GOLDEN = Path(__file__).parents[1] / "golden/tf1/10_training_trajectory"
MODEL = ModelConfig(n_token=256, n_layer=1, d_model=8, n_head=2, d_inner=8, tgt_len=5, mem_len=6, dropout=0.1)
CORPUS = NumberCorpus(labels=20)  # four updates a pass


def settings(folder, **changes):
    return TrainConfig(**{"model_dir": str(folder), "train_steps": 8, "warmup_steps": 0, "learning_rate": 0.02, "iterations": 3, "save_steps": 2,
                          "keep_checkpoints": 3, "eval_tgt_len": 5, "eval_steps": 3, **changes})


def a_run(folder, model_config=MODEL, corpus=CORPUS, **changes):
    return Training(model_config, settings(folder, **changes), corpus)


def log_of(folder, name="nll"):
    lines = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return {line["step"]: line[name] for line in lines if name in line}


@pytest.fixture(scope="module", autouse=True)
def without_samples():
    """No run here shows a sample, which takes long."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Training, "_say_sample", lambda run: None)
        yield


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The folder of a run of eight updates, and its results in `results.json`."""
    folder = tmp_path_factory.mktemp("runs") / "whole"
    a_run(folder).run()
    return folder


@pytest.fixture
def copied(whole, tmp_path):
    return shutil.copytree(whole, tmp_path / "copy")


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def go_back_to(folder, step):
    """Takes the newer checkpoints away, as if the run had been killed before them."""
    for path in (folder / "checkpoints").glob("step-*"):
        if step_of(path.name.split(".")[0]) > step:
            path.unlink()


class TestScoring:
    @pytest.mark.slow
    def test_the_newest_checkpoint(self, whole, copied, capsys):
        before = {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()}
        found = a_run(copied, do_train=False).run()
        assert found == {**results_of(whole), "step": 8} and "step 8:" in capsys.readouterr().out
        assert {path: path.read_bytes() for path in copied.rglob("*") if path.is_file()} == before
        other = a_run(copied, do_train=False, eval_split="valid", max_eval_batch=1).run()
        assert results_of(copied) == other != found

    @pytest.mark.slow
    def test_every_one_that_is_kept(self, copied, capsys):
        a_run(copied, train_steps=9).run()
        shutil.rmtree(copied / "best")
        capsys.readouterr()
        found = a_run(copied, do_eval_only=True, start_eval_steps=6, eval_split="valid").run()
        said = capsys.readouterr().out
        assert [step for step in range(10) if f"step {step}:" in said] == [6, 8, 9]
        scores = {step: a_run(copied, do_eval_only=True, start_eval_steps=step, eval_split="valid").run() for step in (9,)}
        assert scores[9]["step"] == 9 and found["valid"]["nll"] <= scores[9]["valid"]["nll"]
        assert f"best on valid: step {found['step']} with" in said and "test" not in found
        data = copied / "checkpoints" / "step-8.data-00000-of-00001"
        data.write_bytes(data.read_bytes()[:100])
        a_run(copied, do_eval_only=True, eval_split="valid").run()
        assert "step 8:" not in capsys.readouterr().out.rpartition("step 6:")[2]
        with pytest.raises(ValueError, match="model_dir must hold a checkpoint from start_eval_steps on. .*start_eval_steps=10"):
            a_run(copied, do_eval_only=True, start_eval_steps=10).run()

    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("changes, splits", [
        ({"eval_split": "train"}, ["train"]), ({"eval_split": "test", "do_test": True}, ["test"]),
        ({"eval_split": "valid", "do_test": True}, ["valid", "test"]), ({"do_eval": False, "do_test": True}, ["test"]),
    ], ids=str)
    def test_the_splits(self, copied, changes, splits):
        assert [name for name in a_run(copied, do_train=False, **changes).run() if name not in ("step", "settings")] == splits

    @pytest.mark.slow
    def test_some_batches_of_a_split(self, copied):
        assert [a_run(copied, do_train=False, eval_split="valid", max_eval_batch=count).run()["valid"]["tokens"] for count in (1, 2, -1)] == [
            10, 20, 40]

    def test_without_a_run_there_is_nothing_to_score(self, tmp_path, copied):
        with pytest.raises(ValueError, match="config.json .*Received: folder="):
            a_run(tmp_path / "none", do_train=False)
        shutil.rmtree(copied / "checkpoints")
        with pytest.raises(ValueError, match="model_dir must hold checkpoints when nothing is to be trained. Received: model_dir="):
            a_run(copied, do_train=False)
        assert not (tmp_path / "none").exists()

    @pytest.mark.slow
    def test_a_model_without_a_run(self, whole, tmp_path, capsys):
        save_model(load_model(whole), tmp_path / "model", CORPUS.vocabulary)
        assert a_run(tmp_path / "model", do_eval_only=True).run()["valid"] == results_of(whole)["valid"]
        assert "step 0:" in capsys.readouterr().out

    def test_another_precision(self, whole, copied):
        found = a_run(copied, do_train=False, precision="mixed_float16").run()
        assert found["valid"]["nll"] == pytest.approx(results_of(whole)["valid"]["nll"], rel=0.01)


class TestOneCheckpoint:
    @pytest.mark.slow
    def test_of_a_run_and_a_folder(self, whole, tmp_path):
        def scored(path, **model_settings):
            config = dataclasses.replace(MODEL, **model_settings)
            return a_run(tmp_path / "none", config, do_train=False, eval_ckpt_path=str(path)).run()["valid"]["nll"]

        assert scored(whole / "checkpoints" / "step-8") == results_of(whole)["valid"]["nll"]
        assert scored(whole, dropout=0.0) == results_of(whole)["valid"]["nll"]
        assert scored(whole / "checkpoints" / "step-6", dropout=0.0) == pytest.approx(log_of(whole, "valid")[6]["nll"])
        assert scored(whole / "best") == min(score["nll"] for score in [*log_of(whole, "valid").values(), results_of(whole)["valid"]])
        assert not (tmp_path / "none").exists()

    @pytest.mark.slow
    def test_of_the_original(self, tmp_path):
        stored = json.loads((GOLDEN / "config.json").read_text())
        names = ("n_token", "n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "tgt_len", "mem_len", "untie_r", "cutoffs",
                 "div_val", "proj_share_all_but_first", "proj_same_dim")
        config, corpus = ModelConfig(**{name: stored[name] for name in names}), NumberCorpus(stored["n_token"])
        path = str(GOLDEN / "init.ckpt")
        found = a_run(tmp_path / "none", config, corpus, do_train=False, eval_ckpt_path=path).run()
        assert 0.5 * np.log(config.n_token) < found["valid"]["nll"] < 3 * np.log(config.n_token)
        run = a_run(tmp_path / "run", config, corpus, warm_start_path=path)
        assert run.step == 0 and run.evaluate()["valid"] == found["valid"]

    def test_that_holds_none(self, tmp_path):
        with pytest.raises(ValueError, match="^eval_ckpt_path must be a model folder or a checkpoint. Received: eval_ckpt_path=nowhere$"):
            a_run(tmp_path, do_train=False, eval_ckpt_path="nowhere")


class TestBeginning:
    @pytest.mark.slow
    def test_with_the_weights_of_another_run_alone(self, whole, tmp_path):
        run = a_run(tmp_path / "new", warm_start_path=str(whole / "checkpoints" / "step-8"))
        assert run.step == int(run.optimizer.iterations) == 0
        assert not any(np.any(variable.numpy()) for variable in run.optimizer.variables[2:])  # Adam's means are those of a new one
        for ours, theirs in zip(run.model.trainable_variables, load_model(whole).trainable_variables, strict=True):
            np.testing.assert_array_equal(ours, theirs)
        run.train()
        again = a_run(tmp_path / "new", warm_start_path=str(whole / "checkpoints" / "step-8"))
        assert again.step == 8
        np.testing.assert_array_equal(again.model.get_weights()[0], run.model.get_weights()[0])

    def test_again_with_an_empty_memory(self, copied):
        go_back_to(copied, 6)
        with_memory, without = a_run(copied), a_run(copied, save_memory=False)
        assert with_memory.step == without.step == 6
        assert np.all(with_memory._step.memory.variables["length"].numpy() == 6) and not np.any(without._step.memory.variables["length"].numpy())
        before = log_of(copied)
        without.train()
        assert log_of(copied)[8] != before.get(8)

    def test_again_after_a_kill_before_an_evaluation(self, whole, copied):
        go_back_to(copied, 6)
        lines = (copied / "log.jsonl").read_text().splitlines(keepends=True)
        (copied / "log.jsonl").write_text("".join(line for line in lines if not ('"step": 6' in line and "valid" in line)))
        shutil.rmtree(copied / "best")
        a_run(copied).run()
        assert (copied / "log.jsonl").read_text() == (whole / "log.jsonl").read_text()
        assert results_of(copied) == results_of(whole)

    @pytest.mark.slow
    def test_told_to_end_it_saves_and_goes_on_the_same(self, whole, tmp_path, monkeypatch):
        class Terminated(txl_tf.training.Progress):
            def report(self, step, **values):
                super().report(step, **values)
                if step == 3:  # where an evaluation is due and no checkpoint
                    os.kill(os.getpid(), signal.SIGTERM)

        before = signal.getsignal(signal.SIGTERM)
        with monkeypatch.context() as patch:
            patch.setattr(txl_tf.training, "Progress", Terminated)
            with pytest.raises(SystemExit) as end:
                a_run(tmp_path).run()
        assert end.value.code == 143 and signal.getsignal(signal.SIGTERM) == before
        run = a_run(tmp_path)
        assert run.step == 3
        run.run()
        assert (tmp_path / "log.jsonl").read_text() == (whole / "log.jsonl").read_text()
        assert results_of(tmp_path) == results_of(whole)


class TestWhileTraining:
    @pytest.mark.slow
    def test_evaluations_leave_the_training_alone(self, whole, tmp_path):
        a_run(tmp_path, eval_steps=0, iterations=1).train()
        often = tmp_path / "often"
        a_run(often, eval_steps=2, iterations=1, eval_mem_len=3, eval_clamp_len=2).train()
        assert log_of(often) == log_of(tmp_path) and list(log_of(often, "valid")) == [2, 4, 6, 8]
        assert log_of(tmp_path, "valid") == {}

    def test_the_best_on_valid_is_kept_apart(self, whole):
        scores = {step: score["nll"] for step, score in log_of(whole, "valid").items()} | {8: results_of(whole)["valid"]["nll"]}
        best = json.loads((whole / "best" / "results.json").read_text())
        assert list(scores) == [3, 6, 8] and best["step"] == min(scores, key=scores.get)
        assert best["valid"]["nll"] == scores[best["step"]]

    def test_as_many_checkpoints_as_asked_for(self, whole):
        assert {path.name.split(".")[0] for path in (whole / "checkpoints").iterdir()} == {"checkpoint", "step-4", "step-6", "step-8"}

    def test_exactly_as_many_updates_as_asked_for(self, whole, tmp_path):
        run = a_run(tmp_path, train_steps=7, save_steps=100, eval_steps=0)
        run.train()
        assert int(run.optimizer.iterations) == run.step == 7
        assert sorted(log_of(tmp_path)) == [3, 4, 6, 7]  # every three, and at the end of a pass
        assert sorted(log_of(whole)) == [2, 3, 4, 6, 8]


@pytest.mark.slow
def test_a_run_at_an_address(tmp_path, whole, monkeypatch):
    """As gs://, here TensorFlow's file system in memory: training, the way on, the best, the log."""
    copy = tf.io.gfile.copy

    def replace(source, target, overwrite=False):  # files in memory, unlike those elsewhere, keep what a shorter copy does not cover
        if overwrite and tf.io.gfile.exists(target):
            tf.io.gfile.remove(target)
        copy(source, target)

    monkeypatch.setattr(tf.io.gfile, "copy", replace)
    address, local = f"ram://{tmp_path}/run", tmp_path / "run"
    a_run(address, train_steps=5).run()
    run = a_run(address)
    assert run.step == 5
    run.run()
    assert {name.rstrip("/") for name in tf.io.gfile.listdir(address)} == {path.name for path in whole.iterdir()}
    found = {step_of(path) for path in run.state.checkpoints()}
    assert len(found) == 3 and max(found) == 8
    for name in ("log.jsonl", "results.json", "best/results.json", "config.json"):
        (local / name).parent.mkdir(parents=True, exist_ok=True)
        tf.io.gfile.copy(f"{address}/{name}", str(local / name))
    assert sorted(log_of(local)) == [2, 3, 4, 5, 6, 8] and load_model(f"{address}/best").config == MODEL
    assert a_run(address, do_train=False).run()["valid"] == results_of(local)["valid"]


def test_a_split_is_scored_once_after_the_last_update(tmp_path, monkeypatch, capsys):
    scoring = mock.Mock(wraps=txl_tf.training.evaluate)
    monkeypatch.setattr(txl_tf.training, "evaluate", scoring)
    results = a_run(tmp_path, train_steps=4, eval_steps=2).run()
    assert scoring.call_count == 3 and list(results) == ["step", "settings", "valid", "test"]
    assert capsys.readouterr().out.count("valid: ") == 2


@pytest.mark.parametrize("lengths", [{"eval_tgt_len": 30}, {"tgt_len": 30}], ids=str)
def test_segments_longer_than_the_rows_are_refused_where_none_may_be_short(tmp_path, monkeypatch, lengths):
    monkeypatch.setattr(Training, "_drops_remainder", True)
    config = dataclasses.replace(MODEL, tgt_len=lengths.get("tgt_len", 5))
    name = next(iter(lengths))
    with pytest.raises(ValueError, match=f"^{name} must be at most the labels of a row of the .* split. Received: {name}=30$"):
        a_run(tmp_path / "run", config, eval_tgt_len=lengths.get("eval_tgt_len", 5))


CHOICES = {"init": INITS, "memory_start": MEMORY_STARTS, "precision": PRECISIONS, "clip_scope": CLIP_SCOPES, "attention": ATTENTIONS,
           "key_index": KEY_INDICES, "dense_form": DENSE_FORMS, "mixture_weighting": MIXTURE_WEIGHTINGS, "feed_forward": FEED_FORWARDS}
MIXTURE = {"attention": "mixture", "mixture_of": ("dense", "dot_product")}
COMBINATIONS = (
    {"precision": "mixed_float16", "init": "uniform", "memory_start": "zeros", "same_length": True, "same_length_extra": False, "untie_r": True,
     "remat": True, "do_eval": True, "do_test": True, "proj_same_dim": False, "eval_same_length": False, "track_mean": True},
    {"precision": "mixed_bfloat16", "clip_scope": "replica", "jit_compile": True, "tie_weight": False, "save_memory": False,
     "do_eval": True, "eval_same_length": True, "attention": "dense"},
    {"proj_share_all_but_first": True, "pre_lnorm": True, "do_eval": False, "cutoffs": (100, 200), "div_val": 2, "use_tpu": False,
     "attention": "shaw"},
    {"attention": "absolute", "absolute_positions": True, "mem_len": 0},
    {"attention": "dot_product", "absolute_positions": False, "feed_forward": "conv_relu"},
    {"attention": "random", "mem_len": 0, "key_index": "position", "absolute_positions": True},
    {"attention": "random_fixed", "key_index": "distance"},
    {"attention": "factorized_dense"},
    {"attention": "factorized_random"},
    *({"attention": "dense", "dense_form": form} for form in DENSE_FORMS[1:-2]),
    *({**MIXTURE, "mixture_weighting": weighting, "dense_form": form}
      for weighting, form in zip(MIXTURE_WEIGHTINGS, (DENSE_FORMS[0], *DENSE_FORMS[-2:]), strict=True)),
)
ELSEWHERE = {"do_train", "do_eval_only", "use_tpu"}  # what trains no step, or on other devices


def values_of(config_class):
    """Returns {name: values} of the fields that are switches or choices."""
    hints = typing.get_type_hints(config_class)
    return {name: CHOICES.get(name, (False, True)) for name, hint in hints.items() if name in CHOICES or bool in (typing.get_args(hint) or (hint,))}


def split(combination):
    """Returns the ModelConfig and the other settings that a combination stands for."""
    names = {field.name for field in dataclasses.fields(ModelConfig)} & set(combination)
    return (dataclasses.replace(MODEL, **{name: combination[name] for name in names}),
            {name: value for name, value in combination.items() if name not in names})


def test_the_combinations_have_every_value():
    tried = set()
    for model_config, changes in map(split, COMBINATIONS):
        values = {**vars(model_config), **vars(TrainConfig(**changes))}
        tried |= {(name, value) for name, value in values.items() if not isinstance(value, (tuple, list, dict))}
    wanted = {(name, value) for config in (ModelConfig, TrainConfig) for name, values in values_of(config).items() for value in values}
    assert {pair for pair in wanted - tried if pair[0] not in ELSEWHERE} == set()


@pytest.mark.slow
@pytest.mark.parametrize("combination", COMBINATIONS, ids=lambda combination: "-".join(filter(lambda value: isinstance(value, str), combination.values())))
def test_every_choice_trains(tmp_path, combination):
    model_config, changes = split(combination)
    run = a_run(tmp_path, model_config, train_steps=1, eval_steps=0, learning_rate=0.1, **{"do_eval": False, **changes})
    before = TransformerXLLM(model_config).get_weights()[0].shape, run.model.trainable_variables[0].numpy()
    run.run()
    assert np.isfinite(log_of(tmp_path)[1]) and before[0] == before[1].shape
    assert np.any(run.model.trainable_variables[0].numpy() != before[1])
