"""One variable of another program joins ours in every way, and names and shapes are compared before any value is read."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.checkpoints.entry import Entry, shared_names

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


def test_names_in_both():
    assert shared_names({"a": (1,), "b": (2,)}, {"b": (2,), "a": (1,)}, "path", "p") == ["b", "a"]


@pytest.mark.parametrize("stored, message", [
    ({"a": (1,)}, r"it lacks \['b'\] and has besides none. Received: path=p"),
    ({"a": (1,), "b": (2,), "c": ()}, r"it lacks none and has besides \['c'\]. Received: path=p"),
    ({"a": (1,), "b": (3,)}, r"b must have the shape \(2,\) that config gives. Received: shape=\(3,\), path=p"),
])
def test_a_difference_is_refused_by_name(stored, message):
    with pytest.raises(ValueError, match=message):
        shared_names(stored, {"a": (1,), "b": (2,)}, "path", "p")


def test_a_part_is_taken_where_that_is_allowed_and_what_is_left_out_is_listed(caplog):
    assert shared_names({"a": (1,), "c": ()}, {"a": (1,), "b": (2,)}, "path", "p", allow_partial=True) == ["a"]
    assert "lacks ['b'] and has besides ['c']" in caplog.text
    with pytest.raises(ValueError, match="a must have the shape"):
        shared_names({"a": (3,)}, {"a": (1,)}, "path", "p", allow_partial=True)
