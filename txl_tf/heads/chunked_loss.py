"""Softmax cross-entropy chunk by chunk: logits of all tokens over a whole vocabulary never exist together."""

from typing import NamedTuple

import tensorflow as tf

CHUNK_FLOATS = 2 ** 23  # logits that one chunk of tokens may have, unless the table has more weights anyway
TAIL_CHUNK = 64  # most tokens of a chunk in a tail cluster, where a segment has few
TAIL_SHARE = 16  # a tail's chunk is at most this part of all tokens
SMALL_VOCABULARY = 1024  # rows up to which all logits are made at once


class Span(NamedTuple):
    """The tokens to work, `chunk` at a time: rows[start:start + count] of rows (tokens,), a permutation of all tokens."""

    rows: tf.Tensor
    start: tf.Tensor
    count: tf.Tensor
    chunk: tf.Tensor


def all_tokens(features, table):
    """Returns the Span of every token, or None where all logits are so few that one step over the whole is best.

    This is the one place with the rule. Whole: at most SMALL_VOCABULARY rows, or at most CHUNK_FLOATS logits where the number
    of tokens is known. Else a chunk has CHUNK_FLOATS logits, or as many as the table has weights if these are more (its
    gradient takes that memory anyway), and a multiple of 128 tokens, which matrix units like.

    Args:
        features: (tokens, width).
        table: (rows, width).
    """
    rows, width = table.shape
    tokens = _length(features)
    if rows <= SMALL_VOCABULARY or (isinstance(tokens, int) and rows * tokens <= CHUNK_FLOATS):
        return None
    limit = max(CHUNK_FLOATS // rows, width)
    return Span(tf.range(tokens), 0, tokens, _smallest(tokens, limit - limit % 128 or limit))


def tail_tokens(order, start, count, table):
    """Returns the Span of order[start:start + count], the tokens of a tail cluster with the table (rows, width)."""
    limit = max(min(TAIL_CHUNK, CHUNK_FLOATS // table.shape[0]), 1)
    tokens = _length(order)
    if isinstance(tokens, int):
        limit = min(limit, max(tokens // TAIL_SHARE, 16))
    return Span(order, start, count, _smallest(tokens, limit))


def chunked_nll(features, table, bias, labels, span):
    """Returns the nll of each token of the span and 0 for the others; its gradient computes each chunk's logits again.

    Args:
        features: (tokens, width), in the dtype of the products.
        table: (rows, width) float32.
        bias: (rows,) float32.
        labels: (tokens,) int32, rows of the table; any value outside the span.
        span: a Span, or None for all tokens at once.

    Returns:
        (tokens,) float32 in nats.
    """
    if span is None:
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits_of(features, table, bias))

    @tf.custom_gradient
    def run(features, table, bias):
        def grad(upstream):
            _, gradients, scale = _nll_and_gradients(features, table, bias, labels, upstream, span)
            return _scaled(gradients, scale)

        return _nll(features, table, bias, labels, span), grad

    return run(features, table, bias)


def chunked_loss(features, table, bias, labels, weights, span):
    """Returns sum(weights * nll) over the span; its gradients are made in the same pass, so none is computed twice.

    Args:
        features, table, bias, labels, span: as in chunked_nll.
        weights: (tokens,) float32.

    Returns:
        () float32.
    """
    if span is None:
        return tf.reduce_sum(weights * chunked_nll(features, table, bias, labels, None))

    @tf.custom_gradient
    def run(features, table, bias, weights):
        nll, gradients, scale = _nll_and_gradients(features, table, bias, labels, weights, span)

        def grad(upstream):
            return *_scaled(gradients, scale * upstream), upstream * nll

        return tf.reduce_sum(weights * nll), grad

    return run(features, table, bias, weights)


def logits_of(features, table, bias):
    """Returns the logits (..., rows) in float32 of features (..., width); the product has the dtype of features."""
    return tf.cast(tf.matmul(features, tf.cast(table, features.dtype), transpose_b=True), tf.float32) + bias


def project(hidden, projection, dtype):
    """Returns hidden (..., D) in the given dtype as features (..., width) by a projection (width, D) or None."""
    hidden = tf.cast(hidden, dtype)
    return hidden if projection is None else tf.matmul(hidden, tf.cast(projection, dtype), transpose_b=True)


def _nll(features, table, bias, labels, span):
    kernel = tf.cast(table, features.dtype)

    def body(step, nll):
        chunk = _chunk(step, features, labels, span)
        losses, _ = _cross_entropy(chunk, kernel, bias)
        return step + 1, tf.tensor_scatter_nd_add(nll, chunk.rows[:, None], tf.where(chunk.inside, losses, 0.0))

    nll = tf.zeros(_length(features), tf.float32)
    return tf.while_loop(lambda step, _: step < _steps(span), body, (0, nll))[1]


def _nll_and_gradients(features, table, bias, labels, weights, span):
    """Returns nll, the gradients of features, table and bias for weights / scale, and scale: float16 would lose small weights."""
    kernel = tf.cast(table, features.dtype)
    scale = tf.math.maximum(tf.reduce_max(tf.abs(weights)), 1e-30)
    weights = weights / scale

    def body(step, nll, d_features, d_table, d_bias):
        chunk = _chunk(step, features, labels, span)
        losses, d_logits = _cross_entropy(chunk, kernel, bias)
        weight = tf.where(chunk.inside, tf.gather(weights, chunk.rows), 0.0)[:, None]
        d_bias += tf.matmul(weight, d_logits, transpose_a=True)[0]
        d_logits = tf.cast(d_logits, features.dtype)
        weight = tf.cast(weight, features.dtype)
        d_table += tf.cast(tf.matmul(d_logits, weight * chunk.features, transpose_a=True), tf.float32)
        rows = chunk.rows[:, None]
        d_features = tf.tensor_scatter_nd_add(d_features, rows, weight * tf.matmul(d_logits, kernel))
        nll = tf.tensor_scatter_nd_add(nll, rows, tf.where(chunk.inside, losses, 0.0))
        return step + 1, nll, d_features, d_table, d_bias

    start = (0, tf.zeros_like(weights), tf.zeros_like(features), tf.zeros_like(table), tf.zeros_like(bias))
    _, nll, *gradients = tf.while_loop(lambda step, *_: step < _steps(span), body, start)
    return nll, gradients, scale


class _Chunk(NamedTuple):
    rows: tf.Tensor  # (chunk,)
    inside: tf.Tensor  # (chunk,) whether the row is of this chunk; the last one reaches back to stay as long as the others
    features: tf.Tensor  # (chunk, width)
    labels: tf.Tensor  # (chunk,)


def _chunk(step, features, labels, span):
    first = span.start + step * span.chunk
    begin = tf.minimum(first, _length(features) - span.chunk)
    position = begin + tf.range(span.chunk)
    rows = tf.gather(span.rows, position)  # not tf.slice, whose begin XLA takes for a constant: it would compile for each count
    inside = (position >= first) & (position < span.start + span.count)
    return _Chunk(rows, inside, tf.gather(features, rows), tf.where(inside, tf.gather(labels, rows), 0))


def _cross_entropy(chunk, kernel, bias):
    """Returns the losses (chunk,) and their gradients by the logits (chunk, rows), both float32."""
    logits = logits_of(chunk.features, kernel, bias)
    return tf.raw_ops.SparseSoftmaxCrossEntropyWithLogits(features=logits, labels=chunk.labels)


def _steps(span):
    return (span.count + span.chunk - 1) // span.chunk


def _scaled(gradients, scale):
    return [tf.cast(scale, gradient.dtype) * gradient for gradient in gradients]


def _length(tensor):
    return tensor.shape[0] if tensor.shape[0] is not None else tf.shape(tensor)[0]


def _smallest(tokens, limit):
    return min(tokens, limit) if isinstance(tokens, int) else tf.minimum(tokens, limit)
