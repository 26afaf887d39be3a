"""Weights from a model folder, from a checkpoint of a run and from one of the original code."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import tiny_config, tiny_model
from txl_tf.checkpoints.tf1 import load_tf1_checkpoint
from txl_tf.config import ModelConfig, TrainConfig
from txl_tf.language_model import TransformerXLLM
from txl_tf.optimization import make_optimizer
from txl_tf.run_state import RunState
from txl_tf.train_step import TrainStep
from txl_tf.warm_start import load_any_weights

GOLDEN = Path(__file__).parents[1] / "golden/tf1"


def assert_same_weights(model, other):
    for ours, theirs in zip(model.get_weights(), other.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)


def checkpoint_of(model, folder):
    """Returns the path of a checkpoint of a run with a model."""
    strategy, config = tf.distribute.get_strategy(), TrainConfig()
    optimizer = make_optimizer(config)
    optimizer.build(model.trainable_variables)
    RunState(str(folder), strategy, model, optimizer, TrainStep(model, optimizer, strategy, config, 2), 1, True).save(7)
    return str(folder / "checkpoints" / "step-7")


@pytest.mark.slow
def test_a_model_folder(tmp_path):
    tiny_model(seed=5).save_to_preset(tmp_path)
    model = tiny_model()
    load_any_weights(model, str(tmp_path))
    assert_same_weights(model, tiny_model(seed=5))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("rates", [(0.0, 0.0), (0.3, 0.0), (0.0, 0.2), (0.3, 0.3)])
def test_a_checkpoint_of_a_run_whatever_its_dropout(tmp_path, rates):
    path = checkpoint_of(tiny_model(seed=5, dropout=rates[0], dropatt=rates[0]), tmp_path)
    model = tiny_model(dropout=rates[1])
    load_any_weights(model, path)
    for ours, theirs in zip(model.trainable_variables, tiny_model(seed=5).trainable_variables, strict=True):
        np.testing.assert_array_equal(ours, theirs)


def test_a_checkpoint_of_the_original():
    stored = json.loads((GOLDEN / "10_training_trajectory/config.json").read_text())
    names = ("n_token", "n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "tgt_len", "mem_len", "untie_r", "cutoffs",
             "div_val", "proj_share_all_but_first", "proj_same_dim")
    config = ModelConfig(**{name: stored[name] for name in names})
    path = str(GOLDEN / "10_training_trajectory/init.ckpt")
    model = TransformerXLLM(config)
    load_any_weights(model, path)
    assert_same_weights(model, load_tf1_checkpoint(path, config))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{"d_model": 8}, {"n_layer": 1}, {"n_layer": 3}, {"untie_r": True}])
def test_another_model_is_refused_by_name(tmp_path, settings):
    tiny_model(seed=5).save_to_preset(tmp_path / "model")
    path = checkpoint_of(tiny_model(seed=5), tmp_path)
    for source in (path, str(tmp_path / "model")):
        with pytest.raises(ValueError) as error:
            load_any_weights(TransformerXLLM(tiny_config(**settings)), source, "warm_start_path")
        message = str(error.value)
        assert message.startswith("warm_start_path must hold weights of this model (") and "\n" not in message
        assert message.endswith(f"Received: warm_start_path={source}")


@pytest.mark.parametrize("name", ["nowhere", "", "empty"])
def test_what_holds_no_weights_is_refused(tmp_path, name):
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=f"^eval_ckpt_path must be a model folder or a checkpoint. Received: eval_ckpt_path={tmp_path / name}$"):
        load_any_weights(tiny_model(), str(tmp_path / name), "eval_ckpt_path")
