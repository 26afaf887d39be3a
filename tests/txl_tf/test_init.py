"""The public names that DESIGN promises, called as it writes them."""

import importlib
import inspect
import logging
import os
import sys

import numpy as np
import pytest

import txl_tf
from testing.tiny_model import tiny_config, tiny_tokens


@pytest.mark.parametrize("name", ["ModelConfig", "TransformerXLLM", "TransformerXLBackbone", "RelativeMultiHeadAttention",
                                  "SegmentTrainer", "SamplePrinter", "WarmupCosine", "preset_config", "load_vocabulary",
                                  "load_tf1_checkpoint", "save_tf1_checkpoint", "load_huggingface", "save_huggingface",
                                  "load_pytorch_checkpoint", "add_tokens", "export_saved_model"])
def test_public_name_exists(name):
    assert callable(getattr(txl_tf, name))


def test_preset_config():
    assert txl_tf.preset_config("enwik8_base", n_token=204).n_layer == 12


@pytest.mark.parametrize("field, default", [
    ("dropout", 0.0), ("dropatt", 0.0), ("same_length", False), ("clamp_len", -1), ("untie_r", False), ("cutoffs", ()),
    ("div_val", 1), ("tie_weight", True), ("proj_share_all_but_first", False), ("proj_same_dim", True), ("init", "normal"),
    ("init_std", 0.02), ("proj_init_std", 0.01), ("init_range", 0.1), ("layer_norm_epsilon", 1e-12), ("memory_start", "empty"),
    ("attention", "relative"),
])
def test_defaults_of_the_model_config(field, default):
    assert getattr(txl_tf.ModelConfig(n_token=5), field) == default


@pytest.mark.parametrize("argument, level", [("-m", "3"), ("-c", None), ("program.py", None)])
def test_tensorflow_is_silent_for_commands_alone(monkeypatch, argument, level):
    logger = logging.getLogger("tensorflow")
    before = logger.level
    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    monkeypatch.setattr(sys, "argv", [argument])
    importlib.reload(txl_tf)
    assert os.environ.get("TF_CPP_MIN_LOG_LEVEL") == level and logger.level == (logging.ERROR if level else before)
    os.environ.pop("TF_CPP_MIN_LOG_LEVEL", None)
    logger.setLevel(before)


@pytest.mark.parametrize("argument, field", [("dropout", "dropatt"), ("clamp_len", "clamp_len")])
def test_the_layers_defaults_are_the_configs(argument, field):
    parameters = inspect.signature(txl_tf.RelativeMultiHeadAttention).parameters
    assert parameters[argument].default == getattr(txl_tf.ModelConfig(n_token=5), field)


def test_the_models_methods():
    model = txl_tf.TransformerXLLM(tiny_config())
    memory = model.initial_memory(2)
    assert {name: tuple(value.shape) for name, value in memory.items()} == {"hidden": (2, 2, 6, 12), "length": (2,)}
    tokens = tiny_tokens(2, 6)
    nll, memory = model.nll(tokens[:, :-1], tokens[:, 1:], memory)
    log_probs, memory = model.log_probs(tokens[:, :-1], memory)
    assert nll.shape == (2, 5) and log_probs.shape == (2, 5, 11)
    ids = model.generate(tokens, max_new_tokens=3, top_k=40, temperature=1.0, seed=1)
    np.testing.assert_array_equal(ids[:, :6], tokens)
    layer = txl_tf.RelativeMultiHeadAttention(num_heads=2, head_dim=3)
    assert layer(np.zeros((2, 4, 8), np.float32), memory=np.zeros((2, 3, 8), np.float32)).shape == (2, 4, 8)
