"""FullSoftmax: the layer, its chunked loss, and its best tokens."""

from unittest import mock

import numpy as np
import pytest
import tensorflow as tf
from testing.test_case import TestCase, random_array, serialized_copy
from testing.tiny_model import randomize

from txl_tf.heads import chunked_loss
from txl_tf.heads.full_softmax import FullSoftmax
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding

V, D, E = 13, 6, 4
HIDDEN = random_array(2, 5, D)
LABELS = np.random.default_rng(3).integers(0, V, (2, 5))


def tied_head(embedding_dim=E, dtype="float32"):
    head = FullSoftmax(V, AdaptiveEmbedding(V, D, embedding_dim, dtype=dtype), dtype=dtype)
    head(HIDDEN)
    randomize(head)
    return head


def expected_log_probs(head):
    table, bias = head.token_embedding.tables[0].numpy(), head.bias.numpy()
    projection = head.token_embedding.projections[0]
    features = HIDDEN if projection is None else HIDDEN @ projection.numpy().T
    return tf.nn.log_softmax(features.astype(np.float64) @ table.T + bias).numpy()


class FullSoftmaxTest(TestCase):
    def test_is_a_layer(self):
        self.run_layer_test(FullSoftmax, {"vocabulary_size": V, "kernel_initializer": "normal"}, {"inputs": HIDDEN}, (2, 5, V),
                            expected_trainable_weights=2, expected_parameters=V * D + V, output_dtype=tf.float32)

    def test_shares_table_and_projection(self):
        for embedding_dim, weights in ((E, 3), (D, 2)):
            head = tied_head(embedding_dim)
            self.assertEqual(len(head.trainable_weights), weights)
            np.testing.assert_allclose(head.log_probs(HIDDEN), expected_log_probs(head), 1e-5, 1e-5)

    def test_configuration_with_a_tied_embedding(self):
        head = tied_head()
        copy = serialized_copy(head)
        copy(HIDDEN)
        copy.set_weights(head.get_weights())
        np.testing.assert_array_equal(copy.log_probs(HIDDEN), head.log_probs(HIDDEN))

    def test_chunks_and_whole_agree(self):
        head = tied_head()
        expected = -np.take_along_axis(expected_log_probs(head), LABELS[..., None], -1)[..., 0]
        results = []
        for floats in (2 ** 24, 1):
            with mock.patch.multiple(chunked_loss, CHUNK_FLOATS=floats, SMALL_VOCABULARY=0), tf.GradientTape() as tape:
                nll, loss = head.nll(HIDDEN, LABELS), head.loss(HIDDEN, LABELS)
                total = loss + tf.reduce_sum(nll * random_array(2, 5))
            np.testing.assert_allclose(nll, expected, 1e-5, 1e-5)
            np.testing.assert_allclose(loss, expected.mean(), 1e-5)
            results.append(tape.gradient(total, [weight.value for weight in head.trainable_weights]))
        for whole, chunked in zip(*results):
            np.testing.assert_allclose(whole, chunked, 1e-4, 1e-5)

    def test_a_small_vocabulary_is_worked_at_once(self):
        head = tied_head()
        step = tf.function(lambda hidden, labels: head.loss(hidden, labels))
        with mock.patch.object(tf, "while_loop") as loop:
            step.get_concrete_function(tf.TensorSpec((16, 512, D)), tf.TensorSpec((16, 512), tf.int32))
            step.get_concrete_function(tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None), tf.int32))
        loop.assert_not_called()

    def test_top_k(self):
        head = tied_head()
        for k in (1, 4, V):
            values, ids = head.top_k(HIDDEN, k)
            np.testing.assert_allclose(values, -np.sort(-expected_log_probs(head), -1)[..., :k], 1e-5, 1e-5)
            np.testing.assert_array_equal(ids, np.argsort(-expected_log_probs(head), -1, kind="stable")[..., :k])

    def test_errors_name_the_argument(self):
        with pytest.raises(ValueError, match=f"vocabulary_size={V}.*Received: token_embedding.vocabulary_size=20"):
            FullSoftmax(V, AdaptiveEmbedding(20, D))
        with pytest.raises(ValueError, match="one table.*Received: token_embedding.cutoffs"):
            FullSoftmax(V, AdaptiveEmbedding(V, D, cutoffs=(4,), div_val=2))
        with pytest.raises(ValueError, match="vocabulary_size.*Received: vocabulary_size=0"):
            FullSoftmax(0)
