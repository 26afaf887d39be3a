"""A softmax over the whole vocabulary."""

import keras
import tensorflow as tf

from txl_tf.heads.chunked_loss import all_tokens, logits_of, project
from txl_tf.heads.softmax_head import SoftmaxHead


@keras.saving.register_keras_serializable("txl_tf")
class FullSoftmax(SoftmaxHead):
    """Turns hidden states into the distribution of the next token, with the embedding's table or one of its own.

    nll and loss work a large vocabulary in chunks of tokens (heads/chunked_loss.py has the rule), so that the (B, T, V)
    logits never exist; a small one at once.

    Args:
        vocabulary_size: tokens V.
        token_embedding: the AdaptiveEmbedding (with one table) whose table and projection are shared; None: the layer
            has a table of its own, as wide as the hidden states.
        kernel_initializer: initializer of a table of its own; the bias starts at zero.

    Call arguments:
        inputs: (B, T, D), hidden states.

    Returns:
        (B, T, V) float32, log-probabilities in nats.

    Raises:
        ValueError: if vocabulary_size is below 1, or token_embedding has another vocabulary or more than one table.

    Example:
        embedding = AdaptiveEmbedding(256, 64)
        hidden = embedding(token_ids)
        nll = FullSoftmax(256, token_embedding=embedding).nll(hidden, labels)
    """

    def __init__(self, vocabulary_size, token_embedding=None, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(vocabulary_size, token_embedding, kernel_initializer, **kwargs)
        if token_embedding is not None and len(token_embedding.bounds) > 1:
            raise ValueError("token_embedding must have one table; with more, use AdaptiveSoftmax. Received: "
                             f"token_embedding.cutoffs={token_embedding.cutoffs}, "
                             f"token_embedding.div_val={token_embedding.div_val}")

    def build(self, inputs_shape):
        self.table = None
        if self.token_embedding is None:
            self.table = self.add_weight(name="table", shape=(self.vocabulary_size, inputs_shape[-1]),
                                         initializer=self.kernel_initializer.clone(), autocast=False)
        elif not self.token_embedding.built:
            self.token_embedding.build((None, None))
        self.bias = self.add_weight(name="bias", shape=(self.vocabulary_size,), initializer="zeros", autocast=False)

    def call(self, inputs):
        return tf.nn.log_softmax(logits_of(*self._cluster(inputs)))

    def _best(self, hidden, k):
        logits = logits_of(*self._cluster(hidden))
        best, ids = tf.math.top_k(logits, k)
        return best - tf.reduce_logsumexp(logits, axis=-1, keepdims=True), ids

    def _parts(self, hidden, labels):
        features, table, bias = self._cluster(hidden)
        return [((features, table, bias, labels), all_tokens(features, table))]

    def _cluster(self, hidden):
        """Returns features (..., E), and the table (V, E) and bias (V,) in float32."""
        table, projection = self.table, None
        if self.token_embedding is not None:
            table, projection = self.token_embedding.tables[0], self.token_embedding.projections[0]
        features = project(hidden, projection, self.compute_dtype)
        return features, tf.convert_to_tensor(table), tf.convert_to_tensor(self.bias)
