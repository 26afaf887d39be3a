"""Absolute positions: a sinusoid of each token's place, added to its embedding."""

import keras
import tensorflow as tf

from txl_tf.attention.relative import sinusoid_of


@keras.saving.register_keras_serializable("txl_tf")
class AbsolutePositions(keras.layers.Layer):
    """Adds to each token the sinusoid of its place in the text (Vaswani et al. 2017, arXiv 1706.03762).

    Call arguments:
        inputs: (B, T, D).
        places: None or (B, T) integers, the tokens' places; None: 0 .. T-1.

    Returns:
        (B, T, D).

    Example:
        hidden = AbsolutePositions()(embedding)
    """

    def call(self, inputs, places=None):
        places = tf.range(tf.shape(inputs)[1])[None] if places is None else places
        positions = sinusoid_of(tf.cast(places, tf.float32), inputs.shape[-1])[..., :inputs.shape[-1]]
        return inputs + tf.cast(positions, inputs.dtype)

    def get_config(self):
        return super().get_config()
