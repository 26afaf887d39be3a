"""A model in a folder: config.json, model.weights.h5 and, where it is known, vocabulary.json."""

import contextlib
import dataclasses
import json
import math
import os
import tempfile

import tensorflow as tf

from data_utils.atomic_files import replacing, write_json, write_text  # noqa: F401 - for those who write beside a model
from data_utils.vocabulary import load_vocabulary as load_vocabulary_file
from txl_tf.config import ModelConfig
from txl_tf.language_model import TransformerXLLM
from txl_tf.presets import PRESETS

CONFIG = "config.json"
WEIGHTS = "model.weights.h5"
VOCABULARY = "vocabulary.json"
SHAPE = ("n_token", "n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "untie_r", "cutoffs", "div_val", "tie_weight",
         "proj_share_all_but_first", "proj_same_dim", "attention", "mixture_of", "mixture_weighting", "max_length", "key_index", "dense_form",
         "factor_rank", "feed_forward")  # the settings that decide which weights there are

_HEADER = 2 ** 14  # bytes, more than HDF5 adds to a weight


def save_model(model, folder, vocabulary=None):
    """Writes a TransformerXLLM, and a vocabulary of data_utils if given, to a folder, which is made if missing.

    What is there is not replaced before all is written.
    """
    tf.io.gfile.makedirs(folder)
    config = {**read_config(folder, missing_ok=True), "model": dataclasses.asdict(model.config)}
    names = (CONFIG, WEIGHTS) if vocabulary is None else (CONFIG, VOCABULARY, WEIGHTS)
    with contextlib.ExitStack() as stack:
        partial = {name: stack.enter_context(replacing(os.path.join(folder, name))) for name in names}
        _save_weights(model, partial[WEIGHTS])
        write_json(partial[CONFIG], config)
        if vocabulary is not None:
            vocabulary.save(partial[VOCABULARY])


def _save_weights(model, path):
    named = path.with_name("partial." + WEIGHTS)  # Keras tells the format from the name
    try:
        _check_room(named, sum(math.prod(weight.shape) * tf.as_dtype(weight.dtype).size + _HEADER for weight in model.weights))
        model.save_weights(named)
        os.replace(named, path)
    finally:
        named.unlink(missing_ok=True)


def _check_room(path, size):
    """Raises OSError if a file can't be so large; HDF5 would end the process, with status 139, where a disk is full."""
    with open(path, "wb") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), 0, size)


def load_model(folder, dtype=None):
    """Returns the TransformerXLLM that save_model or a training run left in a folder.

    Raises:
        ValueError: if the folder holds no trained model; the name of a preset alone holds no weights.
    """
    if folder in PRESETS and not tf.io.gfile.isdir(folder):
        raise ValueError("folder must hold a trained model; a preset's name alone holds no weights, see "
                         f"txl_tf.preset_config. Received: folder={folder}")
    config = read_config(folder)
    model = TransformerXLLM(ModelConfig(**config["model"]), dtype=dtype)
    load_weights(model, folder)
    return model


def load_weights(model, folder):
    """Gives a model of the same shape the weights of a folder. Raises ValueError if there are none, or of another shape."""
    weights = os.path.join(folder, WEIGHTS)
    if not tf.io.gfile.exists(weights):
        raise ValueError(f"folder must hold {WEIGHTS}, which a run writes at its first checkpoint. Received: folder={folder}")
    stored = ModelConfig(**read_config(folder)["model"])
    other = [name for name in SHAPE if getattr(stored, name) != getattr(model.config, name)]  # Keras takes a part of a model in silence
    if other:
        raise ValueError(f"the weights must be of the same model, not one with {', '.join(f'{name}={getattr(stored, name)}' for name in other)}. "
                         f"Received: {', '.join(f'{name}={getattr(model.config, name)}' for name in other)}")
    with tempfile.TemporaryDirectory() as here:
        if "://" in str(weights):
            tf.io.gfile.copy(weights, os.path.join(here, WEIGHTS))
            weights = os.path.join(here, WEIGHTS)
        model.load_weights(weights)


def load_vocabulary(folder):
    """Returns the vocabulary beside a model. Raises FileNotFoundError if there is none."""
    return load_vocabulary_file(os.path.join(folder, VOCABULARY))


def load_model_and_vocabulary(folder):
    """Returns what load_model and load_vocabulary do. Raises ValueError, with the name of the flag model_dir, unless both are there."""
    try:
        return load_model(folder), load_vocabulary(folder)
    except (ValueError, OSError) as error:
        raise ValueError(f"model_dir must hold a trained model and its vocabulary ({error}). Received: model_dir={folder}") from error


def write_config(folder, config):
    """Writes config.json: {"model": ..., and what else a run wants kept}."""
    write_json(os.path.join(folder, CONFIG), config)


def read_config(folder, missing_ok=False):
    """Returns what write_config wrote; {} if there is none and missing_ok.

    Raises:
        ValueError: if there is no config.json, or it is not one of a model.
    """
    path = os.path.join(folder, CONFIG)
    if missing_ok and not tf.io.gfile.exists(path):
        return {}
    try:
        with tf.io.gfile.GFile(path) as file:
            config = json.loads(file.read())
        ModelConfig(**config["model"])
    except (OSError, tf.errors.OpError, ValueError, KeyError, TypeError) as error:
        reason = getattr(error, "message", None) or error
        raise ValueError(f"folder must hold a model's {CONFIG} ({reason}). Received: folder={folder}") from error
    return config
