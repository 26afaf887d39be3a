"""The shared part of attention: mask, softmax, dropout, joining and what a subclass must bring."""

import numpy as np
import pytest
import tensorflow as tf

from testing.test_case import random_array
from txl_tf.attention import ATTENTIONS
from txl_tf.attention.multi_head import MultiHeadAttentionBase, masked_softmax


class UniformAttention(MultiHeadAttentionBase):
    """Every visible key is worth the same; weights pass through unchanged if values and context are the identity."""

    def project_query(self, inputs):
        return inputs[:, None]

    def scores(self, query, context, positions, roll=None):
        return tf.zeros((*query.shape[:3], context["value"].shape[2]), query.dtype)


def identity_attention(size, dropout=0.0):
    """Returns a UniformAttention of one head whose outputs are its kept weights where the context is the identity."""
    layer = UniformAttention(num_heads=1, head_dim=size, dropout=dropout)
    layer.build((None, None, size))
    layer.value_kernel.assign(np.eye(size))
    layer.output_kernel.assign(np.eye(size))
    return layer


def test_outputs_are_the_weighted_values_of_memory_and_segment():
    context = np.eye(5, dtype=np.float32)[None]
    outputs = identity_attention(5)(context[:, 3:], memory=context[:, :3])
    np.testing.assert_allclose(outputs[0], [[1 / 4, 1 / 4, 1 / 4, 1 / 4, 0], [1 / 5] * 5], atol=1e-6)


def test_masked_softmax_forms_of_the_mask():
    scores = random_array(2, 3, 2, 5)
    mask = np.array([[True, False, True, True, True], [True, True, True, False, True]])
    causal = np.array([[True] * 4 + [False], [True] * 5])
    for given, seen in ((None, causal[None]), (mask, (mask & causal)[None]), (np.stack([mask, ~mask | np.eye(2, 5, 3, bool)]), None)):
        seen = given & causal if seen is None else seen
        powers = np.exp(scores) * seen[:, None]
        np.testing.assert_allclose(masked_softmax(scores, given), powers / powers.sum(-1, keepdims=True), 1e-5)


def test_hidden_keys_get_no_weight_at_all_even_with_large_scores():
    scores = np.full((1, 1, 2, 3), 1e4, np.float16)
    scores[..., 1] = -1e4
    weights = masked_softmax(scores, np.array([[False, True, True], [False, True, True]])).numpy()
    assert weights.dtype == np.float32
    np.testing.assert_array_equal(weights[0, 0], [[0, 1, 0], [0, 0, 1]])


def test_attention_dropout_drops_weights_doubles_the_others_and_returns_them_whole():
    size = 200
    context = np.eye(size, dtype=np.float32)[None]
    outputs, weights = identity_attention(size, dropout=0.5)(context, return_attention_scores=True, training=True)
    outputs, weights = outputs.numpy()[0], weights.numpy()[0, 0]
    np.testing.assert_allclose(weights.sum(-1), 1.0, 1e-5)
    dropped = outputs == 0
    np.testing.assert_allclose(outputs, np.where(dropped, 0.0, 2 * weights), 1e-5)
    assert 0.45 < dropped[np.tril_indices(size)].mean() < 0.55


def test_inference_drops_nothing():
    context = np.eye(7, dtype=np.float32)[None]
    layer = identity_attention(7, dropout=0.5)
    np.testing.assert_array_equal(layer(context), identity_attention(7)(context))


def test_a_narrower_memory_is_refused():
    layer = identity_attention(4)
    with pytest.raises(ValueError, match=r"as wide as inputs, 4\. Received: memory\.shape=\(1, 2, 3\)"):
        layer(random_array(1, 5, 4), memory=random_array(1, 2, 3))


@pytest.mark.parametrize("name", ["num_heads", "head_dim"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} must be at least 1. Received: {name}=0"):
        UniformAttention(**{"num_heads": 2, "head_dim": 3, name: 0})


def test_scores_must_be_implemented():
    with pytest.raises(NotImplementedError, match="MultiHeadAttentionBase must implement project_query"):
        MultiHeadAttentionBase(num_heads=1, head_dim=2)(random_array(1, 2, 3))


def test_the_table_names_classes_of_attention():
    assert all(issubclass(layer_class, MultiHeadAttentionBase) for layer_class in ATTENTIONS.values())
