"""What holds for all Synthesizers: limits, places and distances, what is hidden, lengths, precisions."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.attention_cases import (
    EVERY_ONE, HEAD_DIM, HEADS, NAMES, SYNTHESIZERS, WIDTH, built, check_against_oracle, padding_mask, synthesizer)
from testing.test_case import outputs_and_gradients, random_array
from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.mixture_synthesizer import MixtureSynthesizer
from txl_tf.attention.multi_head import Ring
from txl_tf.attention.random_synthesizer import RandomSynthesizer
from txl_tf.attention.relative import RelativeMultiHeadAttention
from txl_tf.attention.shaw import ShawMultiHeadAttention
from txl_tf.attention.synthesizer import SynthesizerBase

TOO_LONG = "max_length must be at least the number of tokens of memory and segment"
OPEN = tf.TensorSpec((None, None, WIDTH))
every_one = pytest.mark.parametrize("name, key_index", EVERY_ONE)
KINDS = ("dense_two_layer", "random", "factorized_dense", "factorized_random", "mixture")
every_kind = pytest.mark.parametrize("name", KINDS)
every_kind_of_call = pytest.mark.parametrize("name, jit_compile", [
    pytest.param(name, jit_compile, marks=[pytest.mark.slow] if jit_compile and name != "mixture" else []) for jit_compile in (False, True)
    for name in KINDS])  # a mixture compiles three kinds


@pytest.mark.slow_but_first
@every_one
def test_future_tokens_never_matter(name, key_index):
    layer, inputs = built(synthesizer(name, key_index)), random_array(2, 7, WIDTH)
    whole = layer(inputs).numpy()
    for place in range(1, 7):
        changed = inputs.copy()
        changed[:, place:] = 9.0
        outputs = layer(changed).numpy()
        np.testing.assert_array_equal(outputs[:, :place], whole[:, :place])
        assert np.any(outputs[:, place] != whole[:, place])


@every_one
def test_a_padded_row_has_the_outputs_of_a_shorter_one(name, key_index):
    layer, inputs = built(synthesizer(name, key_index)), random_array(2, 7, WIDTH)
    mask = np.ones((2, 7, 7), bool)
    mask[:, :, 5:] = False
    outputs, weights = layer(inputs, attention_mask=mask, return_attention_scores=True)
    np.testing.assert_allclose(outputs[:, :5], layer(inputs[:, :5]), 1e-5, 1e-6)
    assert not np.any(weights[..., 5:])


@pytest.mark.slow_but_first
@every_one
def test_lengths_in_turn_equal_fresh_calls(name, key_index):
    layer, weights = built(synthesizer(name, key_index)), None
    parameters = layer.count_params()
    for turn, length in enumerate((8, 5, 8)):
        inputs = random_array(turn + 1, length, WIDTH, seed=turn)
        fresh = built(synthesizer(name, key_index))
        weights = weights or layer.get_weights()
        fresh.set_weights(weights)
        np.testing.assert_array_equal(layer(inputs), fresh(inputs))
        assert layer.count_params() == parameters


@every_kind
def test_a_shorter_text_uses_the_leading_logits(name):
    layer, inputs = built(synthesizer(name)), random_array(2, 8, WIDTH)
    whole = layer(inputs, return_attention_scores=True)
    for found, expected in zip(layer(inputs[:, :5], return_attention_scores=True), (whole[0][:, :5], whole[1][:, :, :5, :5])):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("key_index", ["position", "distance"])
@every_kind
def test_more_tokens_than_logits_are_refused(name, key_index):
    layer = built(synthesizer(name, key_index, max_length=6))
    assert layer(random_array(2, 6, WIDTH)).shape == (2, 6, WIDTH)
    for call in (layer, tf.function(layer), tf.function(layer, input_signature=[tf.TensorSpec((None, 7, WIDTH))])):
        with pytest.raises(ValueError, match=rf"{TOO_LONG}, 7\. Received: max_length=6"):
            call(random_array(2, 7, WIDTH))


@every_kind
def test_memory_counts_as_tokens(name):
    layer = built(synthesizer(name, "distance", max_length=6))
    assert layer(random_array(2, 2, WIDTH), memory=random_array(2, 4, WIDTH)).shape == (2, 2, WIDTH)
    with pytest.raises(ValueError, match=rf"{TOO_LONG}, 7\. Received: max_length=6"):
        layer(random_array(2, 2, WIDTH), memory=random_array(2, 5, WIDTH))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("key_index", ["position", "distance"])
@every_kind_of_call
def test_more_tokens_than_logits_are_refused_when_only_the_run_tells_them(name, key_index, jit_compile):
    layer, inputs = built(synthesizer(name, key_index, max_length=6)), random_array(2, 7, WIDTH)
    call = tf.function(lambda tokens: layer(tokens, return_attention_scores=True), input_signature=[OPEN], jit_compile=jit_compile)
    for found, expected in zip(call(inputs[:, :6]), layer(inputs[:, :6], return_attention_scores=True), strict=True):
        np.testing.assert_allclose(found, expected, 1e-4, 1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="max_length" if jit_compile else TOO_LONG):
        call(inputs)


@pytest.mark.parametrize("name", ["dense_two_layer", "random"])
def test_more_tokens_than_logits_are_refused_in_a_functional_model(name):
    tokens = keras.Input((None, WIDTH))
    model, inputs = keras.Model(tokens, synthesizer(name, max_length=6)(tokens)), random_array(2, 7, WIDTH)
    assert model.predict(inputs[:, :6], verbose=0).shape == (2, 6, WIDTH)
    with pytest.raises(ValueError, match=TOO_LONG):
        model(inputs)
    with pytest.raises((ValueError, tf.errors.InvalidArgumentError), match="max_length"):
        model.predict(inputs, verbose=0)


@every_kind
def test_places_take_no_memory(name):
    layer, inputs = built(synthesizer(name)), random_array(2, 2, WIDTH)
    np.testing.assert_array_equal(layer(inputs, memory=inputs[:, :0]), layer(inputs))
    with pytest.raises(ValueError, match=r"memory must have no tokens with key_index=position, .* memory\.shape=\(2, 3, 12\)"):
        layer(inputs, memory=random_array(2, 3, WIDTH))


@every_kind_of_call
def test_places_take_no_memory_when_only_the_run_tells_its_length(name, jit_compile):
    layer, inputs = built(synthesizer(name)), random_array(2, 2, WIDTH)
    call = tf.function(lambda tokens, memory: layer(tokens, memory=memory), input_signature=[OPEN, OPEN], jit_compile=jit_compile)
    np.testing.assert_allclose(call(inputs, inputs[:, :0]), layer(inputs), 1e-4, 1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"memory must have no tokens|\[\?,0,\?\]"):
        call(inputs, random_array(2, 3, WIDTH))


@every_kind
def test_a_memory_of_another_width_is_refused(name):
    with pytest.raises(ValueError, match=r"memory must be as wide as inputs, 12\. Received: memory\.shape=\(2, 3, 11\)"):
        built(synthesizer(name, "distance"))(random_array(2, 2, WIDTH), memory=random_array(2, 3, 11))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("key_index", ["position", "distance"])
@pytest.mark.parametrize("name", [*KINDS, "dense_conv", "dense_query"])
def test_all_sizes_may_be_open(name, key_index):
    layer, inputs = built(synthesizer(name, key_index)), random_array(2, 7, WIDTH)
    start = 3 if key_index == "distance" else 0
    mask = padding_mask(2, 7 - start, 7)
    call = tf.function(lambda tokens, memory, mask: layer(tokens, memory=memory, attention_mask=mask, return_attention_scores=True),
                       input_signature=[OPEN, OPEN, tf.TensorSpec((None, None, None), tf.bool)])
    expected = layer(inputs[:, start:], memory=inputs[:, :start], attention_mask=mask, return_attention_scores=True)
    for found, wanted in zip(call(inputs[:, start:], inputs[:, :start], mask), expected, strict=True):
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)


@every_kind
def test_rows_get_weights_and_dropout_of_their_own(name):
    layer, inputs = built(synthesizer(name, dropout=0.5)), random_array(1, 9, WIDTH).repeat(3, 0)
    tokens = keras.Input((None, WIDTH))
    model = keras.Model(tokens, layer(tokens, return_attention_scores=True))
    for call in (lambda: layer(inputs, return_attention_scores=True, training=True), lambda: model(inputs, training=True),
                 tf.function(lambda: layer(inputs, return_attention_scores=True, training=True))):
        outputs, weights = call()
        assert weights.shape == (3, HEADS, 9, 9)
        assert len({row.tobytes() for row in outputs.numpy()}) == 3


@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
@every_kind
def test_low_precision_is_near(name, dtype):
    inputs, precise = random_array(2, 7, WIDTH), synthesizer(name, "distance")
    built(precise)
    layer = type(precise).from_config(with_dtype(precise.get_config(), dtype))
    layer.build((None, None, WIDTH))
    layer.set_weights(precise.get_weights())
    outputs, weights = layer(inputs, return_attention_scores=True)
    expected_outputs, expected_weights = precise(inputs, return_attention_scores=True)
    assert outputs.dtype == layer.compute_dtype and weights.dtype == tf.float32
    np.testing.assert_allclose(weights, expected_weights, atol=0.03)
    np.testing.assert_allclose(tf.cast(outputs, tf.float32), expected_outputs, atol=0.1)


def with_dtype(config, dtype):
    """Returns a layer's config, and those of the layers that it mixes, with another dtype policy."""
    mixed = [{**layer, "config": with_dtype(layer["config"], dtype)} for layer in config.get("mixed", ())]
    return {**config, "dtype": dtype, **({"mixed": mixed} if mixed else {})}


@pytest.mark.parametrize("settings, message", [
    ({"max_length": 0}, "max_length must be an integer of at least 1. Received: max_length=0"),
    ({"key_index": "place"}, "key_index must be one of position, distance. Received: key_index=place"),
    ({"num_heads": 0}, "num_heads must be an integer of at least 1. Received: num_heads=0"),
    ({"head_dim": 0}, "head_dim must be an integer of at least 1. Received: head_dim=0"),
    ({"max_length": 2.0}, "max_length must be an integer of at least 1. Received: max_length=2.0"),
])
@pytest.mark.parametrize("name", ["dense_two_layer", "random", "factorized_dense", "factorized_random"])
def test_bad_settings_are_refused(name, settings, message):
    with pytest.raises(ValueError, match=message):
        SYNTHESIZERS[name][0](**{"num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": 6, **settings})


def test_an_integer_mask_is_as_good_as_a_boolean_one():
    for name in NAMES:
        layer, inputs, mask = built(synthesizer(name)), random_array(2, 5, WIDTH), padding_mask(2, 5, 5)
        np.testing.assert_array_equal(layer(inputs, attention_mask=mask.astype("int32")), layer(inputs, attention_mask=mask))


def test_logits_in_the_order_of_keys():
    logits = tf.constant([[1.0, 2.0, 3.0, 4.0]])
    by_place, by_distance = (SynthesizerBase(1, 2, 4, key_index) for key_index in ("position", "distance"))
    np.testing.assert_array_equal(by_place.in_key_order(logits, 3), [[1, 2, 3]])
    np.testing.assert_array_equal(by_distance.in_key_order(logits, 3), [[0, 3, 2, 1]])
    np.testing.assert_array_equal(by_place.in_key_order(logits, 6), [[1, 2, 3, 4, 0, 0]])
    np.testing.assert_array_equal(by_distance.in_key_order(logits, 6), [[0, 0, 0, 4, 3, 2, 1]])


def ring_case(name, key_index, mem_len, query_len, slots, end):
    """Returns (outputs of `attend` with a context that is written in a circle, outputs of one pass) of the last queries of a text."""
    layer, text = built(synthesizer(name, key_index)), random_array(2, mem_len + query_len, WIDTH)
    key_len = text.shape[1]
    unused = np.full((2, slots - key_len, WIDTH), 7.0, np.float32)
    context = {part: np.roll(value, end, axis=2) for part, value in layer.project(np.concatenate([unused, text], axis=1)).items()}
    visible = np.zeros((2, query_len, slots), bool)
    visible[:, :, slots - key_len:] = np.tri(query_len, key_len, mem_len, dtype=bool)
    ring = Ring(tf.constant(end), tf.fill((2,), key_len))
    positions = layer.project_positions(slots)
    outputs = layer.attend(text[:, mem_len:], context, positions, np.roll(visible, end, axis=-1), ring, by_head=True)
    return outputs, layer(text)[:, mem_len:]


@pytest.mark.slow_but_first
@every_one
def test_a_context_in_a_ring_gives_the_same(name, key_index):
    for mem_len, query_len, slots, end in ((4, 3, 9, 2), (4, 1, 5, 4), (0, 5, 7, 0), (1, 2, 25, 11)):
        np.testing.assert_allclose(*ring_case(name, key_index, mem_len, query_len, slots, end), 1e-4, 1e-5)


def test_every_head_begins_as_a_kernel_of_its_own():
    layer = synthesizer("dense_two_layer")
    layer.build((None, None, WIDTH))
    kernel = layer.hidden_kernel.numpy()  # (N, d, d) with d = 4
    assert len({head.tobytes() for head in kernel}) == HEADS
    assert 0.3 < np.abs(kernel).max() <= (6 / (4 + 4)) ** 0.5  # Glorot's bound of d inputs, not of N d
    assert not layer.hidden_bias.numpy().any()


def test_a_config_makes_the_same_layer():
    for name, key_index in EVERY_ONE:
        layer = synthesizer(name, key_index)
        assert type(layer).from_config(layer.get_config()).get_config() == layer.get_config()


def test_training_moves_the_trainable_weights_alone():
    for name in SYNTHESIZERS:
        layer, inputs = built(synthesizer(name)), random_array(2, 7, WIDTH)
        before, (_, gradients) = layer.get_weights(), outputs_and_gradients(layer, {"inputs": inputs}, random_array(2, 7, WIDTH, seed=5))
        keras.optimizers.SGD(0.1).apply(gradients, layer.trainable_variables)
        assert all(np.any(gradient) for gradient in gradients)
        for variable, old in zip(layer.weights, before, strict=True):
            assert np.any(variable != old) == variable.trainable, variable.path


def test_max_length_of_one():
    inputs = random_array(2, 1, WIDTH)
    for name in NAMES:
        layer = built(synthesizer(name, max_length=1))
        outputs, weights = layer(inputs, return_attention_scores=True)
        np.testing.assert_array_equal(weights, np.ones((2, HEADS, 1, 1)))
        np.testing.assert_allclose(outputs, inputs @ layer.value_kernel.numpy() @ layer.output_kernel.numpy(), 1e-4, 1e-5)


def test_the_leading_part_of_a_saved_layer_serves_other_batches(tmp_path):
    layer = built(RandomSynthesizer(HEADS, HEAD_DIM, 6))
    tokens = keras.Input((None, WIDTH))
    model = keras.Model(tokens, layer(tokens))
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    for batch, length in ((1, 6), (4, 3)):
        inputs = random_array(batch, length, WIDTH)
        np.testing.assert_array_equal(copy(inputs), model(inputs))


@pytest.mark.parametrize("name", [*NAMES, "dot_product"])
def test_without_causality_every_key_is_seen(name):
    layer = DotProductMultiHeadAttention(HEADS, HEAD_DIM, causal=False) if name == "dot_product" else synthesizer(name, causal=False)
    check_against_oracle(built(layer), 6)
    check_against_oracle(layer, 6, attention_mask=padding_mask(2, 6, 6))
    inputs = random_array(2, 6, WIDTH)
    assert np.all(layer(inputs, return_attention_scores=True)[1].numpy() > 0)
    copy = type(layer).from_config(layer.get_config())
    assert not copy.causal


@pytest.mark.parametrize("make", [
    lambda: synthesizer("random", "distance", causal=False), lambda: RelativeMultiHeadAttention(HEADS, HEAD_DIM, causal=False),
    lambda: ShawMultiHeadAttention(HEADS, HEAD_DIM, 5, causal=False),
    lambda: MixtureSynthesizer(HEADS, HEAD_DIM, [DotProductMultiHeadAttention(HEADS, HEAD_DIM), DotProductMultiHeadAttention(
        HEADS, HEAD_DIM, causal=False)])], ids=["distance", "relative", "shaw", "mixture"])
def test_later_keys_are_refused_where_they_mean_nothing(make):
    with pytest.raises(ValueError, match="causal.*Received: .*causal=False"):
        make()
