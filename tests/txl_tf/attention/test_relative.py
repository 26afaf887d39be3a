"""Relative attention against a slow oracle, against the original's arrays, and in segments."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from testing.relative_attention_oracle import position, relative_attention
from testing.test_case import TestCase, random_array
from testing.tiny_model import randomize
from txl_tf.attention.relative import RelativeMultiHeadAttention, relative_shift, sinusoid

GOLDEN = Path(__file__).parents[2] / "golden" / "rel_shift"
CASES = json.loads((GOLDEN / "cases.json").read_text())


def made(width, **settings):
    """Returns a built layer of 3 heads of 5 with random weights."""
    layer = RelativeMultiHeadAttention(num_heads=3, head_dim=5, **settings)
    layer.build((None, None, width))
    return randomize(layer)


def made_tied(width, owner):
    """Returns a built layer as made gives, with the biases of another."""
    layer = RelativeMultiHeadAttention(num_heads=3, head_dim=5)
    layer.tie_biases(owner)
    layer.build((None, None, width))
    return layer


class RelativeMultiHeadAttentionTest(TestCase):
    def test_layer(self):
        self.run_layer_test(
            RelativeMultiHeadAttention,
            init_kwargs={"num_heads": 3, "head_dim": 5, "dropout": 0.1, "clamp_len": 4, "kernel_initializer": "he_normal"},
            call_kwargs={"inputs": random_array(2, 4, 12), "memory": random_array(2, 3, 12, seed=1)},
            expected_shape=(2, 4, 12),
            expected_trainable_weights=7,
            expected_parameters=5 * 12 * 15 + 2 * 15)

    def test_layer_with_mask_and_positions(self):
        self.run_layer_test(
            RelativeMultiHeadAttention,
            init_kwargs={"num_heads": 2, "head_dim": 4},
            call_kwargs={"inputs": random_array(3, 4, 6), "memory": random_array(3, 5, 6, seed=1),
                         "attention_mask": np.tri(4, 9, 5, dtype=bool)[None].repeat(3, 0),
                         "position_embedding": random_array(9, 6, seed=2), "return_attention_scores": True},
            expected_shape=(3, 4, 6),
            expected_trainable_weights=7)

    def test_segments(self):
        for clamp_len in (-1, 2):
            self.run_segment_test(RelativeMultiHeadAttention, {"num_heads": 3, "head_dim": 5, "clamp_len": clamp_len}, width=12)


@pytest.mark.parametrize("width, mem_len, clamp_len", [(6, None, -1), (6, 3, 0), (7, 2, -1), (6, 6, 3), (6, 0, 1)])
def test_equals_the_oracle(width, mem_len, clamp_len):
    layer = made(width, clamp_len=clamp_len)
    inputs = random_array(2, 4, width)
    memory = None if mem_len is None else random_array(2, mem_len, width, seed=1)
    outputs, weights = layer(inputs, memory=memory, return_attention_scores=True)
    expected_outputs, expected_weights = relative_attention(layer, inputs, memory)
    np.testing.assert_allclose(weights, expected_weights, 1e-4, 1e-5)
    np.testing.assert_allclose(outputs, expected_outputs, 1e-4, 1e-5)


@pytest.mark.parametrize("shape", [(4, 7), (2, 4, 7)])
def test_attention_mask_equals_the_oracle_and_hides_wholly(shape):
    layer = made(6)
    inputs, memory = random_array(2, 4, 6), random_array(2, 3, 6, seed=1)
    mask = (np.random.default_rng(3).random(shape) < 0.5) | np.eye(4, 7, 3, bool)
    outputs, weights = layer(inputs, memory=memory, attention_mask=mask, return_attention_scores=True)
    expected_outputs, expected_weights = relative_attention(layer, inputs, memory, mask)
    np.testing.assert_allclose(outputs, expected_outputs, 1e-4, 1e-5)
    np.testing.assert_allclose(weights, expected_weights, 1e-4, 1e-5)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1.0, 1e-6)
    assert not np.any(weights.numpy()[expected_weights == 0])


def test_given_positions_are_used_and_equal_the_layers_own():
    layer = made(6, clamp_len=3)
    inputs, memory = random_array(2, 4, 6), random_array(2, 3, 6, seed=1)
    own = layer(inputs, memory=memory)
    np.testing.assert_allclose(layer(inputs, memory=memory, position_embedding=sinusoid(7, 6, clamp_len=3)), own, 1e-6)
    assert np.any(layer(inputs, memory=memory, position_embedding=sinusoid(7, 6)) != own)


def test_tied_biases_are_the_owners_variables():
    owner = made(6)
    layer = made_tied(6, owner)
    assert layer.content_bias is owner.content_bias and layer.position_bias is owner.position_bias
    with pytest.raises(ValueError, match="unbuilt layer and a built owner. Received: built=True"):
        layer.tie_biases(owner)


@pytest.mark.parametrize("case", range(len(CASES["rel_shift"])))
def test_relative_shift_equals_the_original(case):
    arrays = np.load(GOLDEN / "rel_shift.npz")
    before, after = (arrays[f"case{case}/{name}"].transpose(2, 3, 0, 1) for name in "xy")  # (B, N, T, S)
    shifted = relative_shift(np.pad(before, ((0, 0), (0, 0), (0, 0), (1, 0)))).numpy()
    meant = np.tri(*before.shape[2:], before.shape[3] - before.shape[2], dtype=bool)
    np.testing.assert_array_equal(shifted[:, :, meant], after[:, :, meant])
    np.testing.assert_array_equal(shifted, after)  # what lies right of the diagonal is the original's too


@pytest.mark.parametrize("case", range(len(CASES["pos_emb"])))
def test_sinusoid_equals_the_original(case):
    settings = CASES["pos_emb"][case]
    expected = np.load(GOLDEN / "pos_emb.npz")[f"case{case}/pos_emb"][:, 0]
    rows = sinusoid(settings["klen"], settings["d_model"], settings["clamp_len"])
    assert rows.dtype == tf.float32
    np.testing.assert_allclose(rows, expected, atol=1e-4)


@pytest.mark.parametrize("width", [6, 7])
def test_sinusoid_equals_the_oracle(width):
    expected = [position(distance, width) for distance in range(8, -1, -1)]
    np.testing.assert_allclose(sinusoid(9, width), expected, atol=1e-5)


def test_clamped_distances_share_a_position():
    rows = sinusoid(9, 6, clamp_len=5).numpy()
    assert (rows[:4] == rows[0]).all()
    assert len(np.unique(rows, axis=0)) == 6
    np.testing.assert_array_equal(rows[3:], sinusoid(6, 6).numpy())
