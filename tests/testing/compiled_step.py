"""Compiles the gradients of eight layers with XLA: `compiled_step.py 1` with activations that are computed again, 0 without."""

import sys

import tensorflow as tf

from txl_tf.config import ModelConfig
from txl_tf.language_model import TransformerXLLM
from txl_tf.train_step import loss_and_gradients

if __name__ == "__main__":
    model = TransformerXLLM(ModelConfig(n_token=50, n_layer=8, d_model=64, n_head=4, tgt_len=128, mem_len=128, dropout=0.1, dropatt=0.1))
    model.backbone.rematerialize(sys.argv[1] == "1")
    tokens = tf.zeros((4, 128), tf.int32)
    tf.function(loss_and_gradients, jit_compile=True)(model, tokens, tokens, model.initial_memory(4))
