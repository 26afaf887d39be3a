"""The operations counted from a configuration are those of the products in the traced program."""

import re

import pytest

import txl_tf.analysis.flops
from testing.tiny_model import tiny_config
from txl_tf.analysis.flops import cached_flops, forward_flops, training_flops, zipf_shares
from txl_tf.analysis.tpu_program import evaluation_program, train_program
from txl_tf.config import TrainConfig
from txl_tf.presets import preset_config

ROWS, LENGTH, MEMORY = 3, 4, 6


def product_flops(text):
    """Returns the operations of every matrix product in the main function of StableHLO text, which repeats the bodies of loops."""
    total = 0
    for line in text[max(text.find("func.func @main("), 0):].splitlines():
        found = re.search(r"stablehlo\.dot(?:_general)? .*: \(tensor<([\dx]*)x\w+>, .*-> tensor<([\dx]*)x?[a-z]\w*>", line)
        if found:
            left, result = ([int(size) for size in sizes.split("x") if size] for sizes in found.groups())
            axes = re.search(r"contracting_dims = \[([\d, ]+)\]", line)
            for axis in [int(axis) for axis in axes[1].split(",")] if axes else [len(left) - 1]:
                result.append(left[axis])
            count = 2
            for size in result:
                count *= size
            total += count
    return total


def check(config, training_more=0, **train):
    evaluation = evaluation_program(config, TrainConfig(eval_tgt_len=LENGTH, eval_mem_len=MEMORY), ROWS)
    assert product_flops(evaluation.text) == cached_flops(config, ROWS, LENGTH, MEMORY)
    training = training_flops(config, ROWS, LENGTH, MEMORY, train.get("remat", False))
    assert product_flops(train_program(config, TrainConfig(**train), ROWS).text) == training + training_more


def test_products_are_found_in_text():
    lines = ["stablehlo.dot_general %a, %b, batching_dims = [0] x [0], contracting_dims = [2] x [1] : "
             "(tensor<2x3x4xf32>, tensor<2x4x5xf32>) -> tensor<2x3x5xf32> loc(#loc)",
             "stablehlo.dot %a, %b, precision = [DEFAULT, DEFAULT] : (tensor<3x4xbf16>, tensor<4x5xbf16>) -> tensor<3x5xbf16> loc(#loc)",
             "stablehlo.dot_general %a, %b, contracting_dims = [0, 1] x [0, 1] : "
             "(tensor<3x4xf32>, tensor<3x4xf32>) -> tensor<f32> loc(#loc)"]
    assert product_flops("\n".join(lines)) == 2 * 2 * 3 * 4 * 5 + 2 * 3 * 4 * 5 + 2 * 3 * 4


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{"n_layer": 2}, {"d_model": 13, "d_embed": 8}, {"d_embed": 8, "tie_weight": False},
                                      {"untie_r": True}], ids=str)
def test_it_is_what_the_program_does(settings):
    check(tiny_config(**{"n_layer": 1, **settings}))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [
    *({"attention": name} for name in ("shaw", "dot_product", "random", "factorized_dense", "factorized_random")),
    *({"attention": "dense", "dense_form": form} for form in ("conv", "glu", "query")), {"attention": "dense", "feed_forward": "conv_relu"},
    {"attention": "mixture", "mixture_of": ("relative", "random", "dense")}], ids=str)
def test_it_is_what_every_attention_does(settings):
    limit = {} if settings["attention"] == "dot_product" else {"max_length": 12}
    check(tiny_config(n_layer=1, **limit, **settings))


def test_activations_that_are_computed_again_count_again():
    check(tiny_config(n_layer=1), remat=True)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{"div_val": 1}, {"div_val": 2}, {"div_val": 2, "proj_same_dim": False}], ids=str)
def test_tails_of_an_adaptive_softmax(settings, monkeypatch):
    monkeypatch.setattr(txl_tf.analysis.flops, "zipf_shares", lambda bounds: [1.0] * len(bounds))  # as one chunk has all tokens here
    of_biases = 2 * ROWS * LENGTH * (4 + 3)  # the gradients of the tails' biases are products too
    check(tiny_config(n_layer=1, cutoffs=(4, 8), **settings), training_more=of_biases)


def test_shares_by_zipfs_law():
    weights = [1 / rank for rank in range(1, 1001)]
    wanted = [sum(weights[:7]) / sum(weights), sum(weights[7:300]) / sum(weights), sum(weights[300:]) / sum(weights)]
    assert zipf_shares([(0, 7), (7, 300), (300, 1000)]) == pytest.approx(wanted, rel=1e-6)


def test_the_largest_preset_by_hand():
    config = preset_config("enwik8_large", n_token=204)
    products = 4 * 1024 * 1024 + 2 * 1024 * 1024 + 2 * 1024 * 3072 + (3 * 1536 + 1) * 1024  # the second: of the memory, also 768 long
    per_token = 24 * 2 * products + 2 * 1024 * 204
    positions = 24 * 2 * 1024 * 1024 * 1537
    assert sum(forward_flops(config, 2, 768, 768).values()) == 2 * 768 * per_token + positions
    of_memory = 24 * 2 * 2 * 1024 * 1024 * 2 * 768
    assert training_flops(config, 2, 768, 768) == 3 * 2 * 768 * per_token + 2 * positions - of_memory
