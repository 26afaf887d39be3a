"""Evaluation over a whole split, with the memory carried from segment to segment."""

import dataclasses
import itertools

import tensorflow as tf

from txl_tf.language_model import TransformerXLLM


def evaluation_model(model, **settings):
    """Returns a copy of a model with other settings that need no other weights, such as clamp_len and same_length."""
    copy = TransformerXLLM(dataclasses.replace(model.config, **settings), dtype=model.dtype_policy)
    copy.set_weights(model.get_weights())
    return copy


def evaluate(model, segments, mem_len=None, max_segments=None):
    """Returns (mean negative log-likelihood in nats, number of tokens), each token weighing the same.

    In the scope of a tf.distribute strategy every replica works on its own rows and keeps their memory.

    Args:
        model: a TransformerXLLM, made in that scope.
        segments: (token_ids, labels) pairs of (B, T), where each row continues that of the pair before; T may differ. With a
            strategy a distributed dataset, such as `txl_tf.distribution.replica_batches` gives.
        mem_len: slots of the memory; None: the model's.
        max_segments: how many segments are scored at most; None: all.

    Raises:
        ValueError: if there is no segment.
    """
    strategy = tf.distribute.get_strategy()
    memory, total, count = None, 0.0, 0
    for token_ids, labels in itertools.islice(segments, max_segments):
        rows, length = strategy.experimental_local_results(token_ids)[0].shape
        if memory is None:
            memory = _initial_memory(strategy, model, rows, mem_len)
        nll, memory = _summed_nll(strategy, model, token_ids, labels, memory)
        total += float(strategy.reduce(tf.distribute.ReduceOp.SUM, nll, axis=None))
        count += strategy.num_replicas_in_sync * rows * length
    if not count:
        raise ValueError("segments must hold at least one segment. Received: none")
    return total / count, count


@tf.function
def _initial_memory(strategy, model, rows, mem_len):
    return strategy.run(model.initial_memory, args=(rows, mem_len))


@tf.function(reduce_retracing=True)
def _summed_nll(strategy, model, token_ids, labels, memory):
    def summed(token_ids, labels, memory):
        nll, memory = model.nll(token_ids, labels, memory)
        return tf.reduce_sum(tf.cast(nll, tf.float64)), memory

    return strategy.run(summed, args=(token_ids, labels, memory))
