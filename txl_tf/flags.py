"""absl flags made from the fields of the configurations, and configurations made from the flags."""

import dataclasses
import importlib.util
import os
import typing

from absl import flags

from txl_tf.config import DataConfig, ModelConfig, TrainConfig, check_together
from txl_tf.presets import UNKNOWN_VOCABULARY, preset

SECTIONS = {"model": ModelConfig, "train": TrainConfig, "data": DataConfig}
ALIASES = {"num_host": "num_hosts"}  # what the original's scripts for TPUs write
EVALUATED = ("tgt_len", "mem_len", "clamp_len", "same_length")  # fields of ModelConfig for which TrainConfig has an eval_ one


def define_flags():
    """Defines --preset, a flag for every field of the configurations but n_token, which the vocabulary gives, and the aliases."""
    define_model_flags()
    for section in ("train", "data"):
        _define_section(section)
    for alias, name in ALIASES.items():
        flags.DEFINE_alias(alias, name)


def define_model_flags():
    """Defines --preset and a flag for every field of a ModelConfig but n_token."""
    flags.DEFINE_string("preset", None, "name of published settings in txl_tf.presets.PRESETS; other flags override them")
    _define_section("model")


def read_configs():
    """Returns (ModelConfig, TrainConfig, DataConfig) from the parsed flags; the vocabulary's size is not known yet.

    Without training (--do_train=False or --do_eval_only), --tgt_len, --mem_len, --clamp_len and --same_length on the command
    line are those of the evaluation, as in the original code: each becomes the eval_ setting of its name, unless that is on
    the command line too, and the ModelConfig has the value of the preset, or the default.

    Raises:
        ValueError: if a value can't be used or two contradict each other; the sentence names the flags and what was received.
    """
    given = {name: _given(config_class) for name, config_class in SECTIONS.items()}
    _check_given(given["train"])
    chosen = preset(flags.FLAGS.preset) if flags.FLAGS.preset is not None else {}
    if given["train"].get("do_train") is False or given["train"].get("do_eval_only"):
        given = _for_evaluation(given)
    settings = {name: {**chosen.get(name, {}), **given[name]} for name in SECTIONS}
    model_config = ModelConfig(n_token=UNKNOWN_VOCABULARY, **settings["model"])
    data_config = DataConfig(**settings["data"])
    run_name = os.path.basename(os.path.abspath(data_config.data_dir))
    train_config = TrainConfig(**{"model_dir": os.path.join("runs", run_name), **settings["train"]})
    check_together(train_config, data_config)
    return model_config, train_config, data_config


def given_model_settings():
    """Returns {name: value} of a ModelConfig's fields that are on the command line."""
    return _given(ModelConfig)


def as_flags(config):
    """Returns the flags of a command line that give a ModelConfig's settings, n_token apart, which the vocabulary gives, as one text."""
    changed = {field.name: getattr(config, field.name) for field in _fields(ModelConfig) if getattr(config, field.name) != field.default}
    return " ".join(f"--{'' if value else 'no'}{name}" if isinstance(value, bool) else
                    f"--{name}={','.join(map(str, value)) if isinstance(value, tuple) else value}" for name, value in changed.items())


def check_no_arguments(argv):
    """Raises ValueError if a command line has more than flags; argv is what absl leaves of it."""
    if len(argv) > 1:
        raise ValueError(f"Arguments must be flags. Received: {' '.join(argv[1:])}")


def check_folder_of(name, path):
    """Raises ValueError unless the folder of a file that is to be written is there, and no folder of its name; no path is no file."""
    if path and os.path.isdir(path):
        raise ValueError(f"{name} must be a file, not a folder. Received: {name}={path}")
    if path and not os.path.isdir(os.path.dirname(os.path.abspath(path))):
        raise ValueError(f"{name} must lie in a folder that is there. Received: {name}={path}")


def check_plot_file(path):
    """Raises ValueError unless a picture can be drawn and its folder is there; no path is no picture."""
    check_folder_of("plot_file", path)
    if path and importlib.util.find_spec("matplotlib") is None:
        raise ValueError(f"plot_file needs matplotlib: pip install 'txl-tf[plots]'. Received: plot_file={path}")


def integers(name, texts):
    """Returns the tuple of integers that the parts of a list flag spell. Raises ValueError, with the name of the flag, if one is none."""
    for text in texts:
        try:
            int(text)
        except ValueError:
            raise ValueError(f"{name} must be integers separated by commas. Received: {name}={text}") from None
    return tuple(int(text) for text in texts)


def _check_given(train):
    """Raises ValueError where what was written contradicts do_eval_only, which would override it."""
    for name, needed in (("do_train", False), ("do_eval", True)):
        if train.get("do_eval_only") and train.get(name) is not None and train[name] != needed:
            raise ValueError(f"do_eval_only must come with {name}={needed} or without {name}. Received: "
                             f"do_eval_only=True, {name}={train[name]}")


def _for_evaluation(given):
    """Returns what was given, with the plain lengths among the settings of evaluation."""
    model, train = dict(given["model"]), dict(given["train"])
    for name in EVALUATED:
        if name in model and f"eval_{name}" not in train:
            train[f"eval_{name}"] = model.pop(name)
    return {**given, "model": model, "train": train}


def _fields(config_class):
    return [field for field in dataclasses.fields(config_class) if field.name != "n_token"]


def _define_section(section):
    types = typing.get_type_hints(SECTIONS[section])
    for field in _fields(SECTIONS[section]):
        _define(field, types[field.name], f"{section}: {field.metadata['help']}")


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
        values["cutoffs"] = integers("cutoffs", values["cutoffs"])
    if "mixture_of" in values:
        values["mixture_of"] = tuple(values["mixture_of"])
    return values
