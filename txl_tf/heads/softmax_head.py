"""What the heads share: nll and loss in text order over whatever chunks a head asks for."""

import keras
import tensorflow as tf

from txl_tf.heads.chunked_loss import chunked_loss, chunked_nll
from txl_tf.layer_checks import check_sizes


class SoftmaxHead(keras.layers.Layer):
    """The methods that every head has. A subclass gives `call`, the log-probabilities, and

    - `_parts(hidden, labels)`: for each cluster of the vocabulary ((features, table, bias, labels), span) as chunked_loss.py
      describes them, of hidden (B T, D) and labels (B T,); a token's nll is the sum over all parts;
    - `_best(hidden, k)`: what top_k returns.

    Args:
        vocabulary_size: tokens V.
        token_embedding: the AdaptiveEmbedding whose weights are shared, or None.
        kernel_initializer: initializer of tables of its own.

    Call arguments:
        inputs: (B, T, D), hidden states.

    Returns:
        (B, T, V) float32, log-probabilities in nats.

    Raises:
        ValueError: if vocabulary_size is below 1 or not that of token_embedding, or top_k gets a k not between 1 and V.

    Example:
        loss = FullSoftmax(256).loss(hidden, labels)
    """

    def __init__(self, vocabulary_size, token_embedding=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        check_sizes(vocabulary_size=vocabulary_size)
        if token_embedding is not None and token_embedding.vocabulary_size != vocabulary_size:
            raise ValueError(f"token_embedding must have vocabulary_size={vocabulary_size}. Received: "
                             f"token_embedding.vocabulary_size={token_embedding.vocabulary_size}")
        self.vocabulary_size = vocabulary_size
        self.token_embedding = token_embedding
        self.kernel_initializer = keras.initializers.get(kernel_initializer)

    @tf.autograph.experimental.do_not_convert  # here and below: no Python loop or branch on tensors, and converting takes seconds
    def log_probs(self, hidden):
        """Returns the log-probabilities (B, T, V) in float32 of the next token after each hidden state (B, T, D).

        The last position alone costs only that: log_probs(hidden[:, -1:]).
        """
        return self(hidden)

    @tf.autograph.experimental.do_not_convert
    def nll(self, hidden, labels):
        """Returns the negative log-likelihood (B, T) in nats, float32, of labels (B, T) under hidden states (B, T, D).

        Best for evaluation, where no gradient is made. Its gradient is exact for any weight of the tokens and computes
        the logits a second time; loss does not.
        """
        nll = tf.add_n([chunked_nll(*part, span) for part, span in self._parts_of(hidden, labels)])
        return tf.reshape(nll, tf.shape(labels))

    @tf.autograph.experimental.do_not_convert
    def loss(self, hidden, labels, token_weights=None):
        """Returns the float32 scalar sum(token_weights * nll), whose gradients are made in the same pass over the tokens.

        Args:
            hidden: (B, T, D).
            labels: (B, T) integers.
            token_weights: (B, T), or a scalar for every token alike; None: 1 / (B T), so that the loss is the mean.
        """
        if token_weights is None:
            token_weights = 1.0 / tf.cast(tf.size(labels), tf.float32)
        weights = tf.broadcast_to(tf.cast(token_weights, tf.float32), tf.shape(labels))
        weights = tf.reshape(weights, (-1,))
        return tf.add_n([chunked_loss(*part, weights, span) for part, span in self._parts_of(hidden, labels)])

    @tf.autograph.experimental.do_not_convert
    def top_k(self, hidden, k):
        """Returns the log-probabilities (B, T, k), float32, and the ids (B, T, k) of the k likeliest tokens, best first."""
        if not 1 <= k <= self.vocabulary_size:
            raise ValueError(f"k must be between 1 and {self.vocabulary_size}, the vocabulary's size. Received: k={k}")
        return self._best(self._ready_for(hidden), k)

    def _parts_of(self, hidden, labels):
        hidden = self._ready_for(hidden)
        labels = tf.cast(tf.reshape(labels, (-1,)), tf.int32)
        return self._parts(tf.reshape(hidden, (-1, hidden.shape[-1])), labels)

    def _ready_for(self, hidden):
        hidden = tf.convert_to_tensor(hidden)
        if not self.built:
            self.build(hidden.shape)
        return hidden

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "token_embedding": self.token_embedding and keras.saving.serialize_keras_object(self.token_embedding),
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
        }

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "token_embedding": keras.saving.deserialize_keras_object(config["token_embedding"])})
