"""One layer of a Transformer-XL."""

import keras
import tensorflow as tf

from txl_tf.attention import ATTENTIONS
from txl_tf.layers.feed_forward import FeedForward


@keras.saving.register_keras_serializable("txl_tf")
class TransformerXLBlock(keras.layers.Layer):
    """Attention over [memory; segment], then feed-forward, each with residual and layer normalisation after it, or before.

    From Dai et al. 2019 (arXiv 1901.02860), in the post-norm form of its code or, with pre_lnorm, the other one of its PyTorch code.

    Args:
        num_heads: heads N.
        head_dim: width H of a head.
        inner_dim: hidden width of the feed-forward layer.
        dropout: dropout rate of the attention's and the feed-forward layer's outputs.
        attention_dropout: dropout rate of the attention weights.
        layer_norm_epsilon: added to the variance.
        kernel_initializer: initializer of the kernels.
        attention: a name in txl_tf.attention.ATTENTIONS.
        pre_lnorm: normalise what attention (of the memory too) and feed-forward read, and not the sums. No gradient passes the memory,
            so the normalisation learns from the segment alone.

    Call arguments:
        inputs: (B, T, D).
        memory: None or (B, M, D).
        attention_mask: None, (T, S) or (B, T, S) boolean, true where a query may look.
        position_embedding: None or (S, D), shared sinusoids.
        return_attention_scores: also return the attention weights.
        training: whether to drop.

    Returns:
        (B, T, D), with return_attention_scores also the weights (B, N, T, S).

    Raises:
        ValueError: if attention is not a known name, or a size is below 1.

    Example:
        outputs = TransformerXLBlock(num_heads=8, head_dim=64, inner_dim=2048)(segment, memory=previous_inputs)
    """

    def __init__(self, num_heads, head_dim, inner_dim, dropout=0.0, attention_dropout=0.0, layer_norm_epsilon=1e-12,
                 kernel_initializer="glorot_uniform", attention="relative", pre_lnorm=False, **kwargs):
        super().__init__(**kwargs)
        if attention not in ATTENTIONS:
            raise ValueError(f"attention must be one of {', '.join(ATTENTIONS)}. Received: attention={attention}")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.inner_dim = inner_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.attention = attention
        self.pre_lnorm = pre_lnorm
        self.remat = False  # whether the backward pass computes the activations again; a matter of training, so not of the config
        shared = {"kernel_initializer": self.kernel_initializer, "dtype": self.dtype_policy}
        self.attention_layer = ATTENTIONS[attention](num_heads, head_dim, attention_dropout, name="attention", **shared)
        self.attention_dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.attention_norm = self._norm("attention_norm")
        self.feed_forward = FeedForward(inner_dim, dropout, name="feed_forward", **shared)
        self.feed_forward_norm = self._norm("feed_forward_norm")

    def _norm(self, name):
        return keras.layers.LayerNormalization(epsilon=self.layer_norm_epsilon, dtype=self.dtype_policy, name=name)

    def build(self, inputs_shape):
        for layer in (self.attention_layer, self.attention_norm, self.feed_forward, self.feed_forward_norm):
            layer.build(inputs_shape)

    def call(self, inputs, memory=None, attention_mask=None, position_embedding=None, return_attention_scores=False,
             training=None):
        if self.remat and training and not return_attention_scores:
            return self._recomputed(inputs, memory, attention_mask, position_embedding)
        return self._computed(inputs, memory, attention_mask, position_embedding, return_attention_scores, training)

    def _computed(self, inputs, memory, attention_mask, position_embedding, return_attention_scores, training):
        memory = None if memory is None else self.attention_inputs(memory)
        attended, weights = self.attention_layer(
            self.attention_inputs(inputs), memory=memory, attention_mask=attention_mask, position_embedding=position_embedding,
            return_attention_scores=True, training=training)
        outputs = self.after_attention(inputs, attended, training)
        return (outputs, weights) if return_attention_scores else outputs

    def attention_inputs(self, hidden):
        """Returns what the attention layer reads of hidden states or memory (B, X, D)."""
        return self.attention_norm(hidden) if self.pre_lnorm else hidden

    def after_attention(self, inputs, attended, training=False):
        """Returns the block's outputs (B, T, D) from its inputs and what the attention layer made of them."""
        hidden = inputs + self.attention_dropout_layer(attended, training=training)
        if self.pre_lnorm:
            return hidden + self.feed_forward(self.feed_forward_norm(hidden), training=training)
        hidden = self.attention_norm(hidden)
        return self.feed_forward_norm(hidden + self.feed_forward(hidden, training=training))

    def _recomputed(self, inputs, memory, attention_mask, position_embedding):
        """Computes the outputs in a way that keeps only the inputs for the backward pass, which drops the same as the forward."""
        seeds = [layer.seed_generator.state for layer in self._flatten_layers() if getattr(layer, "seed_generator", None)]
        before = [seed.value * 1 for seed in seeds]

        def outputs(inputs):
            now = [seed.value * 1 for seed in seeds]
            for seed, state in zip(seeds, before):
                seed.assign(state)
            computed = self._computed(inputs, memory, attention_mask, position_embedding, False, True)
            for seed, state in zip(seeds, now):  # other calls may have drawn since; what they left must stay
                seed.assign(tf.where(seed.value > state, seed.value, state))
            return computed

        return tf.recompute_grad(outputs)(inputs)

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "inner_dim": self.inner_dim,
            "dropout": self.dropout,
            "attention_dropout": self.attention_dropout,
            "layer_norm_epsilon": self.layer_norm_epsilon,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "attention": self.attention,
            "pre_lnorm": self.pre_lnorm,
        }
