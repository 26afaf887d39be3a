"""The newest tokens of a context, which convolutions read."""

import tensorflow as tf


def recent_tokens(context, count, visible=None, ring=None):
    """Returns the newest tokens (B, N, X, W) of a context (B, N, S, W) in text order, with zeros where there are none.

    Args:
        context: (B, N, S, W).
        count: number X of tokens.
        visible: None, (T, S) or (B, T, S) boolean: tokens that no query sees count as none.
        ring: None: the context is in text order; else a Ring.
    """
    key_len = tf.shape(context)[2]
    if visible is not None:
        visible = tf.cast(visible, tf.bool)
        seen = tf.reduce_any(visible if len(visible.shape) == 3 else visible[None], axis=1)  # (B or 1, S)
        context = tf.where(seen[:, None, :, None], context, 0)
    if ring is not None:
        context = tf.roll(context, -ring.end, axis=2)
    missing = tf.maximum(count - key_len, 0)
    return tf.pad(context, ((0, 0), (0, 0), (missing, 0), (0, 0)))[:, :, missing + key_len - count:]


def unfolded(tokens, kernel_size):
    """Returns (B, N, X, W) as (B, N, X-F+1, F W): every token behind the F-1 before it, so that a product is a convolution."""
    length = tf.shape(tokens)[2] - kernel_size + 1
    return tf.concat([tokens[:, :, tap:tap + length] for tap in range(kernel_size)], axis=-1)
