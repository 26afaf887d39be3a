"""A run trains, carries its memory, resumes bit by bit, evaluates, and refuses what it cannot go on with."""

import dataclasses
import json
import math
import shlex
import shutil
import sys
import types
from unittest import mock

import numpy as np
import pytest
import tensorflow as tf

import txl_tf.training
from data_utils import load_vocabulary, prepare_corpus
from testing.summaries import summaries
from txl_tf.config import ModelConfig, TrainConfig
from txl_tf.language_model import TransformerXLLM
from txl_tf.model_folder import load_model
from txl_tf.optimization import clip_gradients, make_optimizer
from txl_tf.run_folder import RunFolder
from txl_tf.training import Training

EPOCH = 5  # updates a pass: 2 rows of 36 bytes give 35 labels a row, which is four segments of 8 and one of 3
SIZES = {"train": 73, "valid": 47, "test": 21}
TEXT = b"abcdefg hij "
MODEL = ModelConfig(n_token=256, n_layer=1, d_model=16, n_head=2, d_inner=16, tgt_len=8, mem_len=7, init_std=0.2)
DROPPING = dataclasses.replace(MODEL, n_layer=2, dropout=0.2, dropatt=0.2)
STEP_BY_STEP = {"train_steps": 12, "warmup_steps": 2, "learning_rate": 1e-2, "iterations": 1, "save_steps": 100}
FULL = {"train_steps": 62, "warmup_steps": 6, "learning_rate": 2e-2, "iterations": 7, "save_steps": 25}


def text_corpus(folder, text=TEXT, rows=2):
    """Returns the prepared corpus of a text repeated to SIZES."""
    folder.mkdir()
    for split, size in SIZES.items():
        (folder / f"{split}.txt").write_bytes((text * size)[:size])
    return prepare_corpus("text", folder, rows, 2, 8)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return text_corpus(tmp_path_factory.mktemp("data") / "text")


def settings(folder, **changes):
    return TrainConfig(**{"model_dir": str(folder), "eval_tgt_len": 8, **STEP_BY_STEP, **changes})


def trained(run, stop_at=None):
    """Trains and returns what was reported; with stop_at the run is killed when it reports that step."""
    reports = []

    class Recorder:
        def __init__(self, *_):
            pass

        def report(self, **values):
            reports.append(types.SimpleNamespace(**values))
            if values["step"] == stop_at:
                raise KeyboardInterrupt

        def restart_clock(self):
            pass

        end_line = restart_clock

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(txl_tf.training, "Progress", Recorder)
        try:
            run.train()
        except KeyboardInterrupt:
            assert stop_at is not None
    return reports


def losses(reports):
    return [report.nll for report in reports]


def state(run):
    """Returns everything that decides how a run goes on, as arrays."""
    memory = run._step.memory.variables
    return [variable.numpy() for variable in (*run.model.variables, *run.optimizer.variables, memory["hidden"], memory["length"])] + [
        np.array(run.step)]


def assert_same_state(run, expected):
    assert len(state(run)) == len(expected)
    for found, wanted in zip(state(run), expected):
        np.testing.assert_array_equal(found, wanted)


def snapshot(folder):
    """Returns the content of every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refusal(*arguments):
    """Returns the sentence with which Training refuses its arguments."""
    with pytest.raises(ValueError) as error:
        Training(*arguments)
    message = str(error.value)
    assert "\n" not in message and len(message) < 600, message
    return message


@pytest.fixture(scope="module")
def full(tmp_path_factory, corpus):
    """A whole run in its folder; a test that changes the folder takes a copy."""
    folder = tmp_path_factory.mktemp("runs") / "full"
    run = Training(MODEL, settings(folder, **FULL), corpus)
    results = run.run()
    return types.SimpleNamespace(run=run, folder=folder, results=results, summaries=summaries(folder / "tensorboard"))


@pytest.fixture
def copied(full, tmp_path):
    """A copy of the folder of the whole run."""
    return shutil.copytree(full.folder, tmp_path / "copy")


@pytest.fixture(scope="module")
def plain(tmp_path_factory, corpus):
    """A run without dropout, reported step by step."""
    run = Training(MODEL, settings(tmp_path_factory.mktemp("runs") / "plain"), corpus)
    start = run.model.get_weights()
    return types.SimpleNamespace(run=run, start=start, reports=trained(run))


@pytest.fixture(scope="module")
def dropping(tmp_path_factory, corpus):
    """An uninterrupted run with dropout, reported step by step."""
    run = Training(DROPPING, settings(tmp_path_factory.mktemp("runs") / "dropping"), corpus)
    reports = trained(run)
    return types.SimpleNamespace(state=state(run), reports=reports)


class TestWholeRun:
    def test_the_loss_falls(self, full):
        curve = [value for (tag, _), value in sorted(full.summaries.items(), key=lambda item: item[0][1]) if tag == "train/bpc"]
        assert 7.5 < curve[0] < 9.5 and curve[-1] < 0.6 * curve[0]
        assert full.results["valid"]["bpc"] < 0.75 * curve[0]

    def test_exactly_as_many_updates_as_asked_for(self, full):
        assert full.run.step == int(full.run.optimizer.iterations) == 62
        assert all(62 % every for every in (FULL["iterations"], FULL["save_steps"], EPOCH))

    def test_what_the_folder_holds(self, full):
        names = {path.name for path in full.folder.iterdir()}
        assert names == {"config.json", "vocabulary.json", "model.weights.h5", "checkpoints", "tensorboard", "results.json", "log.jsonl",
                         "best"}
        checkpoints = {path.name.split(".")[0] for path in (full.folder / "checkpoints").iterdir()} - {"checkpoint"}
        assert checkpoints == {"step-50", "step-62"}
        assert tf.train.latest_checkpoint(full.folder / "checkpoints").endswith("step-62")
        assert load_vocabulary(full.folder / "vocabulary.json").decode([97, 98]) == "ab"

    def test_the_configuration_is_kept(self, full, corpus):
        config = json.loads((full.folder / "config.json").read_text())
        assert ModelConfig(**config["model"]) == MODEL
        assert TrainConfig(**config["train"]) == full.run.train_config
        assert (config["corpus"], config["train_batch_size"]) == (corpus.identity, 2)
        assert config["command"] == sys.argv and config["versions"].keys() == {"python", "tensorflow", "keras"}

    def test_every_report_is_a_line_of_the_log(self, full):
        reports = [json.loads(line) for line in (full.folder / "log.jsonl").read_text().splitlines()]
        assert [report["step"] for report in reports] == sorted({step for tag, step in full.summaries})
        assert {name: round(value, 4) for name, value in reports[-1].items() if name != "tokens_per_second"} == {
            "step": 62, "nll": round(reports[-1]["bpc"] * math.log(2), 4), "tokens": 32,
            **{name: round(full.summaries[f"train/{name}", 62], 4) for name in ("bpc", "gradient_norm", "learning_rate")}}

    def test_the_weights_are_those_of_the_end(self, full):
        for saved, wanted in zip(load_model(str(full.folder)).get_weights(), full.run.model.get_weights()):
            np.testing.assert_array_equal(saved, wanted)

    def test_summaries(self, full):
        steps = {step for step in range(1, 63) if 0 in (step % 7, step % 25, step % EPOCH)} | {62}
        tags = {"train/bpc", "train/gradient_norm", "train/learning_rate", "train/tokens_per_second"}
        assert full.summaries.keys() == {(tag, step) for tag in tags for step in steps}
        assert all(value > 0 for value in full.summaries.values())

    def test_the_learning_rate_shown_is_that_of_the_last_update(self, full):
        assert full.summaries["train/learning_rate", 5] == pytest.approx(2e-2 * 4 / 6)
        assert full.summaries["train/learning_rate", 7] == pytest.approx(2e-2)

    def test_every_label_of_a_row_but_the_left_over_is_scored(self, full):
        assert {split: full.results[split]["tokens"] for split in ("valid", "test")} == {"valid": 2 * 22, "test": 2 * 9}

    def test_results(self, full):
        assert json.loads((full.folder / "results.json").read_text()) == full.results
        assert full.results["step"] == 62
        for split in ("valid", "test"):
            assert full.results[split]["bpc"] == pytest.approx(full.results[split]["nll"] / math.log(2))

    def test_evaluation_leaves_the_run_as_it_was(self, full):
        before = state(full.run)
        assert full.run.evaluate() == {split: full.results[split] for split in ("valid", "test")}
        assert_same_state(full.run, before)

    def test_a_finished_run_says_so_and_does_nothing(self, full, copied, corpus, capsys):
        weights = (copied / "model.weights.h5").read_bytes()
        run = Training(MODEL, settings(copied, **FULL), corpus)
        run.train = run.evaluate = run.save = None  # none of them may be called
        assert run.run() == full.results
        said = capsys.readouterr().out
        assert "finished: 62 of 62 steps" in said and f"{full.results['valid']['bpc']:.3f} bpc" in said and "txl_tf.generate" in said
        assert (copied / "model.weights.h5").read_bytes() == weights

    @pytest.mark.slow
    def test_more_steps_go_on_from_the_end(self, copied, corpus, capsys):
        run = Training(MODEL, settings(copied, **FULL | {"train_steps": 64}), corpus)
        assert run.step == 62
        run.train()
        run = Training(MODEL, settings(copied, **FULL | {"train_steps": 64}), corpus)  # killed before it evaluated
        assert run.step == int(run.optimizer.iterations) == 64
        assert run.run()["step"] == 64


class TestSteps:
    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("reset, equal_until", [("each pass", 12), ("never", EPOCH), ("each step", 1)])
    def test_the_memory_goes_along_and_starts_anew_with_each_pass(self, plain, corpus, reset, equal_until):
        """A loop by hand, with other habits than the run's, agrees just as long as it must."""
        model, optimizer = TransformerXLLM(MODEL), make_optimizer(plain.run.train_config)
        model.set_weights(plain.start)
        batches = list(corpus.dataset("train", 8))
        found, memory = [], model.initial_memory(2)
        for step in range(min(equal_until + 1, 12)):
            if reset == "each step" or (reset == "each pass" and step % EPOCH == 0):
                memory = model.initial_memory(2)
            with tf.GradientTape() as tape:
                nll, memory = model.nll(*batches[step % EPOCH], memory, training=True)
                loss = tf.reduce_mean(nll)
            gradients, _ = clip_gradients(tape.gradient(loss, model.trainable_variables), plain.run.train_config.clip)
            optimizer.apply(gradients, model.trainable_variables)
            found.append(float(loss))
        run_losses = losses(plain.reports)
        np.testing.assert_allclose(found[:equal_until], run_losses[:equal_until], rtol=0, atol=2e-4)
        assert equal_until == 12 or abs(found[equal_until] - run_losses[equal_until]) > 2e-3

    def test_every_update_is_reported_with_its_tokens(self, plain):
        assert [report.step for report in plain.reports] == list(range(1, 13))
        assert [report.tokens for report in plain.reports] == [16, 16, 16, 16, 6] * 2 + [16, 16]
        assert plain.run.step == int(plain.run.optimizer.iterations) == 12

    def test_the_gradient_norm_is_that_before_clipping(self, plain):
        assert max(report.gradient_norm for report in plain.reports) > plain.run.train_config.clip

    def test_another_seed_gives_other_losses(self, dropping, corpus, tmp_path):
        other = trained(Training(DROPPING, settings(tmp_path / "run", seed=2), corpus), stop_at=1)
        assert losses(other)[0] != losses(dropping.reports)[0]

    def test_dropout_drops_in_training(self, dropping, corpus, tmp_path):
        model = TransformerXLLM(DROPPING)
        model.set_weights(Training(DROPPING, settings(tmp_path / "run"), corpus).model.get_weights())
        nll, _ = model.nll(*next(iter(corpus.dataset("train", 8))), model.initial_memory(2))
        assert abs(losses(dropping.reports)[0] - float(tf.reduce_mean(nll))) > 1e-3

    def test_compiled_with_xla_it_trains_the_same(self, plain, corpus, tmp_path):
        compiled = trained(Training(MODEL, settings(tmp_path / "run", jit_compile=True), corpus), stop_at=4)
        np.testing.assert_allclose(losses(compiled), losses(plain.reports)[:4], rtol=0, atol=1e-4)

    def test_bfloat16_trains(self, plain, corpus, tmp_path):
        run = Training(MODEL, settings(tmp_path / "run", precision="mixed_bfloat16"), corpus)
        found = losses(trained(run))
        np.testing.assert_allclose(found, losses(plain.reports), rtol=0, atol=0.15)
        assert found != losses(plain.reports) and found[-1] < found[0] - 0.5
        assert run._step.memory.variables["hidden"].dtype == tf.bfloat16
        assert {variable.dtype for variable in run.model.trainable_variables} == {"float32"}

    @pytest.mark.slow
    def test_without_memory(self, corpus, tmp_path, capsys):
        config = dataclasses.replace(MODEL, mem_len=0)
        results = Training(config, settings(tmp_path / "run", train_steps=3), corpus).run()
        assert results["valid"]["tokens"] == 44 and "(memory 0)" in capsys.readouterr().out


class TestResuming:
    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("save_steps, stop_at", [(3, 4), (5, 6)], ids=["within a pass", "between two passes"])
    def test_an_interrupted_run_ends_as_the_uninterrupted(self, dropping, corpus, tmp_path, save_steps, stop_at):
        config = settings(tmp_path / "run", save_steps=save_steps)
        before = trained(Training(DROPPING, config, corpus), stop_at)
        assert losses(before) == losses(dropping.reports)[:stop_at]  # the same seed gives the same losses
        run = Training(DROPPING, config, corpus)
        assert run.step == save_steps == stop_at - 1
        after = trained(run)
        assert losses(after) == losses(dropping.reports)[save_steps:]
        assert_same_state(run, dropping.state)

    @pytest.mark.parametrize("field, value", [("d_model", 32), ("n_layer", 2), ("mem_len", 4), ("dropout", 0.1), ("clamp_len", 5)])
    def test_another_model_is_refused(self, full, corpus, field, value):
        before = snapshot(full.folder)
        changed = dataclasses.replace(MODEL, **{field: value})
        message = refusal(changed, settings(full.folder, **FULL), corpus)
        assert f"{field}={getattr(MODEL, field)}" in message and message.endswith(f"Received: {field}={value}")
        assert message.startswith("model_dir") and snapshot(full.folder) == before

    def test_another_precision_is_refused(self, full, corpus):
        before = snapshot(full.folder)
        message = refusal(MODEL, settings(full.folder, **FULL, precision="mixed_bfloat16"), corpus)
        assert "precision=float32" in message and message.endswith("Received: precision=mixed_bfloat16")
        assert snapshot(full.folder) == before

    def test_other_text_is_refused(self, full, tmp_path):
        before = snapshot(full.folder)
        message = refusal(MODEL, settings(full.folder, **FULL), text_corpus(tmp_path / "other", b"zyx"))
        assert message.startswith("model_dir") and "Received: corpus=" in message and "n_token" not in message
        assert snapshot(full.folder) == before

    def test_another_batch_size_is_refused(self, full, tmp_path):
        before = snapshot(full.folder)
        message = refusal(MODEL, settings(full.folder, **FULL), text_corpus(tmp_path / "other", rows=3))
        assert "train_batch_size=2" in message and message.endswith("train_batch_size=3")
        assert snapshot(full.folder) == before

    @pytest.mark.parametrize("name, damage", [
        ("config.json", lambda path: path.write_bytes(b'{"model": {')),
        ("config.json", lambda path: path.unlink()),
        ("checkpoints", lambda folder: [path.write_bytes(b"nothing") for path in folder.glob("*.index")]),
    ], ids=["config", "no config", "all checkpoints"])
    def test_a_damaged_folder_is_refused(self, copied, corpus, name, damage):
        damage(copied / name)
        assert f"={copied}" in refusal(MODEL, settings(copied, **FULL), corpus)

    @pytest.mark.slow
    def test_a_damaged_checkpoint_is_named_and_the_one_before_taken(self, full, copied, corpus, caplog):
        log = (copied / "log.jsonl").read_text()
        data = copied / "checkpoints/step-62.data-00000-of-00001"
        data.write_bytes(data.read_bytes()[:1000])
        run = Training(MODEL, settings(copied, **FULL), corpus)
        assert run.step == 50 and "step-62 is left out" in caplog.text
        assert run.run() == full.results
        assert (copied / "log.jsonl").read_text() == log
        assert_same_state(run, state(full.run))
        assert {path.name.split(".")[0] for path in (copied / "checkpoints").iterdir()} == {"checkpoint", "step-50", "step-62"}

    def test_results_cut_short_are_made_again(self, full, copied, corpus):
        (copied / "results.json").write_text('{"step": 62, "val')
        assert Training(MODEL, settings(copied, **FULL), corpus).run() == full.results

    def test_another_program_order_does_not_matter(self, full, copied, corpus):
        TransformerXLLM(MODEL)  # moves Keras's counters of names on
        run = Training(MODEL, settings(copied, **FULL), corpus)
        assert_same_state(run, state(full.run))


class TestFolder:
    @pytest.mark.parametrize("below", ["", "run", "run/deep"])
    def test_below_a_file_is_refused(self, corpus, tmp_path, below):
        (tmp_path / "file").write_text("text")
        folder = str(tmp_path / "file" / below) if below else str(tmp_path / "file")
        assert refusal(MODEL, settings(folder), corpus).endswith(f"Received: model_dir={folder}")
        assert (tmp_path / "file").read_text() == "text"

    def test_a_model_that_cannot_be_built_leaves_no_folder(self, corpus, tmp_path, monkeypatch):
        monkeypatch.setattr(txl_tf.training, "TransformerXLLM", mock.Mock(side_effect=ValueError("no such layer")))
        assert refusal(MODEL, settings(tmp_path / "run"), corpus) == "no such layer"
        assert not (tmp_path / "run").exists()

    def test_the_command_shown_can_be_typed_whatever_the_folder(self, capsys):
        Training._say_next(types.SimpleNamespace(folder=RunFolder("my runs/it's"), _say=print))
        line = next(line for line in capsys.readouterr().out.splitlines() if "txl_tf.generate" in line)
        assert "--model_dir=my runs/it's" in shlex.split(line)


class TestEvaluation:
    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("changes", [
        {"eval_tgt_len": 5}, {"eval_mem_len": 0}, {"eval_clamp_len": 2}, {"eval_mem_len": 3, "eval_same_length": True},
    ], ids=str)
    def test_its_settings_are_used(self, full, copied, corpus, changes, capsys):
        run = Training(MODEL, settings(copied, **FULL | changes), corpus)
        found = run.evaluate()
        mem_len = changes.get("eval_mem_len", 4 * MODEL.mem_len)
        for split in ("valid", "test"):
            nll, tokens = self.by_hand(full.run.model, corpus, split, mem_len, changes)
            assert (found[split]["nll"], found[split]["tokens"]) == (pytest.approx(nll, abs=1e-5), tokens)
        assert f"(memory {mem_len})" in capsys.readouterr().out
        for name in changes:  # each for itself changes the result, but for the length of a segment where memory holds all
            fewer = {other: value for other, value in changes.items() if other != name}
            nll, _ = self.by_hand(full.run.model, corpus, "valid", fewer.get("eval_mem_len", 28), fewer)
            assert (abs(found["valid"]["nll"] - nll) < 1e-5) == (name == "eval_tgt_len"), name

    @staticmethod
    def by_hand(model, corpus, split, mem_len, changes):
        clamp_len, same_length = changes.get("eval_clamp_len", -1), changes.get("eval_same_length", False)
        other = TransformerXLLM(dataclasses.replace(MODEL, clamp_len=clamp_len, same_length=same_length))
        other.set_weights(model.get_weights())
        memory, scored = other.initial_memory(2, mem_len), []
        for token_ids, labels in corpus.dataset(split, changes.get("eval_tgt_len", 8)):
            nll, memory = other.nll(token_ids, labels, memory)
            scored += nll.numpy().astype(np.float64).ravel().tolist()
        return sum(scored) / len(scored), len(scored)

    def test_the_memory_is_four_times_that_of_training_by_default(self, full):
        assert full.run._eval_mem_len == 28
