"""The position-wise feed-forward layer."""

import keras

from txl_tf.layer_checks import check_rates, check_sizes


@keras.saving.register_keras_serializable("txl_tf")
class FeedForward(keras.layers.Layer):
    """relu(x W1 + b1) W2 + b2 at every position (Vaswani et al. 2017, arXiv 1706.03762), with dropout after each product.

    Args:
        inner_dim: width of the hidden layer.
        dropout: dropout rate.
        kernel_initializer: initializer of the kernels; biases start at zero.

    Call arguments:
        inputs: (B, T, D).
        before: not used; every position is by itself.
        training: whether to drop.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if inner_dim is below 1.

    Example:
        outputs = FeedForward(inner_dim=2048, dropout=0.1)(hidden)
    """

    context_len = 0  # tokens before its own that a position needs

    def __init__(self, inner_dim, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_sizes(inner_dim=inner_dim)
        check_rates(dropout=dropout)
        self.inner_dim = inner_dim
        self.dropout = dropout
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.inner = self._dense(inner_dim, "inner", activation="relu")
        self.inner_dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)
        self.output_dropout = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        self.outer = self._dense(inputs_shape[-1], "outer")
        self.inner.build((*inputs_shape[:-1], (1 + self.context_len) * inputs_shape[-1]))
        self.outer.build((*inputs_shape[:-1], self.inner_dim))

    def _dense(self, units, name, **kwargs):
        initializer = self.kernel_initializer.clone()
        return keras.layers.Dense(units, kernel_initializer=initializer, dtype=self.dtype_policy, name=name, **kwargs)

    def call(self, inputs, before=None, training=None):
        hidden = self.inner_dropout(self.inner(inputs), training=training)
        return self.output_dropout(self.outer(hidden), training=training)

    def get_config(self):
        return {
            **super().get_config(),
            "inner_dim": self.inner_dim,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }
