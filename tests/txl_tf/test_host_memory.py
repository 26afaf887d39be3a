"""What a run needs at least is counted; what this machine can't hold is refused, before anything is made."""

import dataclasses
import os

import pytest

import txl_tf.host_memory
from txl_tf.config import ModelConfig, TrainConfig
from txl_tf.host_memory import GIB, check_host_memory, least_bytes
from txl_tf.parameter_count import parameter_count
from txl_tf.presets import PRESETS, VOCABULARIES, preset, preset_config

SMALL = ModelConfig(n_token=11, n_layer=3, d_model=8, n_head=2, d_head=5, mem_len=7)


@pytest.mark.parametrize("settings, kept", [
    ({}, 4 * 3 * (2 * 7 * 8 + 5 * 28 * 10)), ({"precision": "mixed_bfloat16"}, 2 * 3 * (2 * 7 * 8 + 5 * 28 * 10)),
    ({"eval_mem_len": 9}, 4 * 3 * (2 * 7 * 8 + 5 * 9 * 10)), ({"do_eval": False}, 4 * 3 * 2 * 7 * 8)], ids=str)
def test_what_is_counted(settings, kept):
    assert least_bytes(SMALL, TrainConfig(**settings), rows=2, eval_rows=5) == 12 * parameter_count(SMALL) + kept


@pytest.mark.parametrize("sizes", [{"n_layer": 10 ** 8}, {"d_model": 10 ** 9}, {"d_embed": 10 ** 10}, {"n_head": 10 ** 9, "d_head": 64},
                                   {"d_inner": 10 ** 10}, {"mem_len": 10 ** 9}, {"n_token": 10 ** 10}], ids=str)
def test_what_no_machine_holds_is_refused(sizes):
    with pytest.raises(ValueError, match=r"^Weights, Adam's moments and memory, at least [\d,.]+ GiB, must fit into this machine's [\d.]+ GiB. Rec"):
        check_host_memory(ModelConfig(**{"n_token": 256, **sizes}), TrainConfig())


def test_the_settings_are_named():
    with pytest.raises(ValueError) as error:
        check_host_memory(SMALL, TrainConfig(eval_mem_len=10 ** 12), rows=2, eval_rows=5)
    assert str(error.value).endswith("Received: n_layer=3, d_model=8, d_embed=8, n_head=2, d_head=5, d_inner=32, mem_len=7, "
                                     "eval_mem_len=1000000000000, rows=2, eval_rows=5")


def test_published_models_fit_where_they_can(monkeypatch):
    monkeypatch.setattr(os, "sysconf", lambda name: {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 16 * GIB // 4096}[name])
    for name in PRESETS:
        chosen = preset(name)
        config = preset_config(name, n_token=VOCABULARIES[chosen["data"]["dataset"]])
        check_host_memory(config, TrainConfig(**chosen["train"]), rows=2, eval_rows=1)


def test_on_other_devices_nothing_is_known(monkeypatch):
    monkeypatch.setattr(txl_tf.host_memory, "is_on_cpu", lambda: False)
    check_host_memory(dataclasses.replace(SMALL, n_layer=10 ** 9), TrainConfig())
