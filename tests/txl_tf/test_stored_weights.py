"""What is stored, how exact it is, and that the model computes with it."""

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.stored_weights import StoredWeights


@pytest.mark.parametrize("weights, share", [("float32", 1.0), ("bfloat16", 0.5), ("int8", 0.25)])
def test_bytes(weights, share):
    model = tiny_model(d_inner=400)
    sizes = [4 * int(np.prod(variable.shape)) * (share if len(variable.shape) > 1 else 1) for variable in model.trainable_variables]
    scales = 0 if weights != "int8" else sum(4 * max(variable.shape) for variable in model.trainable_variables if len(variable.shape) > 1)
    assert sum(sizes) <= StoredWeights(model, weights).bytes <= sum(sizes) + scales


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{}, {"cutoffs": (4, 7), "div_val": 2}, {"tie_weight": False}, {"untie_r": True}])
@pytest.mark.parametrize("weights", ["bfloat16", "int8"])
def test_the_model_computes_with_the_weights_rounded(weights, settings):
    model, rounded, token_ids = tiny_model(**settings), tiny_model(**settings), tiny_tokens(2, 5)
    for variable in rounded.trainable_variables:
        if len(variable.shape) > 1:
            value = variable.numpy()
            if weights == "bfloat16":
                variable.assign(tf.cast(tf.cast(value, tf.bfloat16), tf.float32))
            else:
                candidates = []
                for axis in (0, 1):
                    scale = np.abs(value).max(axis=axis, keepdims=True) / 127
                    candidates.append(np.round(value / scale) * scale)
                variable.assign(min(candidates, key=lambda candidate: ((candidate - value) ** 2).sum()))
    with StoredWeights(model, weights).used():
        found, _ = model.log_probs(token_ids, model.initial_memory(2))
    expected, _ = rounded.log_probs(token_ids, model.initial_memory(2))
    exact, _ = model.log_probs(token_ids, model.initial_memory(2))
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
    assert np.abs(found - exact).max() > 1e-4


def test_a_column_of_zeros():
    model = tiny_model()
    table = model.trainable_variables[0]
    table.assign(tf.zeros_like(table))
    with StoredWeights(model, "int8").used():
        assert np.isfinite(model.log_probs(tiny_tokens(1, 3), model.initial_memory(1))[0]).all()


def test_refused():
    with pytest.raises(ValueError, match="weights must be one of float32, bfloat16, int8. Received: weights=float16"):
        StoredWeights(tiny_model(), "float16")
