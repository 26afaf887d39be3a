"""What every layer must pass: run_layer_test, and for layers with a memory run_segment_test."""

import inspect
import json
import tempfile
import unittest

import keras
import numpy as np
import tensorflow as tf

from testing.tiny_model import randomize
from txl_tf.memory import visible_keys

TOLERANCE = 1e-5
LOW_PRECISION = ("mixed_bfloat16", "mixed_float16")


class TestCase(unittest.TestCase):
    """Base of the tests of layers: a new layer calls the two methods, and has its own test for what only it does."""

    def run_layer_test(self, layer_class, init_kwargs, call_kwargs, expected_shape, expected_trainable_weights,
                       expected_non_trainable_weights=0, expected_parameters=None, output_dtype=None):
        """Checks configuration, shapes, a compiled training step, precisions and weights of a layer.

        Args:
            layer_class: the class.
            init_kwargs: arguments of __init__, best other than the defaults, so that a lost one shows; a function stands for what it
                makes of a dtype policy.
            call_kwargs: arguments of call; arrays stand for tensors. Choose T, M and S that differ.
            expected_shape: shape of the (first) output.
            expected_trainable_weights: number of trainable variables.
            expected_non_trainable_weights: number of other variables, seeds of dropout not counted.
            expected_parameters: number of scalars in the trainable variables; None: not checked.
            output_dtype: dtype of the (first) output, None: the layer's compute dtype.
        """
        self._check_class(layer_class)
        layer = made(layer_class, init_kwargs)
        outputs = first(layer(**call_kwargs))
        randomize(layer)
        outputs = first(layer(**call_kwargs))
        self.assertEqual(tuple(outputs.shape), tuple(expected_shape))
        self.assertEqual(outputs.dtype, output_dtype or layer.compute_dtype)
        self._check_weights(layer, expected_trainable_weights, expected_non_trainable_weights, expected_parameters)
        self._check_config(layer, init_kwargs, call_kwargs)
        self._check_symbolic_call(layer, call_kwargs)
        self._check_compiled_step(layer, call_kwargs)
        for policy in LOW_PRECISION:
            self._check_low_precision(made(layer_class, init_kwargs, policy), call_kwargs, output_dtype)

    def run_segment_test(self, layer_class, init_kwargs, width, batch=2, lengths=(3, 5, 1), rtol=TOLERANCE, atol=TOLERANCE):
        """Checks that a layer whose memory is its own earlier inputs sees the same in segments as at once.

        Args:
            layer_class: a class whose call takes inputs, memory and attention_mask.
            init_kwargs: arguments of __init__, without dropout.
            width: width D of inputs and memory.
            batch: rows B.
            lengths: tokens of the segments, all different.
        """
        layer = layer_class(**init_kwargs)
        tokens = random_array(batch, sum(lengths), width)
        layer(tokens)
        randomize(layer)
        whole = layer(tokens).numpy()
        for cuts in (lengths, (1,) * sum(lengths)):
            np.testing.assert_allclose(in_segments(layer, tokens, cuts), whole, rtol, atol, f"segments of {cuts} tokens")
        self._check_unfilled_slots(layer, tokens, lengths[0], whole, rtol, atol)
        self._check_no_look_ahead(layer, tokens, lengths[0], whole)
        self._check_memory_gets_no_gradient(layer, tokens, lengths[0])

    def _check_class(self, layer_class):
        self.assertEqual(keras.saving.get_registered_name(layer_class), f"txl_tf>{layer_class.__name__}")
        for base in own_classes(layer_class):
            self.assertNotIn("__call__", vars(base), f"{base.__name__} must implement call")

    def _check_weights(self, layer, trainable, non_trainable, parameters):
        self.assertEqual(len(layer.trainable_variables), trainable, [v.path for v in layer.trainable_variables])
        self.assertEqual(len(layer.non_trainable_weights), non_trainable, [v.path for v in layer.non_trainable_weights])
        if parameters is not None:
            self.assertEqual(sum(int(np.prod(v.shape)) for v in layer.trainable_variables), parameters)

    def _check_config(self, layer, init_kwargs, call_kwargs):
        config = json.loads(json.dumps(layer.get_config()))
        for name in init_arguments(type(layer)):
            self.assertTrue(hasattr(layer, name), f"{name} must be an attribute")
            self.assertIn(name, config, f"{name} must be in get_config")
        for name, value in init_kwargs.items():
            if isinstance(value, (int, float, str, tuple)) and not name.endswith("initializer"):
                self.assertEqual(config[name], json.loads(json.dumps(value)), name)
                self.assertEqual(getattr(layer, name), value, name)
        for copy in (type(layer).from_config(config), serialized_copy(layer)):
            self.assertEqual(json.loads(json.dumps(copy.get_config())), config)
            copy(**call_kwargs)
            copy.set_weights(layer.get_weights())
            np.testing.assert_array_equal(first(copy(**call_kwargs)), first(layer(**call_kwargs)))

    def _check_symbolic_call(self, layer, call_kwargs):
        eager = first(layer(**call_kwargs))
        inputs = {name: symbolic(value) if is_tensor(value) else value for name, value in call_kwargs.items()}
        outputs = first(layer(**inputs))
        self.assertEqual(len(outputs.shape), len(eager.shape))
        self.assertEqual(outputs.shape[-1], eager.shape[-1])
        for guessed, real in zip(outputs.shape, eager.shape):
            self.assertIn(guessed, (None, real))
        self.assertEqual(outputs.dtype, eager.dtype.name)
        tensors = [name for name in inputs if is_tensor(inputs[name])]
        model = keras.Model([inputs[name] for name in tensors], outputs)
        arrays = [call_kwargs[name] for name in tensors]
        np.testing.assert_allclose(model(arrays), eager, TOLERANCE, TOLERANCE)
        self._check_saved(model, arrays)

    def _check_saved(self, model, arrays):
        with tempfile.TemporaryDirectory() as folder:
            model.save(f"{folder}/model.keras")
            model.save_weights(f"{folder}/model.weights.h5")
            copy = keras.saving.load_model(f"{folder}/model.keras")
            np.testing.assert_array_equal(copy(arrays), model(arrays), "a .keras file")
            self.assertEqual(len(copy.trainable_variables), len(model.trainable_variables))
            randomize(copy, seed=9)
            copy.load_weights(f"{folder}/model.weights.h5")
            np.testing.assert_array_equal(copy(arrays), model(arrays), "a .weights.h5 file")

    def _check_compiled_step(self, layer, call_kwargs):
        plain = first(layer(**call_kwargs))
        compiled = tf.function(lambda: first(layer(**call_kwargs)), jit_compile=True)
        np.testing.assert_allclose(compiled(), plain, 1e-4, 1e-4)
        direction = random_array(*plain.shape)
        optimizer = keras.optimizers.SGD(1e-3)
        optimizer.build(layer.trainable_variables)
        training = {"training": True} if "training" in inspect.signature(layer.call).parameters else {}

        @tf.function(jit_compile=True)
        def step():
            outputs, gradients = outputs_and_gradients(layer, {**call_kwargs, **training}, direction)
            optimizer.apply(gradients)
            return outputs, gradients

        outputs, gradients = step()
        self.assertTrue(np.isfinite(outputs).all())
        for variable, gradient in zip(layer.trainable_variables, gradients):
            self.assertTrue(np.isfinite(gradient).all(), variable.path)
            self.assertTrue(np.any(gradient), f"{variable.path} gets no gradient")
        self.assertTrue(np.any(first(layer(**call_kwargs)) != plain), "the step changed nothing")

    def _check_low_precision(self, layer, call_kwargs, output_dtype):
        compute_dtype = layer.compute_dtype
        self.assertEqual(type(layer).from_config(layer.get_config()).compute_dtype, compute_dtype)
        outputs = first(layer(**call_kwargs))
        randomize(layer)
        outputs, gradients = outputs_and_gradients(layer, call_kwargs, random_array(*outputs.shape))
        self.assertEqual(outputs.dtype, output_dtype or compute_dtype)
        self.assertTrue(np.isfinite(tf.cast(outputs, tf.float32)).all(), f"{compute_dtype} outputs")
        for variable, gradient in zip(layer.trainable_variables, gradients):
            self.assertEqual(variable.dtype, "float32", variable.path)
            self.assertTrue(np.isfinite(gradient).all(), f"{compute_dtype} gradient of {variable.path}")

    def _check_unfilled_slots(self, layer, tokens, start, whole, rtol, atol):
        unfilled = 4
        slots = np.concatenate([np.full_like(tokens[:, :unfilled], 50.0), tokens[:, :start]], axis=1)
        length = np.full(len(tokens), start, np.int32)
        mask = visible_keys(tokens.shape[1] - start, start + unfilled, length)
        outputs = layer(tokens[:, start:], memory=slots, attention_mask=mask)
        np.testing.assert_allclose(outputs, whole[:, start:], rtol, atol, err_msg="masked slots are seen")

    def _check_no_look_ahead(self, layer, tokens, start, whole):
        changed = tokens.copy()
        changed[:, start:] += 1.0
        outputs = layer(changed).numpy()
        np.testing.assert_array_equal(outputs[:, :start], whole[:, :start], "a later token changes an earlier output")
        self.assertTrue((outputs[:, start] != whole[:, start]).any())

    def _check_memory_gets_no_gradient(self, layer, tokens, start):
        memory, inputs = tf.constant(tokens[:, :start]), tf.constant(tokens[:, start:])
        with tf.GradientTape() as tape:
            tape.watch((memory, inputs))
            loss = tf.reduce_sum(layer(inputs, memory=memory) ** 3)
        to_memory, to_inputs = tape.gradient(loss, (memory, inputs))
        self.assertIsNone(to_memory, "a gradient reaches the memory")
        self.assertTrue(np.any(to_inputs))


def made(layer_class, init_kwargs, dtype=None):
    """Returns a new layer; functions among its arguments stand for what they make of the dtype policy."""
    own = {name: value(dtype) if inspect.isfunction(value) else value for name, value in init_kwargs.items()}
    return layer_class(**own, dtype=dtype)


def random_array(*shape, seed=0):
    """Returns standard normal float32 numbers, the same at every call."""
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def in_segments(layer, tokens, lengths):
    """Returns the outputs (B, sum of lengths, D) of a layer that reads the tokens segment by segment."""
    outputs, start = [], 0
    for length in lengths:
        outputs.append(layer(tokens[:, start:start + length], memory=tokens[:, :start]).numpy())
        start += length
    return np.concatenate(outputs, axis=1)


def first(outputs):
    """Returns the outputs, or the first of several."""
    return outputs[0] if isinstance(outputs, (tuple, list)) else outputs


def is_tensor(value):
    """Returns whether a call argument is an array or a tensor, concrete or symbolic."""
    return hasattr(value, "shape")


def symbolic(array):
    """Returns an Input for an array whose sizes are open but for the width of floats."""
    open_sizes = (None,) * (array.ndim - 1)
    width = array.shape[-1] if np.issubdtype(array.dtype, np.floating) else None
    return keras.Input(batch_shape=(*open_sizes, width), dtype=array.dtype.name)


def own_classes(layer_class):
    """Returns a layer's class and the bases that are not Keras's."""
    return [base for base in layer_class.__mro__ if base.__module__.split(".")[0] not in ("keras", "builtins", "tensorflow")
            and issubclass(base, keras.layers.Layer)]


def init_arguments(layer_class):
    """Returns the names of all arguments of __init__ of a layer and its bases below Keras's."""
    names = set()
    for base in own_classes(layer_class):
        parameters = inspect.signature(base.__init__).parameters.values()
        names |= {p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)}
    return names - {"self"}


def serialized_copy(layer):
    """Returns a layer made of the JSON of another, as in a .keras file."""
    return keras.saving.deserialize_keras_object(json.loads(json.dumps(keras.saving.serialize_keras_object(layer))))


def outputs_and_gradients(layer, call_kwargs, direction):
    """Returns outputs, and the gradients of their product with a direction for all trainable variables."""
    with tf.GradientTape() as tape:
        outputs = first(layer(**call_kwargs))
        loss = tf.reduce_sum(tf.cast(outputs, tf.float32) * direction)
    gradients = tape.gradient(loss, [variable.value for variable in layer.trainable_variables])
    return outputs, [gradient if gradient is None else tf.convert_to_tensor(gradient) for gradient in gradients]
