"""The memory that replicas keep; that several replicas hold their own rows is tested with the training step."""

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import tiny_model
from txl_tf.replica_memory import ReplicaMemory


@pytest.mark.parametrize("memory_start, mem_len, length", [("empty", None, 0), ("zeros", None, 4), ("zeros", 6, 6)])
def test_kept_and_reset(memory_start, mem_len, length):
    model = tiny_model(memory_start=memory_start, mem_len=4)
    memory = ReplicaMemory(model, tf.distribute.get_strategy(), 3, mem_len)
    shape = (3, model.config.n_layer, mem_len or 4, model.config.d_model)
    after = {"hidden": np.random.default_rng(0).normal(size=shape).astype(np.float32), "length": np.array([1, 2, 3], np.int32)}
    memory.scatter(after)
    for name, value in memory.gathered().items():
        np.testing.assert_array_equal(value, after[name])
    memory.keep({name: value + value for name, value in memory.read().items()})
    np.testing.assert_array_equal(memory.gathered()["hidden"], 2 * after["hidden"])
    memory.reset()
    assert not memory.gathered()["hidden"].any() and memory.gathered()["length"].tolist() == [length] * 3
    assert memory.rows == 3


def test_several_memories_are_no_cause_for_a_warning(caplog):
    caplog.set_level("WARNING", logger="tensorflow")  # other tests run commands, which are silent about TensorFlow's remarks
    for _ in range(6):
        memory = ReplicaMemory(tiny_model(), tf.distribute.get_strategy(), 3)
        memory.reset()
        assert memory.gathered()["length"].tolist() == [0] * 3
    assert not caplog.text
