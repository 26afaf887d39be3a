"""The program of a step: what goes in and comes out, and that no weight is made for it."""

import re
import resource

import pytest

from testing.tiny_model import tiny_config
from txl_tf.analysis.tpu_program import evaluation_config, evaluation_program, train_program
from txl_tf.config import ModelConfig, TrainConfig
from txl_tf.parameter_count import parameter_count

ROWS = 3


def signature(text):
    """Returns the types of the arguments and of the results of a program."""
    arguments, results = re.search(r"func\.func @main\((.*)\) -> \((.*)\) \{", text).groups()
    return re.findall(r"%arg\d+: (tensor<\w+>)", arguments), re.findall(r"tensor<\w+>", results)


def aliases(text):
    """Returns the (argument, result) numbers that TensorFlow names."""
    return [tuple(map(int, pair)) for pair in re.findall(r"parameter_number = (\d+) : i64\}, output_index = array<i64: (\d+)>", text)]


@pytest.fixture(scope="module")
def training():
    return train_program(tiny_config(), TrainConfig(precision="mixed_bfloat16"), ROWS)


@pytest.fixture(scope="module")
def evaluation():
    return evaluation_program(tiny_config(), TrainConfig(eval_tgt_len=5, eval_mem_len=9), ROWS)


@pytest.mark.slow
def test_tokens_and_memory_come_first(training, evaluation):
    arguments, results = signature(training.text)
    assert arguments[:4] == ["tensor<3x4xi32>", "tensor<3x4xi32>", "tensor<3x2x6x12xbf16>", "tensor<3xi32>"]
    assert results[:4] == ["tensor<3x2x6x12xbf16>", "tensor<3xi32>", "tensor<f32>", "tensor<f32>"]
    arguments, results = signature(evaluation.text)
    rings = 4 * ["tensor<3x3x15x5xf32>"]  # keys and values of two layers
    assert arguments[:6] == ["tensor<3x5xi32>", "tensor<3x5xi32>", *rings]
    assert arguments[6:10] == ["tensor<3xi32>", "tensor<i32>", "tensor<i32>", "tensor<1x3x16x5xf32>"]
    assert results == [*rings, "tensor<3xi32>", "tensor<i32>", "tensor<f32>"]


def test_every_variable_is_updated_in_place(training, evaluation):
    arguments, results = signature(training.text)
    pairs = [*aliases(training.text), *training.donated]
    assert all(arguments[argument] == results[result] for argument, result in pairs)
    assert len(pairs) == len(set(pairs)) == len(results) - 2  # all but loss and norm
    assert aliases(evaluation.text) == [] and len(evaluation.donated) == len(signature(evaluation.text)[1]) - 1


def test_what_is_counted_in_bytes(training, evaluation):
    weights = 4 * parameter_count(tiny_config())
    memory, tokens = ROWS * 2 * 6 * 12 * 2 + 4 * ROWS, 2 * 4 * ROWS * 4
    assert training.parameters == weights // 4
    small = training.state_bytes - 3 * weights - memory  # counters and random states
    assert 0 <= small < 500
    assert training.moved_bytes == 2 * training.state_bytes + tokens
    rings, positions = 4 * ROWS * 3 * 15 * 5 * 4, 2 * 3 * 16 * 5 * 4
    assert 0 <= evaluation.state_bytes - weights - rings - positions < 500
    assert evaluation.moved_bytes == evaluation.state_bytes + rings // 3 + 2 * 4 * ROWS * 5  # a third is written anew


@pytest.mark.slow
def test_the_settings_of_training_reach_the_program():
    plain, remat, parts, dropping = (
        train_program(tiny_config(n_layer=1, **model), TrainConfig(**train), 4).text
        for model, train in (({}, {}), ({}, {"remat": True}), ({}, {"batch_chunk": 2}), ({"dropout": 0.1}, {})))
    assert remat.count("stablehlo.dot") > plain.count("stablehlo.dot")
    assert "stablehlo.while" in parts and "stablehlo.while" not in plain
    assert "stablehlo.rng_bit_generator" in dropping and "stablehlo.rng_bit_generator" not in plain


def test_no_weight_is_made():
    config = ModelConfig(n_token=100_000, n_layer=1, d_model=2048, n_head=2, d_inner=64, tgt_len=2, mem_len=2)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    program = train_program(config, TrainConfig(), 1)
    grown = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before  # KiB
    assert program.state_bytes > 2.5 * 2 ** 30
    assert grown < 2 ** 19


@pytest.mark.parametrize("model, train, wanted", [
    ({}, {}, (128, 24, -1, False)),
    ({"clamp_len": 5, "same_length": True}, {}, (128, 24, 5, True)),
    ({"clamp_len": 5}, {"eval_tgt_len": 7, "eval_mem_len": 0, "eval_clamp_len": 3, "eval_same_length": True}, (7, 0, 3, True)),
], ids=str)
def test_the_lengths_of_evaluation(model, train, wanted):
    config = evaluation_config(tiny_config(**model), TrainConfig(**train))
    assert (config.tgt_len, config.mem_len, config.clamp_len, config.same_length) == wanted
