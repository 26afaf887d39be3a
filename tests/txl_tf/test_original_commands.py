"""The commands of the original's scripts, flag by flag: each is understood as it was meant."""

import dataclasses
import json
from pathlib import Path

import pytest
from absl import flags

import txl_tf.flags
from txl_tf.config import DataConfig, ModelConfig, TrainConfig

FILE = Path(__file__).parents[1] / "golden" / "original_commands.json"
COMMANDS = {command["name"]: command["flags"] for command in json.loads(FILE.read_text(encoding="utf-8"))
            if command["program"] in ("train_gpu.py", "train.py")}
EVALUATIONS = [name for name in COMMANDS if name.endswith(" eval")]
TRAININGS = [name for name in COMMANDS if name.endswith(" train")]
OF_THE_EVALUATION = ("tgt_len", "mem_len", "clamp_len", "same_length")


@pytest.fixture
def read():
    """A function that reads a command into {setting: value} of all three configurations."""
    known = set(flags.FLAGS)
    txl_tf.flags.define_flags()

    def settings(arguments):
        flags.FLAGS.unparse_flags()
        assert flags.FLAGS(["script.py", *arguments]) == ["script.py"]
        return {name: value for config in txl_tf.flags.read_configs() for name, value in dataclasses.asdict(config).items()}

    yield settings
    flags.FLAGS.unparse_flags()
    for name in set(flags.FLAGS) - known:
        delattr(flags.FLAGS, name)


def written(arguments):
    """Returns {flag: text} of a command, with num_host under its other name."""
    pairs = dict(argument.removeprefix("--").split("=", 1) for argument in arguments)
    return {"num_hosts" if name == "num_host" else name: text for name, text in pairs.items()}


def agrees(value, text):
    """Tells whether a setting is what a command says."""
    if isinstance(value, bool):
        return text == str(value)
    return type(value)(text) == value


def test_there_are_commands_of_every_script():
    assert len(TRAININGS) == len(EVALUATIONS) == 8 and len(COMMANDS) == 16


@pytest.mark.parametrize("name", TRAININGS)
def test_a_training_is_what_the_command_says(read, name):
    settings, said = read(COMMANDS[name]), written(COMMANDS[name])
    assert settings["do_train"] and not settings["do_eval_only"]
    assert {flag: settings[flag] for flag, text in said.items() if not agrees(settings[flag], text)} == {}


@pytest.mark.parametrize("name", EVALUATIONS)
def test_an_evaluation_is_what_the_command_says(read, name):
    settings, said = read(COMMANDS[name]), written(COMMANDS[name])
    said = {f"eval_{flag}" if flag in OF_THE_EVALUATION else flag: text for flag, text in said.items()}
    assert not settings["do_train"] and settings["do_eval"]
    assert {flag: settings[flag] for flag, text in said.items() if not agrees(settings[flag], text)} == {}


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_leaves_out_has_its_default(read, name):
    settings, said = read(COMMANDS[name]), written(COMMANDS[name])
    moved = OF_THE_EVALUATION if name in EVALUATIONS else ()
    said = {f"eval_{flag}" if flag in moved else flag for flag in said} | {"do_train", "do_eval", "dataset"}
    defaults = {key: value for config in (ModelConfig(n_token=2 ** 31), TrainConfig(), DataConfig())
                for key, value in dataclasses.asdict(config).items()}
    assert {key: value for key, value in settings.items() if key not in said and value != defaults[key]} == {}


def test_a_flag_that_the_original_does_not_have_is_refused(read):
    with pytest.raises(flags.Error, match="per_host_train_bsz"):
        read([*COMMANDS[TRAININGS[0]], "--per_host_train_bsz=3"])
