"""Memory as state: its start, its way forward, its reset, and what a query sees."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from txl_tf.memory import initial_memory, next_memory, reset_memory, visible_keys

BATCH, LAYERS, WIDTH = 2, 3, 4


def layer_inputs(first, count):
    """Returns the inputs (B, T, D) of every layer for tokens first .. first+count-1, every number of its own."""
    token = np.arange(first, first + count)[None, :, None]
    row, width = np.arange(BATCH)[:, None, None], np.arange(WIDTH)[None, None]
    return [(1000 * layer + 100 * row + 10 * token + width + 1).astype(np.float32) for layer in range(LAYERS)]


def last_slots(first, count):
    """Returns the hidden memory (B, L, M, D) that holds tokens first .. first+count-1."""
    return np.stack(layer_inputs(first, count), axis=1)


def test_memory_starts_empty_or_with_zeros_that_count():
    for start, length in (("empty", 0), ("zeros", 5)):
        memory = initial_memory(BATCH, LAYERS, 5, WIDTH, "bfloat16", start)
        assert memory["hidden"].shape == (BATCH, LAYERS, 5, WIDTH) and memory["hidden"].dtype == tf.bfloat16
        assert not np.any(memory["hidden"])
        assert memory["length"].dtype == tf.int32 and memory["length"].numpy().tolist() == [length] * BATCH


def test_memory_holds_exactly_the_last_inputs_over_segments():
    memory = initial_memory(BATCH, LAYERS, 5, WIDTH)
    memory = next_memory(memory, layer_inputs(0, 3))
    np.testing.assert_array_equal(memory["hidden"][:, :, 2:], last_slots(0, 3))
    assert memory["length"].numpy().tolist() == [3] * BATCH
    memory = next_memory(memory, layer_inputs(3, 3))
    np.testing.assert_array_equal(memory["hidden"], last_slots(1, 5))
    memory = next_memory(memory, layer_inputs(6, 1))
    np.testing.assert_array_equal(memory["hidden"], last_slots(2, 5))
    assert memory["length"].numpy().tolist() == [5] * BATCH


@pytest.mark.parametrize("mem_len", [0, 2, 3, 7])
def test_memory_of_any_length_against_the_segment(mem_len):
    memory = next_memory(initial_memory(BATCH, LAYERS, mem_len, WIDTH), layer_inputs(0, 3))
    filled = min(mem_len, 3)
    assert memory["hidden"].shape == (BATCH, LAYERS, mem_len, WIDTH)
    assert memory["length"].numpy().tolist() == [filled] * BATCH
    np.testing.assert_array_equal(memory["hidden"][:, :, mem_len - filled:], last_slots(3 - filled, filled))


def test_no_gradient_passes_the_memory():
    inputs = [tf.constant(array) for array in layer_inputs(0, 3)]
    memory = initial_memory(BATCH, LAYERS, 5, WIDTH)
    with tf.GradientTape() as tape:
        tape.watch((inputs, memory["hidden"]))
        loss = tf.reduce_sum(next_memory(memory, inputs)["hidden"])
    assert all(gradient is None for gradient in tf.nest.flatten(tape.gradient(loss, (inputs, memory["hidden"]))))


@pytest.mark.parametrize("start, length", [("empty", 0), ("zeros", 5)])
def test_reset_rows_start_anew_and_the_others_go_on(start, length):
    memory = next_memory(initial_memory(BATCH, LAYERS, 5, WIDTH), layer_inputs(0, 3))
    memory["length"] = tf.constant([3, 2])
    after = reset_memory(memory, [False, True], start)
    np.testing.assert_array_equal(after["hidden"][0], memory["hidden"][0])
    assert not np.any(after["hidden"][1])
    assert after["length"].numpy().tolist() == [3, length]


@settings(max_examples=60, deadline=None)
@given(query_len=st.integers(1, 6), mem_len=st.integers(0, 6), same_length=st.booleans(), extra=st.booleans(), data=st.data())
def test_visible_keys_are_the_earlier_the_filled_and_with_same_length_the_nearest(query_len, mem_len, same_length, extra, data):
    length = data.draw(st.lists(st.integers(0, mem_len), min_size=1, max_size=3))
    visible = visible_keys(query_len, mem_len, tf.constant(length), same_length, extra).numpy()
    assert visible.shape == (len(length), query_len, mem_len + query_len)
    for (row, query, key), seen in np.ndenumerate(visible):
        distance = query + mem_len - key
        filled = key >= mem_len or mem_len - key <= length[row]
        assert seen == (filled and distance >= 0 and not (same_length and distance >= max(mem_len + extra, 1)))


@pytest.mark.parametrize("mem_len", [0, 1, 3, 9])
def test_same_length_gives_every_query_as_many_keys_once_memory_is_full(mem_len):
    visible = visible_keys(5, mem_len, tf.constant([mem_len, mem_len]), same_length=True)
    assert (visible.numpy().sum(axis=-1) == mem_len + 1).all()


def test_every_query_sees_itself_from_the_first_token_on():
    for same_length in (False, True):
        visible = visible_keys(5, 3, tf.constant([0]), same_length).numpy()[0]
        assert np.diagonal(visible, offset=3).all()
