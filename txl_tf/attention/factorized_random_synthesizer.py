"""The Factorized Random Synthesizer: logits of low rank that do not depend on the tokens."""

import keras
import tensorflow as tf

from txl_tf.attention.factors import balanced_factors, check_factors
from txl_tf.attention.synthesizer import SynthesizerBase
from txl_tf.layer_checks import check_sizes


@keras.saving.register_keras_serializable("txl_tf")
class FactorizedRandomSynthesizer(SynthesizerBase):
    """Multi-head attention with the logits R1 R2^T for all texts (Tay et al. 2020, arXiv 2005.00743, section 3.2.1).

    With key_index "position" R1 and R2 are l x k, 2 l k parameters a head, and query i has row i of the product. With "distance"
    they are a x k and b x k with a b = l, and the product, read row by row, is one vector of l.

    Args:
        num_heads: heads N.
        head_dim: width H of a head's values.
        max_length: number l of places or distances, the largest number of keys S.
        key_index: "position": logits of the keys 0 .. l-1 of a text; "distance": of the keys 0 .. l-1 tokens before.
        rank: rank k of the product.
        factors: (a, b) with a b = l, for key_index "distance"; None: as near to each other as they can be.
        scores_initializer: initializer of the two factors; None: N(0, k^-1/4), so that their products start with a variance of 1.
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of all kernels.
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
        ValueError: if a size is below 1, key_index is no known one, factors do not give l, S exceeds max_length, or memory does not fit.

    Example:
        outputs = FactorizedRandomSynthesizer(num_heads=8, head_dim=64, max_length=256, rank=8)(segment)
    """

    def __init__(self, num_heads, head_dim, max_length, key_index="position", rank=8, factors=None, scores_initializer=None,
                 dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(num_heads, head_dim, max_length, key_index, dropout, kernel_initializer, **kwargs)
        check_sizes(rank=rank)
        check_factors(factors, max_length)
        self.rank = rank
        self.factors = factors and tuple(factors)
        self.scores_initializer = keras.initializers.get(scores_initializer or keras.initializers.RandomNormal(stddev=rank ** -0.25))

    def build_scores(self, width):
        rows = (self.factors or balanced_factors(self.max_length)) if self.is_by_distance else (self.max_length, self.max_length)
        self.left, self.right = (
            self.add_weight(name=name, shape=(self.num_heads, count, self.rank), initializer=self.scores_initializer.clone())
            for name, count in zip(("left", "right"), rows))

    def project_positions(self, key_len, position_embedding=None):
        product = tf.matmul(self.cast(self.left), self.cast(self.right), transpose_b=True)  # (N, l, l), or (N, a, b)
        if self.is_by_distance:
            product = tf.reshape(product, (self.num_heads, 1, self.max_length))
        return self.in_key_order(product[None], key_len)

    def get_config(self):
        return {**super().get_config(), "rank": self.rank, "factors": self.factors,
                "scores_initializer": keras.initializers.serialize(self.scores_initializer)}
