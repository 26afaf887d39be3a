"""The shared part of attention: mask, softmax, dropout, joining and what a subclass must bring."""

import numpy as np
import pytest
import tensorflow as tf

from testing.test_case import random_array
from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.multi_head import MultiHeadAttentionBase, Ring, masked_softmax
from txl_tf.attention.relative import RelativeMultiHeadAttention
from txl_tf.attention.shaw import ShawMultiHeadAttention


class UniformAttention(MultiHeadAttentionBase):
    """Every visible key is worth the same; weights pass through unchanged if values and context are the identity."""

    def project_query(self, inputs, context, visible=None, ring=None):
        return inputs[:, None]

    def scores(self, query, context, positions, ring=None):
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
    with pytest.raises(ValueError, match=f"{name} must be an integer of at least 1. Received: {name}=0"):
        UniformAttention(**{"num_heads": 2, "head_dim": 3, name: 0})


@pytest.mark.parametrize("setting, message", [
    ({"dropout": 1.0}, "dropout must be a number from 0 to below 1. Received: dropout=1.0"),
    ({"dropout": None}, "dropout must be a number from 0 to below 1. Received: dropout=None"),
    ({"causal": "no"}, "causal must be True or False. Received: causal='no'"),
    ({"kernel_initializer": None}, "kernel_initializer must be an initializer .* Received: kernel_initializer=None"),
    ({"head_dim": 2.5}, "head_dim must be an integer of at least 1. Received: head_dim=2.5"),
], ids=str)
def test_bad_settings_are_refused(setting, message):
    with pytest.raises(ValueError, match=message):
        UniformAttention(**{"num_heads": 2, "head_dim": 3, **setting})


@pytest.mark.parametrize("make", [UniformAttention, DotProductMultiHeadAttention])
def test_inputs_masks_and_memories_of_other_shapes_are_refused(make):
    layer, inputs = make(num_heads=2, head_dim=3), random_array(2, 5, 4)
    layer(inputs)
    for refused, message in (
            ({"inputs": inputs.astype("int32")}, r"inputs must be \(B, T, D\) numbers. Received: inputs.shape=\(2, 5, 4\), int32"),
            ({"memory": random_array(3, 2, 4)}, r"memory must be \(B, M, D\) .* Received: memory.shape=\(3, 2, 4\)"),
            ({"memory": random_array(2, 4)}, r"memory must be \(B, M, D\) .* Received: memory.shape=\(2, 4\)"),
            ({"attention_mask": np.ones((2, 5), bool)}, r"attention_mask must be \(T, S\) or .* Received: attention_mask.shape=\(2, 5\), bool"),
            ({"attention_mask": np.ones((2, 5, 6), bool)}, r"attention_mask must be .* Received: attention_mask.shape=\(2, 5, 6\), bool"),
            ({"attention_mask": np.ones((2, 1, 5, 5), bool)}, r"attention_mask must be .* Received: attention_mask.shape=\(2, 1, 5, 5\), bool"),
            ({"attention_mask": np.full((5, 5), -1e9, np.float32)}, "attention_mask must be booleans, or .* Received: numbers from .*, float32")):
        with pytest.raises(ValueError, match=message):
            layer(**{"inputs": inputs, **refused})
    padding = np.array([[1, 1, 1, 1, 1], [1, 1, 1, 0, 0]])[:, None]
    call = tf.function(lambda mask: layer(inputs, attention_mask=mask), input_signature=[tf.TensorSpec((2, 1, 5))])
    for found in (layer(inputs, attention_mask=padding.astype(bool)), layer(inputs, attention_mask=padding.astype("float64")), call(padding)):
        np.testing.assert_allclose(found[1:, :3], layer(inputs[1:, :3]), 1e-5, 1e-6)
    with pytest.raises(tf.errors.InvalidArgumentError, match="attention_mask must be booleans, or"):
        call(-1e9 * padding)


def test_scores_must_be_implemented():
    with pytest.raises(NotImplementedError, match="MultiHeadAttentionBase must implement project_query"):
        MultiHeadAttentionBase(num_heads=1, head_dim=2)(random_array(1, 2, 3))


class SameForAllRows(UniformAttention):
    """Scores (1, N, T, S) that prefer nearer keys."""

    def scores(self, query, context, positions, ring=None):
        return tf.range(0.0, context["value"].shape[2]) * tf.ones((1, 1, query.shape[2], 1))


def test_scores_that_all_rows_share_give_each_row_weights_and_dropout():
    layer, inputs = SameForAllRows(num_heads=1, head_dim=2, dropout=0.5), random_array(1, 9, 4).repeat(3, 0)
    weights = layer(inputs, return_attention_scores=True)[1].numpy()
    expected = np.tril(np.exp(np.arange(9.0))[None].repeat(9, 0))
    np.testing.assert_allclose(weights, np.broadcast_to(expected / expected.sum(-1, keepdims=True), (3, 1, 9, 9)), 1e-5, 1e-7)
    assert len({row.tobytes() for row in layer(inputs, training=True).numpy()}) == 3


class Spy(UniformAttention):
    """Keeps what its methods are given."""

    def project_query(self, inputs, context, visible=None, ring=None):
        self.given = (sorted(context), context["value"].shape, visible)
        return super().project_query(inputs, context)

    def project_keys(self, inputs):
        return {"more": inputs[:, None]}

    def check_keys(self, key_len):
        self.keys = key_len
        return key_len


def test_queries_are_made_with_the_whole_context_and_the_mask():
    layer, mask = Spy(num_heads=2, head_dim=5), np.ones((3, 7), bool)
    layer(random_array(2, 3, 6), memory=random_array(2, 4, 6), attention_mask=mask)
    names, shape, visible = layer.given
    assert names == ["more", "value"] and shape == (2, 2, 7, 5) and layer.keys == 7
    np.testing.assert_array_equal(visible, mask)


def test_what_is_needed_for_a_subclass_may_be_left_out():
    layer = UniformAttention(num_heads=2, head_dim=5)
    layer.build((None, None, 6))
    assert layer.project_keys(random_array(2, 3, 6)) == {} and layer.project_positions(3) == () and layer.check_keys(3) == 3
    assert layer.tie_biases(layer) is None


@pytest.mark.parametrize("by_head", [False, True])
def test_attend_does_what_call_does_of_projected_tokens_in_any_order(by_head):
    for layer in (RelativeMultiHeadAttention(3, 5), DotProductMultiHeadAttention(3, 5), ShawMultiHeadAttention(3, 5, max_length=4)):
        inputs, memory = random_array(2, 4, 12), random_array(2, 3, 12, seed=1)
        visible = np.random.default_rng(3).random((2, 4, 7)) < 0.5
        visible = np.tril(visible | np.eye(4, 7, 3, dtype=bool), 3)
        expected = layer(inputs, memory=memory, attention_mask=visible)
        context, ring = layer.project(np.concatenate([memory, inputs], axis=1)), Ring(tf.constant(2), tf.constant([7, 7]))
        positions = layer.project_positions(7)
        np.testing.assert_allclose(layer.attend(inputs, context, positions, visible, None, by_head), expected, 1e-5, 1e-6)
        rolled = {name: np.roll(value, 2, axis=2) for name, value in context.items()}
        outputs = layer.attend(inputs, rolled, positions, np.roll(visible, 2, axis=-1), ring, by_head)
        np.testing.assert_allclose(outputs, expected, 1e-5, 1e-6)
