"""The newest tokens of a context, in text order, and the windows that a convolution reads."""

import numpy as np
import pytest
import tensorflow as tf

from testing.test_case import random_array
from txl_tf.attention.multi_head import Ring
from txl_tf.attention.recent_tokens import recent_tokens, unfolded

CONTEXT = random_array(2, 3, 5, 4)  # (B, N, S, W)


@pytest.mark.parametrize("count", [0, 1, 4, 5])
def test_the_newest_are_the_last(count):
    np.testing.assert_array_equal(recent_tokens(CONTEXT, count), CONTEXT[:, :, 5 - count:])


def test_zeros_stand_where_a_context_is_too_short():
    found = recent_tokens(CONTEXT, 7).numpy()
    assert not found[:, :, :2].any()
    np.testing.assert_array_equal(found[:, :, 2:], CONTEXT)
    assert recent_tokens(CONTEXT[:, :, :0], 2).shape == (2, 3, 2, 4)


def test_tokens_that_no_query_sees_count_as_none():
    visible = np.array([[[True, False, False, True, False], [True, False, True, True, False]],
                        [[False, False, True, False, True], [False, True, False, False, True]]])
    for given in (visible, visible.astype("int32"), visible[0]):
        found = recent_tokens(CONTEXT, 4, given).numpy()
        seen = np.broadcast_to(given.any(-2), (2, 5))[:, None, 1:, None]
        np.testing.assert_array_equal(found, np.where(seen, CONTEXT[:, :, 1:], 0))


@pytest.mark.parametrize("end", range(5))
@pytest.mark.parametrize("count", [2, 5, 6])
def test_a_ring_is_read_up_to_its_end(end, count):
    ring, visible = Ring(tf.constant(end), tf.constant([5, 5])), np.array([[True, True, False, True, True]])
    written = np.roll(CONTEXT, end, axis=2)
    np.testing.assert_array_equal(recent_tokens(written, count, ring=ring), recent_tokens(CONTEXT, count))
    found = recent_tokens(written, count, np.roll(visible, end, axis=-1), ring)
    np.testing.assert_array_equal(found, recent_tokens(CONTEXT, count, visible))


def test_sizes_that_are_open_do_not_matter():
    compiled = tf.function(lambda context, count: recent_tokens(context, count),
                           input_signature=[tf.TensorSpec((None, 3, None, 4)), tf.TensorSpec((), tf.int32)])
    for count in (2, 7):
        np.testing.assert_array_equal(compiled(CONTEXT, count), recent_tokens(CONTEXT, count))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_window_holds_the_tokens_before_and_then_its_own(size):
    found = unfolded(tf.constant(CONTEXT), size).numpy()
    assert found.shape == (2, 3, 6 - size, size * 4)
    for token in range(6 - size):
        np.testing.assert_array_equal(found[:, :, token], CONTEXT[:, :, token:token + size].reshape(2, 3, -1))
