"""A model that is made and run in no time, with weights that are all of some size."""

import numpy as np

from txl_tf import ModelConfig, TransformerXLLM

N_TOKEN = 11


def tiny_config(**settings):
    """Returns a small ModelConfig whose sizes all differ, and of whose heads N H is not D."""
    sizes = dict(n_token=N_TOKEN, n_layer=2, d_model=12, n_head=3, d_head=5, d_inner=14, tgt_len=4, mem_len=6)
    return ModelConfig(**{**sizes, **settings})


def tiny_model(dtype=None, seed=1, **settings):
    """Returns a small TransformerXLLM, the same for the same seed and settings."""
    return randomize(TransformerXLLM(tiny_config(**settings), dtype=dtype), seed)


def tiny_tokens(batch, length, seed=2):
    """Returns (B, length) int32 random token ids."""
    return np.random.default_rng(seed).integers(0, N_TOKEN, (batch, length)).astype(np.int32)


def randomize(layer, seed=1):
    """Returns a layer or model all of whose trainable weights are drawn anew, biases and gains among them."""
    random = np.random.default_rng(seed)
    for variable in layer.trainable_variables:
        around = 1.0 if variable.name == "gamma" else 0.0
        variable.assign(around + 0.3 * random.normal(size=variable.shape))
    return layer
