"""The Factorized Dense Synthesizer."""

import numpy as np
import pytest

from testing.attention_cases import HEAD_DIM, HEADS, WIDTH, built, check_all_masks, synthesizer
from testing.test_case import TestCase, random_array
from txl_tf.attention.factorized_dense_synthesizer import FactorizedDenseSynthesizer

D = WIDTH // HEADS  # a head's share of a token
BOTH = 2 * WIDTH * HEADS * HEAD_DIM  # parameters of values and outputs
FACTORS = {12: (3, 4), 13: (1, 13), 1: (1, 1)}


class FactorizedDenseSynthesizerTest(TestCase):
    @pytest.mark.slow
    def test_layer(self):
        self.run_layer_test(
            FactorizedDenseSynthesizer,
            init_kwargs={"num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": 10, "key_index": "distance", "factors": (5, 2),
                         "dropout": 0.1, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 4, WIDTH), "memory": random_array(2, 3, WIDTH, seed=1)},
            expected_shape=(2, 4, WIDTH),
            expected_trainable_weights=8,
            expected_parameters=BOTH + HEADS * (D * D + D * (5 + 2) + D + 5 + 2))

    def test_segments(self):
        for settings in ({"max_length": 14}, {"max_length": 13}, {"max_length": 14, "factors": (7, 2)}):
            shared = {"num_heads": HEADS, "head_dim": HEAD_DIM, "key_index": "distance"}
            self.run_segment_test(FactorizedDenseSynthesizer, {**shared, **settings}, WIDTH)


@pytest.mark.parametrize("max_length, factors", [(12, None), (12, (6, 2)), (12, (1, 12)), (13, None)])
def test_equals_the_oracle(max_length, factors):
    check_all_masks(built(synthesizer("factorized_dense", max_length=max_length, factors=factors)), 6)
    check_all_masks(built(synthesizer("factorized_dense", "distance", max_length, factors=factors)), 4, 5)


@pytest.mark.parametrize("key_index", ["position", "distance"])
@pytest.mark.parametrize("max_length, factors", FACTORS.items())
def test_parameters_of_a_head(max_length, factors, key_index):
    layer = built(synthesizer("factorized_dense", key_index, max_length))
    assert layer.count_params() == BOTH + HEADS * (D * D + D * sum(factors) + D + sum(factors))


def pair_logits(max_length, factors=None):
    """Returns the logits (l,) of one query where A[x] is the x-th and B[y] the y-th of numbers whose products tell (x, y)."""
    layer = built(synthesizer("factorized_dense", max_length=max_length, factors=factors))
    left, right = factors or FACTORS[max_length]
    for name, numbers in (("left", np.exp(np.arange(left))), ("right", np.exp(50.0 * np.arange(right) / max_length))):
        getattr(layer, f"{name}_kernel").assign(0 * getattr(layer, f"{name}_kernel"))
        getattr(layer, f"{name}_bias").assign(np.broadcast_to(numbers, (HEADS, 1, len(numbers))))
    return np.log(layer.project_query(random_array(1, 1, WIDTH), {}).numpy()[0, 1, 0])


@pytest.mark.parametrize("max_length, factors", [(12, None), (13, None), (1, None), (12, (6, 2)), (12, (4, 3))])
def test_every_pair_of_the_two_vectors_occurs_once(max_length, factors):
    left, right = factors or FACTORS[max_length]
    expected = [x + 50.0 * y / max_length for x in range(left) for y in range(right)]
    assert len(set(expected)) == max_length
    np.testing.assert_allclose(pair_logits(max_length, factors), expected, atol=1e-4)


def test_other_factors_are_refused():
    with pytest.raises(ValueError, match=r"factors must be two whose product is max_length. Received: factors=\(3, 5\), max_length=12"):
        synthesizer("factorized_dense", max_length=12, factors=(3, 5))


def test_heads_must_share_a_token_evenly():
    with pytest.raises(ValueError, match="num_heads must divide the width of inputs, 11. Received: num_heads=3"):
        synthesizer("factorized_dense")(random_array(2, 4, 11))
