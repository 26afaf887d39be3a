"""The position-wise feed-forward layer."""

import numpy as np
import pytest

from testing.test_case import TestCase, random_array
from testing.tiny_model import randomize
from txl_tf.layers.feed_forward import FeedForward


class FeedForwardTest(TestCase):
    def test_layer(self):
        self.run_layer_test(
            FeedForward,
            init_kwargs={"inner_dim": 7, "dropout": 0.1, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 3, 5)},
            expected_shape=(2, 3, 5),
            expected_trainable_weights=4,
            expected_parameters=5 * 7 + 7 + 7 * 5 + 5)


def test_equals_its_formula():
    layer, inputs = FeedForward(7), random_array(2, 3, 5)
    layer(inputs)
    randomize(layer)
    w1, b1, w2, b2 = (np.asarray(weight, np.float64) for weight in
                      (layer.inner.kernel, layer.inner.bias, layer.outer.kernel, layer.outer.bias))
    np.testing.assert_allclose(layer(inputs), np.maximum(inputs @ w1 + b1, 0) @ w2 + b2, 1e-4, 1e-5)


def test_dropout_follows_both_products():
    layer, inputs = FeedForward(40, dropout=0.5), np.full((5, 10, 40), 3.0, np.float32)
    layer.build(inputs.shape)
    for dense in (layer.inner, layer.outer):
        dense.kernel.assign(np.eye(40))
    outputs = layer(inputs, training=True).numpy()
    np.testing.assert_allclose(np.unique(outputs), [0, 4 * 3.0], 1e-5)
    assert 0.2 < (outputs > 0).mean() < 0.3
    np.testing.assert_array_equal(layer(inputs), inputs)


def test_sizes_below_one_are_refused():
    with pytest.raises(ValueError, match="inner_dim must be an integer of at least 1. Received: inner_dim=0"):
        FeedForward(0)
