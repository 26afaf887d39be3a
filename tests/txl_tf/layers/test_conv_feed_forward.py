"""The feed-forward layer with a convolution."""

import numpy as np
import pytest

from testing.test_case import TestCase, random_array
from testing.tiny_model import randomize
from txl_tf.layers.conv_feed_forward import ConvFeedForward
from txl_tf.layers.feed_forward import FeedForward


class ConvFeedForwardTest(TestCase):
    def test_layer(self):
        self.run_layer_test(
            ConvFeedForward,
            init_kwargs={"inner_dim": 7, "dropout": 0.1, "kernel_size": 4, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 6, 5), "before": random_array(2, 3, 5, seed=1)},
            expected_shape=(2, 6, 5),
            expected_trainable_weights=4,
            expected_parameters=4 * 5 * 7 + 7 + 7 * 5 + 5)


def made(kernel_size=3, **settings):
    """Returns a built layer with random weights."""
    layer = ConvFeedForward(7, kernel_size=kernel_size, **settings)
    layer.build((None, None, 5))
    return randomize(layer)


def expected_outputs(layer, inputs, before):
    """Returns what the formula says, token by token."""
    w1, b1, w2, b2 = (np.asarray(weight, np.float64) for weight in
                      (layer.inner.kernel, layer.inner.bias, layer.outer.kernel, layer.outer.bias))
    taps, outputs = np.split(w1, layer.kernel_size), np.zeros(inputs.shape)
    for row, text in enumerate(np.concatenate([before, inputs], axis=1)):
        for place in range(inputs.shape[1]):
            hidden = b1 + sum(text[place + number] @ tap for number, tap in enumerate(taps))
            outputs[row, place] = np.maximum(hidden, 0) @ w2 + b2
    return outputs


@pytest.mark.parametrize("kernel_size", [1, 2, 3, 6])
def test_equals_its_formula(kernel_size):
    layer, inputs = made(kernel_size), random_array(2, 4, 5)
    before = random_array(2, kernel_size - 1, 5, seed=1)
    np.testing.assert_allclose(layer(inputs, before=before), expected_outputs(layer, inputs, before), 1e-4, 1e-5)
    np.testing.assert_allclose(layer(inputs), expected_outputs(layer, inputs, 0 * before), 1e-4, 1e-5)


def test_a_kernel_of_one_token_is_the_plain_layer():
    layer, plain, inputs = made(1), FeedForward(7), random_array(2, 4, 5)
    plain.build((None, None, 5))
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(inputs), plain(inputs), 1e-5, 1e-6)


def test_in_segments_it_gives_the_same():
    layer, inputs = made(), random_array(2, 9, 5)
    padded = np.pad(inputs, ((0, 0), (2, 0), (0, 0)))
    parts = [layer(inputs[:, start:end], before=padded[:, start:start + 2]) for start, end in ((0, 4), (4, 5), (5, 9))]
    np.testing.assert_allclose(np.concatenate(parts, axis=1), layer(inputs), 1e-5, 1e-6)


def test_future_tokens_do_not_matter():
    layer, inputs = made(), random_array(2, 6, 5)
    changed = inputs.copy()
    changed[:, 3:] += 1.0
    np.testing.assert_array_equal(layer(changed)[:, :3], layer(inputs)[:, :3])
    assert np.any(layer(changed)[:, 3] != layer(inputs)[:, 3])


def test_dropout_follows_both_products():
    layer, inputs = ConvFeedForward(40, dropout=0.5, kernel_size=2), np.full((5, 10, 40), 3.0, np.float32)
    layer.build(inputs.shape)
    layer.inner.kernel.assign(np.concatenate([0 * np.eye(40), np.eye(40)]))
    layer.outer.kernel.assign(np.eye(40))
    outputs = layer(inputs, training=True).numpy()
    np.testing.assert_allclose(np.unique(outputs), [0, 4 * 3.0], 1e-5)
    assert 0.2 < (outputs > 0).mean() < 0.3
    np.testing.assert_array_equal(layer(inputs), inputs)


@pytest.mark.parametrize("name", ["kernel_size", "inner_dim"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1. Received: {name}=0"):
        ConvFeedForward(**{"inner_dim": 7, name: 0})


@pytest.mark.parametrize("length", [0, 1, 3])
def test_another_number_of_tokens_before_is_refused(length):
    with pytest.raises(ValueError, match=rf"before must be 2 tokens, kernel_size - 1. Received: before.shape=\(2, {length}, 5\)"):
        made()(random_array(2, 4, 5), before=random_array(2, length, 5))
