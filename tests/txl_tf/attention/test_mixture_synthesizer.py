"""Mixtures of ways to make scores."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.attention_cases import HEAD_DIM, HEADS, WIDTH, built, check_all_masks, synthesizer
from testing.test_case import TestCase, random_array
from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.mixture_synthesizer import WEIGHTINGS, MixtureSynthesizer
from txl_tf.attention.relative import RelativeMultiHeadAttention, sinusoid
from txl_tf.attention.shaw import ShawMultiHeadAttention

BOTH = 2 * WIDTH * HEADS * HEAD_DIM  # parameters of values and outputs
PART = {"num_heads": HEADS, "head_dim": HEAD_DIM}
EVERY_KIND = ("dot_product", "dense_two_layer", "dense_conv_3_5", "random", "random_fixed", "factorized_dense", "factorized_random",
              "relative", "shaw")


def part(name, key_index="distance", **settings):
    """Returns a new layer to be mixed."""
    others = {"dot_product": DotProductMultiHeadAttention, "relative": RelativeMultiHeadAttention}
    if name == "shaw":
        return ShawMultiHeadAttention(**PART, max_length=4, **settings)
    return others[name](**PART, **settings) if name in others else synthesizer(name, key_index, **settings)


def parts(dtype=None):
    return [part(name, dtype=dtype) for name in ("dot_product", "dense_conv", "random")]


def mixture(*names, key_index="distance", **settings):
    """Returns a built mixture with random weights."""
    return built(MixtureSynthesizer(**PART, mixed=[part(name, key_index) for name in names], **settings))


class MixtureSynthesizerTest(TestCase):
    @pytest.mark.slow
    def test_layer(self):
        self.run_layer_test(
            MixtureSynthesizer,
            init_kwargs={**PART, "mixed": parts, "weighting": "softmax", "dropout": 0.1, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 4, WIDTH), "memory": random_array(2, 3, WIDTH, seed=1)},
            expected_shape=(2, 4, WIDTH),
            expected_trainable_weights=2 + 2 + 4 + 1 + 1,
            expected_parameters=BOTH + 2 * WIDTH * HEADS * HEAD_DIM + HEADS * (3 * 4 * 4 + 3 * 4 * 20 + 4 + 20) + HEADS * 20 + 3)

    def test_segments(self):
        self.run_segment_test(MixtureSynthesizer, {**PART, "mixed": parts()}, WIDTH)

    @pytest.mark.slow
    def test_segments_of_every_kind(self):
        for weighting in ("softmax", "sum"):
            mixed = [part(name) for name in EVERY_KIND]
            self.run_segment_test(MixtureSynthesizer, {**PART, "mixed": mixed, "weighting": weighting}, WIDTH)


@pytest.mark.parametrize("weighting", WEIGHTINGS)
@pytest.mark.parametrize("names", [("dot_product", "random"), ("dense_conv_3_5", "factorized_dense")], ids=" and ".join)
def test_equals_the_oracle(names, weighting):
    check_all_masks(mixture(*names, weighting=weighting, key_index="position"), 6)
    check_all_masks(mixture(*names, weighting=weighting), 4, 5)


@pytest.mark.parametrize("weighting", ["softmax", "sum"])
def test_a_mixture_of_every_kind_equals_the_oracle(weighting):
    check_all_masks(mixture(*EVERY_KIND, weighting=weighting), 4, 3)


def test_layers_with_tokens_of_their_own_are_not_confused():
    check_all_masks(mixture("dot_product", "dot_product", "relative", "dense_conv", "shaw", "dense_conv_3_5"), 4, 3)
    check_all_masks(mixture(*["dot_product", "random"] * 6), 4, 3)  # numbers of two digits


@pytest.mark.parametrize("number", range(3))
def test_with_one_weight_of_one_only_that_layer_counts(number):
    layer, inputs, memory = mixture("dot_product", "dense_conv", "random"), random_array(2, 4, WIDTH), random_array(2, 3, WIDTH, seed=1)
    layer.mixing_logits.assign([200.0 * (index == number) for index in range(3)])
    np.testing.assert_array_equal(layer.mixing_weights(), np.eye(3)[number])
    alone = plain(layer, number)
    for found, expected in zip(*(each(inputs, memory=memory, return_attention_scores=True) for each in (layer, alone)), strict=True):
        np.testing.assert_allclose(found, expected, 1e-5, 1e-6)


@pytest.mark.parametrize("logit, number", [(-200.0, 0), (200.0, 1)])
def test_at_its_ends_a_sigmoid_leaves_one_of_two(logit, number):
    layer, inputs = mixture("dot_product", "dense_two_layer", weighting="sigmoid"), random_array(2, 4, WIDTH)
    layer.mixing_logits.assign([logit])
    np.testing.assert_allclose(layer(inputs), plain(layer, number)(inputs), 1e-5, 1e-6)


def plain(layer, number):
    """Returns a layer like one of a mixture, with its weights and the mixture's values and outputs."""
    mixed = layer.mixed[number]
    alone = built(type(mixed).from_config(mixed.get_config()))
    for variable in alone.weights:
        variable.assign(getattr(layer if variable.name in ("value_kernel", "output_kernel") else mixed, variable.name))
    return alone


def test_weights_at_the_start():
    for weighting, count, expected in (("softmax", 3, [1 / 3] * 3), ("sum", 3, [1.0] * 3), ("sigmoid", 2, [0.5] * 2)):
        layer = MixtureSynthesizer(**PART, mixed=[part("random") for _ in range(count)], weighting=weighting)
        layer.build((None, None, WIDTH))
        np.testing.assert_allclose(layer.mixing_weights(), expected, 1e-6)
        assert layer.count_params() == BOTH + count * HEADS * 20 + {"softmax": 3, "sum": 0, "sigmoid": 1}[weighting]


def test_learned_weights_sum_to_one():
    for weighting in ("softmax", "sigmoid"):
        layer = mixture("dot_product", "random", weighting=weighting)
        layer.mixing_logits.assign(3 * layer.mixing_logits + 0.7)
        weights = layer.mixing_weights().numpy()
        assert weights.dtype == np.float32
        np.testing.assert_allclose(weights.sum(), 1.0, 1e-6)
        assert np.all(weights > 0) and abs(weights[0] - 0.5) > 0.01


def test_shared_positions_reach_relative_attention():
    layer, inputs = mixture("dot_product", "relative"), random_array(2, 4, WIDTH)
    np.testing.assert_allclose(layer(inputs, position_embedding=sinusoid(4, WIDTH)), layer(inputs), 1e-6)
    assert np.any(layer(inputs, position_embedding=sinusoid(4, WIDTH, clamp_len=1)) != layer(inputs))


def test_biases_are_tied_layer_by_layer():
    owner = mixture("dot_product", "relative", "random")
    other = MixtureSynthesizer(**PART, mixed=[part(name) for name in ("dot_product", "relative", "random")])
    other.tie_biases(owner)
    built(other)
    assert other.mixed[1].content_bias is owner.mixed[1].content_bias and other.mixed[1].position_bias is owner.mixed[1].position_bias
    assert other.mixed[2].logits is not owner.mixed[2].logits


def test_only_what_makes_scores_is_built_of_a_layer():
    layer = mixture("dot_product", "dense_two_layer")
    assert {weight.name for weight in layer.mixed[0].weights} == {"query_kernel", "key_kernel"}
    assert "value_kernel" not in {weight.name for weight in layer.mixed[1].weights}


def test_the_shortest_layer_limits_the_keys():
    layer = built(MixtureSynthesizer(**PART, mixed=[part("random", max_length=9), part("random", max_length=6)]))
    assert layer(random_array(2, 6, WIDTH)).shape == (2, 6, WIDTH)
    call = tf.function(layer, input_signature=[tf.TensorSpec((None, None, WIDTH))])
    for refused, error in ((layer, ValueError), (call, tf.errors.InvalidArgumentError)):
        with pytest.raises(error, match=r"max_length must be at least .*Received: max_length=6"):
            refused(random_array(2, 7, WIDTH))


def making(mixed, weighting="softmax"):
    return lambda: MixtureSynthesizer(**PART, mixed=mixed(), weighting=weighting)


@pytest.mark.parametrize("make, message", [
    (making(parts, "mean"), "weighting must be one of softmax, sum, sigmoid. Received: weighting=mean"),
    (making(lambda: None), "mixed must be a list of layers. Received: mixed=None"),
    (making(lambda: []), r"mixed must be at least two layers. Received: mixed=\[\]"),
    (making(lambda: parts()[:1]), r"mixed must be at least two layers. Received: mixed=\['DotProductMultiHeadAttention'\]"),
    (making(parts, "sigmoid"), r"mixed must be two layers with weighting=sigmoid. Received: mixed=\["),
    (making(lambda: [part("random"), built(part("random"))]), "not built, and no mixtures. Received: mixed="),
    (making(lambda: [part("random"), MixtureSynthesizer(**PART, mixed=parts())]), "not built, and no mixtures. Received: mixed="),
    (making(lambda: [part("random"), keras.layers.Dense(3)]), "must be layers of attention .* Received: mixed="),
    (making(lambda: [part("random"), DotProductMultiHeadAttention(2, HEAD_DIM)]),
     "mixed must have num_heads=3. Received: DotProductMultiHeadAttention, num_heads=2"),
    (lambda: built(making(lambda: [part("random")] * 2)()), "mixed but once. Received: RandomSynthesizer, name=random_synthesizer"),
    (making(lambda: parts("mixed_bfloat16")),
     "mixed must have compute_dtype=float32. Received: DotProductMultiHeadAttention, compute_dtype=bfloat16"),
], ids=lambda value: value if isinstance(value, str) else "made")
def test_bad_mixtures_are_making(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_a_layer_that_was_mixed_is_not_mixed_again():
    mixed = parts()
    built(MixtureSynthesizer(**PART, mixed=mixed))
    with pytest.raises(ValueError, match="not built, and no mixtures"):
        MixtureSynthesizer(**PART, mixed=mixed)
    mixed = parts()
    first, second = (MixtureSynthesizer(**PART, mixed=mixed) for _ in range(2))
    built(first)
    with pytest.raises(ValueError, match="mixed but once"):
        built(second)
