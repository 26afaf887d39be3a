"""What a signature refuses, and that it says which input it was; run on an export, where the checks have to hold."""

import numpy as np
import pytest
import tensorflow as tf

from data_utils.vocabulary import ByteVocabulary
from testing.tiny_model import tiny_model
from txl_tf.saved_model import export_saved_model

NAN = np.nan


@pytest.fixture(scope="module")
def signatures(tmp_path_factory):
    """Returns those of a model of 256 tokens with 6 slots."""
    return tf.saved_model.load(export_saved_model(tiny_model(n_token=256), ByteVocabulary(), tmp_path_factory.mktemp("served"))).signatures


def answer(signatures, signature, **changed):
    """Returns what a signature answers to a request of two rows of which some inputs are changed."""
    random = np.random.default_rng(0)
    values = {"token_ids": [[1, 2, 3], [4, 5, 6]], "length": [3, 2], "memory": random.normal(size=(2, 2, 6, 12)), "memory_length": [4, 0],
              "token_id": [1, 2], "cache_key": random.normal(size=(2, 2, 3, 6, 5)), "cache_value": random.normal(size=(2, 2, 3, 6, 5)),
              "cache_length": [4, 0], "max_new_tokens": [3, 4], "temperature": [1, 0], "top_k": [3, 0], "top_p": [1, 0.5], "seed": [1, 2],
              "stop_token": [-1, 5], "text": ["the cat", "a"], **changed}
    specs = signatures[signature].structured_input_signature[1]
    return signatures[signature](**{name: tf.constant(values[name], spec.dtype) for name, spec in specs.items()})


TOKENS, MEMORY, SAMPLED = ("score", "next_token", "generate", "prefill"), ("score", "next_token"), ("generate", "generate_text")
REFUSED = [
    (TOKENS, "token_ids", [[[1, 256, 3], [4, 5, 6]], [[1, 2, -1], [4, 5, 6]], [1, 2, 3]]),
    (TOKENS, "length", [[0, 2], [-1, 2], [4, 2]]),
    (MEMORY, "memory", [np.zeros((2, 3, 6, 12)), np.zeros((2, 2, 6, 13)), np.zeros((1, 2, 6, 12)), np.zeros((3, 2, 6, 12))]),
    (MEMORY, "memory_length", [[-1, 0], [7, 0], [4]]),
    (("step",), "token_id", [[256, 1], [-1, 1], [1]]),
    (("step",), "cache_length", [[-1, 0], [7, 0], [4]]),
    (("step",), "cache_value", [np.zeros((2, 2, 3, 5, 5)), np.zeros((2, 2, 3, 6, 4))]),
    (SAMPLED, "max_new_tokens", [[0, 1], [-1, 1]]),
    (SAMPLED, "temperature", [[-1, 1], [NAN, 1], [1]]),
    (SAMPLED, "top_k", [[-1, 1], [3]]),
    (SAMPLED, "top_p", [[0, 1], [2, 1], [NAN, 1], [1]]),
    (("generate",), "stop_token", [[-2, 1], [256, 1], [5]]),
    (("generate_text",), "text", [["", "a"]]),
]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("signature, name, values", [(signature, name, values) for some, name, values in REFUSED for signature in some])
def test_refused(signatures, signature, name, values):
    answer(signatures, signature)
    for value in values:
        with pytest.raises(tf.errors.InvalidArgumentError, match=rf"\b{name} must|Shape of tensor {name} "):
            answer(signatures, signature, **{name: value})


@pytest.mark.parametrize("signature", [*TOKENS, "step"])
def test_numbers_that_do_not_count_do_not_matter(signatures, signature):
    """Not even those that are no token, or no number at all."""
    random = np.random.default_rng(1)
    kept = {"memory": random.normal(size=(2, 2, 6, 12)), "cache_key": random.normal(size=(2, 2, 3, 6, 5)), "cache_value": random.normal(size=(2, 2, 3, 6, 5))}
    zeros, nans = ({name: value.copy() for name, value in kept.items()} for _ in range(2))
    for row, unfilled in enumerate((2, 6)):
        for name in kept:
            zeros[name][row, ..., :unfilled, :], nans[name][row, ..., :unfilled, :] = 0, NAN
    expected = answer(signatures, signature, **zeros)
    for padding in (256, -1):
        found = answer(signatures, signature, token_ids=[[1, 2, 3], [4, 5, padding]], **nans)
        for name in expected:
            np.testing.assert_array_equal(found[name], expected[name])
