"""Every setting is checked when a configuration is made, and survives a trip through JSON."""

import dataclasses
import inspect
import json
import typing

import numpy as np
import pytest

from data_utils.prepare import prepare_corpus
from txl_tf.attention.relative import RelativeMultiHeadAttention
from txl_tf.config import DataConfig, ModelConfig, TrainConfig, check_together
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.feed_forward import FeedForward
from txl_tf.layers.transformer_block import TransformerXLBlock

NAN, INF = float("nan"), float("inf")
CONFIGS = {"model": ModelConfig, "train": TrainConfig, "data": DataConfig}
REFUSED = {
    "model": {
        "n_token": [0, -1, NAN, 2.5, "256", None, True], "n_layer": [0, -1, 2.5, "4", None], "d_model": [0, 2.5, "256"],
        "d_embed": [0, -1, 2.5, "64"], "n_head": [0, -1, "4", 1.5], "d_head": [0, -1, 1.5], "d_inner": [0, -1, 1.5],
        "dropout": [-0.1, 1.0, 1.5, NAN, INF, -INF, "0.1", None, True], "dropatt": [-0.1, 1.0, NAN, INF, "0.1"],
        "tgt_len": [0, -1, 2.5, "8", NAN], "mem_len": [-1, 2.5, "8", NAN, INF, None], "same_length": ["yes", 1, None], "same_length_extra": ["yes", 1, None], "pre_lnorm": ["yes", 1, None],
        "clamp_len": [-2, 2.5, "8", NAN, None], "untie_r": ["no", 0, None], "div_val": [0, -1, 1.5, "2"], "tie_weight": [1, "True"],
        "proj_share_all_but_first": [1], "proj_same_dim": [1], "init": ["Normal", "", None, 1],
        "init_std": [-0.1, NAN, INF, "0.02"], "proj_init_std": [-0.1, NAN, INF], "init_range": [-0.1, NAN, INF],
        "layer_norm_epsilon": [-1e-12, NAN, INF], "memory_start": ["full", "", None],
        "attention": ["sideways", "", None], "mixture_of": [("dense", "random"), (3,), "dense"], "mixture_weighting": ["mean", None],
        "max_length": [8, 0, 2.5], "key_index": ["distance", 3], "dense_form": ["cubic", "", None], "factor_rank": [0, 2.5, None],
        "absolute_positions": [True, 1], "feed_forward": ["sparse", None],
        "cutoffs": [(0,), (-1,), (20, 10), (10, 10), (256,), (10, 300), (10.5,), ("10",), (True,), (None,)],
    },
    "train": {
        "train_steps": [0, -1, 2.5, "10", NAN, None], "learning_rate": [0.0, -1e-3, NAN, INF, "1e-3", None],
        "warmup_steps": [-1, 2.5, "3", NAN, 2001], "min_lr_ratio": [-0.1, 1.1, NAN, INF, "0.1"], "clip": [0.0, -1.0, NAN, INF],
        "model_dir": [None, 3, ""], "iterations": [0, -1, 2.5], "save_steps": [0, -1, 2.5], "seed": [-1, 2.5, "1", None],
        "precision": ["float16", "", None], "jit_compile": ["yes", 1], "eval_tgt_len": [0, -1, 2.5], "eval_mem_len": [-1, 2.5, "8"],
        "eval_clamp_len": [-2, 2.5, "8"], "eval_same_length": ["yes", 1], "clip_scope": ["local", "", None], "batch_chunk": [0, -1, 2.5, None],
        "remat": ["yes", 1, None], "save_memory": [0, None], "keep_checkpoints": [0, -1, 2.5, None], "do_train": ["no", 0, None],
        "do_eval": ["no", 0, None], "do_test": ["yes", 1, None], "do_eval_only": ["yes", 1, None],
        "start_eval_steps": [-1, 2.5, None, 10], "eval_split": ["dev", "", 3], "eval_steps": [-1, 2.5, None],
        "max_eval_batch": [0, -2, 2.5, None], "eval_ckpt_path": ["", 3, "elsewhere/checkpoints/step-5"], "warm_start_path": ["", 3],
        "num_hosts": [0, -1, 2.5, None], "num_core_per_host": [0, -1, 2.5, "4"], "use_tpu": ["yes", 1], "tpu": [3], "tpu_zone": [3],
        "gcp_project": [3], "master": [3], "track_mean": ["yes", 1, None],
    },
    "data": {
        "dataset": [3], "data_dir": [3], "train_batch_size": [0, -1, 2.5, "4"], "eval_batch_size": [0, -1, 2.5],
        "record_info_dir": ["", 3], "corpus_info_path": ["", 3], "train_files": [3], "valid_files": [3], "test_files": [3],
        "tfds_splits": [3], "vocabulary": [3], "vocab_file": [3], "vocab_size": [0, 2.5], "min_freq": [0, "2"], "lower_case": ["no", 1],
        "num_passes": [0, 2.5], "num_shuffle": [0, "4"], "shuffle_shards": ["no", 1], "shuffle_seed": [2.5, "1"], "num_procs": [0, None],
    },
}
CASES = [(section, name, value) for section, fields in REFUSED.items() for name, values in fields.items() for value in values]


def make(section, **settings):
    return CONFIGS[section](**({"n_token": 256} if section == "model" else {}) | settings)


@pytest.mark.parametrize("section, name, value", CASES, ids=lambda value: str(value))
def test_a_bad_value_is_refused_in_one_sentence(section, name, value):
    with pytest.raises(ValueError) as refusal:
        make(section, **{name: value})
    message = str(refusal.value)
    assert message.startswith(name) and "\n" not in message
    received = message.partition(". Received: ")[2]
    shown = value if isinstance(value, str) else str(value)
    item = str(value[0]) if isinstance(value, tuple) else shown
    assert f"{name}=" in received and (shown in received or item in received)


def test_every_field_is_in_the_list_of_refusals():
    for section, config_class in CONFIGS.items():
        names = {field.name for field in dataclasses.fields(config_class)}
        assert names == REFUSED[section].keys()


ATTENTION_CONTRADICTIONS = [  # (settings of ModelConfig, what is received)
    ({"attention": "mixture"}, "mixture_of=()"), ({"attention": "mixture", "mixture_of": ("dense",)}, "mixture_of=('dense',)"),
    ({"attention": "mixture", "mixture_of": ("dense", "mixture")}, "mixture_of=('dense', 'mixture')"),
    ({"attention": "mixture", "mixture_of": ("dense", "random", "shaw"), "mixture_weighting": "sigmoid"},
     "mixture_of=('dense', 'random', 'shaw')"),
    ({"mixture_of": ("dense", "random")}, "mixture_of=('dense', 'random'), attention=relative"),
    ({"attention": "random", "dense_form": "conv"}, "dense_form=conv, attention=random"), ({"factor_rank": 3}, "factor_rank=3, attention=relative"),
    ({"attention": "dense", "mixture_weighting": "sum"}, "mixture_weighting=sum, attention=dense"),
    ({"attention": "shaw", "key_index": "distance"}, "key_index=distance, attention=shaw"),
    ({"max_length": 200}, "max_length=200, attention=relative"),
    ({"attention": "dense", "max_length": 127}, "max_length=127, tgt_len=64, mem_len=64"),
    ({"attention": "random", "key_index": "position"}, "key_index=position, mem_len=64"),
    ({"attention": "absolute"}, "absolute_positions=True, mem_len=64"),
    ({"attention": "absolute", "absolute_positions": False}, "absolute_positions=False"),
    ({"absolute_positions": True}, "absolute_positions=True, mem_len=64"),
    ({"attention": "absolute", "mem_len": 0, "tgt_len": 1}, "tgt_len=1"),
    ({"attention": "random", "mem_len": 0, "tgt_len": 1}, "max_length=1"),
    ({"attention": "dense", "n_head": 5}, "n_head=5, d_model=192"), ({"attention": "factorized_dense", "n_head": 5}, "n_head=5, d_model=192"),
]


@pytest.mark.parametrize("settings, received", ATTENTION_CONTRADICTIONS, ids=lambda value: value if isinstance(value, str) else "")
def test_attentions_that_cannot_be_are_named(settings, received):
    with pytest.raises(ValueError) as refusal:
        ModelConfig(n_token=256, **settings)
    sentence, _, shown = str(refusal.value).partition(". Received: ")
    assert shown == received and " must " in sentence and sentence.startswith(received.split("=")[0])


@pytest.mark.parametrize("settings, expected", [  # key_index, max_length, window, key_limit
    ({}, (None, None, None, None)), ({"attention": "shaw"}, (None, 128, None, None)),
    ({"attention": "dense"}, ("distance", 128, None, 128)), ({"attention": "dense", "mem_len": 0}, ("position", 64, 64, None)),
    ({"attention": "random", "mem_len": 0, "key_index": "distance", "max_length": 70}, ("distance", 70, None, 70)),
    ({"attention": "absolute", "mem_len": 0}, (None, None, 64, None)),
    ({"attention": "mixture", "mixture_of": ("dense", "relative")}, ("distance", 128, None, 128)),
    ({"attention": "dense", "n_head": 5, "dense_form": "query"}, ("distance", 128, None, 128)),
])
def test_what_attention_leaves_unset_is_filled(settings, expected):
    config = ModelConfig(n_token=256, **settings)
    assert (config.key_index, config.max_length, config.window, config.key_limit) == expected
    assert ModelConfig(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


@pytest.mark.parametrize("settings, given, lengths", [
    ({}, (), (128, 256)), ({}, (5, 7), (5, 7)), ({"attention": "random"}, (), (64, 64)), ({"attention": "random"}, (1, None), (1, 64)),
    ({"attention": "random"}, (28, 100), (28, 100)), ({"attention": "absolute", "mem_len": 0}, (), (64, 0)),
    ({"attention": "dense", "mem_len": 0}, (10, 0), (10, 0)),
])
def test_lengths_of_the_evaluation(settings, given, lengths):
    assert ModelConfig(n_token=256, **settings).evaluation_lengths(*given) == lengths


@pytest.mark.parametrize("settings, given, received", [
    ({"attention": "random"}, (64, 65), "mem_len=65, tgt_len=64"), ({"attention": "random"}, (65, None), "mem_len=64, tgt_len=65"),
    ({"attention": "absolute", "mem_len": 0}, (65, None), "mem_len=0, tgt_len=65"),
    ({"attention": "dense", "mem_len": 0}, (10, 1), "mem_len=1, tgt_len=10"),
])
def test_longer_evaluations_than_were_learned_are_refused(settings, given, received):
    with pytest.raises(ValueError, match=f"^mem_len .* of evaluation must be .* Received: {received}$"):
        ModelConfig(n_token=256, **settings).evaluation_lengths(*given)


def test_a_warm_up_longer_than_the_training_names_both():
    with pytest.raises(ValueError, match=r"^warmup_steps must not exceed train_steps\. Received: warmup_steps=11, train_steps=10$"):
        TrainConfig(train_steps=10, warmup_steps=11)
    TrainConfig(train_steps=10, warmup_steps=10)


CONTRADICTIONS = [  # (settings of TrainConfig, what is received)
    ({"do_train": False, "do_eval": False}, "do_train=False, do_eval=False, do_test=False"),
    ({"start_eval_steps": 5, "do_train": False}, "start_eval_steps=5, do_eval_only=False"),
    ({"eval_ckpt_path": "a/step-5"}, "eval_ckpt_path=a/step-5, do_train=True"),
    ({"eval_ckpt_path": "a/step-5", "do_eval_only": True, "start_eval_steps": 5}, "eval_ckpt_path=a/step-5, start_eval_steps=5"),
    ({"warm_start_path": "a", "do_train": False}, "warm_start_path=a, do_train=False, do_eval_only=False"),
    ({"warm_start_path": "a", "do_eval_only": True}, "warm_start_path=a, do_train=False, do_eval_only=True"),
    ({"warm_start_path": "runs/a", "model_dir": "runs/a"}, "warm_start_path=runs/a, model_dir=runs/a"),
    ({"warm_start_path": "b/../runs/a/", "model_dir": "runs/a"}, "warm_start_path=b/../runs/a/, model_dir=runs/a"),
    ({"warm_start_path": "gs://a/step-5", "model_dir": "gs://a"}, "warm_start_path=gs://a/step-5, model_dir=gs://a"),
    ({"tpu": "one", "use_tpu": False}, "tpu=one, use_tpu=False"),
    ({"tpu_zone": "z", "gcp_project": "p", "use_tpu": False}, "tpu_zone=z, gcp_project=p, use_tpu=False"),
    ({"tpu": "one", "master": "grpc://two"}, "tpu=one, master=grpc://two"),
    ({"precision": "mixed_float16", "use_tpu": True}, "precision=mixed_float16, use_tpu=True"),
    ({"precision": "mixed_float16", "tpu": "local"}, "precision=mixed_float16, tpu=local"),
]


@pytest.mark.parametrize("settings, received", CONTRADICTIONS, ids=lambda value: value if isinstance(value, str) else "")
def test_settings_that_contradict_each_other_are_named(settings, received):
    with pytest.raises(ValueError) as refusal:
        TrainConfig(**settings)
    sentence, _, shown = str(refusal.value).partition(". Received: ")
    assert shown == received and " must " in sentence and sentence.startswith(received.split("=")[0])


@pytest.mark.parametrize("settings", [
    {"eval_ckpt_path": "a/step-5", "do_train": False}, {"eval_ckpt_path": "a/step-5", "do_eval_only": True},
    {"start_eval_steps": 5, "do_eval_only": True}, {"warm_start_path": "runs/a", "model_dir": "runs/ab"},
    {"warm_start_path": "runs", "model_dir": "runs/a"}, {"use_tpu": False, "precision": "mixed_float16"}, {"use_tpu": True, "tpu": "one"},
    {"tpu": "one"}, {"max_eval_batch": 1}, {"eval_steps": 0}, {"do_train": False, "do_eval": False, "do_test": True},
])
def test_settings_that_agree_are_kept(settings):
    config = TrainConfig(**settings)
    assert {name: getattr(config, name) for name in settings} == settings


@pytest.mark.parametrize("settings, splits", [
    ({}, ("valid", "test")), ({"do_test": True}, ("valid", "test")), ({"eval_split": "valid"}, ("valid",)),
    ({"eval_split": "train", "do_test": True}, ("train", "test")), ({"do_eval": False}, ()),
    ({"do_eval": False, "do_test": True}, ("test",)),
    ({"do_eval": False, "eval_split": "valid"}, ()), ({"do_eval_only": True, "eval_split": "test"}, ("test",)),
])
def test_the_splits_to_score(settings, splits):
    assert TrainConfig(**settings).evaluated_splits == splits


def test_evaluation_alone_means_no_training():
    config = TrainConfig(do_eval_only=True)
    assert (config.do_train, config.do_eval) == (False, True)
    assert (TrainConfig().do_train, TrainConfig().do_eval) == (True, True)


@pytest.mark.parametrize("train, rows, fits", [
    ({"batch_chunk": 3}, 32, False), ({"batch_chunk": 4}, 32, True), ({"num_hosts": 3}, 32, False), ({"num_core_per_host": 5}, 32, False),
    ({"num_hosts": 2, "num_core_per_host": 4, "batch_chunk": 4}, 32, True),
    ({"num_hosts": 2, "num_core_per_host": 4, "batch_chunk": 8}, 32, False),
    ({"batch_chunk": 3, "do_train": False}, 32, True), ({"batch_chunk": 3}, None, True),
])
def test_a_batch_must_fall_into_equal_parts(train, rows, fits):
    configs = TrainConfig(**train), DataConfig(train_batch_size=rows)
    if fits:
        check_together(*configs)
        return
    with pytest.raises(ValueError, match="^train_batch_size must be a multiple of .* Received: train_batch_size=32, num_hosts=") as refusal:
        check_together(*configs)
    assert all(f"{name}={value}" in str(refusal.value) for name, value in train.items())


@pytest.mark.parametrize("opened", ["record_info_dir", "corpus_info_path"])
def test_records_that_exist_are_not_prepared(opened):
    with pytest.raises(ValueError, match=rf"^{opened} must not come .* Received: {opened}=there, train_files=a, min_freq=2$"):
        DataConfig(**{opened: "there"}, train_files="a", min_freq=2)
    DataConfig(**{opened: "there"}, vocab_file="vocabulary.json", train_batch_size=3)


def test_data_settings_are_those_of_the_preparation():
    opening = {"record_info_dir", "corpus_info_path"}
    sources = {"train_files", "valid_files", "test_files", "tfds_splits"}  # what prepare_corpus hands on
    parameters = inspect.signature(prepare_corpus).parameters
    names = {field.name for field in dataclasses.fields(DataConfig)} - opening
    assert names - parameters.keys() == sources
    defaults = {name: parameters[name].default for name in names - sources} | dict.fromkeys(sources)
    required = {name for name, default in defaults.items() if default is inspect.Parameter.empty}
    assert required == {"dataset", "data_dir"}  # DataConfig fills them in
    found = {field.name: field.default for field in dataclasses.fields(DataConfig)}
    assert {name: found[name] for name in names - required} == {name: defaults[name] for name in names - required}


def test_cutoffs_name_the_vocabulary():
    with pytest.raises(ValueError, match=r"Received: cutoffs=\(10, 256\), n_token=256$"):
        ModelConfig(n_token=256, cutoffs=(10, 256))
    assert ModelConfig(n_token=256, cutoffs=[1, 255]).cutoffs == (1, 255)


def test_an_embedding_that_would_vanish_is_refused():
    with pytest.raises(ValueError, match="d_embed=15, div_val=4, cutoffs=\\(10, 20\\)"):
        ModelConfig(n_token=256, d_embed=15, div_val=4, cutoffs=(10, 20))
    ModelConfig(n_token=256, d_embed=16, div_val=4, cutoffs=(10, 20))


@pytest.mark.parametrize("settings", [
    {"dropout": 0.0}, {"dropout": 0.99}, {"mem_len": 0}, {"clamp_len": -1}, {"clamp_len": 0}, {"init_std": 0.0}, {"div_val": 1},
])
def test_the_bounds_themselves_are_accepted(settings):
    config = ModelConfig(n_token=256, **settings)
    assert {name: getattr(config, name) for name in settings} == settings


def test_widths_follow_the_model():
    config = ModelConfig(n_token=256, d_model=96, n_head=3)
    assert (config.d_embed, config.d_head, config.d_inner) == (96, 32, 384)
    given = ModelConfig(n_token=256, d_model=96, n_head=3, d_embed=8, d_head=5, d_inner=7)
    assert (given.d_embed, given.d_head, given.d_inner) == (8, 5, 7)


def test_the_data_folder_decides_the_dataset():
    assert (DataConfig().dataset, DataConfig().data_dir) == ("stdlib", "data/stdlib")
    assert DataConfig(data_dir="mine").dataset is None  # as it was prepared, otherwise text
    assert DataConfig(dataset="other").data_dir == "data/other"


@pytest.mark.parametrize("section", CONFIGS)
def test_frozen(section):
    config = make(section)
    with pytest.raises(dataclasses.FrozenInstanceError):
        setattr(config, dataclasses.fields(config)[-1].name, 3)


@pytest.mark.parametrize("config", [
    ModelConfig(n_token=256, cutoffs=(10, 20), div_val=2, dropout=0.1, same_length=True, init="uniform", memory_start="zeros"),
    TrainConfig(eval_mem_len=7, eval_same_length=False, learning_rate=3e-4),
    TrainConfig(do_eval_only=True, start_eval_steps=3, use_tpu=True, num_core_per_host=8, eval_split="test"),
    DataConfig(data_dir="mine"),
], ids=lambda config: type(config).__name__)
def test_json_round_trip(config):
    assert type(config)(**json.loads(json.dumps(dataclasses.asdict(config)))) == config


def test_numbers_of_numpy_become_plain_ones():
    config = ModelConfig(n_token=np.int64(256), dropout=np.float32(0.5), cutoffs=np.array([10, 20]))
    assert (type(config.n_token), type(config.dropout), config.cutoffs) == (int, float, (10, 20))
    json.dumps(dataclasses.asdict(config))


@pytest.mark.parametrize("config_class", CONFIGS.values(), ids=CONFIGS)
def test_every_field_is_documented_and_typed(config_class):
    types = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        assert len(field.metadata["help"]) > 5 and field.name in types


@pytest.mark.parametrize("layer_class, argument, field", [
    (TransformerXLBlock, "dropout", "dropout"),
    (TransformerXLBlock, "attention_dropout", "dropatt"),
    (TransformerXLBlock, "layer_norm_epsilon", "layer_norm_epsilon"),
    (TransformerXLBlock, "attention", "attention"),
    (FeedForward, "dropout", "dropout"),
    (RelativeMultiHeadAttention, "dropout", "dropatt"),
    (RelativeMultiHeadAttention, "clamp_len", "clamp_len"),
    (AdaptiveEmbedding, "cutoffs", "cutoffs"),
    (AdaptiveEmbedding, "div_val", "div_val"),
    (AdaptiveEmbedding, "project_same_dim", "proj_same_dim"),
], ids=lambda value: getattr(value, "__name__", value))
def test_layers_have_the_defaults_of_the_configuration(layer_class, argument, field):
    default = inspect.signature(layer_class).parameters[argument].default
    assert default == getattr(ModelConfig(n_token=256), field)
