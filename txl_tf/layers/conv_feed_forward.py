"""The feed-forward layer whose first product is a convolution over a few tokens."""

import keras
import tensorflow as tf

from txl_tf.attention.recent_tokens import unfolded
from txl_tf.layer_checks import check_sizes
from txl_tf.layers.feed_forward import FeedForward


@keras.saving.register_keras_serializable("txl_tf")
class ConvFeedForward(FeedForward):
    """relu(conv(x) + b1) W2 + b2, the convolution over each token and the kernel_size - 1 before it.

    It is the feed-forward layer of the language models of Tay et al. 2020 (arXiv 2005.00743), which has a kernel of 3.

    Args:
        inner_dim: width of the hidden layer.
        dropout: dropout rate after each product.
        kernel_size: number F of tokens that the convolution reads.
        kernel_initializer: initializer of the kernels; biases start at zero.

    Call arguments:
        inputs: (B, T, D).
        before: None or (B, F-1, D), the inputs of the tokens before; None: a text begins, with zeros before it.
        training: whether to drop.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if inner_dim or kernel_size is below 1, or before has another number of tokens.

    Example:
        outputs = ConvFeedForward(inner_dim=2048, dropout=0.1)(hidden)
    """

    def __init__(self, inner_dim, dropout=0.0, kernel_size=3, kernel_initializer="glorot_uniform", **kwargs):
        check_sizes(kernel_size=kernel_size)
        self.context_len = kernel_size - 1
        super().__init__(inner_dim, dropout, kernel_initializer, **kwargs)
        self.kernel_size = kernel_size

    def call(self, inputs, before=None, training=None):
        if before is None:
            inputs = tf.pad(inputs, ((0, 0), (self.context_len, 0), (0, 0)))
        elif before.shape[1] not in (None, self.context_len):
            raise ValueError(f"before must be {self.context_len} tokens, kernel_size - 1. Received: before.shape={before.shape}")
        else:
            inputs = tf.concat([tf.cast(before, inputs.dtype), inputs], axis=1)  # (B, F-1+T, D)
        return super().call(unfolded(inputs[:, None], self.kernel_size)[:, 0], training=training)

    def get_config(self):
        return {**super().get_config(), "kernel_size": self.kernel_size}
