"""One flag per setting, with the setting's default and help; presets fill in, flags override."""

import dataclasses

import pytest
from absl import flags

import txl_tf.flags
from txl_tf.config import DataConfig, ModelConfig, TrainConfig
from txl_tf.presets import PRESETS, UNKNOWN_VOCABULARY

FIELDS = {field.name: (section, field) for section, config_class in txl_tf.flags.SECTIONS.items()
          for field in dataclasses.fields(config_class) if field.name != "n_token"}


@pytest.fixture
def parse():
    """A function that parses flags as a script's command line and returns the three configurations."""
    known = set(flags.FLAGS)
    txl_tf.flags.define_flags()

    def configs(*arguments):
        flags.FLAGS.unparse_flags()
        flags.FLAGS(["train_gpu.py", *arguments])
        return txl_tf.flags.read_configs()

    configs.names = set(flags.FLAGS) - known
    yield configs
    flags.FLAGS.unparse_flags()
    for name in configs.names:
        delattr(flags.FLAGS, name)


def test_one_flag_per_setting(parse):
    assert parse.names == FIELDS.keys() | {"preset"}


@pytest.mark.parametrize("name", FIELDS)
def test_default_and_help_are_the_settings(parse, name):
    section, field = FIELDS[name]
    flag = flags.FLAGS[name]
    default = tuple(flag.default) if isinstance(field.default, tuple) else flag.default
    assert default == field.default and type(default) is type(field.default)
    assert flag.help == f"{section}: {field.metadata['help']}"


def test_no_flags_give_the_defaults(parse):
    model, train, data = parse()
    assert model == ModelConfig(n_token=UNKNOWN_VOCABULARY)
    assert train == dataclasses.replace(TrainConfig(), model_dir="runs/stdlib")
    assert data == DataConfig()


@pytest.mark.parametrize("argument, name, value", [
    ("--n_layer=3", "n_layer", 3), ("--dropout=0.25", "dropout", 0.25), ("--same_length", "same_length", True),
    ("--notie_weight", "tie_weight", False), ("--init=uniform", "init", "uniform"), ("--d_embed=8", "d_embed", 8),
    ("--cutoffs=20,45,80", "cutoffs", (20, 45, 80)), ("--cutoffs=", "cutoffs", ()), ("--cutoffs=7", "cutoffs", (7,)),
    ("--learning_rate=2e-4", "learning_rate", 2e-4), ("--eval_same_length", "eval_same_length", True),
    ("--noeval_same_length", "eval_same_length", False), ("--eval_mem_len=0", "eval_mem_len", 0),
    ("--jit_compile", "jit_compile", True), ("--model_dir=here", "model_dir", "here"), ("--train_batch_size=3", "train_batch_size", 3),
    ("--data_dir=there", "data_dir", "there"), ("--clamp_len=-1", "clamp_len", -1),
])
def test_a_flag_sets_its_setting(parse, argument, name, value):
    found = {}
    for config in parse(argument):
        found.update(dataclasses.asdict(config))
    assert found[name] == value and type(found[name]) is type(value)


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_fills_all_three(parse, name):
    configs = dict(zip(txl_tf.flags.SECTIONS, parse(f"--preset={name}")))
    for section, settings in PRESETS[name].items():
        assert {key: getattr(configs[section], key) for key in settings} == settings


def test_a_flag_overrides_a_preset_even_with_the_default(parse):
    settings = PRESETS["enwik8_base"]
    assert settings["model"]["n_layer"] != 4 and settings["train"]["warmup_steps"] != 100 and settings["data"]["train_batch_size"] != 16
    model, train, data = parse("--preset=enwik8_base", "--n_layer=4", "--warmup_steps=100", "--train_batch_size=16")
    assert (model.n_layer, train.warmup_steps, data.train_batch_size) == (4, 100, 16)
    assert model.d_model == settings["model"]["d_model"]


def test_an_unknown_preset_lists_those_there_are(parse):
    with pytest.raises(ValueError) as refusal:
        parse("--preset=enwik9")
    assert all(name in str(refusal.value) for name in PRESETS)
    assert str(refusal.value).endswith("Received: preset=enwik9")


def test_the_run_is_named_after_its_data(parse):
    assert parse("--data_dir=/somewhere/mine/")[1].model_dir == "runs/mine"
    assert parse("--data_dir=/somewhere/mine", "--model_dir=there")[1].model_dir == "there"


@pytest.mark.parametrize("data_dir, folder", [(".", "text"), ("..", "texts"), ("../text", "text")])
def test_a_relative_data_folder_names_the_run_by_its_own_name(parse, data_dir, folder, tmp_path, monkeypatch):
    (tmp_path / "texts" / "text").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "texts" / "text")
    assert parse(f"--data_dir={data_dir}")[1].model_dir == f"runs/{folder}"


@pytest.mark.parametrize("argument, received", [
    ("--cutoffs=20,many", "cutoffs=many"), ("--cutoffs=45,20", "cutoffs=(45, 20)"), ("--n_head=0", "n_head=0"),
    ("--tgt_len=0", "tgt_len=0"), ("--dropout=1", "dropout=1"), ("--dropout=nan", "dropout=nan"), ("--init=Normal", "init=Normal"),
    ("--warmup_steps=2001", "warmup_steps=2001"), ("--train_batch_size=0", "train_batch_size=0"),
    ("--model_dir=", "model_dir="), ("--precision=float16", "precision=float16"), ("--clip=inf", "clip=inf"),
])
def test_a_bad_flag_is_named_with_what_was_received(parse, argument, received):
    with pytest.raises(ValueError) as refusal:
        parse(argument)
    message = str(refusal.value)
    assert message.startswith(received.split("=")[0]) and f"Received: {received}" in message and "\n" not in message


@pytest.mark.parametrize("argument", ["--n_layer=four", "--dropout=much", "--same_length=perhaps", "--no_such_flag=1"])
def test_what_cannot_be_parsed_is_refused_by_absl(parse, argument):
    with pytest.raises(flags.Error, match=argument.strip("-").split("=")[0]):
        parse(argument)
