"""The train and evaluation step of a model as the program a TPU's compiler gets, made without any weight existing."""

import dataclasses
from typing import NamedTuple

import tensorflow as tf

from txl_tf.inference.cache import initial_cache, read
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
    memory = _specs(lambda: model.initial_memory(batch_size))

    def step(token_ids, labels, memory):
        loss, gradients, memory = loss_and_gradients(model, token_ids, labels, memory, parts=train_config.batch_chunk)
        gradients, norm = clip_gradients(gradients, train_config.clip)
        optimizer.apply(gradients, model.trainable_variables)
        return memory, loss, norm

    text, donated, tokens_bytes = _program(step, (batch_size, model_config.tgt_len), memory)
    state_bytes = _bytes(variables) + _bytes(memory)
    return TpuProgram(text, donated, state_bytes, tokens_bytes + 2 * state_bytes, model.count_params())


def evaluation_program(model_config, train_config, batch_size):
    """Returns the TpuProgram of the nll of one segment, with the lengths that a TrainConfig sets for evaluation.

    As in `txl_tf.inference.evaluation`, the memory is kept as keys and values.
    """
    config = evaluation_config(model_config, train_config)
    variables = []
    with tf.variable_creator_scope(_without_values(variables)):
        model = TransformerXLLM(config, dtype=train_config.precision)
    cache = _specs(lambda: initial_cache(model, batch_size, segment_len=config.tgt_len))
    changed = {name: cache.pop(name) for name in ("layers", "next", "length")}

    def step(token_ids, labels, changed, constants):
        hidden, cache = read(model, token_ids, {**changed, **constants}, compiled=True)
        return {name: cache[name] for name in changed}, tf.reduce_sum(model.head.nll(hidden, labels))

    text, donated, tokens_bytes = _program(step, (batch_size, config.tgt_len), changed, cache)
    state_bytes = _bytes(variables) + _bytes(changed) + _bytes(cache)
    slots = changed["layers"][0]["value"].shape[2]
    written = _bytes(changed["layers"]) * config.tgt_len // slots
    return TpuProgram(text, donated, state_bytes, tokens_bytes + state_bytes + written, model.count_params())


def evaluation_config(model_config, train_config):
    """Returns a ModelConfig whose tgt_len, mem_len, clamp_len and same_length are those of evaluation."""
    given = {"clamp_len": train_config.eval_clamp_len, "same_length": train_config.eval_same_length}
    tgt_len, mem_len = model_config.evaluation_lengths(train_config.eval_tgt_len, train_config.eval_mem_len)
    settings = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(model_config, tgt_len=tgt_len, mem_len=mem_len, **settings)


def _program(step, tokens_shape, state, *constants):
    """Returns (text, donated, bytes of token_ids and labels) of a step: (token_ids, labels, state, *constants) -> (state, ...)."""
    tokens, given = tf.TensorSpec(tokens_shape, tf.int32), (state, *constants)

    @tf.function(jit_compile=True)
    def flat_step(token_ids, labels, *flat):
        after, *others = step(token_ids, labels, *tf.nest.pack_sequence_as(given, flat))
        return *tf.nest.flatten(after), *others

    # TensorFlow knows no TPU here, and what it makes for a CPU differs in few operations; the compiler's side knows these.
    text = flat_step.experimental_get_compiler_ir(tokens, tokens, *tf.nest.flatten(given))(stage="stablehlo", platform_name="CPU")
    return text, tuple((2 + index, index) for index in range(len(tf.nest.flatten(state)))), 2 * _bytes(tokens)


def _specs(make):
    """Returns what make() returns, with tf.TensorSpec in the place of tensors, none of which is made."""
    made = tf.function(make).get_concrete_function().structured_outputs
    return tf.nest.map_structure(lambda tensor: tf.TensorSpec(tensor.shape, tensor.dtype), made)


def _bytes(tensors):
    return sum(tensor.shape.num_elements() * tensor.dtype.size for tensor in tf.nest.flatten(tensors))


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
