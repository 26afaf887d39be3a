"""The table of ways of attention, and that the settings of a model name no others."""

import inspect

import numpy as np
import pytest

from testing.test_case import random_array
from txl_tf import config
from txl_tf.attention import ATTENTIONS, attention_layer
from txl_tf.attention.dense_synthesizer import FORMS, DenseSynthesizer
from txl_tf.attention.factorized_random_synthesizer import FactorizedRandomSynthesizer
from txl_tf.attention.mixture_synthesizer import WEIGHTINGS, MixtureSynthesizer
from txl_tf.attention.multi_head import MultiHeadAttentionBase
from txl_tf.attention.random_synthesizer import RandomSynthesizer
from txl_tf.attention.synthesizer import KEY_INDICES, SynthesizerBase
from txl_tf.layers.transformer_block import FEED_FORWARDS

SETTINGS = {"max_length": 9, "key_index": "distance", "dense_form": "glu", "factor_rank": 3, "mixture_weighting": "sum",
            "mixture_of": ("dense", "relative", "random_fixed")}


def made(kind, settings=None, **kwargs):
    return attention_layer(kind, 3, 5, SETTINGS if settings is None else settings, **kwargs)


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_the_table_makes_layers_of_attention(kind):
    layer = made(kind, dropout=0.1, kernel_initializer="he_normal", dtype="mixed_bfloat16", name="attention")
    assert isinstance(layer, MultiHeadAttentionBase)
    assert (layer.num_heads, layer.head_dim, layer.dropout, layer.name) == (3, 5, 0.1, "attention")
    assert layer.compute_dtype == "bfloat16" and type(layer.kernel_initializer).__name__ == "HeNormal"
    assert layer(random_array(2, 4, 12), memory=random_array(2, 3, 12)).shape == (2, 4, 12)


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_settings_reach_the_arguments_that_the_table_names(kind):
    layer, names = made(kind), ATTENTIONS[kind].settings
    for argument, setting in names.items():
        assert getattr(layer, argument) == SETTINGS[setting]
    assert set(names) <= set(inspect.signature(type(layer).__init__).parameters)


@pytest.mark.parametrize("kind", ATTENTIONS)
def test_the_settings_are_those_of_a_model(kind):
    model = config.ModelConfig(n_token=7, mem_len=0, attention=kind, mixture_of=("dense", "random") if kind == "mixture" else ())
    names = set(ATTENTIONS[kind].settings.values()) | ({"mixture_of"} if kind == "mixture" else set())
    assert names <= set(model.attention_settings)
    made(kind, model.attention_settings)


def test_random_may_be_fixed():
    assert made("random_fixed").fixed and not made("random").fixed


def test_a_mixture_is_made_of_the_layers_that_are_named():
    layer = made("mixture", kernel_initializer="he_normal", dropout=0.1, dtype="mixed_bfloat16")
    dense, relative, random = layer.mixed
    assert isinstance(layer, MixtureSynthesizer) and layer.weighting == "sum" and layer.dropout == 0.1
    assert (dense.form, dense.max_length, random.fixed, random.key_index) == ("glu", 9, True, "distance")
    assert type(relative.kernel_initializer).__name__ == "HeNormal" and relative.compute_dtype == "bfloat16"


def test_settings_that_are_left_out_have_the_layers_defaults():
    assert made("dense", {"max_length": 9}).form == DenseSynthesizer(3, 5, 9).form
    assert made("factorized_random", {"max_length": 9}).rank == FactorizedRandomSynthesizer(3, 5, 9).rank


def test_what_is_not_in_the_table_is_refused():
    with pytest.raises(ValueError, match="attention must be one of relative, .*, mixture. Received: attention=nearest"):
        made("nearest")
    with pytest.raises(ValueError, match=r"mixed must be at least two layers. Received: mixed=\[\]"):
        made("mixture", {})
    with pytest.raises(ValueError, match=r"mixture_of must be no mixtures. Received: mixture_of=\('mixture', 'random'\)"):
        made("mixture", {"mixture_of": ("mixture", "random"), "max_length": 9})


def test_a_model_names_what_the_layers_have():
    assert set(config.ATTENTIONS) == set(ATTENTIONS)
    assert set(config.DENSE_FORMS) == set(FORMS)
    assert set(config.MIXTURE_WEIGHTINGS) == set(WEIGHTINGS)
    assert set(config.KEY_INDICES) == set(KEY_INDICES)
    assert set(config.FEED_FORWARDS) == set(FEED_FORWARDS)
    assert set(config.SYNTHESIZERS) == {kind for kind in ATTENTIONS if isinstance(made(kind), SynthesizerBase)}


def test_defaults_of_a_model_are_those_of_the_layers():
    model = config.ModelConfig(n_token=7)
    assert model.dense_form == DenseSynthesizer(3, 5, 9).form
    assert model.factor_rank == FactorizedRandomSynthesizer(3, 5, 9).rank
    assert model.mixture_weighting == inspect.signature(MixtureSynthesizer.__init__).parameters["weighting"].default


def test_absolute_is_dot_product_whose_positions_the_model_adds():
    inputs = random_array(2, 4, 12)
    absolute, plain = (made(kind) for kind in ("absolute", "dot_product"))
    absolute(inputs), plain(inputs)
    absolute.set_weights(plain.get_weights())
    np.testing.assert_array_equal(absolute(inputs), plain(inputs))


def test_layers_of_a_table_do_not_share_settings():
    assert isinstance(made("random"), RandomSynthesizer)
    assert ATTENTIONS["relative"].settings == ATTENTIONS["dot_product"].settings == {}
