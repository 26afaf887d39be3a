"""Thirty updates of the original program, step by step: losses, gradient norms, learning rates and all final variables."""

import json
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf import ModelConfig, TrainConfig, load_tf1_checkpoint
from txl_tf.checkpoints.tf1 import tf1_entries
from txl_tf.optimization import make_optimizer
from txl_tf.train_step import update

GOLDEN = Path(__file__).parents[1] / "golden/tf1/10_training_trajectory"
MODEL = ("n_token", "n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "tgt_len", "mem_len", "same_length", "clamp_len",
         "untie_r", "cutoffs", "div_val", "proj_share_all_but_first", "proj_same_dim")
TRAIN = ("learning_rate", "min_lr_ratio", "train_steps", "warmup_steps", "clip")


@pytest.mark.parametrize("jit_compile", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_thirty_updates_of_the_original(jit_compile):
    stored = json.loads((GOLDEN / "config.json").read_text())
    golden = np.load(GOLDEN / "trajectory.npz")
    train_config = TrainConfig(**{name: stored[name] for name in TRAIN})
    model = load_tf1_checkpoint(GOLDEN / "init.ckpt", ModelConfig(memory_start="zeros", **{name: stored[name] for name in MODEL}))
    optimizer = make_optimizer(train_config)
    optimizer.build(model.trainable_variables)
    step = tf.function(update, jit_compile=jit_compile)
    memory, losses, norms, rates = model.initial_memory(3), [], [], []
    for token_ids, labels in zip(golden["inputs"], golden["labels"]):
        rates.append(float(optimizer.learning_rate))
        loss, norm, memory = step(model, optimizer, train_config.clip, tf.constant(token_ids), tf.constant(labels), memory)
        losses.append(float(loss))
        norms.append(float(norm))

    np.testing.assert_allclose(losses, golden["loss"], rtol=0, atol=1e-4)
    np.testing.assert_allclose(norms, golden["gnorm"], rtol=1e-4)
    np.testing.assert_allclose(rates, golden["lr"], rtol=0, atol=1e-9)
    np.testing.assert_allclose(memory["hidden"].numpy().transpose(1, 2, 0, 3), golden["final_mems"], atol=2e-4)
    final = np.load(GOLDEN / "final_variables.npz")
    for name, entry in tf1_entries(model).items():
        joined = entry.join([variable.numpy() for variable in entry.variables])
        np.testing.assert_allclose(joined, final[name], rtol=0, atol=2e-5, err_msg=name)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("cutoffs", [(), (5, 9)])
def test_one_compiled_step_serves_all_data(cutoffs):
    """XLA must take tokens, labels and memory as arguments; what it takes for a constant costs a compilation a segment."""
    model = tiny_model(cutoffs=cutoffs)
    optimizer = make_optimizer(TrainConfig())
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=True)
    def step(token_ids, labels, hidden, length):
        loss, norm, memory = update(model, optimizer, 0.25, token_ids, labels, {"hidden": hidden, "length": length})
        return loss, norm, memory["hidden"], memory["length"]

    tokens, memory = tf.constant(tiny_tokens(5, 4)), model.initial_memory(5)
    hlo = step.experimental_get_compiler_ir(tokens, tokens, memory["hidden"], memory["length"])(stage="hlo")
    arguments = hlo.split("entry_computation_layout={(")[1].split(")->")[0]
    assert arguments.count("s32[5,4]") == 2 and "f32[5,2,6,12]" in arguments and "s32[5]{0}" in arguments, arguments
