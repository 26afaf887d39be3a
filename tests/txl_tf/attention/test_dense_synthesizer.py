"""The Dense Synthesizer in all its forms."""

import numpy as np
import pytest

from testing.attention_cases import CONVOLUTIONS, DENSE, HEAD_DIM, HEADS, MAX_LENGTH, WIDTH, built, check_all_masks, synthesizer
from testing.test_case import TestCase, random_array
from txl_tf.attention.dense_synthesizer import FORMS, DenseSynthesizer

D, L, SMALL = WIDTH // HEADS, MAX_LENGTH, 2  # a head's share of a token, logits, bottleneck
PARAMETERS = {  # form: (weights of logits beyond values and outputs, parameters a head without biases, biases a head)
    "two_layer": (4, D * D + D * L, D + L),
    "linear": (2, D * L, L),
    "bottleneck": (4, D * SMALL + SMALL * L, SMALL + L),
    "conv": (4, 3 * D * D + 3 * D * L, D + L),
    "conv_bottleneck": (4, 3 * D * SMALL + 3 * SMALL * L, SMALL + L),
    "glu": (4, 2 * D * L, 2 * L),
}
BOTH = 2 * WIDTH * HEADS * HEAD_DIM  # parameters of values and outputs
every_form = pytest.mark.parametrize("name", [*DENSE, *CONVOLUTIONS])


class DenseSynthesizerTest(TestCase):
    def check_layer(self, form, key_index="distance", **settings):
        weights, parameters, biases = PARAMETERS.get(form, (2, 0, 0))
        self.run_layer_test(
            DenseSynthesizer,
            init_kwargs={"num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": L, "key_index": key_index, "form": form,
                         "bottleneck_dim": SMALL, "dropout": 0.1, "kernel_initializer": "he_normal", **settings},
            call_kwargs={"inputs": random_array(2, 4, WIDTH), "memory": random_array(2, 3 * (key_index == "distance"), WIDTH, seed=1)},
            expected_shape=(2, 4, WIDTH),
            expected_trainable_weights=2 + weights,
            expected_parameters=BOTH + HEADS * (parameters + biases) if form in PARAMETERS else None)

    @pytest.mark.slow
    def test_layer(self):
        self.check_layer("two_layer", "position")

    @pytest.mark.slow  # with the mixture's test a layer with convolutions is among the fast ones
    def test_layer_with_convolutions(self):
        self.check_layer("conv", kernel_sizes=(3, 3))

    @pytest.mark.slow
    def test_layer_of_other_forms(self):
        for form in FORMS:
            if form not in ("two_layer", "conv"):
                self.check_layer(form)

    def check_segments(self, *names):
        for name in names:
            with self.subTest(name):
                settings = {"max_length": L, "key_index": "distance", **{**DENSE, **CONVOLUTIONS}[name]}
                self.run_segment_test(DenseSynthesizer, {"num_heads": HEADS, "head_dim": HEAD_DIM, **settings}, WIDTH)

    def test_segments(self):
        self.check_segments("dense_two_layer", "dense_query", "dense_conv_3_5")

    @pytest.mark.slow
    def test_segments_of_all_forms(self):
        self.check_segments(*DENSE, *CONVOLUTIONS)


@every_form
def test_equals_the_oracle(name):
    check_all_masks(built(synthesizer(name)), 6)
    check_all_masks(built(synthesizer(name, "distance")), 4, 5)


@pytest.mark.parametrize("form", PARAMETERS)
@pytest.mark.parametrize("key_index", ["position", "distance"])
def test_parameters_of_a_head(form, key_index):
    layer = built(synthesizer(f"dense_{form}", key_index))
    _, parameters, biases = PARAMETERS[form]
    assert layer.count_params() == BOTH + HEADS * (parameters + biases)
    assert sum(weight.size for weight in layer.get_weights() if weight.ndim == 3 and weight.shape[1] == 1) == HEADS * biases


def test_parameters_of_the_query_form():
    assert built(synthesizer("dense_query")).count_params() == BOTH + WIDTH * HEADS * HEAD_DIM + HEAD_DIM * L


def test_with_a_first_layer_that_is_the_identity_only_the_second_remains():
    layer, inputs = built(synthesizer("dense_two_layer")), random_array(2, 5, WIDTH)
    layer.hidden_kernel.assign(np.stack([np.eye(D)] * HEADS))
    layer.hidden_bias.assign(np.zeros((HEADS, 1, D)))
    weights = layer(inputs, return_attention_scores=True)[1].numpy()
    for head in range(HEADS):
        features = np.maximum(inputs[..., head * D:(head + 1) * D], 0)
        logits = (features @ layer.logits_kernel[head] + layer.logits_bias[head, 0]).numpy()[..., :5]
        powers = np.tril(np.exp(logits))
        np.testing.assert_allclose(weights[:, head], powers / powers.sum(-1, keepdims=True), 1e-4, 1e-6)


@pytest.mark.parametrize("form, part", [("conv", "two_layer"), ("conv_bottleneck", "bottleneck")])
def test_convolutions_of_one_token_are_products(form, part):
    layer, plain = built(synthesizer(f"dense_{form}", kernel_sizes=(1, 1))), built(synthesizer(f"dense_{part}"))
    plain.set_weights(layer.get_weights())
    np.testing.assert_allclose(layer(random_array(2, 5, WIDTH)), plain(random_array(2, 5, WIDTH)), 1e-5, 1e-6)


@pytest.mark.parametrize("sizes", [(3, 3), (5, 5), (3, 5)])
def test_convolutions_read_no_further_back_than_their_kernels(sizes):
    layer, inputs = built(synthesizer("dense_conv", kernel_sizes=sizes)), random_array(2, 15, WIDTH)
    plain = layer(inputs, return_attention_scores=True)[1].numpy()
    changed = inputs.copy()
    changed[:, 2] += 1.0
    moved = np.any(layer(changed, return_attention_scores=True)[1].numpy() != plain, axis=(0, 1, 3))
    np.testing.assert_array_equal(np.flatnonzero(moved), range(2, 2 + sum(sizes) - 1))


@every_form
def test_a_head_reads_its_share_of_the_query_alone(name):
    layer, inputs = built(synthesizer(name)), random_array(2, 7, WIDTH)
    plain = layer(inputs, return_attention_scores=True)[1].numpy()
    changed = inputs.copy()
    changed[:, :, D:2 * D] += 1.0
    moved = np.any(layer(changed, return_attention_scores=True)[1].numpy() != plain, axis=(0, 2, 3))
    np.testing.assert_array_equal(moved, [name == "dense_query", True, name == "dense_query"])


@pytest.mark.parametrize("settings, message", [
    ({"form": "deep"}, "form must be one of two_layer, .*, query. Received: form=deep"),
    ({"form": ["glu"]}, r"form must be one of .* Received: form=\['glu'\]"),
    ({"kernel_sizes": 3}, "kernel_sizes must be two sizes of at least 1. Received: kernel_sizes=3"),
    ({"kernel_sizes": (3,)}, r"kernel_sizes must be two sizes of at least 1. Received: kernel_sizes=\(3,\)"),
    ({"kernel_sizes": (3, 0)}, r"kernel_sizes must be two sizes of at least 1. Received: kernel_sizes=\(3, 0\)"),
    ({"bottleneck_dim": 0}, "bottleneck_dim must be an integer of at least 1. Received: bottleneck_dim=0"),
])
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        DenseSynthesizer(HEADS, HEAD_DIM, L, **settings)


@pytest.mark.parametrize("form", FORMS)
def test_heads_must_share_a_token_evenly_but_with_a_query_projection(form):
    layer = DenseSynthesizer(HEADS, HEAD_DIM, L, form=form)
    if form == "query":
        assert layer(random_array(2, 4, 11)).shape == (2, 4, 11)
        return
    with pytest.raises(ValueError, match="num_heads must divide the width of inputs, 11. Received: num_heads=3"):
        layer(random_array(2, 4, 11))
