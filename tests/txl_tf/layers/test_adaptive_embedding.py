"""AdaptiveEmbedding against a loop over tokens."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from testing.test_case import TestCase, random_array
from testing.tiny_model import randomize

from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding

V, CUTOFFS, D = 23, (5, 9, 17), 8
IDS = np.random.default_rng(1).integers(0, V, (2, 9)).astype(np.int32)


def make_embedding(**arguments):
    embedding = AdaptiveEmbedding(**{"vocabulary_size": V, "output_dim": D, "cutoffs": CUTOFFS, "div_val": 2, **arguments})
    embedding(IDS)
    randomize(embedding)
    return embedding


def oracle(embedding, ids):
    """Returns the vectors (B, T, D) in float64, token by token."""
    outputs = np.zeros((*ids.shape, embedding.output_dim))
    for place in np.ndindex(ids.shape):
        index = sum(ids[place] >= cut for cut in embedding.cutoffs) if embedding.div_val > 1 else 0
        left = embedding.bounds[index][0]
        vector = embedding.tables[index].numpy()[ids[place] - left].astype(np.float64)
        projection = embedding.projections[index]
        outputs[place] = (vector if projection is None else vector @ projection.numpy()) * embedding.output_dim ** 0.5
    return outputs


class AdaptiveEmbeddingTest(TestCase):
    def test_is_a_layer(self):
        ids = np.arange(V, dtype=np.int32)[None]
        self.run_layer_test(
            AdaptiveEmbedding,
            {"vocabulary_size": V, "output_dim": D, "embedding_dim": 10, "cutoffs": CUTOFFS, "div_val": 2,
             "project_same_dim": False, "embeddings_initializer": "normal", "projection_initializer": "normal"},
            {"inputs": ids}, (1, V, D), expected_trainable_weights=8,
            expected_parameters=5 * 10 + 4 * 5 + 8 * 2 + 6 + (10 + 5 + 2 + 1) * D)

    def test_every_mix_and_shape_of_tables(self):
        for div_val, width, same in itertools.product((1, 2), (None, 10), (True, False)):
            embedding = make_embedding(div_val=div_val, embedding_dim=width, project_same_dim=same)
            compiled = tf.function(embedding, jit_compile=True)
            for low, high in ((0, V), (0, 5), (5, 9), (17, V)):
                ids = np.random.default_rng(low).integers(low, high, (2, 9)).astype(np.int32)
                expected = oracle(embedding, ids)
                np.testing.assert_allclose(embedding(ids), expected, 1e-5, 1e-5)
                np.testing.assert_allclose(compiled(ids), expected, 1e-5, 1e-5)

    def test_projections_are_where_the_original_has_them(self):
        cases = [((1, None, True), [False]), ((1, 10, False), [True]), ((2, None, True), [True] * 4),
                 ((2, None, False), [False, True, True, True])]
        for (div_val, width, same), expected in cases:
            embedding = make_embedding(div_val=div_val, embedding_dim=width, project_same_dim=same)
            self.assertEqual([projection is not None for projection in embedding.projections], expected)

    def test_each_vector_gets_its_own_gradient_only(self):
        embedding = make_embedding()
        direction = random_array(*IDS.shape, D)
        with tf.GradientTape() as tape:
            loss = tf.reduce_sum(embedding(IDS) * direction)
        gradients = tape.gradient(loss, [table.value for table in embedding.tables])
        for (left, right), gradient, projection in zip(embedding.bounds, gradients, embedding.projections):
            expected = np.zeros((right - left, projection.shape[0]))
            for place in np.ndindex(IDS.shape):
                if left <= IDS[place] < right:
                    expected[IDS[place] - left] += D ** 0.5 * projection.numpy() @ direction[place]
            np.testing.assert_allclose(tf.convert_to_tensor(gradient), expected, 1e-5, 1e-5)

    def test_ids_outside_the_vocabulary_are_noticed(self):
        for embedding in (make_embedding(), make_embedding(div_val=1)):
            for wrong in (-1, V):
                with self.assertRaises(tf.errors.InvalidArgumentError):
                    embedding(np.array([[0, wrong]]))

    def test_errors_name_the_argument(self):
        cases = [({"cutoffs": cutoffs}, "cutoffs") for cutoffs in ((9, 5), (5, 5), (0, 5), (-1, 5), (5, V), (5, V + 1), (1.5,))]
        cases += [({name: 0}, name) for name in ("vocabulary_size", "output_dim", "embedding_dim", "div_val")]
        cases += [({"div_val": 3, "embedding_dim": 9}, "embedding_dim")]
        for arguments, name in cases:
            with pytest.raises(ValueError, match=f"{name}.*Received: "):
                make_embedding(**arguments)
