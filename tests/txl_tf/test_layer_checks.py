"""Arguments of layers that are sizes, switches and rates, and those that are none."""

import numpy as np
import pytest

from txl_tf.layer_checks import are_two_sizes, check_rates, check_sizes, check_switches


@pytest.mark.parametrize("check, good, bad, expected", [
    (check_sizes, [1, np.int64(7)], [0, -1, 2.0, float("nan"), "8", None, [2], True], "an integer of at least 1"),
    (check_switches, [True, False], ["no", 1, None], "True or False"),
    (check_rates, [0, 0.0, 0.5, np.float32(0.1)], [1, 1.0, -0.1, float("nan"), "x", None, True], "a number from 0 to below 1"),
])
def test_what_is_refused(check, good, bad, expected):
    for value in good:
        check(of_mine=value)
    for value in bad:
        with pytest.raises(ValueError) as refused:
            check(fine=good[0], of_mine=value)
        assert str(refused.value) == f"of_mine must be {expected}. Received: of_mine={value!r}"


def test_two_sizes():
    assert are_two_sizes((3, 4)) and are_two_sizes([1, np.int32(1)])
    assert not any(map(are_two_sizes, [3, None, "33", (3,), (3, 4, 5), (0, 3), (2.0, 3), (True, 3)]))
