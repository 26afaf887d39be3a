"""One flag per setting, with the setting's default and help; presets fill in, flags override."""

import dataclasses
import typing

import pytest
from absl import flags

import txl_tf.flags
from txl_tf.config import (ATTENTIONS, CLIP_SCOPES, DENSE_FORMS, FEED_FORWARDS, INITS, KEY_INDICES, MEMORY_STARTS, MIXTURE_WEIGHTINGS,
                           PRECISIONS, SPLITS, DataConfig, ModelConfig, TrainConfig)
from txl_tf.presets import PRESETS, UNKNOWN_VOCABULARY

FIELDS = {field.name: (section, field) for section, config_class in txl_tf.flags.SECTIONS.items()
          for field in dataclasses.fields(config_class) if field.name != "n_token"}
CHOICES = {"init": INITS, "memory_start": MEMORY_STARTS, "precision": PRECISIONS, "clip_scope": CLIP_SCOPES, "eval_split": SPLITS,
           "attention": ATTENTIONS, "key_index": KEY_INDICES, "mixture_weighting": MIXTURE_WEIGHTINGS, "dense_form": DENSE_FORMS,
           "feed_forward": FEED_FORWARDS}
KINDS = {name: next(kind for kind in typing.get_args(hint) or (hint,) if kind is not type(None))
         for config_class in txl_tf.flags.SECTIONS.values() for name, hint in typing.get_type_hints(config_class).items() if name in FIELDS}
ORIGINAL = """data_dir record_info_dir corpus_info_path model_dir do_train do_eval eval_ckpt_path warm_start_path learning_rate clip
    min_lr_ratio warmup_steps train_batch_size eval_batch_size train_steps iterations save_steps do_test max_eval_batch do_eval_only
    start_eval_steps eval_split tgt_len mem_len same_length clamp_len n_layer d_model d_embed n_head d_head d_inner dropout dropatt
    untie_r tie_weight div_val proj_share_all_but_first proj_same_dim init init_std proj_init_std init_range num_hosts
    num_core_per_host use_tpu tpu tpu_zone gcp_project master track_mean""".split()
COMPANY = {"start_eval_steps": ["--do_eval_only"], "eval_ckpt_path": ["--do_train=False"],  # what a flag must come with
           "max_length": ["--attention=dense", "--tgt_len=5", "--mem_len=4"], "key_index": ["--attention=dense", "--mem_len=0"],
           "dense_form": ["--attention=dense"], "factor_rank": ["--attention=factorized_random"],
           "mixture_weighting": ["--attention=mixture", "--mixture_of=dense,dot_product"], "absolute_positions": ["--mem_len=0"], "attention": ["--mem_len=0", "--mixture_of="]}


def found(configs):
    """Returns {name: value} of all three configurations."""
    return {name: value for config in configs for name, value in dataclasses.asdict(config).items()}


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
    assert parse.names == FIELDS.keys() | {"preset", "num_host"}


def test_every_flag_of_the_original_is_there(parse):
    assert parse.names >= set(ORIGINAL)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind in (int, float, str) and name not in {*CHOICES, "cutoffs", "mixture_of"}])
def test_every_flag_of_a_number_or_text_sets_its_setting(parse, name):
    kind = KINDS[name]
    text = {int: "9", float: "0.5", str: "text"}[kind]
    extra = ["--train_steps=9", "--warmup_steps=9"] if name in ("train_steps", "warmup_steps") else COMPANY.get(name, [])
    assert found(parse(*extra, f"--{name}={text}"))[name] == kind(text)


@pytest.mark.parametrize("name", [name for name, kind in KINDS.items() if kind is bool])
def test_every_switch_goes_both_ways(parse, name):
    extra = ["--do_test"] if name == "do_eval" else COMPANY.get(name, [])
    assert found(parse(f"--{name}", *extra))[name] is True
    assert found(parse(f"--no{name}", *extra))[name] is False
    assert found(parse(f"--{name}=False", *extra))[name] is False


@pytest.mark.parametrize("name, choice", [(name, choice) for name, choices in CHOICES.items() for choice in choices])
def test_every_choice_can_be_made(parse, name, choice):
    mixed = ["--mixture_of=dense,random"] if choice == "mixture" else []
    assert found(parse(*COMPANY.get(name, []), *mixed, f"--{name}={choice}"))[name] == choice


def test_the_alias_sets_its_setting(parse):
    assert parse("--num_host=2", "--train_batch_size=4")[1].num_hosts == 2
    assert parse("--num_hosts=3", "--train_batch_size=3")[1].num_hosts == 3
    assert parse()[1].num_hosts == 1


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
    ("--jit_compile", "jit_compile", True), ("--mixture_of=", "mixture_of", ()), ("--model_dir=here", "model_dir", "here"), ("--train_batch_size=3", "train_batch_size", 3),
    ("--data_dir=there", "data_dir", "there"), ("--clamp_len=-1", "clamp_len", -1),
])
def test_a_flag_sets_its_setting(parse, argument, name, value):
    result = found(parse(argument))[name]
    assert result == value and type(result) is type(value)


LENGTHS = ["--tgt_len=7", "--mem_len=0", "--clamp_len=5", "--same_length"]


@pytest.mark.parametrize("alone", ["--do_train=False", "--nodo_train", "--do_eval_only"])
def test_without_training_plain_lengths_are_the_evaluations(parse, alone):
    model, train, _ = parse(alone, *LENGTHS)
    assert (train.eval_tgt_len, train.eval_mem_len, train.eval_clamp_len, train.eval_same_length) == (7, 0, 5, True)
    assert model == ModelConfig(n_token=UNKNOWN_VOCABULARY)


@pytest.mark.parametrize("training", [[], ["--do_train"], ["--do_eval_only=False"]])
def test_with_training_plain_lengths_are_the_trainings(parse, training):
    model, train, _ = parse(*training, *LENGTHS)
    assert (model.tgt_len, model.mem_len, model.clamp_len, model.same_length) == (7, 0, 5, True)
    assert (train.eval_tgt_len, train.eval_mem_len, train.eval_clamp_len, train.eval_same_length) == (None, None, None, None)


def test_without_training_lengths_of_both_kinds_go_to_both(parse):
    model, train, _ = parse("--do_train=False", "--tgt_len=7", "--eval_tgt_len=9", "--mem_len=3", "--noeval_same_length")
    assert (model.tgt_len, train.eval_tgt_len) == (7, 9)
    assert (model.mem_len, train.eval_mem_len, train.eval_same_length) == (ModelConfig(n_token=1).mem_len, 3, False)


def test_without_training_plain_lengths_override_a_presets_evaluation(parse):
    model, train, _ = parse("--preset=enwik8_base", "--do_eval_only", "--tgt_len=7")
    assert (model.tgt_len, train.eval_tgt_len, train.eval_mem_len) == (512, 7, 2100)


@pytest.mark.parametrize("arguments, received", [
    (["--do_eval_only", "--do_train"], "do_eval_only=True, do_train=True"),
    (["--do_eval_only", "--do_eval=False"], "do_eval_only=True, do_eval=False"),
    (["--batch_chunk=3"], None), (["--batch_chunk=5", "--preset=enwik8_base"], "train_batch_size=24, num_hosts=1, num_core_per_host=None, "
                                  "batch_chunk=5"),
    (["--train_batch_size=9", "--num_host=2"], "train_batch_size=9, num_hosts=2, num_core_per_host=None, batch_chunk=1"),
    (["--warm_start_path=runs/mine", "--data_dir=mine"], "warm_start_path=runs/mine, model_dir=runs/mine"),
    (["--start_eval_steps=5", "--do_train=False"], "start_eval_steps=5, do_eval_only=False"),
    (["--eval_ckpt_path=there"], "eval_ckpt_path=there, do_train=True"),
    (["--do_train=False", "--do_eval=False"], "do_train=False, do_eval=False, do_test=False"),
], ids=str)
def test_flags_that_contradict_each_other_are_named(parse, arguments, received):
    if received is None:  # the rows are not known yet, for they are as they were prepared
        parse(*arguments)
        return
    with pytest.raises(ValueError) as refusal:
        parse(*arguments)
    message = str(refusal.value)
    assert message.endswith(f". Received: {received}") and " must " in message and "\n" not in message


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


@pytest.mark.parametrize("settings", [
    {}, {"d_model": 60, "d_embed": 192, "cutoffs": (3, 7), "div_val": 2, "proj_same_dim": False, "same_length": True, "layer_norm_epsilon": 1e-5}])
def test_settings_as_flags_give_them_again(parse, settings):
    config = ModelConfig(n_token=UNKNOWN_VOCABULARY, **settings)
    assert parse(*txl_tf.flags.as_flags(config).split())[0] == config


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
    ("--clip_scope=core", "clip_scope=core"), ("--eval_split=dev", "eval_split=dev"), ("--max_eval_batch=0", "max_eval_batch=0"),
    ("--keep_checkpoints=0", "keep_checkpoints=0"), ("--num_core_per_host=0", "num_core_per_host=0"),
])
def test_a_bad_flag_is_named_with_what_was_received(parse, argument, received):
    with pytest.raises(ValueError) as refusal:
        parse(argument)
    message = str(refusal.value)
    assert message.startswith(received.split("=")[0]) and f"Received: {received}" in message and "\n" not in message


@pytest.mark.parametrize("argument", ["--n_layer=four", "--dropout=much", "--same_length=perhaps", "--no_such_flag=1", "--n_token=5",
                                      "--use_tpu=perhaps", "--num_host=two", "--per_host_train_bsz=3"])
def test_what_cannot_be_parsed_is_refused_by_absl(parse, argument):
    with pytest.raises(flags.Error, match=argument.strip("-").split("=")[0]):
        parse(argument)
