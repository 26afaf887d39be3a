"""The part that all ways of attention share: values, mask, softmax, dropout and output projection."""

import keras
import tensorflow as tf

HIDDEN_SCORE = -1e30


class MultiHeadAttentionBase(keras.layers.Layer):
    """Causal multi-head attention of a segment over [memory; segment], without saying how scores are made.

    A subclass implements `scores(inputs, context, **kwargs)`, which returns (B, N, T, S), and adds its weights in `build`.

    Args:
        num_heads: heads N.
        head_dim: width H of a head.
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of all kernels and biases.

    Raises:
        ValueError: if num_heads or head_dim is below 1, or memory is not as wide as inputs.
    """

    def __init__(self, num_heads, head_dim, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        for name, value in (("num_heads", num_heads), ("head_dim", head_dim)):
            if value < 1:
                raise ValueError(f"{name} must be at least 1. Received: {name}={value}")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        width = inputs_shape[-1]
        self.value_kernel = self.add_kernel("value_kernel", width, self.num_heads * self.head_dim)
        self.output_kernel = self.add_kernel("output_kernel", self.num_heads * self.head_dim, width)

    def add_kernel(self, name, *shape):
        """Returns a new weight of the layer with the layer's initializer."""
        return self.add_weight(name=name, shape=shape, initializer=self.kernel_initializer.clone())

    def scores(self, inputs, context, **kwargs):
        """Returns the scores (B, N, T, S) of the queries of inputs (B, T, D) for the keys of context, parts that make up S."""
        raise NotImplementedError(f"{type(self).__name__} must implement scores(inputs, context)")

    def call(self, inputs, memory=None, attention_mask=None, return_attention_scores=False, training=None, **kwargs):
        context = self.context(memory, inputs)
        weights = masked_softmax(self.scores(inputs, context, **kwargs), attention_mask)
        kept = self.dropout_layer(tf.cast(weights, self.compute_dtype), training=training)
        mixed = tf.matmul(kept, self.split_heads(context, self.value_kernel))  # (B, N, T, H)
        outputs = project(self.merge_heads(mixed), self.output_kernel)
        return (outputs, weights) if return_attention_scores else outputs

    def context(self, memory, inputs):
        """Returns [memory; inputs] as its parts, (B, M, D) if there is a memory and (B, T, D); no gradient reaches the memory."""
        if memory is None:
            return (inputs,)
        if memory.shape[-1] != inputs.shape[-1]:
            raise ValueError(f"memory must be as wide as inputs, {inputs.shape[-1]}. Received: memory.shape={memory.shape}")
        return tf.stop_gradient(tf.cast(memory, inputs.dtype)), inputs

    def split_heads(self, parts, kernel):
        """Returns tensors (B, X, D), joined along X, times a kernel (D, N H) as (B, N, X, H).

        Each part is projected by itself, so that the backward pass of one that needs no gradient is not computed.
        """
        projected = [project(part, kernel) for part in parts]
        projected = tf.concat(projected, axis=1) if len(projected) > 1 else projected[0]
        shape = tf.shape(projected)
        return tf.transpose(tf.reshape(projected, (shape[0], shape[1], self.num_heads, self.head_dim)), (0, 2, 1, 3))

    def merge_heads(self, tensor):
        """Returns (B, N, T, H) as (B, T, N H)."""
        shape = tf.shape(tensor)
        return tf.reshape(tf.transpose(tensor, (0, 2, 1, 3)), (shape[0], shape[2], self.num_heads * self.head_dim))

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }


def project(tensor, kernel):
    """Returns (B, X, D) times a kernel (D, E), as one product of two matrices, whose gradient is another such product."""
    kernel = tf.convert_to_tensor(kernel)
    rows = tf.matmul(tf.reshape(tensor, (-1, kernel.shape[0])), kernel)
    return tf.reshape(rows, tf.concat([tf.shape(tensor)[:-1], [kernel.shape[1]]], axis=0))


def masked_softmax(scores, attention_mask=None):
    """Returns float32 weights (B, N, T, S) that sum to one over the keys a query may see.

    Args:
        scores: (B, N, T, S); query i stands at key i + S - T, later keys are always hidden.
        attention_mask: None, (T, S) or (B, T, S) boolean, true where a query may look.
    """
    query_len, key_len = tf.shape(scores)[2], tf.shape(scores)[3]
    mask = tf.range(key_len)[None] <= tf.range(query_len)[:, None] + key_len - query_len  # (T, S)
    if attention_mask is not None:
        given = tf.cast(attention_mask, tf.bool)
        mask = mask & (given[:, None] if len(given.shape) == 3 else given)
    return tf.nn.softmax(tf.where(mask, tf.cast(scores, tf.float32), HIDDEN_SCORE))
