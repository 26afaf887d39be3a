"""Layer normalisation by its formula in float64: what the fast layer must equal."""

import numpy as np


def layer_norm(hidden, norm):
    """Returns hidden (..., D) normalised over its last axis with the weights and epsilon of a built LayerNorm."""
    hidden = np.asarray(hidden, np.float64)
    centred = hidden - hidden.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + norm.epsilon)
    return scaled * np.asarray(norm.gamma, np.float64) + np.asarray(norm.beta, np.float64)
