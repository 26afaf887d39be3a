"""The train and evaluation step of a model as the program a TPU's compiler gets, made without any weight existing."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from txl_tf.language_model import TransformerXLLM
from txl_tf.optimization import clip_gradients, make_optimizer
from txl_tf.train_step import loss_and_gradients


class TpuProgram(NamedTuple):
    """A step as StableHLO text. One replica's: it has no collectives.

    Args:
        text: the module; the state is in its arguments and, where the step changes it, in its results.
        donated: (argument, result) numbers of the memory, which is updated in place like the variables. Those are named in
            the text already (input_output_alias), because TensorFlow updates variables in place.
        state_bytes: weights, optimizer state and memory.
        moved_bytes: what the step must read and write at the least: its arguments once, and what it changes of them.
        parameters: number of trainable weights.
    """

    text: str
    donated: tuple
    state_bytes: int
    moved_bytes: int
    parameters: int


def train_program(model_config, train_config, batch_size):
    """Returns the TpuProgram of one update of the weights: loss, gradients, clipping, Adam."""
    variables = []
    with tf.variable_creator_scope(_without_values(variables)):
        model = TransformerXLLM(model_config, dtype=train_config.precision)
        model.backbone.rematerialize(train_config.remat)
        optimizer = make_optimizer(train_config)
        optimizer.build(model.trainable_variables)

    def step(token_ids, labels, memory):
        loss, gradients, memory = loss_and_gradients(model, token_ids, labels, memory, parts=train_config.batch_chunk)
        gradients, norm = clip_gradients(gradients, train_config.clip)
        optimizer.apply(gradients, model.trainable_variables)
        return memory, loss, norm

    return _program(step, model, variables, batch_size, model_config.tgt_len, model_config.mem_len, writes_variables=True)


def evaluation_program(model_config, train_config, batch_size):
    """Returns the TpuProgram of the nll of one segment, with the lengths that a TrainConfig sets for evaluation.

    The memory is hidden states, projected anew: what `txl_tf.inference.cache` keeps is written by TensorStridedSliceUpdate, which
    XLA compiles for constant places only.
    """
    config = evaluation_config(model_config, train_config)
    variables = []
    with tf.variable_creator_scope(_without_values(variables)):
        model = TransformerXLLM(config, dtype=train_config.precision)

    def step(token_ids, labels, memory):
        nll, memory = model.nll(token_ids, labels, memory)
        return memory, tf.reduce_sum(nll)

    return _program(step, model, variables, batch_size, config.tgt_len, config.mem_len, writes_variables=False)


def evaluation_config(model_config, train_config):
    """Returns a ModelConfig whose tgt_len, mem_len, clamp_len and same_length are those of evaluation."""
    given = {"mem_len": train_config.eval_mem_len, "clamp_len": train_config.eval_clamp_len,
             "same_length": train_config.eval_same_length}
    settings = {"mem_len": 4 * model_config.mem_len, **{name: value for name, value in given.items() if value is not None}}
    return dataclasses.replace(model_config, tgt_len=train_config.eval_tgt_len, **settings)


def _program(step, model, variables, batch_size, tgt_len, mem_len, writes_variables):
    config = model.config
    tokens = tf.TensorSpec((batch_size, tgt_len), tf.int32)
    hidden = tf.TensorSpec((batch_size, config.n_layer, mem_len, config.d_model), model.compute_dtype)
    length = tf.TensorSpec((batch_size,), tf.int32)

    @tf.function(jit_compile=True)
    def flat_step(token_ids, labels, hidden, length):
        memory, *others = step(token_ids, labels, {"hidden": hidden, "length": length})
        return memory["hidden"], memory["length"], *others

    # TensorFlow knows no TPU here, and what it makes for a CPU differs in few operations; the compiler's side knows these.
    text = flat_step.experimental_get_compiler_ir(tokens, tokens, hidden, length)(stage="stablehlo", platform_name="CPU")
    of_variables, of_memory = sum(map(_bytes, variables)), _bytes(hidden) + _bytes(length)
    moved = 2 * _bytes(tokens) + 2 * of_memory + (2 if writes_variables else 1) * of_variables
    return TpuProgram(text, ((2, 0), (3, 1)), of_variables + of_memory, moved, model.count_params())


def _bytes(tensor):
    return tensor.shape.num_elements() * tensor.dtype.size


def _without_values(variables):
    """Returns a variable creator that runs no initializer and appends what it makes to variables.

    Every variable of a shape holds the same storage, which is reserved but never written or read, so that the operating
    system gives no memory for it.
    """
    storage = {}

    def create(next_creator, initial_value=None, **kwargs):
        if callable(initial_value):
            with tf.Graph().as_default():
                value = initial_value()
            key = tuple(value.shape), value.dtype
            if key not in storage:
                storage[key] = tf.raw_ops.Empty(shape=key[0], dtype=key[1], init=False)
            initial_value = storage[key]
        variables.append(next_creator(initial_value=initial_value, **kwargs))
        return variables[-1]

    return create
