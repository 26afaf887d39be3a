"""The Random Synthesizer, trainable and fixed."""

import keras
import numpy as np
import pytest

from testing.attention_cases import HEAD_DIM, HEADS, WIDTH, built, check_all_masks, synthesizer
from testing.test_case import TestCase, outputs_and_gradients, random_array
from txl_tf.attention.random_synthesizer import RandomSynthesizer

BOTH = 2 * WIDTH * HEADS * HEAD_DIM  # parameters of values and outputs
INIT = {"num_heads": HEADS, "head_dim": HEAD_DIM, "dropout": 0.1, "kernel_initializer": "he_normal"}


class RandomSynthesizerTest(TestCase):
    def test_layer(self):
        self.run_layer_test(
            RandomSynthesizer,
            init_kwargs={**INIT, "max_length": 9, "key_index": "position", "scores_initializer": "he_uniform"},
            call_kwargs={"inputs": random_array(2, 4, WIDTH)},
            expected_shape=(2, 4, WIDTH),
            expected_trainable_weights=3,
            expected_parameters=BOTH + HEADS * 9 * 9)

    @pytest.mark.slow
    def test_fixed_layer(self):
        self.run_layer_test(
            RandomSynthesizer,
            init_kwargs={**INIT, "max_length": 9, "key_index": "distance", "fixed": True},
            call_kwargs={"inputs": random_array(2, 4, WIDTH), "memory": random_array(2, 3, WIDTH, seed=1)},
            expected_shape=(2, 4, WIDTH),
            expected_trainable_weights=2,
            expected_non_trainable_weights=1,
            expected_parameters=BOTH)

    def test_segments(self):
        for fixed in (False, True):
            self.run_segment_test(RandomSynthesizer, {"num_heads": HEADS, "head_dim": HEAD_DIM, "max_length": 13, "key_index": "distance",
                                                      "fixed": fixed}, WIDTH)


@pytest.mark.parametrize("fixed", [False, True])
def test_equals_the_oracle(fixed):
    check_all_masks(built(synthesizer("random", fixed=fixed)), 6)
    check_all_masks(built(synthesizer("random", "distance", fixed=fixed)), 4, 5)


def test_parameters_of_a_head():
    for key_index, logits in (("position", 13 * 13), ("distance", 13)):
        assert built(synthesizer("random", key_index, max_length=13)).count_params() == BOTH + HEADS * logits


@pytest.mark.parametrize("key_index", ["position", "distance"])
def test_logits_of_zero_give_uniform_attention(key_index):
    layer = built(synthesizer("random", key_index, scores_initializer="zeros"))
    layer.logits.assign(0 * layer.logits)
    weights = layer(random_array(2, 6, WIDTH), return_attention_scores=True)[1]
    uniform = np.tri(6) / np.arange(1, 7)[:, None]
    np.testing.assert_allclose(weights, np.broadcast_to(uniform, (2, HEADS, 6, 6)), 1e-6)


def test_logits_start_as_asked():
    for initializer, low, high in ((None, 0.9, 1.1), ("zeros", 0.0, 0.0), (keras.initializers.RandomNormal(stddev=0.1), 0.09, 0.11)):
        layer = synthesizer("random", max_length=50, scores_initializer=initializer)
        layer.build((None, None, WIDTH))
        assert low <= layer.logits.numpy().std() <= high


def test_weights_depend_on_no_token():
    layer = built(synthesizer("random"))
    weights = [layer(random_array(2, 6, WIDTH, seed=seed), return_attention_scores=True)[1].numpy() for seed in (1, 2)]
    np.testing.assert_array_equal(*weights)
    np.testing.assert_array_equal(weights[0][0], weights[0][1])


@pytest.mark.slow_but_first
@pytest.mark.parametrize("fixed, key_index", [(False, "distance"), (True, "position"), (True, "distance")])
def test_fixed_logits_stay_in_training_and_others_move(fixed, key_index):
    layer, inputs = built(synthesizer("random", key_index, fixed=fixed)), random_array(2, 6, WIDTH)
    model = keras.Sequential([keras.Input((6, WIDTH)), layer])
    model.compile("adam", "mse", jit_compile=False)
    before = [weight.numpy() for weight in (layer.logits, layer.value_kernel)]
    model.fit(inputs, 5 * inputs, epochs=2, verbose=0)
    assert np.array_equal(layer.logits, before[0]) == fixed
    assert not np.array_equal(layer.value_kernel, before[1])


def test_the_gradient_of_trainable_logits_is_not_zero():
    layer = built(synthesizer("random"))
    _, gradients = outputs_and_gradients(layer, {"inputs": random_array(2, 6, WIDTH)}, random_array(2, 6, WIDTH, seed=1))
    gradient = dict(zip([variable.name for variable in layer.trainable_variables], gradients))["logits"].numpy()
    reached = np.zeros(gradient.shape[1:], bool)
    reached[1:6, :6] = np.tri(6, dtype=bool)[1:]  # the first query has but one key
    assert np.array_equal(np.any(np.abs(gradient) > 1e-9, axis=0), reached)


def test_freezing_and_thawing_a_model_leaves_fixed_logits_fixed():
    layer = built(synthesizer("random", fixed=True))
    layer.trainable = False
    layer.trainable = True
    assert "logits" not in [variable.name for variable in layer.trainable_variables]


@pytest.mark.parametrize("file", ["model.keras", "model.weights.h5"])
def test_fixed_logits_are_saved_and_loaded(file, tmp_path):
    tokens = keras.Input((None, WIDTH))
    models = [keras.Model(tokens, synthesizer("random", fixed=True)(tokens)) for _ in range(2)]
    logits, others = (model.layers[-1].logits.numpy() for model in models)
    assert np.any(logits != others)
    if file == "model.keras":
        models[0].save(tmp_path / file)
        loaded = keras.saving.load_model(tmp_path / file)
    else:
        models[0].save_weights(tmp_path / file)
        loaded = models[1]
        loaded.load_weights(tmp_path / file)
    np.testing.assert_array_equal(loaded.layers[-1].logits, logits)
    assert not loaded.layers[-1].logits.trainable
