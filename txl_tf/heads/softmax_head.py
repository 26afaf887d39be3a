"""What the heads share: nll and loss in text order over whatever chunks a head asks for."""

import keras
import tensorflow as tf

from txl_tf.heads.chunked_loss import chunked_loss, chunked_nll


class SoftmaxHead(keras.layers.Layer):
    """The methods that every head has; a subclass gives call, top_k and parts.

    parts(hidden, labels) returns, for each cluster of the vocabulary, ((features, table, bias, labels), span) as
    chunked_loss.py describes them, of hidden (B T, D) and labels (B T,); a token's nll is the sum over all parts.
    """

    def log_probs(self, hidden):
        """Returns the log-probabilities (B, T, V) in float32 of the next token after each hidden state (B, T, D).

        The last position alone costs only that: log_probs(hidden[:, -1:]).
        """
        return self(hidden)

    def nll(self, hidden, labels):
        """Returns the negative log-likelihood (B, T) in nats, float32, of labels (B, T) under hidden states (B, T, D).

        Best for evaluation, where no gradient is made. Its gradient is exact for any weight of the tokens and computes
        the logits a second time; loss does not.
        """
        nll = tf.add_n([chunked_nll(*part, span) for part, span in self._parts_of(hidden, labels)])
        return tf.reshape(nll, tf.shape(labels))

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

    def _parts_of(self, hidden, labels):
        hidden = tf.convert_to_tensor(hidden)
        if not self.built:
            self.build(hidden.shape)
        return self.parts(tf.reshape(hidden, (-1, hidden.shape[-1])), tf.reshape(tf.cast(labels, tf.int32), (-1,)))

    @classmethod
    def from_config(cls, config):
        return cls(**{**config, "token_embedding": keras.saving.deserialize_keras_object(config["token_embedding"])})
