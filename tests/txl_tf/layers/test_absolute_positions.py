"""Absolute positions that are added to embeddings."""

import numpy as np
import pytest
import tensorflow as tf

from testing.relative_attention_oracle import position
from testing.test_case import TestCase, random_array, serialized_copy
from txl_tf.layers.absolute_positions import AbsolutePositions


class AbsolutePositionsTest(TestCase):
    def test_layer(self):
        layer, inputs = AbsolutePositions(name="places"), random_array(2, 5, 6)
        self._check_class(AbsolutePositions)
        self._check_symbolic_call(layer, {"inputs": inputs, "places": np.array([[3, 1, 4, 1, 5], [9, 2, 6, 5, 3]], np.int32)})
        self.assertEqual(layer.weights, [])
        self.assertEqual(serialized_copy(layer).get_config(), layer.get_config())
        compiled = tf.function(layer, jit_compile=True, input_signature=[tf.TensorSpec((None, None, 6))])
        np.testing.assert_allclose(compiled(inputs), layer(inputs), 1e-5, 1e-5)


@pytest.mark.parametrize("width", [6, 7])
def test_the_sinusoid_of_its_place_is_added_to_each_token(width):
    inputs = random_array(2, 5, width)
    expected = inputs + np.stack([position(place, width)[:width] for place in range(5)])
    np.testing.assert_allclose(AbsolutePositions()(inputs), expected, 1e-5, 1e-5)


def test_places_may_be_given():
    inputs, places = random_array(2, 3, 6), np.array([[7, 8, 9], [0, 0, 1]])
    expected = inputs + np.array([[position(place, 6) for place in row] for row in places])
    np.testing.assert_allclose(AbsolutePositions()(inputs, places), expected, 1e-5, 1e-5)
    np.testing.assert_array_equal(AbsolutePositions()(inputs[:1], np.array([[0, 1, 2]])), AbsolutePositions()(inputs[:1]))


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_far_places_are_told_apart_in_low_precision(dtype):
    layer = AbsolutePositions(dtype=dtype)
    outputs = layer(np.zeros((1, 700, 16), np.float32))
    assert outputs.dtype == layer.compute_dtype
    assert len({row.tobytes() for row in outputs.numpy()[0]}) == 700
    np.testing.assert_allclose(outputs.numpy()[0, 699].astype("float32"), position(699, 16), atol=0.01)
