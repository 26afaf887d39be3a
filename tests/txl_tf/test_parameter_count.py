"""Counts are those of the models themselves, and the original's for the published settings."""

import math
import random

import pytest

from txl_tf import TransformerXLLM
from txl_tf.config import ATTENTIONS, DENSE_FORMS, FEED_FORWARDS, MIXTURE_WEIGHTINGS, ModelConfig
from txl_tf.parameter_count import parameter_count
from txl_tf.presets import preset_config

PUBLISHED = [  # of the original's graphs; the last two rows of wt103_base and lm1b_base are those of its PyTorch scripts
    ("enwik8_base", 204, {}, 41_055_436),
    ("enwik8_large", 204, {}, 277_231_820),
    ("text8_base", 27, {}, 40_964_635),
    ("text8_large", 27, {}, 277_050_395),
    ("wt103_base", 267_735, {}, 151_119_838),
    ("wt103_large", 267_735, {}, 285_205_322),
    ("lm1b_base", 793_470, {}, 466_962_273),
    ("lm1b_large", 793_470, {}, 838_078_041),
    ("ptb", 10_000, {}, 26_351_560),
    ("wt103_base", 267_735, {"untie_r": False}, 151_107_538),
    ("lm1b_base", 793_470, {"untie_r": False, "proj_same_dim": True}, 469_020_513),
]


def random_config(seed):
    """Returns a small ModelConfig with every choice that changes the number of parameters."""
    draw = random.Random(seed)
    cutoffs = draw.choice([(), (5,), (5, 11), (3, 9, 20)])
    tie_weight = draw.random() < 0.7
    d_model = draw.choice([8, 9, 12])
    return ModelConfig(
        n_token=draw.randint(21, 30), n_layer=draw.randint(1, 2), d_model=d_model, n_head=draw.randint(1, 3),
        d_embed=draw.choice([d_model, 8, 17]), d_head=draw.choice([2, 5]), d_inner=draw.choice([4, 7]), untie_r=draw.random() < 0.5,
        cutoffs=cutoffs, div_val=draw.choice([1, 2]), tie_weight=tie_weight, proj_same_dim=draw.random() < 0.5,
        proj_share_all_but_first=tie_weight and draw.random() < 0.5, feed_forward=draw.choice(FEED_FORWARDS))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("seed", range(16))
def test_it_is_the_count_of_the_model(seed):
    config = random_config(seed)
    assert parameter_count(config) == TransformerXLLM(config).count_params()


ATTENTION_SETTINGS = [
    *({"attention": name} for name in ATTENTIONS if name != "mixture"), *({"attention": "dense", "dense_form": form} for form in DENSE_FORMS),
    *({"attention": "mixture", "mixture_of": ("shaw", "random"), "mixture_weighting": weighting} for weighting in MIXTURE_WEIGHTINGS),
    {"attention": "mixture", "mixture_of": ("relative", "factorized_random", "dense"), "factor_rank": 3},
    {"attention": "mixture", "mixture_of": ("relative", "factorized_dense"), "untie_r": True},
]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("mem_len", [0, 5])
@pytest.mark.parametrize("settings", ATTENTION_SETTINGS, ids=str)
def test_it_is_the_count_of_every_attention(settings, mem_len):
    mem_len = 0 if settings["attention"] == "absolute" else mem_len
    config = ModelConfig(n_token=7, n_layer=2, d_model=8, n_head=2, d_head=3, d_inner=5, tgt_len=7, mem_len=mem_len, **settings)
    trainable = TransformerXLLM(config).trainable_variables
    assert parameter_count(config) == sum(math.prod(variable.shape) for variable in trainable)


@pytest.mark.parametrize("name, n_token, settings, parameters", PUBLISHED)
def test_it_is_the_originals(name, n_token, settings, parameters):
    assert parameter_count(preset_config(name, n_token=n_token, **settings)) == parameters


def test_the_18_layers_have_the_size_that_was_published():
    assert round(parameter_count(preset_config("enwik8_18l", n_token=204)) / 1e6) == 88
