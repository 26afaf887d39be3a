"""The Factorized Random Synthesizer."""

import keras
import numpy as np
import pytest

from testing.attention_cases import HEAD_DIM, HEADS, WIDTH, built, check_all_masks, synthesizer
from testing.test_case import TestCase, random_array
from txl_tf.attention.factorized_random_synthesizer import FactorizedRandomSynthesizer

BOTH = 2 * WIDTH * HEADS * HEAD_DIM  # parameters of values and outputs


class FactorizedRandomSynthesizerTest(TestCase):
    def test_layer(self):
        self.run_layer_test(
            FactorizedRandomSynthesizer,
            init_kwargs={"num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": 10, "key_index": "distance", "rank": 2, "factors": (5, 2),
                         "scores_initializer": "he_uniform", "dropout": 0.1, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 4, WIDTH), "memory": random_array(2, 3, WIDTH, seed=1)},
            expected_shape=(2, 4, WIDTH),
            expected_trainable_weights=4,
            expected_parameters=BOTH + HEADS * 2 * (5 + 2))

    def test_segments(self):
        for settings in ({"max_length": 14}, {"max_length": 13}, {"max_length": 14, "factors": (7, 2), "rank": 1}):
            shared = {"num_heads": HEADS, "head_dim": HEAD_DIM, "key_index": "distance"}
            self.run_segment_test(FactorizedRandomSynthesizer, {**shared, **settings}, WIDTH)


@pytest.mark.parametrize("max_length, factors", [(12, None), (12, (6, 2)), (13, None)])
def test_equals_the_oracle(max_length, factors):
    check_all_masks(built(synthesizer("factorized_random", max_length=max_length, factors=factors)), 6)
    check_all_masks(built(synthesizer("factorized_random", "distance", max_length, factors=factors)), 4, 5)


@pytest.mark.parametrize("rank", [1, 3, 8])
def test_parameters_of_a_head(rank):
    assert built(synthesizer("factorized_random", max_length=13, rank=rank)).count_params() == BOTH + HEADS * 2 * 13 * rank
    assert built(synthesizer("factorized_random", "distance", 12, rank=rank)).count_params() == BOTH + HEADS * (3 + 4) * rank


def test_the_rank_is_8_unless_it_is_told():
    assert FactorizedRandomSynthesizer(HEADS, HEAD_DIM, 12).rank == 8


@pytest.mark.parametrize("max_length", [12, 13, 1])
def test_the_product_is_of_its_rank(max_length):
    product = built(synthesizer("factorized_random", max_length=max_length, rank=2)).project_positions(max_length).numpy()[0]
    assert product.shape == (HEADS, max_length, max_length)
    np.testing.assert_array_equal(np.linalg.matrix_rank(product), [min(2, max_length)] * HEADS)


@pytest.mark.parametrize("max_length, factors", [(12, (3, 4)), (13, (1, 13)), (1, (1, 1))])
def test_by_distance_the_product_is_read_as_one_vector(max_length, factors):
    layer = built(synthesizer("factorized_random", "distance", max_length))
    left, right = factors
    assert layer.left.shape == (HEADS, left, 2) and layer.right.shape == (HEADS, right, 2)
    logits = layer.project_positions(max_length).numpy()[0, :, 0, :0:-1]  # of the distances 0 .. l-1
    expected = [[layer.left[head, x].numpy() @ layer.right[head, y].numpy() for x in range(left) for y in range(right)]
                for head in range(HEADS)]
    np.testing.assert_allclose(logits, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("rank", [1, 8, 32])
def test_logits_start_with_a_variance_of_one(rank):
    layer = synthesizer("factorized_random", max_length=60, rank=rank)
    layer.build((None, None, WIDTH))
    assert 0.5 < layer.project_positions(60).numpy().std() < 1.7
    assert np.any(layer.left.numpy() != layer.right.numpy())


def test_factors_start_as_asked():
    layer = synthesizer("factorized_random", scores_initializer=keras.initializers.Constant(0.5), rank=3)
    layer.build((None, None, WIDTH))
    np.testing.assert_allclose(layer.project_positions(20), np.full((1, HEADS, 20, 20), 0.75))


@pytest.mark.parametrize("settings, message", [
    ({"rank": 0}, "rank must be an integer of at least 1. Received: rank=0"),
    ({"factors": (3, 5)}, r"factors must be two whose product is max_length. Received: factors=\(3, 5\), max_length=20"),
])
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        synthesizer("factorized_random", **settings)
