"""Two numbers whose product is the number of logits."""

import math

from txl_tf.layer_checks import are_two_sizes


def balanced_factors(length):
    """Returns (a, b) with a b = length, a at most b, as near to each other as they can be: (3, 4) for 12, (1, 13) for 13."""
    small = next(factor for factor in range(math.isqrt(length), 0, -1) if length % factor == 0)
    return small, length // small


def check_factors(factors, length):
    """Raises ValueError unless factors are two whose product is length; None stands for `balanced_factors`."""
    if factors is not None and not (are_two_sizes(factors) and math.prod(factors) == length):
        raise ValueError(f"factors must be two whose product is max_length. Received: factors={factors}, max_length={length}")
