"""Losses in the units that people compare."""

import math

import pytest

from txl_tf.metrics import bits_per_character, in_unit, perplexity


def test_a_uniform_guess_among_256_bytes_costs_8_bits():
    assert bits_per_character(math.log(256)) == pytest.approx(8.0, abs=1e-12)
    assert perplexity(math.log(256)) == pytest.approx(256.0, abs=1e-9)


def test_certainty_costs_nothing():
    assert bits_per_character(0.0) == 0.0
    assert perplexity(0.0) == 1.0


def test_perplexity_of_a_run_that_diverged_is_infinite_without_an_error():
    assert perplexity(1e6) == math.inf
    assert perplexity(699.0) < math.inf


@pytest.mark.parametrize("kind, expected", [
    ("byte", (2.0, "bpc")), ("char", (2.0, "bpc")), ("word", (4.0, "ppl")), ("subword", (4.0, "ppl")),
])
def test_the_vocabulary_decides_the_unit(kind, expected):
    value, unit = in_unit(2 * math.log(2), kind)
    assert (pytest.approx(value), unit) == expected
