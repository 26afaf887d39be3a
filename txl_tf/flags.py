"""absl flags made from the fields of the configurations, and configurations made from the flags."""

import dataclasses
import os
import typing

from absl import flags

from txl_tf.config import DataConfig, ModelConfig, TrainConfig
from txl_tf.presets import UNKNOWN_VOCABULARY, preset

SECTIONS = {"model": ModelConfig, "train": TrainConfig, "data": DataConfig}


def define_flags():
    """Defines --preset and a flag for every field of the configurations but n_token, which the vocabulary gives."""
    flags.DEFINE_string("preset", None, "name of published settings in txl_tf.presets.PRESETS; other flags override them")
    for section, config_class in SECTIONS.items():
        types = typing.get_type_hints(config_class)
        for field in _fields(config_class):
            _define(field, types[field.name], f"{section}: {field.metadata['help']}")


def read_configs():
    """Returns (ModelConfig, TrainConfig, DataConfig) from the parsed flags; the vocabulary's size is not known yet.

    Raises:
        ValueError: if a value can't be used; the sentence names the flag and what was received.
    """
    chosen = preset(flags.FLAGS.preset) if flags.FLAGS.preset is not None else {}
    settings = {name: {**chosen.get(name, {}), **_given(config_class)} for name, config_class in SECTIONS.items()}
    model_config = ModelConfig(n_token=UNKNOWN_VOCABULARY, **settings["model"])
    data_config = DataConfig(**settings["data"])
    run_name = os.path.basename(os.path.abspath(data_config.data_dir))
    train_config = TrainConfig(**{"model_dir": os.path.join("runs", run_name), **settings["train"]})
    return model_config, train_config, data_config


def _fields(config_class):
    return [field for field in dataclasses.fields(config_class) if field.name != "n_token"]


def _define(field, field_type, help_text):
    choices = [choice for choice in typing.get_args(field_type) if choice is not type(None)]
    if typing.get_origin(field_type) is tuple:
        flags.DEFINE_list(field.name, list(field.default), help_text)
        return
    kind = choices[0] if choices else field_type
    define = {bool: flags.DEFINE_bool, int: flags.DEFINE_integer, float: flags.DEFINE_float, str: flags.DEFINE_string}[kind]
    define(field.name, field.default, help_text)


def _given(config_class):
    """Returns what the user wrote on the command line for a configuration."""
    values = {field.name: flags.FLAGS[field.name].value for field in _fields(config_class) if flags.FLAGS[field.name].present}
    if "cutoffs" in values:
        values["cutoffs"] = tuple(_integer("cutoffs", text) for text in values["cutoffs"])
    return values


def _integer(name, text):
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name} must be integers separated by commas. Received: {name}={text}") from None
