"""Added tokens: the model says of all others what it said before."""

import numpy as np
import pytest

from testing.tiny_model import N_TOKEN, tiny_model, tiny_tokens
from txl_tf.added_tokens import add_tokens

MODELS = [{}, {"d_embed": 7}, {"tie_weight": False}, {"cutoffs": (3, 7)}, {"cutoffs": (3, 7), "tie_weight": False},
          {"cutoffs": (3, 7), "div_val": 2, "proj_share_all_but_first": True, "untie_r": True},
          {"attention": "random_fixed", "max_length": 11}]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", MODELS, ids=str)
def test_the_others_keep_their_logits(settings):
    model = tiny_model(**settings)
    grown = add_tokens(model, 2)
    tokens = tiny_tokens(2, 5)
    old, new = (each.log_probs(tokens, each.initial_memory(2))[0].numpy() for each in (model, grown))
    assert new.shape[-1] == grown.config.n_token == N_TOKEN + 2
    np.testing.assert_allclose(np.exp(new).sum(-1), 1, rtol=1e-5)
    start = model.config.cutoffs[-1] if model.config.cutoffs else 0
    np.testing.assert_allclose(new[..., :start], old[..., :start], rtol=0, atol=1e-6)
    last = new[..., start:N_TOKEN] - old[..., start:]  # one number a position, by which the last cluster's sum has grown
    np.testing.assert_allclose(last, last[..., :1] * np.ones_like(last), rtol=0, atol=1e-5)
    assert np.all(last < 0)


def test_the_new_tokens_can_be_read_and_scored():
    grown = add_tokens(tiny_model(cutoffs=(3, 7), div_val=2), 1)
    nll, _ = grown.nll(np.array([[1, N_TOKEN, 2]]), np.array([[N_TOKEN, 2, 0]]), grown.initial_memory(1))
    assert np.all(np.isfinite(nll))


def test_no_tokens_are_refused():
    with pytest.raises(ValueError, match="count must be at least 1. Received: count=0"):
        add_tokens(tiny_model(), 0)
