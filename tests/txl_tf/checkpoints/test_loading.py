"""Names and shapes of a checkpoint are compared before any value is read, and before a model has any memory."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.checkpoints.huggingface import save_huggingface
from txl_tf.checkpoints.loading import load, shared_names
from txl_tf.checkpoints.tf1 import save_tf1_checkpoint, tf1_entries

SETTINGS = {"cutoffs": (3, 7), "dropout": 0.1}


def values(model):
    return {name: entry.value() for name, entry in tf1_entries(model).items()}


def loaded(model, arrays, **settings):
    return load(model.config, tf1_entries, {name: array.shape for name, array in arrays.items()}, arrays.get, "path", "p", **settings)


def test_a_loaded_model_is_as_one_that_was_made():
    model = tiny_model(**SETTINGS)
    again, tokens = loaded(model, {**values(model), "copy": np.zeros(3)}, passed_over=lambda model: {"copy"}), tiny_tokens(2, 5)
    assert [(variable.shape, variable.trainable) for variable in again.variables] == [(variable.shape, variable.trainable) for variable in model.variables]
    np.testing.assert_array_equal(again.log_probs(tokens, again.initial_memory(2))[0], model.log_probs(tokens, model.initial_memory(2))[0])
    dropped = [again.nll(tokens[:, :-1], tokens[:, 1:], again.initial_memory(2), training=True)[0] for _ in range(2)]
    assert np.any(dropped[0] != dropped[1])


def test_nothing_is_allocated_before_the_shapes_are_checked(monkeypatch):
    model = tiny_model(**SETTINGS)
    arrays = values(model)
    arrays["transformer/layer_0/ff/layer_1/bias"] = np.zeros(5)
    made, make = [], keras.Variable._initialize_with_initializer

    def counted(variable, initializer):
        made.append(tf.executing_eagerly())
        make(variable, initializer)

    monkeypatch.setattr(keras.Variable, "_initialize_with_initializer", counted)
    with pytest.raises(ValueError, match=r"ff/layer_1/bias must have the shape \(\d+,\) that config gives. Received: shape=\(5,\), path=p"):
        loaded(model, arrays)
    with keras.StatelessScope():  # its end would give values to what a refused model has left behind
        pass
    assert not any(made)
    loaded(model, values(model))
    assert sum(made) == len(model.variables)


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_is_refused_by_name(number):
    model = tiny_model(**SETTINGS)
    arrays = values(model)
    arrays["transformer/layer_1/ff/layer_1/bias"][3] = number
    with pytest.raises(ValueError, match=r"layer_1/ff/layer_1/bias must be finite. Received: values from .* to .*, path=p"):
        loaded(model, arrays)


def test_names_in_both():
    assert shared_names({"a": (1,), "b": (2,)}, {"b": (2,), "a": (1,)}, "path", "p") == ["b", "a"]


@pytest.mark.parametrize("stored, message", [
    ({"a": (1,)}, r"it lacks \['b'\] and has besides none. Received: path=p"),
    ({"a": (1,), "b": (2,), "c": ()}, r"it lacks none and has besides \['c'\]. Received: path=p"),
    ({"a": (1,), "b": (3,)}, r"b must have the shape \(2,\) that config gives. Received: shape=\(3,\), path=p"),
    ({"b": (3,)}, r"b must have the shape \(2,\) that config gives. Received: shape=\(3,\), path=p"),
])
def test_a_difference_is_refused_by_name(stored, message):
    with pytest.raises(ValueError, match=message):
        shared_names(stored, {"a": (1,), "b": (2,)}, "path", "p")


def test_a_part_is_taken_where_that_is_allowed_and_what_is_left_out_is_listed(caplog):
    assert shared_names({"a": (1,), "c": ()}, {"a": (1,), "b": (2,)}, "path", "p", allow_partial=True) == ["a"]
    assert "lacks ['b'] and has besides ['c']" in caplog.text
    with pytest.raises(ValueError, match="a must have the shape"):
        shared_names({"a": (3,)}, {"a": (1,)}, "path", "p", allow_partial=True)


@pytest.mark.parametrize("settings, received", [({"attention": "dense"}, "attention=dense"), ({"feed_forward": "conv_relu"}, "feed_forward=conv_relu")])
def test_other_layers_are_neither_read_nor_written(settings, received, tmp_path):
    model = tiny_model(memory_start="zeros", **settings)
    for call in (lambda: load(model.config, tf1_entries, {str(number): () for number in range(9)}, None, "prefix", "here"),
                 lambda: save_tf1_checkpoint(model, tmp_path / "model.ckpt"), lambda: save_huggingface(model, tmp_path / "there")):
        with pytest.raises(ValueError, match=f"The model must have .* Received: {received}$"):
            call()
    assert not list(tmp_path.iterdir())
