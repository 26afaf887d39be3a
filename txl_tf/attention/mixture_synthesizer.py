"""A mixture of ways to make scores, which share one set of values."""

import keras
import tensorflow as tf

from txl_tf.attention.multi_head import MultiHeadAttentionBase

WEIGHTINGS = ("softmax", "sum", "sigmoid")


@keras.saving.register_keras_serializable("txl_tf")
class MixtureSynthesizer(MultiHeadAttentionBase):
    """Multi-head attention whose scores are a weighted sum of others' (Tay et al. 2020, arXiv 2005.00743, section 3.3).

    Weightings:

    - "softmax": learned weights, one for each of the mixture, that sum to one; at the start they are equal.
    - "sum": every weight is 1, as in the paper's equation 9.
    - "sigmoid", the official code's, of two: (1 - alpha) of the first and alpha = sigmoid(weight) of the second, at the start a half.

    Args:
        num_heads: heads N.
        head_dim: width H of a head's values.
        mixed: layers of attention, of as many heads and the same dtype, that are in no other model; only what makes their scores is built.
        weighting: how they are weighed.
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of the kernels of values and outputs.
        causal: whether a query sees itself and earlier keys only.

    Call arguments:
        inputs: (B, T, D).
        memory: None or (B, M, D), what came before; no gradient reaches it. Where a layer of the mixture takes none, M must be 0.
        attention_mask: None, (T, S) or (B, T, S) boolean with S = M+T, true where a query may look; where causal, among the keys
            that are not later than itself.
        position_embedding: None or (S, D'), the sinusoids of distances S-1 .. 0 where several layers share them.
        return_attention_scores: also return the weights.
        training: whether to drop weights.

    Returns:
        (B, T, D), with return_attention_scores also the weights (B, N, T, S) in float32, before dropout.

    Raises:
        ValueError: if a size is below 1, fewer than two layers are mixed (with "sigmoid": not two), one is built, mixed twice, a mixture
            itself or of another number of heads or dtype, weighting is no known one, or inputs or memory do not suit one of the layers.

    Example:
        mixed = [DotProductMultiHeadAttention(8, 64), DenseSynthesizer(8, 64, max_length=256)]
        outputs = MixtureSynthesizer(num_heads=8, head_dim=64, mixed=mixed)(segment)
    """

    works_by_head = False

    def __init__(self, num_heads, head_dim, mixed, weighting="softmax", dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(num_heads, head_dim, dropout, kernel_initializer, **kwargs)
        if weighting not in WEIGHTINGS:
            raise ValueError(f"weighting must be one of {', '.join(WEIGHTINGS)}. Received: weighting={weighting}")
        if not isinstance(mixed, (list, tuple)):
            raise ValueError(f"mixed must be a list of layers. Received: mixed={mixed!r}")
        kinds = [type(layer).__name__ for layer in mixed]
        if len(mixed) < 2 or (weighting == "sigmoid" and len(mixed) != 2):
            wanted = "two layers with weighting=sigmoid" if weighting == "sigmoid" else "at least two layers"
            raise ValueError(f"mixed must be {wanted}. Received: mixed={kinds}")
        for layer in mixed:
            if not isinstance(layer, MultiHeadAttentionBase) or isinstance(layer, MixtureSynthesizer) or layer.built:
                raise ValueError(f"mixed must be layers of attention that are not built, and no mixtures. Received: mixed={kinds}")
            for name in ("num_heads", "compute_dtype", "causal"):
                wanted, received = getattr(self, name), getattr(layer, name)
                if received != wanted:
                    raise ValueError(f"mixed must have {name}={wanted}. Received: {type(layer).__name__}, {name}={received}")
        self.mixed = list(mixed)
        self.weighting = weighting

    def build_scores(self, width):
        for layer in self.mixed:
            if layer.built:
                raise ValueError(f"mixed must be layers that are mixed but once. Received: {type(layer).__name__}, name={layer.name}")
            layer.build_scores(width)
            layer.built = True
        if self.weighting != "sum":
            count = len(self.mixed) if self.weighting == "softmax" else 1
            self.mixing_logits = self.add_weight(name="mixing_logits", shape=(count,), initializer="zeros", autocast=False)

    def mixing_weights(self):
        """Returns the float32 weights of the mixture's layers."""
        if self.weighting == "sum":
            return tf.ones((len(self.mixed),))
        logits = tf.convert_to_tensor(self.mixing_logits)
        return tf.nn.softmax(logits) if self.weighting == "softmax" else tf.concat([tf.sigmoid(-logits), tf.sigmoid(logits)], axis=0)

    def tie_biases(self, owner):
        for layer, other in zip(self.mixed, owner.mixed, strict=True):
            layer.tie_biases(other)

    def check_memory(self, memory, inputs):
        for layer in self.mixed:
            memory = layer.check_memory(memory, inputs)
        return memory

    def check_keys(self, key_len):
        for layer in self.mixed:
            key_len = layer.check_keys(key_len)
        return key_len

    def project_keys(self, inputs):
        return {f"{name}_{index}": value for index, layer in enumerate(self.mixed) for name, value in layer.project_keys(inputs).items()}

    def project_positions(self, key_len, position_embedding=None):
        return tuple(layer.project_positions(key_len, position_embedding) for layer in self.mixed)

    def project_query(self, inputs, context, visible=None, ring=None):
        return tuple(layer.project_query(inputs, self._context_of(index, context), visible, ring) for index, layer in enumerate(self.mixed))

    def scores(self, query, context, positions, ring=None):
        found = 0.0
        for index, (layer, weight) in enumerate(zip(self.mixed, tf.unstack(self.mixing_weights(), len(self.mixed)), strict=True)):
            scores = layer.scores(query[index], self._context_of(index, context), positions[index], ring)
            found += tf.cast(weight, scores.dtype) * scores
        return found

    def _context_of(self, index, context):
        """Returns the context of one layer of the mixture."""
        ending = f"_{index}"
        own = {name.removesuffix(ending): value for name, value in context.items() if name.endswith(ending)}
        return {"value": context["value"], **own}

    def get_config(self):
        return {**super().get_config(), "mixed": [keras.saving.serialize_keras_object(layer) for layer in self.mixed],
                "weighting": self.weighting}

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "mixed": [keras.saving.deserialize_keras_object(layer) for layer in config["mixed"]]})
