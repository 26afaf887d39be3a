"""One layer of a Transformer-XL."""

import keras
import tensorflow as tf

from txl_tf.attention import attention_layer
from txl_tf.attention.recent_tokens import recent_tokens
from txl_tf.layers.conv_feed_forward import ConvFeedForward
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.layers.layer_norm import LayerNorm

FEED_FORWARDS = {"dense": FeedForward, "conv_relu": ConvFeedForward}


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
        attention_settings: {name in ModelConfig: value} of what that way of attention takes; it may hold others.
        feed_forward_type: a name in FEED_FORWARDS.
        pre_lnorm: normalise what attention (of the memory too) and feed-forward read, and not the sums.

    Call arguments:
        inputs: (B, T, D).
        memory: None or (B, M, E), what was `remembered` of the tokens before: E is D, and 2 D with convolutions in the feed-forward layer.
        attention_mask: None, (T, S) or (B, T, S) boolean, true where a query may look. Convolutions in the feed-forward layer read
            none of the memory's tokens that no query may see, but all of the segment's.
        position_embedding: None or (S, D), shared sinusoids.
        return_attention_scores: also return the attention weights.
        return_remembered: also return what a later segment's memory must hold of this one.
        training: whether to drop.

    Returns:
        (B, T, D), with return_attention_scores also the weights (B, N, T, S), with return_remembered also (B, T, E).

    Raises:
        ValueError: if attention or feed_forward_type is not a known name, or a size is below 1.

    Example:
        outputs = TransformerXLBlock(num_heads=8, head_dim=64, inner_dim=2048)(segment, memory=previous_inputs)
    """

    def __init__(self, num_heads, head_dim, inner_dim, dropout=0.0, attention_dropout=0.0, layer_norm_epsilon=1e-12,
                 kernel_initializer="glorot_uniform", attention="relative", attention_settings=None,
                 feed_forward_type="dense", pre_lnorm=False, **kwargs):
        super().__init__(**kwargs)
        if feed_forward_type not in FEED_FORWARDS:
            raise ValueError(f"feed_forward_type must be one of {', '.join(FEED_FORWARDS)}. Received: feed_forward_type={feed_forward_type}")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.inner_dim = inner_dim
        self.dropout = dropout
        self.attention_dropout = attention_dropout
        self.layer_norm_epsilon = layer_norm_epsilon
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.attention = attention
        self.attention_settings = dict(attention_settings or {})
        self.feed_forward_type = feed_forward_type
        self.pre_lnorm = pre_lnorm
        self.remat = False  # whether the backward pass computes the activations again; a matter of training, so not of the config
        shared = {"kernel_initializer": self.kernel_initializer, "dtype": self.dtype_policy}
        self.attention_layer = attention_layer(
            attention, num_heads, head_dim, self.attention_settings, dropout=attention_dropout, name="attention", **shared)
        self.attention_layer.memory_gradient = pre_lnorm  # the normalisation of the memory learns; what is normalised is stopped here
        self.attention_dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.attention_norm = self._norm("attention_norm")
        self.feed_forward = FEED_FORWARDS[feed_forward_type](inner_dim, dropout, name="feed_forward", **shared)
        self.feed_forward_norm = self._norm("feed_forward_norm")

    def _norm(self, name):
        return LayerNorm(self.layer_norm_epsilon, dtype=self.dtype_policy, name=name)

    def build(self, inputs_shape):
        for layer in (self.attention_layer, self.attention_norm, self.feed_forward, self.feed_forward_norm):
            layer.build(inputs_shape)

    def call(self, inputs, memory=None, attention_mask=None, position_embedding=None, return_attention_scores=False,
             return_remembered=False, training=None):
        call = {"memory": memory, "attention_mask": attention_mask, "position_embedding": position_embedding}
        if self.remat and training and not return_attention_scores:
            outputs, received = self._recomputed(inputs, **call)
        else:
            outputs, received, weights = self._computed(inputs, **call, training=training)
        more = ((weights,) if return_attention_scores else ()) + ((self.remembered(inputs, received),) if return_remembered else ())
        return (outputs, *more) if more else outputs

    def _computed(self, inputs, memory, attention_mask, position_embedding, training):
        attention_memory, before = self._parts_of(memory, attention_mask)
        attended, weights = self.attention_layer(
            self.attention_inputs(inputs), memory=attention_memory, attention_mask=attention_mask,
            position_embedding=position_embedding, return_attention_scores=True, training=training)
        return *self.after_attention(inputs, attended, before, training=training), weights

    def _parts_of(self, memory, attention_mask):
        """Returns what attention looks at of a memory (B, M, E), and what the feed-forward layer needs of it (B, F-1, D)."""
        if memory is None:
            return None, None
        width = memory.shape[-1] // (2 if self.feed_forward.context_len else 1)
        before = None
        if self.feed_forward.context_len:
            visible = None if attention_mask is None else attention_mask[..., :tf.shape(memory)[1]]
            received = tf.stop_gradient(memory[:, None, :, width:])
            before = recent_tokens(received, self.feed_forward.context_len, visible)[:, 0]
        return self.attention_inputs(tf.stop_gradient(memory[..., :width])), before

    def remembered(self, inputs, received):
        """Returns what a memory holds of tokens: the block's inputs, with convolutions also what the feed-forward layer received."""
        return tf.concat([inputs, received], axis=-1) if self.feed_forward.context_len else inputs

    def attention_inputs(self, hidden):
        """Returns what the attention layer reads of hidden states or memory (B, X, D)."""
        return self.attention_norm(hidden) if self.pre_lnorm else hidden

    def after_attention(self, inputs, attended, before=None, counts=None, training=False):
        """Returns the block's outputs (B, T, D), and what the feed-forward layer received.

        Args:
            inputs: (B, T, D), the block's.
            attended: (B, T, D), what the attention layer made of them.
            before: None or (B, F-1, D), what the feed-forward layer received of the tokens before.
            counts: None or (B, T, 1) boolean, false where a convolution finds no token.
            training: whether to drop.
        """
        hidden = inputs + self.attention_dropout_layer(attended, training=training)
        hidden = hidden if self.pre_lnorm else self.attention_norm(hidden)
        received = self.feed_forward_norm(hidden) if self.pre_lnorm else hidden
        if counts is not None and self.feed_forward.context_len:
            received = tf.where(counts, received, 0)
        outputs = hidden + self.feed_forward(received, before=before, training=training)
        return (outputs if self.pre_lnorm else self.feed_forward_norm(outputs)), received

    def _recomputed(self, inputs, **call):
        """Computes the outputs in a way that keeps only the inputs for the backward pass, which drops the same as the forward."""
        seeds = [layer.seed_generator.state for layer in self._flatten_layers() if getattr(layer, "seed_generator", None)]
        before = [seed.value * 1 for seed in seeds]

        def outputs_and_received(inputs):
            now = [seed.value * 1 for seed in seeds]
            for seed, state in zip(seeds, before):
                seed.assign(state)
            outputs, received, _ = self._computed(inputs, **call, training=True)
            for seed, state in zip(seeds, now):  # other calls may have drawn since; what they left must stay
                seed.assign(tf.where(seed.value > state, seed.value, state))
            return outputs, received

        return tf.recompute_grad(outputs_and_received)(inputs)

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
            "attention_settings": self.attention_settings,
            "feed_forward_type": self.feed_forward_type,
            "pre_lnorm": self.pre_lnorm,
        }
