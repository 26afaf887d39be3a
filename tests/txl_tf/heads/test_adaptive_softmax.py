"""AdaptiveSoftmax against a float64 oracle, over configurations that hypothesis draws."""

import json
from unittest import mock

import keras
import numpy as np
import pytest
import tensorflow as tf
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from testing.test_case import TestCase, random_array, serialized_copy
from testing.tiny_model import randomize

from txl_tf.heads import chunked_loss
from txl_tf.heads.adaptive_softmax import AdaptiveSoftmax
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding

V, CUTOFFS, D = 23, (5, 9, 17), 8
LABELS = np.random.default_rng(3).integers(0, V, (2, 7))
MIXES = {"all": (0, V), "shortlist": (0, 5), "first tail": (5, 17), "last tail": (17, V), "all but the last": (0, 17)}


def make_head(vocabulary=V, cutoffs=CUTOFFS, div_val=2, width=D, embedding_dim=None, tied=True, ties=None, same_dim=True,
              dtype="float32"):
    """Returns an AdaptiveSoftmax for hidden states of a width, all weights random."""
    keras.utils.set_random_seed(1)
    embedding = None
    if tied:
        embedding = AdaptiveEmbedding(vocabulary, width, embedding_dim, cutoffs, div_val, same_dim, dtype=dtype)
    head = AdaptiveSoftmax(vocabulary, cutoffs, div_val, embedding, ties if tied else None, same_dim, embedding_dim, dtype=dtype)
    head.build((None, None, width))
    randomize(head)
    return head


def chunks(floats, tail):
    """Sets the sizes of chunks, so that small tests have many."""
    return mock.patch.multiple(chunked_loss, CHUNK_FLOATS=floats, TAIL_CHUNK=tail, SMALL_VOCABULARY=0)


def oracle_weights(head):
    """Returns for each cluster its table, bias and projection in float64, the head's with the tails' entries, and their variables."""
    def array(weight):
        return np.asarray(tf.cast(weight, tf.float64))

    owner = head if head.token_embedding is None else head.token_embedding
    clusters, variables = [], []
    for index, (left, right) in enumerate(head.bounds):
        table = owner.tables[index if head.div_val > 1 else 0]
        rows = array(table) if head.div_val > 1 else array(table)[left:right]
        projection = head.projections[index]
        if head.tie_projections[index]:
            projection = head.token_embedding.projections[index if head.div_val > 1 else 0]
        clusters.append([rows, array(head.biases[index]), None if projection is None else array(projection)])
        variables.append((table, head.biases[index], projection))
    clusters[0][0] = np.concatenate([clusters[0][0], array(head.cluster_kernel)])
    clusters[0][1] = np.concatenate([clusters[0][1], array(head.cluster_bias)])
    return clusters, variables


def log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def oracle_log_probs(head, hidden):
    """Returns the log-probabilities (B, T, V) in float64."""
    clusters, _ = oracle_weights(head)
    per_cluster = []
    for table, bias, projection in clusters:
        features = hidden if projection is None else hidden @ projection.T
        per_cluster.append(log_softmax(features @ table.T + bias))
    first = head.cutoffs[0]
    tails = [per_cluster[0][..., first + index, None] + tail for index, tail in enumerate(per_cluster[1:])]
    return np.concatenate([per_cluster[0][..., :first], *tails], -1)


def oracle_gradients(head, hidden, labels, weights):
    """Returns the gradients of sum(weights * nll): of hidden, and {id of variable: gradient}, in float64."""
    clusters, variables = oracle_weights(head)
    hidden, labels, weights = hidden.reshape(-1, hidden.shape[-1]), labels.reshape(-1), weights.reshape(-1)
    d_hidden, found = np.zeros_like(hidden), {}
    cluster_of = np.searchsorted(head.cutoffs, labels, side="right")

    def add(variable, gradient):
        found[id(variable)] = found.get(id(variable), 0) + gradient

    for index, ((table, bias, projection), (table_variable, bias_variable, projection_variable)) in enumerate(zip(clusters, variables)):
        left, right = head.bounds[index]
        local = np.where(cluster_of > 0, right + cluster_of - 1, labels) if index == 0 else np.maximum(labels - left, 0)
        weight = weights * ((cluster_of == index) | (index == 0))
        features = hidden if projection is None else hidden @ projection.T
        d_logits = (np.exp(log_softmax(features @ table.T + bias)) - np.eye(len(table) + head.vocabulary_size)[local][:, :len(table)]) * weight[:, None]
        d_features, d_table, d_bias = d_logits @ table, d_logits.T @ features, d_logits.sum(0)
        if projection is not None:
            add(projection_variable, d_features.T @ hidden)
        d_hidden += d_features if projection is None else d_features @ projection
        if index == 0:
            add(head.cluster_kernel, d_table[right - left:])
            add(head.cluster_bias, d_bias[right - left:])
        whole = np.zeros(table_variable.shape)
        whole[slice(None) if head.div_val > 1 else slice(left, right)] = d_table[:right - left]
        add(table_variable, whole)
        add(bias_variable, d_bias[:right - left])
    return d_hidden, found


def at_labels(log_probs, labels):
    return np.take_along_axis(np.asarray(log_probs), labels[..., None], -1)[..., 0]


def check(head, hidden, labels, token_weights):
    """Compares everything with the oracle."""
    expected = oracle_log_probs(head, hidden.astype(np.float64))
    log_probs = head.log_probs(hidden)
    np.testing.assert_allclose(log_probs, expected, 1e-5, 1e-5)
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1.0, 1e-5)
    nll = head.nll(hidden, labels)
    np.testing.assert_allclose(nll, -at_labels(expected, labels), 1e-5, 1e-5)
    np.testing.assert_allclose(nll, -at_labels(log_probs, labels), 1e-5, 1e-5)
    check_gradients(head, hidden, labels, token_weights, expected)


def check_gradients(head, hidden, labels, token_weights, expected):
    d_hidden, found = oracle_gradients(head, hidden.astype(np.float64), labels, token_weights.astype(np.float64))
    used = [variable for variable in head.trainable_variables if id(variable) in found]
    for name in ("loss", "nll"):
        with tf.GradientTape() as tape:
            states = tf.constant(hidden)
            tape.watch(states)
            loss = head.loss(states, labels, token_weights) if name == "loss" else tf.reduce_sum(token_weights * head.nll(states, labels))
        to_hidden, *gradients = tape.gradient(loss, [states, *(variable.value for variable in used)])
        np.testing.assert_allclose(loss, -np.sum(token_weights * at_labels(expected, labels)), 1e-5, 1e-5, err_msg=name)
        np.testing.assert_allclose(tf.reshape(to_hidden, d_hidden.shape), d_hidden, 1e-5, 1e-5, err_msg=name)
        for variable, gradient in zip(used, gradients):
            np.testing.assert_allclose(tf.convert_to_tensor(gradient), found[id(variable)], 1e-5, 2e-5, err_msg=f"{name} {variable.path}")


@st.composite
def configurations(draw):
    vocabulary = draw(st.integers(6, 30))
    cutoffs = tuple(sorted(draw(st.sets(st.integers(1, vocabulary - 1), min_size=1, max_size=3))))
    width = draw(st.sampled_from([8, 12]))
    embedding_dim = draw(st.sampled_from([None, 8, 9]))
    ties = tuple(draw(st.lists(st.booleans(), min_size=len(cutoffs) + 1, max_size=len(cutoffs) + 1)))
    return dict(vocabulary=vocabulary, cutoffs=cutoffs, div_val=draw(st.sampled_from([1, 2])), width=width, ties=ties,
                embedding_dim=embedding_dim, tied=draw(st.booleans()), same_dim=draw(st.booleans()))


@pytest.mark.slow
@given(configurations(), st.integers(0, 1000), st.sampled_from([(2 ** 24, 64), (1, 2), (200, 3)]), st.booleans())
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=list(HealthCheck))
def test_equals_the_oracle(configuration, seed, sizes, one_cluster):
    head = make_head(**configuration)
    rng = np.random.default_rng(seed)
    low, high = head.bounds[rng.integers(len(head.bounds))] if one_cluster else (0, head.vocabulary_size)
    labels = rng.integers(low, high, (2, rng.integers(1, 20)))
    hidden = random_array(*labels.shape, configuration["width"], seed=seed)
    with chunks(*sizes):
        check(head, hidden, labels, rng.uniform(-1, 2, labels.shape).astype(np.float32))


@pytest.mark.slow
@given(configurations(), st.integers(0, 1000), st.integers(1, 400), st.integers(1, 9))
@settings(max_examples=100, deadline=None, suppress_health_check=list(HealthCheck))
def test_equals_the_oracle_at_length(configuration, seed, floats, tail):
    head = make_head(**configuration)
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, head.vocabulary_size, (3, rng.integers(1, 30)))
    with chunks(floats, tail):
        check(head, random_array(*labels.shape, configuration["width"], seed=seed), labels, np.ones(labels.shape, np.float32))


class AdaptiveSoftmaxTest(TestCase):
    def test_is_a_layer(self):
        self.run_layer_test(
            AdaptiveSoftmax,
            {"vocabulary_size": V, "cutoffs": CUTOFFS, "div_val": 2, "project_same_dim": False, "embedding_dim": 10,
             "kernel_initializer": "normal", "projection_initializer": "normal"},
            {"inputs": random_array(2, 3, D)}, (2, 3, V), expected_trainable_weights=4 + 4 + 4 + 2,
            expected_parameters=5 * 10 + 4 * 5 + 8 * 2 + 6 + (10 + 5 + 2 + 1) * D + V + 3 * 10 + 3, output_dtype=tf.float32)

    def test_configuration_with_a_tied_embedding(self):
        head = make_head(ties=(False, True, False, True))
        copy = serialized_copy(head)
        hidden = random_array(2, 3, D)
        copy(hidden)
        copy.set_weights(head.get_weights())
        np.testing.assert_array_equal(copy.log_probs(hidden), head.log_probs(hidden))
        self.assertEqual(json.loads(json.dumps(copy.get_config())), json.loads(json.dumps(head.get_config())))

    @pytest.mark.slow
    def test_compiled_equals_plain_for_every_mix_without_a_new_trace(self):
        head, hidden = make_head(cutoffs=(5, 17), ties=(False, True, True)), random_array(2, 9, D)
        traces = []

        def step(labels):
            traces.append(1)
            with tf.GradientTape() as tape:
                nll = head.nll(hidden, labels)
                loss = head.loss(hidden, labels) + tf.reduce_sum(nll ** 2)
            weights = [weight.value for weight in head.trainable_weights]
            gradients = tape.gradient(loss, weights, unconnected_gradients=tf.UnconnectedGradients.ZERO)
            return nll, [tf.convert_to_tensor(gradient) for gradient in gradients]

        with chunks(64, 4):
            compiled, graph = tf.function(step, jit_compile=True), tf.function(step)
            for low, high in MIXES.values():
                labels = tf.constant(np.random.default_rng(low).integers(low, high, (2, 9)))
                for ours, plain in zip(tf.nest.flatten(compiled(labels)), tf.nest.flatten(graph(labels))):
                    np.testing.assert_allclose(ours, plain, 1e-4, 1e-4)
        self.assertEqual(len(traces), 2)

    def test_sizes_unknown_when_traced(self):
        head = make_head()

        @tf.function(input_signature=[tf.TensorSpec((None, None, D)), tf.TensorSpec((None, None), tf.int32)])
        def nll(hidden, labels):
            return head.nll(hidden, labels)

        with chunks(64, 4):
            for length in (1, 7, 40):
                labels = np.random.default_rng(1).integers(0, V, (2, length))
                hidden = random_array(2, length, D)
                np.testing.assert_allclose(nll(hidden, labels), -at_labels(head.log_probs(hidden), labels), 1e-5, 1e-5)

    def test_low_precision_is_finite_and_close(self):
        hidden, labels = random_array(2, 7, D), LABELS
        exact = make_head(ties=(True,) * 4)
        for policy, tolerance in (("mixed_bfloat16", 0.1), ("mixed_float16", 0.02)):
            head = make_head(ties=(True,) * 4, dtype=policy)
            head.set_weights(exact.get_weights())
            with chunks(64, 4), tf.GradientTape() as tape:
                loss = head.loss(hidden, labels)
            gradients = tape.gradient(loss, [weight.value for weight in head.trainable_weights])
            np.testing.assert_allclose(loss, exact.loss(hidden, labels), tolerance)
            for gradient in gradients:
                self.assertEqual(gradient.dtype, tf.float32)
                self.assertTrue(np.isfinite(gradient).all())
            self.assertEqual(head.nll(hidden, labels).dtype, tf.float32)

    def test_small_weights_survive_float16(self):
        head = make_head(dtype="mixed_float16")
        hidden, tiny = random_array(2, 7, D), 1e-7
        weight = head.cluster_kernel.value
        with chunks(64, 4), tf.GradientTape(persistent=True) as tape:
            one, small = head.loss(hidden, LABELS, 1.0), head.loss(hidden, LABELS, tiny)
        np.testing.assert_allclose(tape.gradient(small, weight) / tiny, tape.gradient(one, weight), 1e-3)

    def test_weights_default_to_the_mean_and_get_a_gradient(self):
        head, hidden = make_head(), random_array(2, 7, D)
        with chunks(64, 4):
            np.testing.assert_allclose(head.loss(hidden, LABELS), np.mean(head.nll(hidden, LABELS)), 1e-6)
            weights = tf.ones(LABELS.shape)
            with tf.GradientTape() as tape:
                tape.watch(weights)
                loss = head.loss(hidden, LABELS, weights)
            np.testing.assert_allclose(tape.gradient(loss, weights), head.nll(hidden, LABELS), 1e-6)
            np.testing.assert_array_equal(head.loss(hidden, LABELS, 0.0), 0.0)

    @pytest.mark.slow
    def test_top_k_is_the_best_of_all(self):
        head, hidden = make_head(), random_array(3, 4, D)
        log_probs = head.log_probs(hidden).numpy()
        for top in (head.top_k, tf.function(head.top_k, jit_compile=True)):
            for k in (1, 3, 7, V):
                values, ids = top(hidden, k)
                np.testing.assert_allclose(values, -np.sort(-log_probs, axis=-1)[..., :k], 1e-5, 1e-5)
                np.testing.assert_allclose(np.take_along_axis(log_probs, np.asarray(ids), -1), values, 1e-5, 1e-5)

    def test_top_k_of_one_position(self):
        head, hidden = make_head(), random_array(3, D)
        values, ids = head.top_k(hidden, 6)
        np.testing.assert_array_equal(ids, head.top_k(hidden[:, None], 6)[1][:, 0])
        self.assertEqual(values.shape, (3, 6))

    def test_labels_outside_the_vocabulary_are_noticed(self):
        head, hidden = make_head(), random_array(1, 2, D)
        for label in (-1, V):
            with self.assertRaises(tf.errors.InvalidArgumentError):
                head.nll(hidden, np.array([[0, label]]))
            compiled = tf.function(head.nll, jit_compile=True)(hidden, np.array([[0, label]])).numpy()
            self.assertTrue(np.isfinite(compiled[0, 0]) and np.isnan(compiled[0, 1]), compiled)

    def test_errors_name_the_argument(self):
        embedding = AdaptiveEmbedding(V, D, cutoffs=CUTOFFS, div_val=2)
        cases = [
            ({"cutoffs": (9, 5)}, "cutoffs"), ({"cutoffs": (5, 5)}, "cutoffs"), ({"cutoffs": (0, 5)}, "cutoffs"),
            ({"cutoffs": (-1, 5)}, "cutoffs"), ({"cutoffs": (5, V)}, "cutoffs"), ({"cutoffs": ()}, "FullSoftmax"),
            ({"div_val": 0}, "div_val"), ({"embedding_dim": 0}, "embedding_dim"), ({"embedding_dim": 4, "div_val": 3}, "embedding_dim"),
            ({"tie_projections": (True,) * 4}, "token_embedding"),
            ({"token_embedding": embedding, "div_val": 2, "tie_projections": (True,)}, "tie_projections"),
            ({"token_embedding": embedding, "div_val": 1}, "div_val"),
            ({"token_embedding": embedding, "div_val": 2, "embedding_dim": 2 * D}, "embedding_dim"),
            ({"token_embedding": embedding, "div_val": 2, "vocabulary_size": V + 1}, "vocabulary_size"),
            ({"token_embedding": embedding, "div_val": 2, "cutoffs": (5, 9)}, "cutoffs"),
        ]
        for arguments, name in cases:
            with self.assertRaisesRegex(ValueError, f"{name}.*Received: "):
                AdaptiveSoftmax(**{"vocabulary_size": V, "cutoffs": CUTOFFS, **arguments})
        for k in (0, V + 1):
            with self.assertRaisesRegex(ValueError, "k must be.*Received: k="):
                make_head().top_k(random_array(1, 1, D), k)
