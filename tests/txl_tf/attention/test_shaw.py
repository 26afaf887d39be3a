"""Attention with a learned vector for each distance."""

import numpy as np
import pytest

from testing.attention_cases import HEAD_DIM, HEADS, WIDTH, built, check_all_masks
from testing.test_case import TestCase, random_array
from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.shaw import ShawMultiHeadAttention


class ShawMultiHeadAttentionTest(TestCase):
    @pytest.mark.slow
    def test_layer(self):
        self.run_layer_test(
            ShawMultiHeadAttention,
            init_kwargs={"num_heads": 3, "head_dim": 5, "max_length": 6, "dropout": 0.1, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 4, 11), "memory": random_array(2, 3, 11, seed=1)},
            expected_shape=(2, 4, 11),
            expected_trainable_weights=5,
            expected_parameters=4 * 11 * 15 + 6 * 5)

    def test_segments(self):
        for max_length in (4, 12):
            self.run_segment_test(ShawMultiHeadAttention, {"num_heads": 3, "head_dim": 5, "max_length": max_length}, width=11)


@pytest.mark.parametrize("max_length", [1, 5, 7, 9])  # of 7 keys
def test_equals_the_oracle(max_length):
    layer = built(ShawMultiHeadAttention(HEADS, HEAD_DIM, max_length))
    check_all_masks(layer, 4, 3)
    check_all_masks(layer, 6)


def test_without_its_vectors_it_is_dot_product_attention():
    layer, plain = built(ShawMultiHeadAttention(HEADS, HEAD_DIM, 5)), built(DotProductMultiHeadAttention(HEADS, HEAD_DIM))
    for weight in plain.weights:
        weight.assign(getattr(layer, weight.name))
    inputs, memory = random_array(2, 4, WIDTH), random_array(2, 3, WIDTH, seed=1)
    assert np.any(np.abs(layer(inputs, memory=memory) - plain(inputs, memory=memory)) > 0.01)
    layer.distance_embedding.assign(0 * layer.distance_embedding)
    np.testing.assert_allclose(layer(inputs, memory=memory), plain(inputs, memory=memory), 1e-5, 1e-6)


def test_a_size_below_one_is_refused():
    with pytest.raises(ValueError, match="max_length must be an integer of at least 1. Received: max_length=0"):
        ShawMultiHeadAttention(HEADS, HEAD_DIM, 0)
