"""A block: attention and feed-forward, each with residual and layer normalisation after it, or before."""

import numpy as np
import pytest
import tensorflow as tf

from testing.layer_norm_oracle import layer_norm
from testing.relative_attention_oracle import relative_attention
from testing.test_case import TestCase, random_array
from testing.tiny_model import randomize
from txl_tf.layers.transformer_block import TransformerXLBlock
from txl_tf.memory import visible_keys

SIZES = {"num_heads": 3, "head_dim": 5, "inner_dim": 14}


def made(width=12, **settings):
    """Returns a built block with random weights."""
    block = TransformerXLBlock(**SIZES, **settings)
    block.build((None, None, width))
    return randomize(block)


class TransformerXLBlockTest(TestCase):
    @pytest.mark.slow
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
    block.feed_forward.call = lambda hidden, before=None, training=None: 0.0 * hidden
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
    ({"num_heads": 0}, "num_heads must be an integer of at least 1. Received: num_heads=0"),
    ({"inner_dim": 0}, "inner_dim must be an integer of at least 1. Received: inner_dim=0"),
    ({"feed_forward_type": "conv"}, "feed_forward_type must be one of dense, conv_relu. Received: feed_forward_type=conv"),
    ({"attention": "random", "attention_settings": {"max_length": 0}}, "max_length must be an integer of at least 1. Received: max_length=0"),
])
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        TransformerXLBlock(**{**SIZES, **settings})


def gradients(block, inputs, memory, jit_compile):
    """Returns the loss, all gradients and the state of the seeds after two calls in training."""
    def two_calls():
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            hidden, remembered = block(inputs, memory=memory, training=True, return_remembered=True)
            loss = 0.02 * tf.reduce_sum(block(hidden, memory=memory, training=True) ** 3) + 0.01 * tf.reduce_sum(remembered ** 2)
        return [loss, *tape.gradient(loss, [inputs, *(variable.value for variable in block.trainable_variables)])]

    found = tf.function(two_calls, jit_compile=jit_compile)()
    return [value.numpy() for value in found] + [seed.numpy() for seed in block.non_trainable_variables]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("feed_forward_type", ["dense", "conv_relu"])
@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_recomputed_with_dropout_the_gradients_are_the_same(jit_compile, feed_forward_type):
    width = 24 if feed_forward_type == "conv_relu" else 12
    inputs, memory = tf.constant(random_array(2, 4, 12)), tf.constant(random_array(2, 3, width, seed=1))
    found = []
    for remat in (False, True):
        block = made(dropout=0.3, attention_dropout=0.2, feed_forward_type=feed_forward_type)
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


CONVOLVED = {"feed_forward_type": "conv_relu"}
SYNTHESIZED = {"attention": "mixture", "attention_settings": {"mixture_of": ["dot_product", "dense", "random_fixed"], "dense_form": "conv",
                                                              "max_length": 13, "key_index": "distance", "factor_rank": 3}}


class ConvolvedBlockTest(TestCase):
    @pytest.mark.slow
    def test_layer(self):
        self.run_layer_test(
            TransformerXLBlock,
            init_kwargs={**SIZES, **CONVOLVED, **SYNTHESIZED, "attention_dropout": 0.2, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 4, 12), "memory": random_array(2, 3, 24, seed=1)},
            expected_shape=(2, 4, 12),
            expected_trainable_weights=2 + 2 + 4 + 1 + 2 + 4 + 2,
            expected_non_trainable_weights=1)

    def test_segments_of_synthesizers(self):
        self.run_segment_test(TransformerXLBlock, {**SIZES, **SYNTHESIZED}, width=12)


def in_segments_with_memory(block, inputs, lengths):
    """Returns the outputs of a block that reads inputs segment by segment, with what it remembers of all before."""
    outputs, memory, start = [], None, 0
    for length in lengths:
        output, new = block(inputs[:, start:start + length], memory=memory, return_remembered=True)
        memory = new if memory is None else tf.concat([memory, new], axis=1)
        outputs.append(output)
        start += length
    return tf.concat(outputs, axis=1), memory


@pytest.mark.parametrize("pre_lnorm", [False, True])
@pytest.mark.parametrize("settings", [CONVOLVED, {**CONVOLVED, **SYNTHESIZED}], ids=["relative", "synthesized"])
def test_with_convolutions_segments_equal_one_pass(settings, pre_lnorm):
    block, inputs = made(**settings, pre_lnorm=pre_lnorm), random_array(2, 9, 12)
    whole, all_of_it = block(inputs, return_remembered=True)
    for lengths in ((3, 5, 1), (1,) * 9):
        outputs, memory = in_segments_with_memory(block, inputs, lengths)
        np.testing.assert_allclose(outputs, whole, 1e-4, 1e-5)
        np.testing.assert_allclose(memory, all_of_it, 1e-4, 1e-5)


def test_a_convolution_reads_what_the_layer_received_of_tokens_before():
    block, inputs, memory = made(**CONVOLVED), random_array(2, 4, 12), random_array(2, 3, 24, seed=1)
    attended, _ = relative_attention(block.attention_layer, inputs, memory[..., :12])
    hidden = layer_norm(inputs + attended, block.attention_norm)
    inner, outer = block.feed_forward.inner, block.feed_forward.outer
    received = np.concatenate([memory[:, 1:, 12:], hidden], axis=1)
    windows = np.concatenate([received[:, number:number + 4] for number in range(3)], axis=-1)
    fed = np.maximum(windows @ np.asarray(inner.kernel) + np.asarray(inner.bias), 0) @ np.asarray(outer.kernel) + np.asarray(outer.bias)
    outputs, remembered = block(inputs, memory=memory, return_remembered=True)
    np.testing.assert_allclose(outputs, layer_norm(hidden + fed, block.feed_forward_norm), 1e-4, 1e-4)
    np.testing.assert_allclose(remembered, np.concatenate([inputs, hidden], axis=-1), 1e-4, 1e-5)


@pytest.mark.parametrize("settings", [CONVOLVED, {**CONVOLVED, **SYNTHESIZED}], ids=["relative", "synthesized"])
def test_slots_that_are_not_filled_do_not_reach_a_convolution(settings):
    block, inputs = made(**settings), random_array(2, 7, 12)
    whole, remembered = block(inputs, return_remembered=True)
    for filled in (0, 1, 3):
        memory = tf.concat([np.full((2, 4, 24), 50.0, np.float32), remembered[:, :filled]], axis=1)
        mask = visible_keys(7 - filled, 4 + filled, np.full(2, filled))
        np.testing.assert_allclose(block(inputs[:, filled:], memory=memory, attention_mask=mask), whole[:, filled:], 1e-4, 1e-5)


def test_with_convolutions_later_tokens_do_not_matter_and_memory_gets_no_gradient():
    block, inputs, memory = made(**CONVOLVED), tf.constant(random_array(2, 4, 12)), tf.constant(random_array(2, 3, 24, seed=1))
    changed = tf.concat([inputs[:, :2], inputs[:, 2:] + 1.0], axis=1)
    np.testing.assert_array_equal(block(changed, memory=memory)[:, :2], block(inputs, memory=memory)[:, :2])
    with tf.GradientTape() as tape:
        tape.watch((memory, inputs))
        loss = tf.reduce_sum(block(inputs, memory=memory) ** 3)
    to_memory, to_inputs = tape.gradient(loss, (memory, inputs))
    assert to_memory is None and np.any(to_inputs)


def test_what_is_remembered_is_the_inputs_or_also_what_the_convolution_read():
    inputs = random_array(2, 4, 12)
    outputs, weights, remembered = made()(inputs, return_attention_scores=True, return_remembered=True)
    assert outputs.shape == (2, 4, 12) and weights.shape == (2, 3, 4, 4)
    np.testing.assert_array_equal(remembered, inputs)
    remembered = made(**CONVOLVED)(inputs, return_remembered=True)[1]
    assert remembered.shape == (2, 4, 24)
    np.testing.assert_array_equal(remembered[..., :12], inputs)


def test_settings_reach_the_attention():
    block = made(**SYNTHESIZED)
    dense = block.attention_layer.mixed[1]
    assert (dense.form, dense.max_length, dense.key_index) == ("conv", 13, "distance")
    assert made(attention="factorized_random", attention_settings=SYNTHESIZED["attention_settings"]).attention_layer.rank == 3


def test_a_memory_without_room_for_what_a_convolution_read_is_refused():
    with pytest.raises(ValueError, match="memory must be as wide as inputs, 12"):
        made(**CONVOLVED)(random_array(2, 4, 12), memory=random_array(2, 3, 12))
