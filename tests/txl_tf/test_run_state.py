"""Checkpoints: all that decides how a run goes on, how many are kept, and which is taken where some are damaged."""

import numpy as np
import pytest
import tensorflow as tf

from testing.full_disk import files_at_most
from testing.tiny_model import tiny_config
from txl_tf.config import TrainConfig
from txl_tf.language_model import TransformerXLLM
from txl_tf.optimization import make_optimizer
from txl_tf.run_state import RunState, checkpoint_paths, step_of
from txl_tf.train_step import TrainStep

ROWS = 4


def a_state(folder, keep=2, save_memory=True, precision="float32", **model_settings):
    """Returns the RunState of a new model whose memory and Adam's state are other than zero."""
    config, strategy = TrainConfig(precision=precision), tf.distribute.get_strategy()
    model = TransformerXLLM(tiny_config(**{"n_layer": 1, "dropout": 0.2, **model_settings}), dtype=precision)
    optimizer = make_optimizer(config)
    optimizer.build(model.trainable_variables)
    return RunState(str(folder), strategy, model, optimizer, TrainStep(model, optimizer, strategy, config, ROWS), keep, save_memory)


def fill(state, number):
    """Gives everything that a checkpoint holds a value that follows from a number."""
    for variable in variables_of(state):
        variable.assign(tf.cast(tf.fill(variable.shape, number), variable.dtype))


def variables_of(state):
    step = state.train_step
    return [variable.value for variable in (*state.model.variables, *state.optimizer.variables)] + [
        *step.memory.variables.values(), *step.loss_scale.values()]


def numbers_in(state):
    """Returns the set of numbers in everything that a checkpoint holds."""
    return {float(number) for variable in variables_of(state) for number in np.unique(variable.numpy().astype(np.float64))}


def saved(folder, *steps, **settings):
    """Returns a state that has saved these steps, each filled with its number."""
    state = a_state(folder, **settings)
    for step in steps:
        fill(state, step)
        state.save(step)
    return state


def kept_steps(folder):
    return [step_of(path) for path in checkpoint_paths(folder)]


def names(folder):
    return {path.name.split(".")[0] for path in (folder / "checkpoints").iterdir()}


def damage(folder, step):
    path = folder / "checkpoints" / f"step-{step}.data-00000-of-00001"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(content)


@pytest.mark.parametrize("precision", ["float32", "mixed_bfloat16", "mixed_float16"])
def test_everything_comes_back(tmp_path, precision):
    saved(tmp_path, 5, precision=precision)
    state = a_state(tmp_path, precision=precision)
    assert len(state.train_step.loss_scale) == (2 if precision == "mixed_float16" else 0)
    assert state.restore() == 5 and numbers_in(state) == {5.0}


def test_without_memory_it_stays_empty(tmp_path):
    saved(tmp_path, 5, save_memory=False)
    saved(tmp_path / "with", 5)
    for folder, save_memory in ((tmp_path, True), (tmp_path / "with", False)):
        state = a_state(folder, save_memory=save_memory)
        assert state.restore() == 5
        assert not state.train_step.memory.variables["length"].numpy().any() and not state.train_step.memory.variables["hidden"].numpy().any()
    stored = [name for name, _ in tf.train.list_variables(checkpoint_paths(tmp_path)[0])]
    assert not any(name.startswith("memory") for name in stored)


def test_bytes_of_the_memory(tmp_path):
    assert a_state(tmp_path).memory_bytes == ROWS * (1 * 6 * 12 * 4 + 4)
    assert a_state(tmp_path, precision="mixed_bfloat16").memory_bytes == ROWS * (1 * 6 * 12 * 2 + 4)


def test_a_new_folder_has_none(tmp_path):
    state = a_state(tmp_path)
    assert state.restore() == 0 and state.checkpoints() == [] and list(tmp_path.iterdir()) == []


def test_the_newest_are_kept_in_the_order_of_their_numbers(tmp_path):
    saved(tmp_path, 5, 90, 100, 1000, keep=3)
    assert kept_steps(tmp_path) == [90, 100, 1000]
    assert names(tmp_path) == {"checkpoint", "step-90", "step-100", "step-1000"}
    saved(tmp_path, 1001, keep=1)
    assert kept_steps(tmp_path) == [1001]


def test_what_killed_runs_left_is_removed(tmp_path):
    saved(tmp_path, 5, 10)
    folder = tmp_path / "checkpoints"
    (folder / "step-15_temp").mkdir()
    for name in ("step-15_temp/part", "step-15.data-00000-of-00001", "step-10.index.tempstate12", "other"):
        (folder / name).write_text("part")
    state = a_state(tmp_path)
    assert state.restore() == 10
    fill(state, 12)
    state.save(12)
    assert names(tmp_path) == {"checkpoint", "step-10", "step-12", "other"} and kept_steps(tmp_path) == [10, 12]
    assert not list(folder.glob("*temp*"))


def test_a_full_disk_leaves_those_that_were_there(tmp_path):
    saved(tmp_path, 5, 10)
    folder = tmp_path / "checkpoints"
    before = {path.name: path.read_bytes() for path in folder.iterdir() if path.name != "checkpoint"}  # the list of them
    state = a_state(tmp_path)
    fill(state, 15)
    for size in (0, 100, 2_000, len(before["step-10.data-00000-of-00001"]) - 1):
        with pytest.raises(OSError, match="^model_dir must be a folder that can be written, with room .* Received: model_dir="), files_at_most(size):
            state.save(15)
        assert names(tmp_path) == {"checkpoint", "step-5", "step-10"}
        assert {name: (folder / name).read_bytes() for name in before} == before
    state.save(15)
    assert kept_steps(tmp_path) == [10, 15]


def test_one_that_was_not_listed_any_more_counts(tmp_path):
    """A run may be killed between writing a checkpoint and the list of them."""
    saved(tmp_path, 5)
    listed = (tmp_path / "checkpoints" / "checkpoint").read_bytes()
    saved(tmp_path, 10)
    for content in (listed, b"no list"):
        (tmp_path / "checkpoints" / "checkpoint").write_bytes(content)
        assert a_state(tmp_path).restore() == 10
    saved(tmp_path, 15)
    assert names(tmp_path) == {"checkpoint", "step-10", "step-15"}


def test_a_damaged_one_is_left_out_by_name(tmp_path, caplog):
    saved(tmp_path, 5, 10, 15, keep=3)
    damage(tmp_path, 15)
    (tmp_path / "checkpoints" / "step-10.data-00000-of-00001").unlink()
    state = a_state(tmp_path, keep=3)
    assert state.restore() == 5 and numbers_in(state) == {5.0}
    assert "step-15 is left out" in caplog.text and "step-10 is left out" in caplog.text
    fill(state, 7)
    state.save(7)
    assert kept_steps(tmp_path) == [5, 7]
    assert names(tmp_path) == {"checkpoint", "step-5", "step-7"}


def test_none_that_can_be_read_is_refused(tmp_path):
    saved(tmp_path, 5, 10)
    damage(tmp_path, 5)
    damage(tmp_path, 10)
    with pytest.raises(ValueError, match=r"^model_dir must hold a checkpoint.*Received: model_dir=\S+, whose newest can't be .*[^\n]$"):
        a_state(tmp_path).restore()


def test_another_model_is_refused(tmp_path):
    saved(tmp_path, 5)
    for settings in ({"d_model": 8}, {"n_layer": 2}):
        with pytest.raises(ValueError, match="of this model"):
            a_state(tmp_path, **settings).restore()


def test_a_precision_for_evaluation_alone(tmp_path):
    saved(tmp_path, 5)
    assert a_state(tmp_path, precision="mixed_float16", save_memory=False).restore() == 5
