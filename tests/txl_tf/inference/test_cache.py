"""The cache of projected keys and values: the plain path's numbers for every setting, other lengths, rows that begin later."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.inference.cache import initial_cache, read, refitted

SETTINGS = [dict(zip(("same_length", "clamp_len", "memory_start"), values))
            for values in itertools.product((False, True), (-1, 3), ("empty", "zeros"))]
SETTINGS += [{"same_length": True, "same_length_extra": False}, {"pre_lnorm": True}, {"pre_lnorm": True, "memory_start": "zeros"}]


def plain_nll(model, ids, lengths, mem_len):
    """Returns the nll (B, sum of lengths) of the first tokens in segments, by the model's plain path."""
    memory, start, parts = model.initial_memory(len(ids), mem_len), 0, []
    for length in lengths:
        nll, memory = model.nll(ids[:, start:start + length], ids[:, start + 1:start + length + 1], memory)
        parts.append(nll)
        start += length
    return np.concatenate(parts, axis=1)


def cached_nll(model, ids, lengths, mem_len, by_head=False):
    """Returns the same by the cache, which is refitted where the length changes."""
    cache, start, parts = initial_cache(model, len(ids), mem_len, lengths[0]), 0, []
    step = tf.function(lambda token_ids, cache: read(model, token_ids, cache, by_head=by_head))
    for before, length in zip((lengths[0], *lengths), lengths):
        if length != before:
            cache = refitted(model, cache, mem_len, length)
        hidden, cache = step(tf.constant(ids[:, start:start + length]), cache)
        parts.append(model.head.nll(hidden, ids[:, start + 1:start + length + 1]))
        start += length
    return np.concatenate(parts, axis=1)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_ten_segments_equal_the_plain_path(settings):
    model, ids = tiny_model(**settings), tiny_tokens(2, 41)
    for mem_len, length in ((3, 1), (2, 4), (9, 4), *([(0, 4)] if settings == SETTINGS[0] else [])):
        lengths = (length,) * 10
        np.testing.assert_allclose(cached_nll(model, ids, lengths, mem_len), plain_nll(model, ids, lengths, mem_len), atol=3e-5)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", SETTINGS[:1] + SETTINGS[-1:] + [{"n_head": 1, "cutoffs": (3, 7)}], ids=str)
def test_segments_of_several_lengths_and_head_by_head(settings):
    model, ids = tiny_model(**settings), tiny_tokens(3, 41)
    for lengths, by_heads in {(4, 4, 4, 1, 1, 1, 1, 1, 1): (True,), (4, 4, 3, 5, 1, 2): (False,), (1, 4, 4): (False, True)}.items():
        expected = plain_nll(model, ids, lengths, 6)
        for by_head in by_heads:
            np.testing.assert_allclose(cached_nll(model, ids, lengths, 6, by_head), expected, atol=3e-5)


@pytest.mark.parametrize("memory_start", ["empty", "zeros"])
def test_rows_may_begin_later_than_others(memory_start):
    model, ids = tiny_model(memory_start=memory_start), tiny_tokens(1, 11)
    cache, begin = initial_cache(model, 3, 6, 4), (0, 3, 9)  # tokens at the front of each row that do not count
    rows = np.stack([np.where(np.arange(12) < late, 7, np.concatenate([np.zeros(late, int), ids[0]])[:12]) if late else
                     np.concatenate([ids[0], ids[0, :1]]) for late in begin]).astype(np.int32)
    for start in (0, 4, 8):
        lengths = [min(max(start + 4 - late, 0), 4) for late in begin]
        hidden, cache = read(model, tf.constant(rows[:, start:start + 4]), cache, tf.constant(lengths))
    for row, late in enumerate(begin):
        alone, start = model.initial_memory(1, 6), late
        for end in range(late - late % 4 + 4, 13, 4):
            expected, alone = model.backbone((tf.constant(rows[row:row + 1, start:end]), alone))
            start = end
        np.testing.assert_allclose(hidden[row, -1], expected[0, -1], atol=1e-5)


def test_low_precision_keeps_the_compute_dtype_and_is_near():
    model, ids = tiny_model("mixed_bfloat16"), tiny_tokens(2, 41)
    assert initial_cache(model, 2)["layers"][0]["key"].dtype == tf.bfloat16
    np.testing.assert_allclose(cached_nll(model, ids, (4,) * 5, 6), plain_nll(model, ids, (4,) * 5, 6), atol=0.2)


@pytest.mark.slow
def test_a_loop_over_segments_is_compiled_by_xla():
    model, ids = tiny_model(), tf.constant(tiny_tokens(2, 24).reshape(2, 6, 4).swapaxes(0, 1))

    def hidden_states(ids, cache, compiled):
        found = tf.zeros((2, 4, 12))
        for index in tf.range(6):
            hidden, cache = read(model, ids[index], cache, compiled=compiled)
            found += hidden * tf.cast(index, tf.float32)
        return found, cache

    compiled, plain = (tf.function(hidden_states, jit_compile=jit)(ids, initial_cache(model, 2, 6, 4), jit) for jit in (True, False))
    for actual, expected in zip(tf.nest.flatten(compiled), tf.nest.flatten(plain), strict=True):
        np.testing.assert_allclose(actual, expected, atol=1e-4)
