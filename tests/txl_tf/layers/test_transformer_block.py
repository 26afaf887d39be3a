"""A block: attention and feed-forward, each with residual and layer normalisation after it, or before."""

import numpy as np
import pytest
import tensorflow as tf

from testing.relative_attention_oracle import relative_attention
from testing.test_case import TestCase, random_array
from testing.tiny_model import randomize
from txl_tf.layers.transformer_block import TransformerXLBlock

SIZES = {"num_heads": 3, "head_dim": 5, "inner_dim": 14}


def made(width=12, **settings):
    """Returns a built block with random weights."""
    block = TransformerXLBlock(**SIZES, **settings)
    block.build((None, None, width))
    return randomize(block)


class TransformerXLBlockTest(TestCase):
    def test_layer(self):
        self.run_layer_test(
            TransformerXLBlock,
            init_kwargs={**SIZES, "dropout": 0.1, "attention_dropout": 0.2, "layer_norm_epsilon": 1e-5,
                         "kernel_initializer": "he_normal", "attention": "relative", "pre_lnorm": True},
            call_kwargs={"inputs": random_array(2, 4, 12), "memory": random_array(2, 3, 12, seed=1)},
            expected_shape=(2, 4, 12),
            expected_trainable_weights=7 + 2 + 4 + 2,
            expected_parameters=5 * 12 * 15 + 2 * 15 + 2 * 12 + 12 * 14 + 14 + 14 * 12 + 12 + 2 * 12)

    def test_segments(self):
        for pre_lnorm in (False, True):
            self.run_segment_test(TransformerXLBlock, {**SIZES, "pre_lnorm": pre_lnorm}, width=12)


def layer_norm(hidden, norm):
    """Returns hidden normalised in float64 over its last axis with the weights of a LayerNormalization."""
    centred = hidden - hidden.mean(-1, keepdims=True)
    scaled = centred / np.sqrt((centred ** 2).mean(-1, keepdims=True) + norm.epsilon)
    return scaled * np.asarray(norm.gamma) + np.asarray(norm.beta)


@pytest.mark.parametrize("epsilon", [1e-12, 0.3])
def test_equals_its_formula(epsilon):
    block, inputs, memory = made(layer_norm_epsilon=epsilon), random_array(2, 4, 12), random_array(2, 3, 12, seed=1)
    attended, weights = relative_attention(block.attention_layer, inputs, memory)
    hidden = layer_norm(inputs + attended, block.attention_norm)
    inner, outer = block.feed_forward.inner, block.feed_forward.outer
    fed = np.maximum(hidden @ np.asarray(inner.kernel) + np.asarray(inner.bias), 0) @ np.asarray(outer.kernel)
    expected = layer_norm(hidden + fed + np.asarray(outer.bias), block.feed_forward_norm)
    outputs, given_weights = block(inputs, memory=memory, return_attention_scores=True)
    np.testing.assert_allclose(outputs, expected, 1e-4, 1e-4)
    np.testing.assert_allclose(given_weights, weights, 1e-4, 1e-5)


def test_normalised_before_each_part_it_equals_its_formula():
    block, inputs, memory = made(pre_lnorm=True), random_array(2, 4, 12), random_array(2, 3, 12, seed=1)
    normed, normed_memory = (layer_norm(array, block.attention_norm) for array in (inputs, memory))
    attended, weights = relative_attention(block.attention_layer, normed, normed_memory)
    hidden = inputs + attended
    inner, outer = block.feed_forward.inner, block.feed_forward.outer
    fed = np.maximum(layer_norm(hidden, block.feed_forward_norm) @ np.asarray(inner.kernel) + np.asarray(inner.bias), 0) @ np.asarray(outer.kernel)
    outputs, given_weights = block(inputs, memory=memory, return_attention_scores=True)
    np.testing.assert_allclose(outputs, hidden + fed + np.asarray(outer.bias), 1e-4, 1e-4)
    np.testing.assert_allclose(given_weights, weights, 1e-4, 1e-5)


def test_mask_and_positions_reach_the_attention():
    block, inputs = made(), random_array(2, 4, 12)
    plain = block(inputs).numpy()
    assert np.any(block(inputs, attention_mask=np.eye(4, dtype=bool)).numpy() != plain)
    assert np.any(block(inputs, position_embedding=random_array(4, 12)).numpy() != plain)


def test_dropout_follows_attention_before_the_residual():
    block, inputs = made(dropout=0.5), random_array(4, 20, 12)
    for norm in (block.attention_norm, block.feed_forward_norm):
        norm.call = lambda hidden, **_: hidden
    block.feed_forward.call = lambda hidden, training=None: 0.0 * hidden
    attended = block.attention_layer(inputs).numpy()
    added = block(inputs, training=True).numpy() - inputs
    dropped = np.abs(added) < 1e-6
    np.testing.assert_allclose(added, np.where(dropped, 0.0, 2 * attended), 1e-3, 1e-5)
    assert 0.4 < dropped.mean() < 0.6


def test_attention_dropout_is_a_rate_of_its_own():
    inputs = random_array(2, 9, 12)
    for settings, drops in (({"attention_dropout": 0.5}, True), ({"dropout": 0.5}, False)):
        block = made(**settings)
        trained = block.attention_layer(inputs, training=True).numpy()
        assert np.any(trained != block.attention_layer(inputs).numpy()) == drops
        np.testing.assert_array_equal(block(inputs), made()(inputs))


@pytest.mark.parametrize("settings, message", [
    ({"attention": "nearest"}, "attention must be one of .*relative.* Received: attention=nearest"),
    ({"num_heads": 0}, "num_heads must be at least 1. Received: num_heads=0"),
    ({"inner_dim": 0}, "inner_dim must be at least 1. Received: inner_dim=0"),
])
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TransformerXLBlock(**{**SIZES, **settings})


def gradients(block, inputs, memory, jit_compile):
    """Returns the loss, all gradients and the state of the seeds after two calls in training."""
    def two_calls():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            hidden = block(inputs, memory=memory, training=True)
            loss = 0.02 * tf.reduce_sum(block(hidden, memory=memory, training=True) ** 3)
        return [loss, *tape.gradient(loss, [inputs, *(variable.value for variable in block.trainable_variables)])]

    found = tf.function(two_calls, jit_compile=jit_compile)()
    return [value.numpy() for value in found] + [seed.numpy() for seed in block.non_trainable_variables]


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_recomputed_with_dropout_the_gradients_are_the_same(jit_compile):
    inputs, memory = tf.constant(random_array(2, 4, 12)), tf.constant(random_array(2, 3, 12, seed=1))
    found = []
    for remat in (False, True):
        block = made(dropout=0.3, attention_dropout=0.2)
        for number, seed in enumerate(block.non_trainable_variables):
            seed.assign([number, 5])
        block.remat = remat
        found.append(gradients(block, inputs, memory, jit_compile))
    for plain, recomputed in zip(*found, strict=True):
        np.testing.assert_allclose(recomputed, plain, rtol=1e-5, atol=1e-6)
    assert found[0][-1].tolist() == [len(block.non_trainable_variables) - 1, 7]  # two draws each


def test_recomputed_only_in_training_and_never_with_the_weights():
    block, inputs = made(dropout=0.3), random_array(2, 4, 12)
    plain = block(inputs).numpy()
    block.remat = True
    block._recomputed = None
    np.testing.assert_array_equal(block(inputs), plain)
    assert len(block(inputs, return_attention_scores=True, training=True)) == 2
