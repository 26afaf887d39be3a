"""Attention with a learned vector for each distance, as Shaw et al. have it."""

import keras
import tensorflow as tf

from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.relative import by_distance
from txl_tf.layer_checks import check_sizes


@keras.saving.register_keras_serializable("txl_tf")
class ShawMultiHeadAttention(DotProductMultiHeadAttention):
    """Multi-head attention over [memory; segment] by q_i (k_j + a_{i-j}) / sqrt(H) (Shaw et al. 2018, arXiv 1803.02155), causal.

    The vectors a, which all heads share, are learned for the distances below max_length; those further away have that of the last.
    Values have no vectors of distances, as in the comparison of Transformer-XL's paper.

    Args:
        num_heads: heads N.
        head_dim: width H of a head; N H need not equal D.
        max_length: number l of distances with a vector of their own.
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of all kernels and vectors.

    Call arguments:
        inputs, memory, attention_mask, position_embedding, return_attention_scores, training: as `DotProductMultiHeadAttention`.

    Returns:
        (B, T, D), with return_attention_scores also the weights (B, N, T, S) in float32, before dropout.

    Raises:
        ValueError: if num_heads, head_dim or max_length is below 1, or memory is not as wide as inputs.

    Example:
        outputs = ShawMultiHeadAttention(num_heads=8, head_dim=64, max_length=128)(segment, memory=previous_segment)
    """

    def __init__(self, num_heads, head_dim, max_length, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(num_heads, head_dim, dropout, kernel_initializer, **kwargs)
        check_sizes(max_length=max_length)
        self.must_be_causal("later keys have no vectors of distances")
        self.max_length = max_length

    def build_scores(self, width):
        super().build_scores(width)
        self.distance_embedding = self.add_kernel("distance_embedding", self.max_length, self.head_dim)

    def project_positions(self, key_len, position_embedding=None):
        distances = tf.minimum(tf.range(key_len - 1, -1, -1), self.max_length - 1)  # (S,)
        vectors = tf.gather(tf.cast(tf.convert_to_tensor(self.distance_embedding), self.compute_dtype), distances)
        vectors = tf.pad(vectors, ((1, 0), (0, 0)))  # zeros: the column that the shift wants
        return tf.repeat(vectors[None, None], self.num_heads, axis=1)  # (1, N, 1+S, H)

    def scores(self, query, context, positions, ring=None):
        by_content = super().scores(query, context, positions, ring)
        return by_content + by_distance(tf.matmul(query, positions, transpose_b=True), ring)

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length}
