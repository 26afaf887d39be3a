"""The two numbers whose product is the number of logits."""

import pytest

from txl_tf.attention.factors import balanced_factors, check_factors


@pytest.mark.parametrize("length, factors", [(1, (1, 1)), (2, (1, 2)), (12, (3, 4)), (13, (1, 13)), (48, (6, 8)), (256, (16, 16))])
def test_factors_are_as_near_to_each_other_as_they_can_be(length, factors):
    assert balanced_factors(length) == factors


def test_no_other_factors_are_nearer():
    for length in range(1, 200):
        left, right = balanced_factors(length)
        assert left * right == length and left <= right
        assert not any(length % factor == 0 for factor in range(left + 1, int(length ** 0.5) + 1))


def test_good_factors_pass():
    for factors in (None, (3, 4), [4, 3], (1, 12), (12, 1)):
        check_factors(factors, 12)


@pytest.mark.parametrize("factors", [(3, 5), (12,), (2, 2, 3), (-3, -4), (0, 12), ()])
def test_other_factors_are_refused(factors):
    with pytest.raises(ValueError, match=r"factors must be two whose product is max_length\. Received: factors=\(.*\), max_length=12"):
        check_factors(factors, 12)
