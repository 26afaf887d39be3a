"""One variable of another program joins ours in every way; settings that another program lacks are refused."""

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import tiny_model
from txl_tf.checkpoints.entry import Entry, check_fixed

CASES = {  # (shapes of ours, axis, transposed): shape of the other's
    ((((2, 3),), None, False)): (2, 3),
    ((((2, 3),), None, True)): (3, 2),
    ((((2, 3), (2, 5)), "columns", False)): (2, 8),
    ((((2, 3), (2, 5)), "columns", True)): (8, 2),
    ((((2,), (5,)), "rows", False)): (7,),
    ((((2, 3), (2, 3)), "layers", False)): (2, 2, 3),
}


@pytest.mark.parametrize("case", CASES)
def test_values_go_in_and_come_out_unchanged(case):
    shapes, axis, transposed = case
    entry = Entry(tuple(tf.Variable(tf.zeros(shape)) for shape in shapes), axis, transposed)
    array = np.random.default_rng(0).normal(size=CASES[case]).astype(np.float32)
    assert entry.shape == CASES[case]
    entry.assign(array)
    np.testing.assert_array_equal(entry.value(), array)
    assert all(np.any(variable) for variable in entry.variables)


def test_settings_of_another_program():
    check_fixed(tiny_model().config, {"attention": "relative"}, "the program")
    with pytest.raises(ValueError, match="The model must have n_layer=9, as the program has. Received: n_layer="):
        check_fixed(tiny_model().config, {"attention": "relative", "n_layer": 9}, "the program")
