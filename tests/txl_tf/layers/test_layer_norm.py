"""Layer normalisation over the width."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.layer_norm_oracle import layer_norm
from testing.test_case import TestCase, random_array
from testing.tiny_model import randomize
from txl_tf.layers.layer_norm import LayerNorm


class LayerNormTest(TestCase):
    def test_layer(self):
        self.run_layer_test(
            LayerNorm,
            init_kwargs={"epsilon": 0.25},
            call_kwargs={"inputs": random_array(2, 3, 5)},
            expected_shape=(2, 3, 5),
            expected_trainable_weights=2,
            expected_parameters=2 * 5)


def pair(epsilon=1e-3, dtype="float32"):
    """Returns this layer and that of Keras with the same random weights."""
    layers = LayerNorm(epsilon, dtype=dtype), keras.layers.LayerNormalization(epsilon=epsilon, dtype=dtype)
    for layer in layers:
        layer.build((2, 3, 8))
        randomize(layer)
    return layers


@pytest.mark.parametrize("shape", [(4, 8), (2, 3, 8), (2, 1, 3, 8)])
@pytest.mark.parametrize("epsilon", [1e-12, 0.3])
def test_equals_its_formula(shape, epsilon):
    layer, inputs = pair(epsilon)[0], random_array(*shape)
    np.testing.assert_allclose(layer(inputs), layer_norm(inputs, layer), 1e-5, 1e-5)


def test_a_mean_far_from_zero_is_rounded_less_than_by_keras():
    (layer, theirs), inputs = pair(1e-12), random_array(4000, 8) + 30
    ours, those_of_keras = (np.abs(made(inputs) - layer_norm(inputs, layer)).mean() for made in (layer, theirs))
    assert ours < 0.9 * those_of_keras


def test_bfloat16_is_normalised_in_float32():
    layer, inputs = pair(dtype="mixed_bfloat16")[0], tf.cast(random_array(20, 8) + 3, tf.bfloat16)
    outputs = layer(inputs)
    assert outputs.dtype == tf.bfloat16
    np.testing.assert_array_equal(outputs, tf.cast(layer_norm(inputs, layer), tf.bfloat16))


def gradients(layer, inputs, upstream, again=False):
    """Returns the gradients by inputs, gamma and beta, or those of the first one's squares."""
    inputs = tf.constant(inputs)
    with tf.GradientTape() as outer, tf.GradientTape() as inner:
        for tape in (outer, inner):
            tape.watch(inputs)
        loss = tf.reduce_sum(layer(inputs) ** 2 * upstream)
    sources = (inputs, layer.gamma.value, layer.beta.value)
    if not again:
        return inner.gradient(loss, sources)
    with outer:
        first = tf.reduce_sum(inner.gradient(loss, inputs) ** 2)
    return outer.gradient(first, sources)


@pytest.mark.parametrize("again", [False, True], ids=["first", "second"])
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "xla"])
def test_gradients_equal_those_that_keras_finds(again, compiled):
    layers, arrays = pair(), (random_array(2, 3, 8) + 2, random_array(2, 3, 8, seed=1))
    ours, theirs = (tf.function(lambda: gradients(layer, *arrays, again), jit_compile=True)() if compiled else
                    gradients(layer, *arrays, again) for layer in layers)
    for mine, his in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(mine, his, 1e-4, 1e-3 if again else 1e-5)


@pytest.mark.parametrize("epsilon", [-1e-3, "1e-3", True, None, float("nan")])
def test_an_epsilon_that_is_no_number_of_at_least_zero_is_refused(epsilon):
    with pytest.raises(ValueError, match=rf"epsilon must be a number of at least 0. Received: epsilon={epsilon!r}"):
        LayerNorm(epsilon)
