"""A softmax over the whole vocabulary."""

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("txl_tf")
class FullSoftmax(keras.layers.Layer):
    """Turns hidden states into the distribution of the next token, with the embedding's table or one of its own.

    Args:
        vocabulary_size: tokens V.
        token_embedding: the AdaptiveEmbedding (built, with one table) whose table and projection are shared; None: the layer
            has a table of its own, as wide as the hidden states.
        kernel_initializer: initializer of a table of its own; the bias starts at zero.

    Call arguments:
        inputs: (B, T, D), hidden states.

    Returns:
        (B, T, V) float32, log-probabilities in nats.

    Raises:
        ValueError: if token_embedding has another vocabulary or more than one table.

    Example:
        embedding = AdaptiveEmbedding(256, 64)
        hidden = embedding(token_ids)
        nll = FullSoftmax(256, token_embedding=embedding).nll(hidden, labels)
    """

    def __init__(self, vocabulary_size, token_embedding=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        if token_embedding is not None and token_embedding.vocabulary_size != vocabulary_size:
            raise ValueError(f"token_embedding must have {vocabulary_size} tokens. Received: "
                             f"token_embedding.vocabulary_size={token_embedding.vocabulary_size}")
        self.vocabulary_size = vocabulary_size
        self.token_embedding = token_embedding
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    def build(self, inputs_shape):
        self.table, self.projection = None, None
        if self.token_embedding is None:
            self.table = self.add_weight(name="table", shape=(self.vocabulary_size, inputs_shape[-1]),
                                         initializer=self.kernel_initializer.clone())
        self.bias = self.add_weight(name="bias", shape=(self.vocabulary_size,), initializer="zeros")

    def call(self, inputs):
        return tf.nn.log_softmax(self._logits(inputs))

    def log_probs(self, hidden):
        """Returns the log-probabilities (B, T, V) in float32 of the next token after each hidden state (B, T, D)."""
        return self(hidden)

    def nll(self, hidden, labels):
        """Returns the negative log-likelihood (B, T) in nats, float32, of labels (B, T) under hidden states (B, T, D)."""
        return tf.nn.sparse_softmax_cross_entropy_with_logits(labels, self._logits(hidden))

    def _logits(self, hidden):
        table, projection = self.table, None
        if self.token_embedding is not None:
            table, projection = self.token_embedding.tables[0], self.token_embedding.projections[0]
        hidden = tf.cast(hidden, self.compute_dtype)
        if projection is not None:
            hidden = tf.matmul(hidden, tf.cast(projection, hidden.dtype), transpose_b=True)  # (B, T, E)
        logits = tf.matmul(hidden, tf.cast(table, hidden.dtype), transpose_b=True)
        return tf.cast(logits, tf.float32) + tf.cast(self.bias, tf.float32)

    def get_config(self):
        embedding = self.token_embedding and keras.saving.serialize_keras_object(self.token_embedding)
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "token_embedding": embedding,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "token_embedding": keras.saving.deserialize_keras_object(config["token_embedding"])})
