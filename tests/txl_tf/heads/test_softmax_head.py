"""What both heads share, seen through FullSoftmax."""

import numpy as np
import pytest
import tensorflow as tf
from testing.test_case import random_array

from txl_tf.heads.full_softmax import FullSoftmax

V, HIDDEN, LABELS = 9, random_array(2, 3, 4), np.array([[0, 8, 3], [1, 1, 2]])


def test_nll_and_loss_build_the_head():
    for name in ("nll", "loss"):
        head = FullSoftmax(V)
        assert np.isfinite(getattr(head, name)(HIDDEN, LABELS)).all()
        assert head.built


def test_nll_is_in_text_order_and_float32():
    head = FullSoftmax(V, dtype="mixed_bfloat16")
    nll = head.nll(tf.cast(HIDDEN, tf.bfloat16), tf.constant(LABELS, tf.int64))
    assert nll.shape == (2, 3) and nll.dtype == tf.float32
    np.testing.assert_allclose(nll, -np.take_along_axis(head.log_probs(HIDDEN).numpy(), LABELS[..., None], -1)[..., 0], 1e-5)


def test_loss_takes_a_weight_for_all_or_each_token():
    head = FullSoftmax(V)
    nll = head.nll(HIDDEN, LABELS).numpy()
    weights = random_array(2, 3, seed=1)
    np.testing.assert_allclose(head.loss(HIDDEN, LABELS), nll.mean(), 1e-6)
    np.testing.assert_allclose(head.loss(HIDDEN, LABELS, 0.25), nll.sum() / 4, 1e-6)
    np.testing.assert_allclose(head.loss(HIDDEN, LABELS, weights), (nll * weights).sum(), 1e-5)


def test_the_last_position_alone():
    head = FullSoftmax(V)
    np.testing.assert_allclose(head.log_probs(HIDDEN[:, -1:]), head.log_probs(HIDDEN)[:, -1:], 1e-6)


@pytest.mark.parametrize("k", [0, V + 1])
def test_top_k_refuses(k):
    with pytest.raises(ValueError, match=f"k must be between 1 and {V}.*Received: k={k}"):
        FullSoftmax(V).top_k(HIDDEN, k)
