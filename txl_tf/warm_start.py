"""Weights for a model of the same shape, from whatever holds some."""

import os

import tensorflow as tf

from txl_tf import model_folder
from txl_tf.checkpoints.tf1 import load_tf1_checkpoint
from txl_tf.run_state import stored_weights, weights_of


def check_weights_exist(path, name="path"):
    """Raises ValueError, with the name of the setting, if there is neither a model folder nor a checkpoint at a path."""
    if not any(tf.io.gfile.exists(file) for file in (os.path.join(path, model_folder.WEIGHTS), f"{path}.index")):
        raise ValueError(f"{name} must be a model folder or a checkpoint. Received: {name}={path}")


def load_any_weights(model, path, name="path"):
    """Gives a model the weights that lie at a path; nothing else of a run, such as Adam's state, is read.

    Args:
        model: a TransformerXLLM.
        path: a model folder; a checkpoint of a run (model_dir/checkpoints/step-1000) or of the original TensorFlow code
            (model.ckpt-0).
        name: of the setting, for messages.

    Raises:
        ValueError: if there are no weights of this model.
    """
    check_weights_exist(path, name)
    try:
        if tf.io.gfile.exists(os.path.join(path, model_folder.WEIGHTS)):
            model_folder.load_weights(model, path)
        elif weights := stored_weights(path):
            _assign(model, weights)
        else:
            model.set_weights(load_tf1_checkpoint(path, model.config).get_weights())
    except (ValueError, KeyError, OSError, AssertionError, IndexError, tf.errors.OpError) as error:
        reason = (str(getattr(error, "message", error)).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{name} must hold weights of this model ({reason}). Received: {name}={path}") from error


def _assign(model, weights):
    """Raises ValueError if there are more or fewer weights than a model has, or one has another shape."""
    if len(weights) != len(model.weights):
        raise ValueError(f"it has {len(weights)} weights, not {len(model.weights)}")
    for variable, value in zip(weights_of(model), weights, strict=True):
        variable.assign(value)
