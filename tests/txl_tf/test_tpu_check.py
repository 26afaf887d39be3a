"""The command that compiles a model's steps for TPUs: what it compiles, what it prints, what it refuses."""

import importlib.util
import re
import subprocess
import sys

import pytest
from absl import flags

import txl_tf.tpu_check
from testing.optional_package import needed
from txl_tf.analysis.tpu_program import TpuProgram
from txl_tf.config import ModelConfig
from txl_tf.parameter_count import parameter_count
from txl_tf.presets import PRESETS, VOCABULARIES
from txl_tf.tpu_check import GIB, TRAINED_ON, fit, largest_batch

SMALL = ("--n_layer=1", "--d_model=8", "--n_head=2", "--tgt_len=4", "--mem_len=6", "--eval_tgt_len=5", "--eval_mem_len=9", "--n_token=20",
         "--eval_batch_size=16")


@pytest.fixture
def compiled(monkeypatch):
    """Stands for the compiler: what it was asked, each program needing a GiB for every row of tokens."""
    asked = []

    def compile_program(text, donated, topology, machine_code=False, least=0):
        rows, length = map(int, re.search(r"@main\(%arg0: tensor<(\d+)x(\d+)xi32>", text).groups())
        asked.append((rows, length, topology, machine_code))
        assert 0 < least < GIB
        return {"needed": rows * GIB + 1, "at_least": False, "available": 7 * GIB, "code": 3 * 2 ** 20 if machine_code else None}

    monkeypatch.setattr(txl_tf.tpu_check, "compile_program", compile_program)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, find=importlib.util.find_spec: name in ("jax", "libtpu") or find(name))
    return asked


@pytest.fixture
def briefly(compiled, monkeypatch):
    """Stands for the programs too, which take seconds to make; gives what `compiled` gives."""

    def program(model_config, train_config, rows, length=None):
        return TpuProgram(f"@main(%arg0: tensor<{rows}x{length or model_config.tgt_len}xi32>", (), 400, 800, 100)

    monkeypatch.setattr(txl_tf.tpu_check, "train_program", program)
    monkeypatch.setattr(txl_tf.tpu_check, "evaluation_program", lambda *args: program(*args, length=args[1].eval_tgt_len))
    return compiled


@pytest.fixture
def command(capsys):
    """A function that runs the command with arguments and returns what it printed."""
    known = set(flags.FLAGS)
    txl_tf.tpu_check._define_flags()

    def run(*arguments):
        flags.FLAGS.unparse_flags()
        txl_tf.tpu_check.main(flags.FLAGS(["tpu_check", *arguments]))
        return capsys.readouterr().out

    yield run
    flags.FLAGS.unparse_flags()
    for name in set(flags.FLAGS) - known:
        delattr(flags.FLAGS, name)


@pytest.fixture
def refusal(command):
    """A function that runs the command and returns the sentence with which it refuses."""

    def run(*arguments):
        with pytest.raises(SystemExit) as end:
            command(*arguments)
        assert end.value.code.startswith("txl_tf.tpu_check: ") and "\n" not in end.value.code
        return end.value.code

    return run


def test_what_it_prints(command, compiled):
    printed = command("--topology=v3:2x2", "--batch_per_core=2", *SMALL).splitlines()
    fits = ("  fits, 5.00 GiB are left: needs 2.00 of the 7.00 GiB of HBM that a program may have; "
            "weights, optimizer and memory are 0.00 GiB of it")
    parameters = parameter_count(ModelConfig(n_token=20, n_layer=1, d_model=8, n_head=2))
    assert printed[:4] == [f"model on a core of v3:2x2: mixed_bfloat16, {parameters:,} parameters, vocabulary 20",
                           "training step, 2 x 4 tokens, memory 6", fits, "  0.0 GFLOP, counted from the configuration"]
    assert printed[5:7] == ["evaluation step, 2 x 5 tokens, memory 9", fits]
    for line in (printed[4], printed[8]):
        assert line.startswith("  bound: at least 0.00 ms, at most ")
        assert line.endswith(" tokens/s by HBM bandwidth; no estimate, a limit of one core's program without collectives")
    assert compiled == [(2, 4, "v3:2x2", False), (2, 5, "v3:2x2", False)]


@pytest.mark.parametrize("argument, step", [("--do_eval=False", "training step, 1 x 4"), ("--do_train=False", "evaluation step, 2 x 5")])
def test_one_of_the_steps(command, briefly, argument, step):
    printed = command("--topology=v3:2x2", argument, *SMALL)
    assert len(briefly) == 1 and printed.count(" step, ") == 1 and f"{step} tokens" in printed


def test_several_topologies_and_machine_code(command, briefly):
    printed = command("--topology=v2:2x2,v4:2x2x1", "--machine_code", *SMALL)
    assert [topology for _, _, topology, _ in briefly] == ["v2:2x2"] * 2 + ["v4:2x2x1"] * 2
    assert printed.count(", besides 3 MiB of machine code\n") == 4


def test_a_step_that_does_not_fit(command, briefly):
    printed = command("--topology=v2:2x2", "--batch_per_core=9", *SMALL)
    assert "  does not fit, lacks 2.00 GiB: needs 9.00 of the 7.00 GiB" in printed


@pytest.mark.parametrize("arguments, sentence", [
    ((), "largest batch per core: 6, which fits, 1.00 GiB are left"), (("--batch_per_core=100",), "largest batch per core: 6, "),
    (("--batch_chunk=4", "--train_batch_size=4"), "largest batch per core: 4, "),
    (("--batch_chunk=8", "--train_batch_size=8"), "largest batch per core: none, for 8 x 4 tokens does not fit, lacks 1.00 GiB"),
], ids=str)
def test_the_search(command, briefly, arguments, sentence):
    assert sentence in command("--topology=v3:2x2", "--search", *arguments, *SMALL)


@pytest.mark.parametrize("preset, rows", [("enwik8_large", 2), ("text8_large", 2), ("wt103_large", 2), ("lm1b_large", 1),
                                          ("enwik8_base", 1)])
def test_the_papers_batch_per_core(command, briefly, preset, rows):
    printed = command(f"--preset={preset}", "--topology=v3:2x2", "--n_layer=1", "--d_model=8", "--d_embed=64", "--d_inner=8")
    vocabulary = VOCABULARIES[PRESETS[preset]["data"]["dataset"]]
    assert briefly[0][0] == rows
    assert printed.startswith(f"{preset} on a core of v3:2x2: mixed_bfloat16, 100 parameters, vocabulary {vocabulary:,}\n")


def test_every_preset_has_a_vocabulary():
    assert {settings["data"]["dataset"] for settings in PRESETS.values()} <= VOCABULARIES.keys() and TRAINED_ON.keys() <= PRESETS.keys()


def test_the_bound(command, briefly):
    printed = command("--topology=v3:2x2", "--n_layer=1", "--d_model=512", "--n_head=8", "--tgt_len=512", "--mem_len=512", "--n_token=204")
    gflop, milliseconds, speed = (float(re.search(pattern, printed)[1].replace(",", "")) for pattern in (
        r"([\d.,]+) GFLOP", r"at least ([\d.,]+) ms", r"at most ([\d,]+) tokens/s by peak arithmetic"))
    assert milliseconds == pytest.approx(gflop / 61.5, abs=0.01)
    assert speed == pytest.approx(512 / (gflop / 61.5e3), rel=0.01)


@pytest.mark.parametrize("arguments, received", [
    ((), "topology="), (("--topology=v3",), "topology=v3"), (("--topology=v3:2x2,v7:2x2",), "topology=v7:2x2"),
    (("--topology=v3:2x2", "--batch_per_core=0"), "batch_per_core=0, batch_chunk=1"),
    (("--topology=v3:2x2", "--batch_per_core=3", "--batch_chunk=2"), "batch_per_core=3, batch_chunk=2"),
    (("--topology=v3:2x2", "--n_token=0"), "n_token=0"), (("--topology=v3:2x2", "--n_head=0"), "n_head=0"),
    (("--topology=v3:2x2", "stray"), "stray"),
], ids=str)
def test_bad_input(refusal, compiled, arguments, received):
    assert refusal(*arguments).endswith(f"Received: {received}") and compiled == []


def test_an_unknown_preset(refusal, compiled):
    assert refusal("--topology=v3:2x2", "--preset=enwik9").endswith("Received: preset=enwik9")


def test_without_its_packages(refusal, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in ("jax", "libtpu") else name)
    assert refusal("--topology=v3:2x2", *SMALL) == ("txl_tf.tpu_check: jax and libtpu must be installed: pip install -e '.[tpu-check]'. "
                                                    "Received: no jax and no libtpu")


@pytest.mark.parametrize("needs", [lambda rows: 30 + 7 * rows, lambda rows: 30 + rows ** 2, lambda rows: 30 + 20 * rows ** 0.5,
                                   lambda rows: 30 + 7 * rows + 3 * (rows % 2), lambda rows: 100])
@pytest.mark.parametrize("first", [1, 3, 500])
def test_the_largest_batch(needs, first):
    tried = []

    def compiled(rows):
        tried.append(rows)
        return {"needed": needs(rows), "available": 99 if needs(1) < 100 else 50}

    rows, answer = largest_batch(compiled, first, compiled(first))
    assert needs(rows + 1) > answer["available"] and (rows == 0 or needs(rows) <= answer["available"])
    assert answer["needed"] == needs(rows or 1)
    assert len(tried) == len(set(tried)) < 18


def test_how_much_is_left_or_lacks():
    def said(needed, at_least=False):
        return fit({"needed": needed * GIB, "at_least": at_least, "available": 4 * GIB})

    assert said(3).startswith("fits, 1.00 GiB are left: needs 3.00 of the 4.00 GiB")
    assert said(4).startswith("fits, 0.00 GiB")
    assert said(5).startswith("does not fit, lacks 1.00 GiB: needs 5.00 of")
    assert said(5, at_least=True).startswith("does not fit, lacks at least 1.00 GiB: needs at least 5.00 of")


LITERALS = """
import importlib.util, re, runpy, sys
import txl_tf.analysis.tpu_compiler as compiler
find = importlib.util.find_spec
importlib.util.find_spec = lambda name, *rest: name in ("jax", "libtpu") or find(name, *rest)
def largest(text, *rest, **more):
    print("literal of", max([len(found) // 2 for found in re.findall('"0x([0-9A-F]+)"', text)], default=0), "bytes")
    return {"needed": 1, "at_least": False, "available": 2, "code": None}
compiler.compile_program = largest
runpy.run_module("txl_tf.tpu_check", run_name="__main__", alter_sys=True)
"""


@pytest.mark.slow
def test_no_large_literal_is_in_the_programs():
    run = subprocess.run([sys.executable, "-c", LITERALS, "--preset=enwik8_large", "--n_layer=2", "--topology=v3:2x2"], capture_output=True,
                         text=True, check=True)
    found = [int(size) for size in re.findall(r"literal of (\d+) bytes", run.stdout)]
    assert len(found) == 2 and max(found) < 2 ** 16


@pytest.mark.slow
def test_the_command_with_the_real_compiler():
    for package in ("jax", "libtpu"):
        needed(package)
    run = subprocess.run([sys.executable, "-m", "txl_tf.tpu_check", "--topology=v3:2x2", "--dropout=0.1", "--search", "--tgt_len=2048",
                          "--mem_len=0", "--n_layer=1", "--d_model=64", "--d_inner=64", "--n_head=1", "--n_token=20", "--batch_per_core=500"],
                         capture_output=True, text=True, check=True)
    rows, left = re.search(r"training step, 500 x 2048 tokens, memory 0\n  fits, .*\n.*\n.*\n"
                           r"  largest batch per core: (\d+), which fits, ([\d.]+) GiB are left", run.stdout).groups()
    assert int(rows) > 500 and float(left) < 0.1
    assert "evaluation step, 1 x 128 tokens, memory 0\n  fits, " in run.stdout
