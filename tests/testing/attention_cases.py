"""Layers of attention of small and different sizes, one of each kind and form, and their comparison with the slow oracle."""

import numpy as np

from testing.synthesizer_oracle import slow_attention
from testing.test_case import random_array
from testing.tiny_model import randomize
from txl_tf.attention.dense_synthesizer import FORMS, DenseSynthesizer
from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.factorized_dense_synthesizer import FactorizedDenseSynthesizer
from txl_tf.attention.factorized_random_synthesizer import FactorizedRandomSynthesizer
from txl_tf.attention.mixture_synthesizer import MixtureSynthesizer
from txl_tf.attention.random_synthesizer import RandomSynthesizer
from txl_tf.attention.synthesizer import KEY_INDICES

HEADS, HEAD_DIM, WIDTH, MAX_LENGTH = 3, 5, 12, 20  # heads divide the width, but N H is not D
DENSE = {f"dense_{form}": {"form": form, "bottleneck_dim": 2} for form in FORMS}
CONVOLUTIONS = {f"dense_{form}_{first}_{second}": {"form": form, "kernel_sizes": (first, second), "bottleneck_dim": 2}
                for form in ("conv", "conv_bottleneck") for first, second in ((5, 5), (3, 5))}
SYNTHESIZERS = {  # name -> (class, settings)
    **{name: (DenseSynthesizer, settings) for name, settings in {**DENSE, **CONVOLUTIONS}.items()},
    "random": (RandomSynthesizer, {}),
    "random_fixed": (RandomSynthesizer, {"fixed": True}),
    "factorized_dense": (FactorizedDenseSynthesizer, {}),
    "factorized_random": (FactorizedRandomSynthesizer, {"rank": 2}),
}
NAMES = (*SYNTHESIZERS, "mixture")
EVERY_ONE = [(name, key_index) for name in NAMES for key_index in KEY_INDICES]


def built(layer, width=WIDTH):
    """Returns a layer that is built for a width, with random weights."""
    layer.build((None, None, width))
    return randomize(layer)


def synthesizer(name, key_index="position", max_length=MAX_LENGTH, **settings):
    """Returns a new layer of a name in NAMES, not built."""
    shared = {"max_length": max_length, "key_index": key_index}
    if name == "mixture":
        causal = {"causal": settings.get("causal", True)}
        mixed = [DotProductMultiHeadAttention(HEADS, HEAD_DIM, **causal), RandomSynthesizer(HEADS, HEAD_DIM, **shared, **causal),
                 DenseSynthesizer(HEADS, HEAD_DIM, form="conv", **shared, **causal)]
        return MixtureSynthesizer(HEADS, HEAD_DIM, mixed, **settings)
    layer_class, own = SYNTHESIZERS[name]
    return layer_class(HEADS, HEAD_DIM, **{**shared, **own, **settings})


def padding_mask(batch, query_len, key_len, seed=3):
    """Returns (B, T, S) booleans that hide some keys from all queries of a row, but never a query from itself."""
    given = np.random.default_rng(seed).random((batch, 1, key_len)) < 0.6
    return given | np.eye(query_len, key_len, key_len - query_len, dtype=bool)


def check_against_oracle(layer, query_len, mem_len=None, attention_mask=None, width=WIDTH):
    """Checks outputs and weights of a built layer, and that the weights are shares of the visible keys alone."""
    inputs = random_array(2, query_len, width)
    memory = None if mem_len is None else random_array(2, mem_len, width, seed=1)
    outputs, weights = layer(inputs, memory=memory, attention_mask=attention_mask, return_attention_scores=True)
    expected_outputs, expected_weights = slow_attention(layer, inputs, memory, attention_mask)
    np.testing.assert_allclose(weights, expected_weights, 1e-4, 1e-5)
    np.testing.assert_allclose(outputs, expected_outputs, 1e-4, 1e-5)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1.0, 1e-5)
    assert not np.any(weights.numpy()[expected_weights == 0]), "a hidden key has a weight"


def masks(query_len, key_len):
    """Returns masks of all ranks, of which one has rows of the batch that differ."""
    some = (np.random.default_rng(3).random((query_len, key_len)) < 0.5) | np.eye(query_len, key_len, key_len - query_len, dtype=bool)
    return None, some, padding_mask(2, query_len, key_len)


def check_all_masks(layer, query_len, mem_len=None, width=WIDTH):
    """Checks a built layer against the oracle with masks of all ranks."""
    for mask in masks(query_len, query_len + (mem_len or 0)):
        check_against_oracle(layer, query_len, mem_len, mask, width)
