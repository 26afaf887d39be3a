"""Attention by content alone: scaled dot products of queries and keys."""

import keras
import tensorflow as tf

from txl_tf.attention.multi_head import MultiHeadAttentionBase


@keras.saving.register_keras_serializable("txl_tf")
class DotProductMultiHeadAttention(MultiHeadAttentionBase):
    """Multi-head attention over [memory; segment] by q_i k_j / sqrt(H) (Vaswani et al. 2017, arXiv 1706.03762).

    It knows no positions: a model adds them to its embeddings (`AbsolutePositions`), or does without.

    Args:
        num_heads: heads N.
        head_dim: width H of a head; N H need not equal D.
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of all kernels.
        causal: whether a query sees itself and earlier keys only.

    Call arguments:
        inputs: (B, T, D).
        memory: None or (B, M, D), what came before; no gradient reaches it.
        attention_mask: None, (T, S) or (B, T, S) boolean with S = M+T, true where a query may look; where causal, among the keys
            that are not later than itself.
        position_embedding: not used.
        return_attention_scores: also return the weights.
        training: whether to drop weights.

    Returns:
        (B, T, D), with return_attention_scores also the weights (B, N, T, S) in float32, before dropout.

    Raises:
        ValueError: if num_heads or head_dim is below 1, or memory is not as wide as inputs.

    Example:
        outputs = DotProductMultiHeadAttention(num_heads=8, head_dim=64)(segment)
    """

    def build_scores(self, width):
        self.query_kernel = self.add_kernel("query_kernel", width, self.num_heads * self.head_dim)
        self.key_kernel = self.add_kernel("key_kernel", width, self.num_heads * self.head_dim)

    def project_keys(self, inputs):
        return {"key": self.split_heads(inputs, self.key_kernel)}

    def project_query(self, inputs, context, visible=None, ring=None):
        return self.split_heads(inputs, self.query_kernel) * tf.cast(self.head_dim ** -0.5, inputs.dtype)  # (B, N, T, H)

    def scores(self, query, context, positions, ring=None):
        return tf.matmul(query, context["key"], transpose_b=True)
