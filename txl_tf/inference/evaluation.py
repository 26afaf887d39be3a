"""Evaluation over a whole split, with the memory carried from segment to segment."""

import dataclasses

import tensorflow as tf

from txl_tf.language_model import TransformerXLLM


def evaluation_model(model, **settings):
    """Returns a copy of a model with other settings that need no other weights, such as clamp_len and same_length."""
    copy = TransformerXLLM(dataclasses.replace(model.config, **settings), dtype=model.dtype_policy)
    copy.set_weights(model.get_weights())
    return copy


def evaluate(model, segments, mem_len=None):
    """Returns (mean negative log-likelihood in nats, number of tokens), each token weighing the same.

    Args:
        model: a TransformerXLLM.
        segments: (token_ids, labels) pairs of (B, T), where each row continues that of the pair before; T may differ.
        mem_len: slots of the memory; None: the model's.

    Raises:
        ValueError: if there is no segment.
    """
    memory, total, count = None, 0.0, 0
    for token_ids, labels in segments:
        if memory is None:
            memory = model.initial_memory(token_ids.shape[0], mem_len)
        nll, memory = _summed_nll(model, token_ids, labels, memory)
        total += float(nll)
        count += token_ids.shape[0] * token_ids.shape[1]
    if not count:
        raise ValueError("segments must hold at least one segment. Received: none")
    return total / count, count


@tf.function(reduce_retracing=True)
def _summed_nll(model, token_ids, labels, memory):
    nll, memory = model.nll(token_ids, labels, memory)
    return tf.reduce_sum(tf.cast(nll, tf.float64)), memory
