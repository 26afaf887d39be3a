"""What the TPU's compiler says of programs, and what becomes of its refusals."""

import json
import subprocess

import pytest

from testing.optional_package import needed
from testing.tiny_model import tiny_config
from txl_tf.analysis import tpu_compiler
from txl_tf.analysis.tpu_compiler import compile_program
from txl_tf.analysis.tpu_program import evaluation_program, train_program
from txl_tf.config import TrainConfig

SHAPE = "tensor<1024x1024xf32>"
ADD = f"func.func @main(%a: {SHAPE}, %b: {SHAPE}) -> {SHAPE} {{ %c = stablehlo.add %a, %b : {SHAPE} return %c : {SHAPE} }}"
MIB = 2 ** 20


@pytest.fixture
def compiler():
    for package in ("jax", "libtpu"):
        needed(package)
    return compile_program


@pytest.mark.slow
@pytest.mark.parametrize("topology, available", [("v2:2x2", 7.48), ("v3:2x2", 15.48), ("v4:2x2x1", 30.75), ("v5e:2x2", 15.75),
                                                 ("v5p:2x2x1", 95.73), ("v6e:2x2", 31.24)])
def test_a_small_program_on_every_generation(compiler, topology, available):
    answer = compiler(ADD, (), topology, machine_code=True)
    assert answer["available"] == pytest.approx(available * 2 ** 30, rel=1e-3)
    assert 12 * MIB <= answer["needed"] < 13 * MIB and answer["code"] > 0


@pytest.mark.slow
def test_a_result_in_the_place_of_an_argument_takes_nothing(compiler):
    two = f"func.func @main(%a: {SHAPE}, %b: {SHAPE}) -> ({SHAPE}, {SHAPE}) {{ %c = stablehlo.add %a, %b : {SHAPE} " \
          f"%d = stablehlo.multiply %a, %b : {SHAPE} return %c, %d : {SHAPE}, {SHAPE} }}"
    kept, donated = (compiler(two, pairs, "v3:2x2", machine_code=True)["needed"] for pairs in ([], [(0, 0), (1, 1)]))
    assert kept - donated == 8 * MIB


@pytest.mark.slow
@pytest.mark.parametrize("topology", ["v3:2x2", "v5e:2x2"])  # which differ in the state of their random numbers
def test_the_steps_of_a_model(compiler, topology):
    config = tiny_config(n_layer=1, d_model=256, d_inner=1024, dropout=0.1, dropatt=0.1, cutoffs=(4, 8), div_val=2)
    training = TrainConfig(precision="mixed_bfloat16", eval_tgt_len=5, eval_mem_len=9)
    for program in (train_program(config, training, 2), evaluation_program(config, training, 2)):
        placed, whole = (compiler(program.text, program.donated, topology, machine_code) for machine_code in (False, True))
        assert whole["code"] > 0  # a small program may be done before its placement is seen, so placed["code"] is None or not
        assert placed["needed"] == pytest.approx(whole["needed"], rel=0.03)  # reported before the code, counted after it
        assert placed["needed"] > program.state_bytes


@pytest.mark.slow
def test_a_program_that_is_too_large_is_counted(compiler):
    answer = compiler(ADD.replace("1024x1024", "65536x32768"), (), "v3:2x2")
    assert answer["needed"] == pytest.approx(24 * 2 ** 30, rel=0.01) and answer["available"] < 16 * 2 ** 30


@pytest.mark.slow
def test_what_must_be_too_much_is_not_compiled(compiler):
    answer = compiler("no program", (), "v2:2x2", least=8 * 2 ** 30)
    assert answer["needed"] == 8 * 2 ** 30 and answer["at_least"] and 7 * 2 ** 30 < answer["available"] < 8 * 2 ** 30


@pytest.mark.slow
@pytest.mark.parametrize("text, topology, received", [(ADD, "v3:7x7", "v3:7x7"), (ADD, "v9:2x2", "v9:2x2"),
                                                      ("no program", "v3:2x2", "custom op 'no' is unknown")])
def test_a_refusal_is_one_sentence(compiler, text, topology, received):
    with pytest.raises(ValueError) as refusal:
        compiler(text, (), topology)
    assert received in str(refusal.value) and "\n" not in str(refusal.value)


@pytest.fixture
def process(monkeypatch):
    """A function that sets what the compiler's process leaves."""
    def left(returncode=0, stdout="", stderr=""):
        monkeypatch.setattr(subprocess, "run", lambda *args, **kwargs: subprocess.CompletedProcess(args, returncode, stdout, stderr))

    return left


def test_the_last_line_is_the_answer(process):
    process(stdout='a warning\n{"needed": 1, "at_least": false, "available": 2, "code": null}\n')
    assert compile_program("", (), "v3:2x2") == {"needed": 1, "at_least": False, "available": 2, "code": None}


@pytest.mark.parametrize("left, sentence", [
    ({"stdout": json.dumps({"error": "It is refused."})}, "It is refused. Received: topology=v3:2x2"),
    ({"returncode": -9}, "The compiler must come to its end. Received: exit code -9, no message"),
    ({"returncode": 1, "stderr": "Traceback\nKeyError: a"}, "The compiler must come to its end. Received: exit code 1, KeyError: a"),
    ({}, "The compiler must come to its end. Received: exit code 0, no message"),
], ids=str)
def test_a_process_without_an_answer(process, left, sentence):
    process(**left)
    with pytest.raises(ValueError) as refusal:
        compile_program("", (), "v3:2x2")
    assert str(refusal.value) == sentence


def test_the_report_of_where_buffers_lie(tmp_path):
    report = tmp_path / "module_0000.after_optimizations-memory-usage-report.txt"
    report.write_text("Memory Space: default (color=0)\nTotal bytes: 596017152 (568.41MiB)\n\n"
                      "Memory Space: vmem (color=1)\nTotal bytes: 7 (7B)\n")
    assert tpu_compiler._needed(str(tmp_path)) is None  # it may be half written
    (tmp_path / "module_0000.after_optimizations.txt").write_text("HloModule")
    assert tpu_compiler._needed(str(tmp_path)) == 596017152
