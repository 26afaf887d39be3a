"""A model's weights as an export stores them: as they are, in bfloat16, or in 8 bits."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

WEIGHTS = ("float32", "bfloat16", "int8")


class StoredWeights:
    """Holds a model's weights for an export, and lets the model compute with what is held.

    bfloat16 halves every matrix, int8 has a quarter of it and a float32 scale for each of its rows or columns, whichever
    is the more exact. Biases and the gains of layer normalisation stay float32. Matrices are expanded within each call.

    Args:
        model: a TransformerXLLM.
        weights: "float32", "bfloat16" or "int8".

    Attributes:
        variables: the tf.Variables that hold the weights, for each weight a list of one or two.

    Raises:
        ValueError: if weights is none of the three.

    Example:
        stored = StoredWeights(model, "int8")
        with stored.used():
            nll, memory = model.nll(token_ids, labels, memory)
    """

    def __init__(self, model, weights):
        if weights not in WEIGHTS:
            raise ValueError(f"weights must be one of {', '.join(WEIGHTS)}. Received: weights={weights}")
        self._of_model = [variable for variable in model.weights if variable.dtype.startswith("float")]
        self.variables = [[variable.value] if len(variable.shape) < 2 or weights == "float32" else _narrowed(variable.numpy(), weights)
                          for variable in self._of_model]

    @property
    def bytes(self):
        """Bytes that are stored."""
        return sum(part.dtype.size * int(np.prod(part.shape)) for parts in self.variables for part in parts)

    @contextlib.contextmanager
    def used(self):
        """Makes the model's layers use the stored weights within a with block."""
        expanded = map(_expanded, self.variables)
        with keras.StatelessScope(state_mapping=list(zip(self._of_model, expanded, strict=True))):
            yield


def _narrowed(matrix, weights):
    """Returns the variables that stand for a matrix."""
    if weights == "bfloat16":
        return [tf.Variable(tf.cast(matrix, tf.bfloat16), trainable=False)]
    candidates = [_in_8_bits(matrix, axis) for axis in (0, 1)]
    return [tf.Variable(part, trainable=False) for part in min(candidates, key=lambda pair: np.square(pair[0] * pair[1] - matrix).sum())]


def _in_8_bits(matrix, axis):
    """Returns (int8 of the matrix's shape, float32 scale for each place along the other axis)."""
    scale = np.maximum(np.abs(matrix).max(axis=axis, keepdims=True), np.finfo(np.float32).tiny) / 127
    return np.rint(matrix / scale).astype(np.int8), scale.astype(np.float32)


def _expanded(parts):
    """Returns the float32 tensor that stored variables stand for."""
    values = [tf.cast(part, tf.float32) for part in parts]
    return values[0] if len(values) == 1 else values[0] * values[1]
