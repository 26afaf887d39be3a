"""Attention with the relative positions of Transformer-XL: sinusoid, relative shift and the four terms of the score."""

import keras
import tensorflow as tf

from txl_tf.attention.multi_head import MultiHeadAttentionBase


@keras.saving.register_keras_serializable("txl_tf")
class RelativeMultiHeadAttention(MultiHeadAttentionBase):
    """Multi-head attention over [memory; segment] with relative positions (Dai et al. 2019, arXiv 1901.02860, section 3.3).

    The score of query i for key j is (q_i k_j + q_i r_{i-j} + u k_j + v r_{i-j}) / sqrt(H): content, position, and the two
    global biases. A query sees itself and earlier keys only, for the positions of later keys have no meaning here.

    Args:
        num_heads: heads N.
        head_dim: width H of a head; N H need not equal D.
        dropout: rate at which attention weights are dropped.
        clamp_len: largest distance with a position of its own; 0 or less: no limit.
        kernel_initializer: initializer of all kernels and biases.

    Call arguments:
        inputs: (B, T, D).
        memory: None or (B, M, D), what came before; no gradient reaches it.
        attention_mask: None, (T, S) or (B, T, S) boolean with S = M+T, true where a query may look (among the keys that are
            not later than itself).
        position_embedding: None or (S, D'), the sinusoids of distances S-1 .. 0 where several layers share them.
        return_attention_scores: also return the weights.
        training: whether to drop weights.

    Returns:
        (B, T, D), with return_attention_scores also the weights (B, N, T, S) in float32, before dropout.

    Raises:
        ValueError: if num_heads or head_dim is below 1, or memory is not as wide as inputs.

    Example:
        layer = RelativeMultiHeadAttention(num_heads=8, head_dim=64)
        outputs = layer(segment, memory=previous_segment)
    """

    def __init__(self, num_heads, head_dim, dropout=0.0, clamp_len=-1, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(num_heads, head_dim, dropout, kernel_initializer, **kwargs)
        self.must_be_causal("positions of later keys have no meaning here")
        self.clamp_len = clamp_len
        self.content_bias = self.position_bias = None

    def build_scores(self, width):
        heads_width = self.num_heads * self.head_dim
        self.query_kernel = self.add_kernel("query_kernel", width, heads_width)
        self.key_kernel = self.add_kernel("key_kernel", width, heads_width)
        self.position_kernel = self.add_kernel("position_kernel", width + width % 2, heads_width)
        if self.content_bias is None:
            self.content_bias = self.add_kernel("content_bias", self.num_heads, self.head_dim)
            self.position_bias = self.add_kernel("position_bias", self.num_heads, self.head_dim)

    def tie_biases(self, owner):
        """Makes this layer, which must not be built yet, use the biases u and v of another that is built."""
        if self.built or not owner.built:
            raise ValueError("tie_biases needs an unbuilt layer and a built owner. Received: "
                             f"built={self.built}, owner.built={owner.built}")
        self.content_bias, self.position_bias = owner.content_bias, owner.position_bias

    def project_keys(self, inputs):
        return {"key": self.split_heads(inputs, self.key_kernel)}

    def project_positions(self, key_len, position_embedding=None):
        if position_embedding is None:
            position_embedding = sinusoid(key_len, self.query_kernel.shape[0], self.clamp_len)
        embedding = tf.pad(tf.cast(position_embedding, self.compute_dtype), ((1, 0), (0, 0)))  # zeros: the column that the shift wants
        return self.split_heads(embedding[None], self.position_kernel)  # (1, N, 1+S, H)

    def project_query(self, inputs, context, visible=None, ring=None):
        query = self.split_heads(inputs, self.query_kernel) * tf.cast(self.head_dim ** -0.5, inputs.dtype)  # (B, N, T, H)
        return query + self._scaled(self.content_bias), query + self._scaled(self.position_bias)

    def scores(self, query, context, positions, ring=None):
        content_query, position_query = query
        by_content = tf.matmul(content_query, context["key"], transpose_b=True)  # (B, N, T, S)
        return by_content + by_distance(tf.matmul(position_query, positions, transpose_b=True), ring)

    def _scaled(self, bias):
        bias = tf.convert_to_tensor(bias)[:, None]  # (N, 1, H)
        return tf.cast(bias, self.compute_dtype) * tf.cast(self.head_dim ** -0.5, self.compute_dtype)

    def get_config(self):
        return {**super().get_config(), "clamp_len": self.clamp_len}


def sinusoid(key_len, width, clamp_len=-1):
    """Returns float32 (S, D'): row j is [sin | cos] of the distance S-1-j, clamped if clamp_len is above 0; D' is D, or D+1 if odd."""
    distance = tf.cast(tf.range(key_len - 1, -1, -1), tf.float32)
    if clamp_len > 0:
        distance = tf.minimum(distance, float(clamp_len))
    return sinusoid_of(distance, width)


def sinusoid_of(places, width):
    """Returns float32 (..., D'), [sin | cos] of float32 places or distances (...); D' is D, or D+1 if odd."""
    frequency = 1.0 / 10000.0 ** (tf.range(0.0, float(width), 2.0) / float(width))
    angle = places[..., None] * frequency
    return tf.concat([tf.sin(angle), tf.cos(angle)], axis=-1)


def by_distance(scores, ring=None):
    """Returns scores (B, N, T, S) of keys from those (B, N, T, 1+S) of a column of zeros and the distances S-1 .. 0.

    Args:
        scores: (B, N, T, 1+S).
        ring: a Ring, where the keys are not in text order.
    """
    shifted = relative_shift(scores)
    return shifted if ring is None else tf.roll(shifted, ring.end, axis=-1)


def relative_shift(scores):
    """Returns (B, N, T, S) with each row i moved left by T-1-i, so that column j holds the distance i+S-T-j.

    Two reshapes do it at linear cost (Appendix B of the paper). What lands right of a query's own place is without meaning and
    must be masked.

    Args:
        scores: (B, N, T, 1+S), a column of zeros and then the scores of the distances S-1 .. 0.
    """
    batch, heads, query_len, width = (tf.shape(scores)[axis] for axis in range(4))
    if scores.shape[:2] == (1, 1):
        moved = tf.reshape(scores, (-1,))[query_len:]  # the end of a vector is no copy
    else:
        folded = tf.reshape(scores, (batch, heads, width, query_len))
        moved = tf.slice(folded, (0, 0, 1, 0), (-1, -1, -1, -1))  # whose gradient is a tf.pad, faster than that of folded[:, :, 1:]
    return tf.reshape(moved, (batch, heads, query_len, width - 1))
