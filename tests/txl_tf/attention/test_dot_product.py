"""Attention by content alone."""

import numpy as np
import pytest

from testing.attention_cases import HEAD_DIM, HEADS, WIDTH, built, check_all_masks
from testing.test_case import TestCase, random_array
from txl_tf.attention.dot_product import DotProductMultiHeadAttention


class DotProductMultiHeadAttentionTest(TestCase):
    @pytest.mark.slow
    def test_layer(self):
        self.run_layer_test(
            DotProductMultiHeadAttention,
            init_kwargs={"num_heads": 3, "head_dim": 5, "dropout": 0.1, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 4, 11), "memory": random_array(2, 3, 11, seed=1)},
            expected_shape=(2, 4, 11),
            expected_trainable_weights=4,
            expected_parameters=4 * 11 * 15)

    def test_segments(self):
        self.run_segment_test(DotProductMultiHeadAttention, {"num_heads": 3, "head_dim": 5}, width=11)


def test_equals_the_oracle():
    for mem_len in (None, 0, 3):
        check_all_masks(built(DotProductMultiHeadAttention(HEADS, HEAD_DIM)), 4, mem_len)


def test_it_knows_no_positions():
    layer, inputs = built(DotProductMultiHeadAttention(HEADS, HEAD_DIM)), random_array(2, 6, WIDTH)
    swapped = inputs[:, [3, 1, 4, 0, 2, 5]]
    np.testing.assert_allclose(layer(swapped)[:, -1], layer(inputs)[:, -1], 1e-5, 1e-5)
    np.testing.assert_array_equal(layer(inputs, position_embedding=random_array(6, WIDTH)), layer(inputs))
