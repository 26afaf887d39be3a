"""Evaluation over a whole split, with the memory carried from segment to segment."""

import dataclasses
import itertools

import tensorflow as tf

from txl_tf.distribution import is_on_cpu
from txl_tf.inference.cache import initial_cache, read, refitted
from txl_tf.inference.per_model import per_model
from txl_tf.language_model import TransformerXLLM

_LARGE = 2 ** 18  # scores of a head, 1 MiB, beyond which a processor's cache is better off with one head after the other
_AT_ONCE = 32  # segments that one call scores; within a call the cache is written in place


def evaluation_model(model, **settings):
    """Returns a copy of a model with other settings that need no other weights, such as clamp_len and same_length.

    None leaves a setting as it is, and where nothing changes the model itself is returned.
    """
    settings = {name: value for name, value in settings.items() if value not in (None, getattr(model.config, name))}
    if not settings:
        return model
    copy = TransformerXLLM(dataclasses.replace(model.config, **settings), dtype=model.dtype_policy)
    copy.set_weights(model.get_weights())
    return copy


def evaluate(model, segments, mem_len=None, max_segments=None):
    """Returns (mean negative log-likelihood in nats, number of tokens), each token weighing the same.

    The weights must not change meanwhile, for what was read is not projected again. In the scope of a tf.distribute strategy
    every replica works on its own rows and keeps their memory.

    Args:
        model: a TransformerXLLM, made in that scope.
        segments: (token_ids, labels) pairs of (B, T), where each row continues that of the pair before; T may differ. With a
            strategy a distributed dataset, such as `txl_tf.distribution.replica_batches` gives.
        mem_len: slots of the memory; None: the model's.
        max_segments: how many segments are scored at most; None: all.

    Raises:
        ValueError: if there is no segment, or the model has not learned so many places or distances.
    """
    strategy = tf.distribute.get_strategy()
    mem_len = model.config.mem_len if mem_len is None else mem_len
    cache, total, count, length = None, 0.0, 0, None
    for (rows, new_length), pairs in _calls(strategy, itertools.islice(segments, max_segments)):
        model.config.evaluation_lengths(new_length, mem_len)  # or an error
        if cache is None:
            cache = _initial_cache(model, strategy, rows, mem_len, new_length)
        elif new_length != length:
            cache = _refitted(model, strategy, cache, mem_len, new_length)
        length = new_length
        by_head = length > 1 and length * (mem_len + length) >= _LARGE and is_on_cpu()
        nll, cache = _summed_nll(model, strategy, pairs, cache, by_head)
        total += float(strategy.reduce(tf.distribute.ReduceOp.SUM, nll, axis=None))
        count += strategy.num_replicas_in_sync * rows * length * len(pairs)
    if not count:
        raise ValueError("segments must hold at least one segment. Received: none")
    return total / count, count


def _calls(strategy, segments):
    """Yields (shape (B, T) on a replica, the pairs that one call scores): _AT_ONCE of them, or one, so that two programs are enough."""
    for shape, alike in itertools.groupby(segments, lambda pair: tuple(strategy.experimental_local_results(pair[0])[0].shape)):
        while pairs := tuple(itertools.islice(alike, _AT_ONCE)):
            yield from ((shape, part) for part in ([pairs] if len(pairs) == _AT_ONCE else [(pair,) for pair in pairs]))


@per_model
def _initial_cache(model, strategy, rows, mem_len, length):
    return strategy.run(initial_cache, args=(model, rows, mem_len, length))


@per_model
def _refitted(model, strategy, cache, mem_len, length):
    return strategy.run(refitted, args=(model, cache, mem_len, length))


@per_model(reduce_retracing=True)
def _summed_nll(model, strategy, pairs, cache, by_head):
    compiled = isinstance(strategy, tf.distribute.TPUStrategy)

    def summed(pairs, cache):
        token_ids, labels = (tf.stack(side) for side in zip(*pairs))  # (K, B, T)
        total = tf.constant(0.0, tf.float64)
        for index in tf.range(len(pairs)):
            hidden, cache = read(model, token_ids[index], cache, by_head=by_head, compiled=compiled)
            total += tf.reduce_sum(tf.cast(model.head.nll(hidden, labels[index]), tf.float64))
        return total, cache

    return strategy.run(summed, args=(pairs, cache))
