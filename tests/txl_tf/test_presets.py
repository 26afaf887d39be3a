"""Presets: the published settings, and a model of the size that they give."""

import logging

import keras
import numpy as np
import pytest

from data_utils.datasets import DATASETS
from txl_tf import TransformerXLLM
from txl_tf.config import DataConfig, ModelConfig, TrainConfig
from txl_tf.parameter_count import parameter_count
from txl_tf.presets import PRESETS, fit_to_vocabulary, preset, preset_config

LARGE = {"enwik8_large": 204, "text8_large": 27, "wt103_large": 267_735, "lm1b_large": 793_470}
SYNTHESIZERS = ("lm1b_vanilla", "lm1b_dense", "lm1b_random", "lm1b_random_fixed", "lm1b_factorized_dense", "lm1b_factorized_random",
                "lm1b_random_dense", "lm1b_random_vanilla", "lm1b_dense_vanilla")
VOCABULARY_SIZES = {**dict.fromkeys(SYNTHESIZERS, 32_768), "enwik8_base": 204, "enwik8_18l": 204, "text8_base": 27, "wt103_base": 267_735, "lm1b_base": 793_470, "ptb": 10_000,
                    **LARGE}
TABLE = {  # (n_layer, d_model, n_head, d_head, d_inner, div_val), (tgt_len, mem_len, rows), (dropout, dropatt), (rate, warm-up, steps),
    # and tgt_len, mem_len, clamp_len and rows of the evaluation
    "enwik8_base": ((12, 512, 8, 64, 2048, 1), (512, 512, 24), (0.1, 0.0), (2.5e-4, 0, 400_000), (80, 2100, 820, 10)),
    "enwik8_18l": ((18, 640, 8, 80, 2208, 1), (512, 512, 24), (0.1, 0.0), (2.5e-4, 0, 400_000), (80, 2100, 820, 10)),
    "enwik8_large": ((24, 1024, 8, 128, 3072, 1), (768, 768, 64), (0.15, 0.15), (2.5e-4, 4_000, 400_000), (128, 3800, 1000, 16)),
    "text8_base": ((12, 512, 8, 64, 2048, 1), (512, 512, 24), (0.1, 0.0), (2.5e-4, 0, 400_000), (80, 2100, 820, 10)),
    "text8_large": ((24, 1024, 8, 128, 3072, 1), (768, 768, 64), (0.15, 0.15), (2.5e-4, 4_000, 400_000), (128, 3800, 1000, 16)),
    "wt103_base": ((16, 410, 10, 41, 2100, 1), (150, 150, 60), (0.1, 0.0), (2.5e-4, 0, 400_000), (64, 640, 400, 10)),
    "wt103_large": ((18, 1024, 16, 64, 4096, 4), (384, 384, 128), (0.2, 0.2), (2.5e-4, 16_000, 4_000_000), (128, 1600, 1000, 8)),
    "lm1b_base": ((20, 1024, 8, 128, 6144, 4), (32, 32, 224), (0.0, 0.0), (2.5e-4, 20_000, 500_000), (32, 128, -1, 8)),
    "lm1b_large": ((24, 1280, 16, 80, 8192, 4), (32, 32, 512), (0.05, 0.05), (1e-4, 30_000, 1_200_000), (32, 128, -1, 8)),
    "ptb": ((16, 380, 10, 38, 900, 1), (70, 70, 10), (0.2, 0.2), (3e-4, 3_000, 166_000), (10, 70, None, 10)),
    **dict.fromkeys(SYNTHESIZERS, ((6, 512, 8, 64, 2048, 1), (256, 0, 256), (0.1, 0.1), (1e-3, 10_000, 300_000), (None, None, None, 16))),
}


def count_parameters(config):
    """Returns the number of trainable scalars of a model whose variables are never allocated."""
    with keras.StatelessScope(initialize_variables=False):
        variables = TransformerXLLM(config).trainable_variables
    keras.utils.clear_session()  # or Keras would make up for the allocation at the next occasion
    return sum(int(np.prod(variable.shape)) for variable in variables)


@pytest.mark.parametrize("name", PRESETS)
def test_settings_are_the_published(name):
    settings = preset(name)
    model, train, data = preset_config(name, n_token=1_000_000), TrainConfig(**settings["train"]), DataConfig(**settings["data"])
    shape = (model.n_layer, model.d_model, model.n_head, model.d_head, model.d_inner, model.div_val)
    evaluation = (train.eval_tgt_len, train.eval_mem_len, train.eval_clamp_len, data.eval_batch_size)
    assert (shape, (model.tgt_len, model.mem_len, data.train_batch_size), (model.dropout, model.dropatt),
            (train.learning_rate, train.warmup_steps, train.train_steps), evaluation) == TABLE[name]
    assert (model.d_embed, train.eval_same_length, data.dataset) == (
        model.d_model, None if name in SYNTHESIZERS else True, name.split("_")[0])


@pytest.mark.parametrize("name", PRESETS)
def test_large_models_are_trained_as_on_tpus(name):
    model, train = preset(name)["model"], TrainConfig(**preset(name)["train"])
    assert train.clip_scope == ("replica" if name in LARGE else "global")
    lowest = {"lm1b_base": 0.0, "ptb": 1 / 3}.get(name, 0.01 if name in (*LARGE, *SYNTHESIZERS) else 0.004)
    assert train.min_lr_ratio == lowest
    if name in LARGE:  # the projections start as all other weights
        assert model["proj_init_std"] == model.get("init_std", 0.02) == (0.02 if "8" in name else 0.005)


@pytest.mark.parametrize("name, attentions, millions", [
    ("lm1b_vanilla", ("absolute",), 65.1), ("lm1b_dense", ("dense",), 62.9), ("lm1b_random", ("random",), 65.1),
    ("lm1b_random_fixed", ("random_fixed",), 61.9), ("lm1b_factorized_dense", ("factorized_dense",), 62.2),
    ("lm1b_factorized_random", ("factorized_random",), 62.1), ("lm1b_random_dense", ("random", "dense"), 66.1),
    ("lm1b_random_vanilla", ("random", "dot_product"), 68.2), ("lm1b_dense_vanilla", ("dense", "dot_product"), 66.1)])
def test_synthesizers_differ_in_attention_alone(name, attentions, millions):
    config, data = preset_config(name, n_token=32_768), DataConfig(**preset(name)["data"])
    assert (config.attentions, config.feed_forward, config.absolute_positions, config.tie_weight) == (attentions, "conv_relu", True, False)
    assert (config.key_index, config.max_length) == ((None, None) if name == "lm1b_vanilla" else ("position", 256))
    assert round(parameter_count(config) / 1e6, 1) == millions  # the paper gives 70M for random and vanilla, of some other vocabulary
    assert (data.vocabulary, data.vocab_size) == ("subword", 32_768)


def test_every_preset_has_a_dataset_that_exists():
    assert {settings["data"]["dataset"] for settings in PRESETS.values()} <= DATASETS.keys()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name, n_layer", [("wt103_large", 18)] + [(name, 1) for name in PRESETS])
def test_parameters_are_those_of_the_model_itself(name, n_layer):
    config = preset_config(name, n_token=VOCABULARY_SIZES[name], n_layer=n_layer)
    assert count_parameters(config) == parameter_count(config)


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
        with pytest.raises(ValueError, match="preset must be one of enwik8_base, enwik8_18l, .* Received: preset=enwik9"):
            function("enwik9")


def test_cutoffs_beyond_the_vocabulary_are_left_out_with_a_notice(caplog):
    config = ModelConfig(n_token=100, cutoffs=(10, 40, 70))
    assert fit_to_vocabulary(config, 1000).cutoffs == (10, 40, 70) and not caplog.records
    with caplog.at_level(logging.WARNING):
        assert fit_to_vocabulary(config, 40) == ModelConfig(n_token=40, cutoffs=(10,))
    assert "cutoffs=(10,) are used" in caplog.text
