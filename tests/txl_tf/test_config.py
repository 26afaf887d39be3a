"""Every setting is checked when a configuration is made, and survives a trip through JSON."""

import dataclasses
import inspect
import json
import typing

import numpy as np
import pytest

from txl_tf.attention.relative import RelativeMultiHeadAttention
from txl_tf.config import DataConfig, ModelConfig, TrainConfig
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.layers.transformer_block import TransformerXLBlock

NAN, INF = float("nan"), float("inf")
CONFIGS = {"model": ModelConfig, "train": TrainConfig, "data": DataConfig}
REFUSED = {
    "model": {
        "n_token": [0, -1, NAN, 2.5, "256", None, True], "n_layer": [0, -1, 2.5, "4", None], "d_model": [0, 2.5, "256"],
        "d_embed": [0, -1, 2.5, "64"], "n_head": [0, -1, "4", 1.5], "d_head": [0, -1, 1.5], "d_inner": [0, -1, 1.5],
        "dropout": [-0.1, 1.0, 1.5, NAN, INF, -INF, "0.1", None, True], "dropatt": [-0.1, 1.0, NAN, INF, "0.1"],
        "tgt_len": [0, -1, 2.5, "8", NAN], "mem_len": [-1, 2.5, "8", NAN, INF, None], "same_length": ["yes", 1, None],
        "clamp_len": [2.5, "8", NAN, None], "untie_r": ["no", 0, None], "div_val": [0, -1, 1.5, "2"], "tie_weight": [1, "True"],
        "proj_share_all_but_first": [1], "proj_same_dim": [1], "init": ["Normal", "", None, 1],
        "init_std": [-0.1, NAN, INF, "0.02"], "proj_init_std": [-0.1, NAN, INF], "init_range": [-0.1, NAN, INF],
        "layer_norm_epsilon": [-1e-12, NAN, INF], "memory_start": ["full", "", None],
        "cutoffs": [(0,), (-1,), (20, 10), (10, 10), (256,), (10, 300), (10.5,), ("10",), (True,), (None,)],
    },
    "train": {
        "train_steps": [0, -1, 2.5, "10", NAN, None], "learning_rate": [0.0, -1e-3, NAN, INF, "1e-3", None],
        "warmup_steps": [-1, 2.5, "3", NAN, 2001], "min_lr_ratio": [-0.1, 1.1, NAN, INF, "0.1"], "clip": [0.0, -1.0, NAN, INF],
        "model_dir": [None, 3, ""], "iterations": [0, -1, 2.5], "save_steps": [0, -1, 2.5], "seed": [-1, 2.5, "1", None],
        "precision": ["float16", "", None], "jit_compile": ["yes", 1], "eval_tgt_len": [0, -1, 2.5], "eval_mem_len": [-1, 2.5, "8"],
        "eval_clamp_len": [2.5, "8"], "eval_same_length": ["yes", 1],
    },
    "data": {
        "dataset": [3], "data_dir": [3], "train_batch_size": [0, -1, 2.5, "4", None], "eval_batch_size": [0, -1, 2.5],
    },
}
CASES = [(section, name, value) for section, fields in REFUSED.items() for name, values in fields.items() for value in values]


def make(section, **settings):
    return CONFIGS[section](**({"n_token": 256} if section == "model" else {}) | settings)


@pytest.mark.parametrize("section, name, value", CASES, ids=lambda value: str(value))
def test_a_bad_value_is_refused_in_one_sentence(section, name, value):
    with pytest.raises(ValueError) as refusal:
        make(section, **{name: value})
    message = str(refusal.value)
    assert message.startswith(name) and "\n" not in message
    received = message.partition(". Received: ")[2]
    shown = value if isinstance(value, str) else str(value)
    item = str(value[0]) if isinstance(value, tuple) else shown
    assert f"{name}=" in received and (shown in received or item in received)


def test_every_field_is_in_the_list_of_refusals():
    for section, config_class in CONFIGS.items():
        names = {field.name for field in dataclasses.fields(config_class)} - {"attention"}  # attention/ knows its own table
        assert names == REFUSED[section].keys()


def test_a_warm_up_longer_than_the_training_names_both():
    with pytest.raises(ValueError, match=r"^warmup_steps must not exceed train_steps\. Received: warmup_steps=11, train_steps=10$"):
        TrainConfig(train_steps=10, warmup_steps=11)
    TrainConfig(train_steps=10, warmup_steps=10)


def test_cutoffs_name_the_vocabulary():
    with pytest.raises(ValueError, match=r"Received: cutoffs=\(10, 256\), n_token=256$"):
        ModelConfig(n_token=256, cutoffs=(10, 256))
    assert ModelConfig(n_token=256, cutoffs=[1, 255]).cutoffs == (1, 255)


def test_an_embedding_that_would_vanish_is_refused():
    with pytest.raises(ValueError, match="d_embed=15, div_val=4, cutoffs=\\(10, 20\\)"):
        ModelConfig(n_token=256, d_embed=15, div_val=4, cutoffs=(10, 20))
    ModelConfig(n_token=256, d_embed=16, div_val=4, cutoffs=(10, 20))


@pytest.mark.parametrize("settings", [
    {"dropout": 0.0}, {"dropout": 0.99}, {"mem_len": 0}, {"clamp_len": -1}, {"clamp_len": 0}, {"init_std": 0.0}, {"div_val": 1},
])
def test_the_bounds_themselves_are_accepted(settings):
    config = ModelConfig(n_token=256, **settings)
    assert {name: getattr(config, name) for name in settings} == settings


def test_widths_follow_the_model():
    config = ModelConfig(n_token=256, d_model=96, n_head=3)
    assert (config.d_embed, config.d_head, config.d_inner) == (96, 32, 384)
    given = ModelConfig(n_token=256, d_model=96, n_head=3, d_embed=8, d_head=5, d_inner=7)
    assert (given.d_embed, given.d_head, given.d_inner) == (8, 5, 7)


def test_the_data_folder_decides_the_dataset():
    assert (DataConfig().dataset, DataConfig().data_dir) == ("stdlib", "data/stdlib")
    assert DataConfig(data_dir="mine").dataset == "text"
    assert DataConfig(dataset="other").data_dir == "data/other"


@pytest.mark.parametrize("section", CONFIGS)
def test_frozen(section):
    config = make(section)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, dataclasses.fields(config)[-1].name, 3)


@pytest.mark.parametrize("config", [
    ModelConfig(n_token=256, cutoffs=(10, 20), div_val=2, dropout=0.1, same_length=True, init="uniform", memory_start="zeros"),
    TrainConfig(eval_mem_len=7, eval_same_length=False, learning_rate=3e-4),
    DataConfig(data_dir="mine"),
], ids=lambda config: type(config).__name__)
def test_json_round_trip(config):
    assert type(config)(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_numbers_of_numpy_become_plain_ones():
    config = ModelConfig(n_token=np.int64(256), dropout=np.float32(0.5), cutoffs=np.array([10, 20]))
    assert (type(config.n_token), type(config.dropout), config.cutoffs) == (int, float, (10, 20))
    json.dumps(dataclasses.asdict(config))


@pytest.mark.parametrize("config_class", CONFIGS.values(), ids=CONFIGS)
def test_every_field_is_documented_and_typed(config_class):
    types = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        assert len(field.metadata["help"]) > 5 and field.name in types


@pytest.mark.parametrize("layer_class, argument, field", [
    (TransformerXLBlock, "dropout", "dropout"),
    (TransformerXLBlock, "attention_dropout", "dropatt"),
    (TransformerXLBlock, "layer_norm_epsilon", "layer_norm_epsilon"),
    (TransformerXLBlock, "attention", "attention"),
    (FeedForward, "dropout", "dropout"),
    (RelativeMultiHeadAttention, "dropout", "dropatt"),
    (RelativeMultiHeadAttention, "clamp_len", "clamp_len"),
    (AdaptiveEmbedding, "cutoffs", "cutoffs"),
    (AdaptiveEmbedding, "div_val", "div_val"),
    (AdaptiveEmbedding, "project_same_dim", "proj_same_dim"),
], ids=lambda value: getattr(value, "__name__", value))
def test_layers_have_the_defaults_of_the_configuration(layer_class, argument, field):
    default = inspect.signature(layer_class).parameters[argument].default
    assert default == getattr(ModelConfig(n_token=256), field)
