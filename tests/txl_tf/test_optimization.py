"""The learning rate against its formula and the original's numbers, Adam against TensorFlow 1's, clipping by the global norm."""

import math
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from txl_tf.config import TrainConfig
from txl_tf.optimization import WarmupCosine, clip_gradients, make_optimizer

GOLDEN = Path(__file__).parents[1] / "golden" / "tf1" / "10_training_trajectory" / "trajectory.npz"


def original_rate(step, peak, warmup_steps, train_steps, min_lr_ratio):
    """Returns the rate of update `step`, counted from 0, as the original code has it, in Python's floats."""
    if step < warmup_steps:
        return peak * step / warmup_steps
    done = min(1.0, (step - warmup_steps) / (train_steps - warmup_steps))
    return peak * ((1 - min_lr_ratio) * 0.5 * (1 + math.cos(math.pi * done)) + min_lr_ratio)


def test_the_rates_of_the_original_run():
    golden = np.load(GOLDEN)["lr"]
    schedule = WarmupCosine(1e-3, 8, 30, 0.004)
    np.testing.assert_allclose([float(schedule(step)) for step in range(30)], golden, rtol=0, atol=1e-9)
    assert float(schedule(0)) == 0.0


@pytest.mark.parametrize("warmup_steps", [0, 1, 7, 19])
def test_the_rates_of_the_formula(warmup_steps):
    schedule = WarmupCosine(2.5e-3, warmup_steps, 20, 0.1)
    expected = [original_rate(step, 2.5e-3, warmup_steps, 20, 0.1) for step in range(25)]
    np.testing.assert_allclose([float(schedule(step)) for step in range(25)], expected, rtol=0, atol=1e-9)


def test_without_warm_up_the_first_update_has_the_peak():
    assert float(WarmupCosine(2.5e-4, 0, 100)(0)) == pytest.approx(2.5e-4, abs=1e-10)


def test_after_the_end_the_lowest_rate_stays():
    schedule = WarmupCosine(1e-3, 10, 100, 0.004)
    assert [float(schedule(step)) for step in (100, 101, 10_000)] == [pytest.approx(4e-6, abs=1e-10)] * 3


def test_a_warm_up_as_long_as_the_training():
    schedule = WarmupCosine(1e-3, 10, 10, 0.5)
    assert float(schedule(9)) == pytest.approx(9e-4)
    assert math.isfinite(float(schedule(10)))


def test_far_steps_keep_their_precision():
    schedule = WarmupCosine(2.5e-4, 0, 400_000, 0.004)
    for step in (1, 123_457, 399_999):
        assert float(schedule(step)) == pytest.approx(original_rate(step, 2.5e-4, 0, 400_000, 0.004), abs=1e-9)


def test_the_schedule_serializes():
    schedule = WarmupCosine(1e-3, 8, 30, 0.004)
    restored = keras.optimizers.schedules.deserialize(keras.optimizers.schedules.serialize(schedule))
    assert restored.get_config() == schedule.get_config() and type(restored) is WarmupCosine


def test_the_optimizer_is_adam_with_the_configured_rates():
    optimizer = make_optimizer(TrainConfig(learning_rate=2e-3, warmup_steps=4, train_steps=10, min_lr_ratio=0.2))
    config = optimizer.get_config()
    assert isinstance(optimizer, keras.optimizers.Adam)
    assert {name: config[name] for name in ("beta_1", "beta_2", "epsilon", "amsgrad", "weight_decay", "use_ema")} == {
        "beta_1": 0.9, "beta_2": 0.999, "epsilon": 1e-8, "amsgrad": False, "weight_decay": None, "use_ema": False}
    assert [config[name] for name in ("clipnorm", "clipvalue", "global_clipnorm")] == [None] * 3  # clip_gradients does it
    variable = keras.Variable(np.zeros(2, np.float32))
    rates = []
    for _ in range(7):
        rates.append(float(optimizer.learning_rate))
        optimizer.apply([tf.ones(2)], [variable])
    np.testing.assert_allclose(rates, [original_rate(step, 2e-3, 4, 10, 0.2) for step in range(7)], rtol=0, atol=1e-9)


def test_updates_are_those_of_adam_in_tensorflow_1():
    """lr_t = lr sqrt(1 - b2^t) / (1 - b1^t); w -= lr_t m / (sqrt(v) + epsilon): epsilon outside the correction."""
    gradients = np.random.default_rng(0).normal(size=(6, 5)) * [1.0, 1e-3, 1e-6, 1e-8, 0.0]  # as small as epsilon, too
    config = TrainConfig(learning_rate=0.1, warmup_steps=3, train_steps=6, min_lr_ratio=0.1)
    weights, mean, square = np.full(5, 0.5), np.zeros(5), np.zeros(5)
    variable, optimizer = keras.Variable(np.full(5, 0.5, np.float32)), make_optimizer(config)
    for step, gradient in enumerate(gradients):
        optimizer.apply([tf.constant(gradient, tf.float32)], [variable])
        mean, square = 0.9 * mean + 0.1 * gradient, 0.999 * square + 0.001 * gradient ** 2
        rate = original_rate(step, 0.1, 3, 6, 0.1) * math.sqrt(1 - 0.999 ** (step + 1)) / (1 - 0.9 ** (step + 1))
        weights = weights - rate * mean / (np.sqrt(square) + 1e-8)
        np.testing.assert_allclose(variable.numpy(), weights, rtol=0, atol=2e-6)
    assert abs(weights[3] - 0.5) > 1e-3  # there epsilon decides: with 1e-7 the weight would move a tenth of that


def test_gradients_are_scaled_to_the_bound():
    clipped, norm = clip_gradients([tf.constant([3.0, 0.0]), tf.constant([[0.0], [4.0]])], 0.5)
    assert float(norm) == pytest.approx(5.0)
    np.testing.assert_allclose(clipped[0], [0.3, 0.0], atol=1e-7)
    np.testing.assert_allclose(clipped[1], [[0.0], [0.4]], atol=1e-7)


def test_gradients_within_the_bound_stay_as_they_are():
    gradients = [tf.constant([0.3, 0.1]), tf.constant([[0.7]])]
    clipped, norm = clip_gradients(gradients, 1.0)
    assert float(norm) == pytest.approx(math.sqrt(0.59))
    for before, after in zip(gradients, clipped):
        np.testing.assert_array_equal(before, after)


def test_rows_that_occur_twice_are_summed_before_the_norm():
    slices = tf.IndexedSlices(tf.constant([[3.0, 0.0], [1.0, 0.0], [0.0, 3.0]]), tf.constant([1, 1, 2]), tf.constant([4, 2]))
    clipped, norm = clip_gradients([slices], 2.5)
    assert float(norm) == pytest.approx(5.0)  # of [4, 0] and [0, 3]; the rows apart have sqrt(19)
    np.testing.assert_allclose(tf.convert_to_tensor(clipped[0]), [[0, 0], [2, 0], [0, 1.5], [0, 0]], atol=1e-6)


def test_a_gradient_of_nan_does_not_hide():
    clipped, norm = clip_gradients([tf.constant([float("nan"), 1.0])], 1.0)
    assert math.isnan(float(norm)) and np.isnan(clipped[0].numpy()).all()
