"""Presets: their sizes give the parameters that the original's graphs have."""

import logging

import keras
import numpy as np
import pytest

from txl_tf import TransformerXLLM
from txl_tf.config import DataConfig, ModelConfig, TrainConfig
from txl_tf.presets import PRESETS, fit_to_vocabulary, preset, preset_config

PARAMETERS = [
    ("enwik8_base", 204, 41_055_436),
    ("enwik8_large", 204, 277_231_820),
    ("text8_base", 27, 40_964_635),
    ("text8_large", 27, 277_050_395),
    ("wt103_base", 267_735, 151_119_838),
    ("wt103_large", 267_735, 285_205_322),
    ("lm1b_base", 793_470, 466_962_273),
    ("lm1b_large", 793_470, 838_078_041),
]


def count_parameters(config):
    """Returns the number of trainable scalars of a model whose variables are never allocated."""
    with keras.StatelessScope(initialize_variables=False):
        variables = TransformerXLLM(config).trainable_variables
    keras.utils.clear_session()  # or Keras would make up for the allocation at the next occasion
    return sum(int(np.prod(variable.shape)) for variable in variables)


@pytest.mark.parametrize("name, n_token, parameters", PARAMETERS)
def test_parameters_are_the_originals(name, n_token, parameters):
    assert count_parameters(preset_config(name, n_token=n_token)) == parameters


def test_abstract_counts_are_those_of_a_real_model():
    config = preset_config("enwik8_base", n_token=11, n_layer=2, d_model=8, d_embed=6, d_inner=10)
    assert count_parameters(config) == TransformerXLLM(config).count_params()


@pytest.mark.parametrize("name", PRESETS)
def test_every_preset_makes_valid_configs(name):
    settings = preset(name)
    assert settings.keys() == {"model", "train", "data"}
    config = preset_config(name, n_token=1_000_000)
    assert config == ModelConfig(n_token=1_000_000, **settings["model"])
    TrainConfig(**settings["train"])
    DataConfig(**settings["data"])


def test_overrides_win():
    config = preset_config("enwik8_base", n_token=204, mem_len=7, dropout=0.5)
    assert (config.mem_len, config.dropout, config.n_layer) == (7, 0.5, 12)


def test_an_unknown_preset_is_refused_with_the_known():
    for function in (preset, lambda name: preset_config(name, n_token=5)):
        with pytest.raises(ValueError, match="preset must be one of enwik8_base, enwik8_large, .* Received: preset=enwik9"):
            function("enwik9")


def test_cutoffs_beyond_the_vocabulary_are_left_out_with_a_notice(caplog):
    config = ModelConfig(n_token=100, cutoffs=(10, 40, 70))
    assert fit_to_vocabulary(config, 1000).cutoffs == (10, 40, 70) and not caplog.records
    with caplog.at_level(logging.WARNING):
        assert fit_to_vocabulary(config, 40) == ModelConfig(n_token=40, cutoffs=(10,))
    assert "cutoffs=(10,) are used" in caplog.text
