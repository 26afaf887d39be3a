"""The chunked loss against TensorFlow's own, which has all logits at once."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from testing.test_case import random_array

from txl_tf.heads import chunked_loss
from txl_tf.heads.chunked_loss import Span, all_tokens, chunked_nll, logits_of, project, tail_tokens

TOKENS, ROWS, WIDTH = 11, 7, 5
FEATURES, TABLE, BIAS = random_array(TOKENS, WIDTH), random_array(ROWS, WIDTH, seed=1), random_array(ROWS, seed=2)
LABELS = np.random.default_rng(4).integers(0, ROWS, TOKENS).astype(np.int32)
WEIGHTS = random_array(TOKENS, seed=3)


def gradients(function, *tensors):
    """Returns the value of function(*tensors) and its gradients."""
    tensors = [tf.constant(tensor) for tensor in tensors]
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        value = function(*tensors)
    return value, tape.gradient(value, tensors)


def whole(chosen):
    """Returns the sum of weights times nll over chosen tokens, from all logits, and its gradients."""
    def loss(features, table, bias, weights):
        logits = tf.matmul(features, table, transpose_b=True) + bias
        return tf.reduce_sum(tf.where(chosen, weights * tf.nn.sparse_softmax_cross_entropy_with_logits(LABELS, logits), 0.0))

    return gradients(loss, FEATURES, TABLE, BIAS, WEIGHTS)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("jit_compile", [False, True])
@pytest.mark.parametrize("start, count, chunk", [(0, 11, 11), (0, 11, 4), (3, 5, 2), (8, 3, 4), (10, 1, 11), (4, 0, 3), (0, 11, 1)])
def test_any_span_equals_the_whole(start, count, chunk, jit_compile):
    order = np.random.default_rng(5).permutation(TOKENS).astype(np.int32)
    chosen = np.isin(np.arange(TOKENS), order[start:start + count])
    labels = np.where(chosen, LABELS, 99)
    value, expected = whole(chosen)

    @tf.function(jit_compile=jit_compile)
    def both(start, count):
        span = Span(tf.constant(order), start, count, chunk)
        loss = gradients(lambda *args: chunked_loss.chunked_loss(*args[:3], labels, args[3], span), FEATURES, TABLE, BIAS, WEIGHTS)
        nll = gradients(lambda *args: tf.reduce_sum(args[3] * chunked_nll(*args[:3], labels, span)), FEATURES, TABLE, BIAS, WEIGHTS)
        return loss, nll

    for found, found_gradients in both(tf.constant(start), tf.constant(count)):
        np.testing.assert_allclose(found, value, 1e-5, 1e-5)
        for ours, theirs in zip(found_gradients, expected):
            np.testing.assert_allclose(ours, theirs, 1e-5, 1e-5)


def test_tokens_outside_the_span_have_nll_zero():
    nll = chunked_nll(FEATURES, TABLE, BIAS, LABELS, Span(tf.range(TOKENS), 2, 4, 3)).numpy()
    assert (nll[2:6] > 0).all() and not nll[:2].any() and not nll[6:].any()


def test_rule_of_chunks():
    def features(tokens):
        return tf.zeros((tokens, WIDTH))

    def chunk(tokens, rows, width=WIDTH):
        return all_tokens(features(tokens), tf.zeros((rows, width))).chunk

    with mock.patch.multiple(chunked_loss, CHUNK_FLOATS=100, TAIL_CHUNK=8, TAIL_SHARE=16, SMALL_VOCABULARY=5):
        assert all_tokens(features(10), tf.zeros((10, WIDTH))) is None
        assert all_tokens(features(1000), tf.zeros((5, WIDTH))) is None
        assert [chunk(11, 10), chunk(11, 50), chunk(4, 50), chunk(300, 200, 290)] == [10, WIDTH, 4, 256]
        assert tail_tokens(tf.range(11), 0, 3, tf.zeros((10, WIDTH))).chunk == 8
        assert tail_tokens(tf.range(4), 0, 3, tf.zeros((10, WIDTH))).chunk == 4
        assert tail_tokens(tf.range(11), 0, 3, tf.zeros((40, WIDTH))).chunk == 2
        assert tail_tokens(tf.range(11), 0, 3, tf.zeros((400, WIDTH))).chunk == 1
    assert [tail_tokens(tf.range(tokens), 0, 3, TABLE).chunk for tokens in (20, 512, 4096)] == [16, 32, 64]


def test_a_second_trip_is_never_made_for_an_empty_span():
    steps = chunked_loss._steps(Span(tf.range(TOKENS), 5, tf.constant(0), 4))
    assert int(steps) == 0


def test_logits_are_float32_and_projections_optional():
    hidden = tf.cast(FEATURES, tf.bfloat16)
    assert logits_of(hidden, TABLE, BIAS).dtype == tf.float32
    assert project(FEATURES, None, "bfloat16").dtype == tf.bfloat16
    np.testing.assert_allclose(project(FEATURES, TABLE, "float32"), FEATURES @ TABLE.T, 1e-5, 1e-5)
