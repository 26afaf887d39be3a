"""Tokens that are added to a trained model, such as separators for fine-tuning."""

import dataclasses

import tensorflow as tf

from txl_tf.language_model import TransformerXLLM


def add_tokens(model, count):
    """Returns a copy of a TransformerXLLM with count more tokens, whose ids follow those that there are.

    The last cluster grows; the vectors of the new tokens are drawn as at the start of training, their biases are 0. The logits of
    all other tokens stay as they are, and so do the log-probabilities in every other cluster.

    Raises:
        ValueError: if count is below 1.

    Example:
        model = add_tokens(txl_tf.load_huggingface("transfo-xl-wt103"), 2)
    """
    if count < 1:
        raise ValueError(f"count must be at least 1. Received: count={count}")
    grown = TransformerXLLM(dataclasses.replace(model.config, n_token=model.config.n_token + count), dtype=model.dtype_policy)
    for before, after in zip(model.weights, grown.weights, strict=True):
        rows = before.shape[0]
        after.assign(before if before.shape == after.shape else tf.concat([before.value, after.value[rows:]], axis=0))
    return grown
