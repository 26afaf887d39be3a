"""Weights for a model of the same shape, from whatever holds some."""

import os

import tensorflow as tf

from txl_tf import model_folder
from txl_tf.checkpoints.tf1 import load_tf1_checkpoint


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
    try:
        if tf.io.gfile.exists(os.path.join(path, model_folder.WEIGHTS)):
            model_folder.load_weights(model, path)
        elif not tf.io.gfile.exists(f"{path}.index"):
            raise ValueError("there is neither a model folder nor a checkpoint")
        elif tf.train.load_checkpoint(path).has_tensor("model/0/.ATTRIBUTES/VARIABLE_VALUE"):
            tf.train.Checkpoint(model=[variable.value for variable in model.variables]).read(path).assert_existing_objects_matched()
        else:
            model.set_weights(load_tf1_checkpoint(path, model.config).get_weights())
    except (ValueError, KeyError, OSError, AssertionError, IndexError, tf.errors.OpError) as error:
        reason = (str(getattr(error, "message", error)).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"{name} must hold weights of this model ({reason}). Received: {name}={path}") from error
