"""The Factorized Dense Synthesizer: every token computes two short vectors, whose products are its logits."""

import keras
import tensorflow as tf

from txl_tf.attention.factors import balanced_factors, check_factors
from txl_tf.attention.synthesizer import SynthesizerBase


@keras.saving.register_keras_serializable("txl_tf")
class FactorizedDenseSynthesizer(SynthesizerBase):
    """Multi-head attention with logits A_i[x] B_i[y] for the pairs (x, y) (Tay et al. 2020, arXiv 2005.00743, section 3.1.1).

    Each head reads its share of d = D/N numbers of a token: h = relu(W x + b), A = h W_A + b_A of a numbers and B = h W_B + b_B of b, with
    a b = l: d^2 + d (a + b) parameters a head, and their biases. Key x b + y has the product of A[x] and B[y]: A with each number b
    times, B a times over, so that every pair occurs once.

    Args:
        num_heads: heads N.
        head_dim: width H of a head's values.
        max_length: number l of places or distances, the largest number of keys S.
        key_index: "position": logits of the keys 0 .. l-1 of a text; "distance": of the keys 0 .. l-1 tokens before.
        factors: (a, b) with a b = l; None: as near to each other as they can be.
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of all kernels; biases start at zero.
        causal: whether a query sees itself and earlier keys only. With key_index "distance" it must.

    Call arguments:
        inputs: (B, T, D).
        memory: None or (B, M, D), what came before; no gradient reaches it. With key_index "position" M must be 0.
        attention_mask: None, (T, S) or (B, T, S) boolean with S = M+T, true where a query may look; where causal, among the keys
            that are not later than itself.
        position_embedding: not used.
        return_attention_scores: also return the weights.
        training: whether to drop weights.

    Returns:
        (B, T, D), with return_attention_scores also the weights (B, N, T, S) in float32, before dropout.

    Raises:
        ValueError: if a size is below 1, key_index is no known one, N does not divide D, factors do not give l, S exceeds max_length, or
            memory does not fit.

    Example:
        outputs = FactorizedDenseSynthesizer(num_heads=8, head_dim=64, max_length=256)(segment)  # a = b = 16
    """

    def __init__(self, num_heads, head_dim, max_length, key_index="position", factors=None, dropout=0.0,
                 kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(num_heads, head_dim, max_length, key_index, dropout, kernel_initializer, **kwargs)
        check_factors(factors, max_length)
        self.factors = factors and tuple(factors)

    def build_scores(self, width):
        share, (left, right) = self.share_width(width), self.factors or balanced_factors(self.max_length)
        self.hidden_kernel, self.hidden_bias = self.add_head_layer("hidden", share, share)
        self.left_kernel, self.left_bias = self.add_head_layer("left", share, left)
        self.right_kernel, self.right_bias = self.add_head_layer("right", share, right)

    def project_query(self, inputs, context, visible=None, ring=None):
        hidden = tf.nn.relu(tf.matmul(self.shares(inputs), self.cast(self.hidden_kernel)) + self.cast(self.hidden_bias))
        left, right = (self._factor(hidden, name) for name in ("left", "right"))  # (B, N, T, a), (B, N, T, b)
        products = left[..., None] * right[..., None, :]  # (B, N, T, a, b)
        return tf.reshape(products, tf.concat([tf.shape(left)[:3], [self.max_length]], axis=0))

    def _factor(self, hidden, name):
        """Returns A or B; where these are in text order, their products are, too, at less cost."""
        kernel, bias = (self.in_text_order(self.cast(getattr(self, f"{name}_{part}"))) for part in ("kernel", "bias"))
        return tf.matmul(hidden, kernel) + bias

    def scores(self, query, context, positions, ring=None):
        key_len = tf.shape(context["value"])[2]
        return self.of_keys(self.cut(query, key_len), key_len, ring)

    def get_config(self):
        return {**super().get_config(), "factors": self.factors}
