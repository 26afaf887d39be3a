"""Attention weights of a model: equal to the paper's formula in numpy, layer by layer, and to what the layers themselves return."""

import numpy as np
import pytest

from testing.relative_attention_oracle import relative_attention
from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.analysis.attention_maps import attention_maps
from txl_tf.memory import visible_keys

BATCH, BEFORE, LENGTH = 2, 4, 3


def filled_memory(model):
    """Returns the memory after BEFORE tokens, fewer than it has slots."""
    return model.log_probs(tiny_tokens(BATCH, BEFORE, seed=3), model.initial_memory(BATCH))[1]


@pytest.mark.parametrize("settings", [{}, {"same_length": True, "clamp_len": 3, "untie_r": True}, {"memory_start": "zeros"}], ids=str)
def test_equals_the_papers_formula(settings):
    model, token_ids = tiny_model(**settings), tiny_tokens(BATCH, LENGTH)
    memory = filled_memory(model)
    _, after = model.log_probs(token_ids, memory)
    mask = visible_keys(LENGTH, 6, memory["length"], settings.get("same_length", False)).numpy()
    weights = attention_maps(model, token_ids, memory).numpy()
    assert weights.shape == (BATCH, 2, 3, LENGTH, 6 + LENGTH) and weights.dtype == np.float32
    for index, block in enumerate(model.backbone.blocks):
        block.attention_layer.clamp_len = model.config.clamp_len  # which the model applies to the sinusoids that its layers share
        inputs = after["hidden"][:, index, -LENGTH:].numpy()  # what the layer received, as the model itself keeps it
        _, expected = relative_attention(block.attention_layer, inputs, memory["hidden"][:, index].numpy(), mask)
        np.testing.assert_allclose(weights[:, index], expected, 1e-4, 1e-5)
        _, returned = block.attention_layer(inputs, memory=memory["hidden"][:, index], attention_mask=mask, return_attention_scores=True)
        np.testing.assert_allclose(weights[:, index], returned, 1e-5, 1e-6)


def test_only_what_is_seen_has_weight():
    model = tiny_model(dropout=0.5, dropatt=0.5, dtype="mixed_bfloat16")
    memory = filled_memory(model)
    weights = attention_maps(model, tiny_tokens(BATCH, LENGTH), memory).numpy()
    seen = np.broadcast_to(visible_keys(LENGTH, 6, memory["length"])[:, None, None], weights.shape)
    assert (weights[~seen] == 0).all() and (weights[seen] > 0).all()
    np.testing.assert_allclose(weights.sum(-1), 1, 1e-5)
    np.testing.assert_array_equal(weights, attention_maps(model, tiny_tokens(BATCH, LENGTH), memory))


@pytest.mark.parametrize("memory_start", ["empty", "zeros"])
def test_without_a_memory_the_text_begins(memory_start):
    model, token_ids = tiny_model(memory_start=memory_start), tiny_tokens(BATCH, LENGTH)
    given = attention_maps(model, token_ids, model.initial_memory(BATCH)).numpy()
    np.testing.assert_array_equal(attention_maps(model, token_ids.tolist()), given)
    assert (given[..., :6].sum() > 0) == (memory_start == "zeros")
