"""The Random Synthesizer: logits that do not depend on the tokens at all."""

import keras

from txl_tf.attention.synthesizer import SynthesizerBase
from txl_tf.layer_checks import check_switches


@keras.saving.register_keras_serializable("txl_tf")
class RandomSynthesizer(SynthesizerBase):
    """Multi-head attention with the same logits for all texts (Tay et al. 2020, arXiv 2005.00743, section 3.2).

    With key_index "position" a head has an l x l matrix, l^2 parameters, query i its row i; with "distance" one vector of l.

    Args:
        num_heads: heads N.
        head_dim: width H of a head's values.
        max_length: number l of places or distances, the largest number of keys S.
        key_index: "position": logits of the keys 0 .. l-1 of a text; "distance": of the keys 0 .. l-1 tokens before.
        fixed: the logits keep their first values, which are saved like other weights, instead of being trained.
        scores_initializer: initializer of the logits; None: N(0, 1).
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
        ValueError: if a size is below 1, key_index is no known one, S exceeds max_length, or memory does not fit.

    Example:
        outputs = RandomSynthesizer(num_heads=8, head_dim=64, max_length=256, fixed=True)(segment)
    """

    def __init__(self, num_heads, head_dim, max_length, key_index="position", fixed=False, scores_initializer=None, dropout=0.0,
                 kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(num_heads, head_dim, max_length, key_index, dropout, kernel_initializer, **kwargs)
        check_switches(fixed=fixed)
        self.fixed = fixed
        self.scores_initializer = keras.initializers.get(scores_initializer or keras.initializers.RandomNormal(stddev=1.0))

    def build_scores(self, width):
        rows = 1 if self.is_by_distance else self.max_length
        self.logits = self.add_weight(name="logits", shape=(self.num_heads, rows, self.max_length), trainable=not self.fixed,
                                      initializer=self.scores_initializer.clone())

    def project_positions(self, key_len, position_embedding=None):
        return self.in_key_order(self.cast(self.logits)[None], key_len)

    def get_config(self):
        return {**super().get_config(), "fixed": self.fixed,
                "scores_initializer": keras.initializers.serialize(self.scores_initializer)}
