"""What may go wrong late in a run: a loss that is not finite, a kill between two files, results that fit no longer."""

import json

import numpy as np
import pytest
import tensorflow as tf

import txl_tf.training
from data_utils import prepare_corpus
from testing.full_disk import files_at_most
from txl_tf.config import ModelConfig, TrainConfig
from txl_tf.model_folder import WEIGHTS, load_model
from txl_tf.run_folder import RESULTS
from txl_tf.training import Training

MODEL = ModelConfig(n_token=256, n_layer=1, d_model=16, n_head=2, d_inner=16, tgt_len=8, mem_len=7)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    folder = tmp_path_factory.mktemp("text")
    for split, size in (("train", 73), ("valid", 47), ("test", 21)):
        (folder / f"{split}.txt").write_bytes((b"abcdefg hij " * size)[:size])
    return prepare_corpus("text", folder, 2, 2, 8)


@pytest.fixture(autouse=True)
def without_samples(monkeypatch):
    """No run here shows a sample, which takes long."""
    monkeypatch.setattr(Training, "_say_sample", lambda run: None)


def a_run(folder, corpus, **changes):
    settings = dict(model_dir=str(folder), train_steps=6, warmup_steps=0, iterations=1, save_steps=3, eval_tgt_len=8)
    return Training(MODEL, TrainConfig(**settings | changes), corpus)


def weights_of(model):
    return np.concatenate([variable.numpy().ravel() for variable in model.trainable_variables])


@pytest.mark.slow
def test_a_loss_that_is_not_finite_ends_the_run_and_leaves_the_checkpoint_before(corpus, tmp_path):
    run = a_run(tmp_path, corpus, train_steps=3)
    run.train()
    before = weights_of(run.model)
    run = a_run(tmp_path, corpus)
    run.model.trainable_variables[0].assign(np.full(run.model.trainable_variables[0].shape, np.nan))
    with pytest.raises(FloatingPointError, match="finite.*Received: loss=nan.*learning_rate="):
        run.run()
    assert not (tmp_path / RESULTS).exists()
    np.testing.assert_array_equal(weights_of(load_model(str(tmp_path))), before)
    np.testing.assert_array_equal(weights_of(a_run(tmp_path, corpus).model), before)


@pytest.mark.slow
def test_a_full_disk_ends_the_run_and_leaves_the_checkpoint_before(corpus, tmp_path):
    a_run(tmp_path, corpus, train_steps=3).train()
    before = weights_of(load_model(str(tmp_path)))
    run = a_run(tmp_path, corpus)
    with pytest.raises(OSError, match="^model_dir must be a folder that can be written, with room .* Received: model_dir="), files_at_most(4_000):
        run.run()
    assert run.step == 6
    np.testing.assert_array_equal(weights_of(load_model(str(tmp_path))), before)
    run = a_run(tmp_path, corpus)
    assert run.step == 3
    np.testing.assert_array_equal(weights_of(run.model), before)


def test_too_little_memory_for_a_step_names_what_needs_less(corpus, tmp_path, monkeypatch):
    def exhausted(*_):
        raise tf.errors.ResourceExhaustedError(None, None, "OOM when allocating tensor\nand more")

    run = a_run(tmp_path, corpus)
    monkeypatch.setattr(run._step, "run", exhausted)
    with pytest.raises(MemoryError, match="must fit into the memory of a device.*Received: train_batch_size=2, tgt_len=8, mem_len=7, batch_chunk=1"):
        run.run()
    monkeypatch.setattr(txl_tf.training, "evaluate", exhausted)
    with pytest.raises(MemoryError, match="Received: .*eval_tgt_len=8, eval_mem_len=28$"):
        a_run(tmp_path, corpus, eval_steps=0).run()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("what_is_there", ["older weights", "none"])
def test_weights_lost_behind_the_last_checkpoint_are_written_by_the_next_run(corpus, tmp_path, what_is_there, capsys):
    run = a_run(tmp_path, corpus)
    older = None
    for _ in range(2):
        older = (tmp_path / WEIGHTS).read_bytes() if (tmp_path / WEIGHTS).exists() else older
        a_run(tmp_path, corpus, train_steps=3 if older is None else 6).train()
    if what_is_there == "none":
        (tmp_path / WEIGHTS).unlink()
    else:
        (tmp_path / WEIGHTS).write_bytes(older)
    run = a_run(tmp_path, corpus)
    run.run()
    np.testing.assert_array_equal(weights_of(load_model(str(tmp_path))), weights_of(run.model))
    assert "valid:" in capsys.readouterr().out


@pytest.mark.slow
def test_results_that_are_none_are_made_again(corpus, tmp_path):
    results = a_run(tmp_path, corpus).run()
    run = a_run(tmp_path, corpus)
    for content in ('{"step": 6}', "[]", '{"step": 6, "valid": 1, "test": 2}'):
        (tmp_path / RESULTS).write_text(content)
        assert run.run() == results
        assert json.loads((tmp_path / RESULTS).read_text()) == results


@pytest.mark.slow
def test_a_finished_run_is_evaluated_anew_with_other_settings(corpus, tmp_path, capsys):
    first = a_run(tmp_path, corpus).run()
    for changes, said in (({"eval_mem_len": 2}, "(memory 2)"), ({"max_eval_batch": 1}, "over 16 tokens")):
        run = a_run(tmp_path, corpus, **changes)
        other = run.run()
        assert other["valid"]["nll"] != first["valid"]["nll"]
        assert said in capsys.readouterr().out
        assert run.run() == other
        output = capsys.readouterr().out
        assert "is finished" in output and said in output
    best = json.loads((tmp_path / "best" / RESULTS).read_text())
    assert best["valid"] == first["valid"] and best["settings"] == first["settings"]


def test_a_folder_that_cannot_be_made_is_refused_by_name(corpus):
    with pytest.raises(OSError, match="model_dir must be a folder that can be written.*Received: model_dir=/proc/no/such"):
        a_run("/proc/no/such", corpus)


def test_a_model_beyond_memory_is_refused_by_name(corpus, tmp_path, monkeypatch):
    def exhausted(*_, **__):
        raise tf.errors.ResourceExhaustedError(None, None, "failed to allocate memory")

    monkeypatch.setattr(txl_tf.training, "TransformerXLLM", exhausted)
    with pytest.raises(ValueError, match="must fit into memory.*Received: n_layer=1, d_model=16, d_inner=16"):
        a_run(tmp_path / "run", corpus)
    assert not (tmp_path / "run").exists()
