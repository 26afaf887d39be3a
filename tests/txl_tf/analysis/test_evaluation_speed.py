"""Evaluation beside a moving window: that both see the same, what is counted, the table, the picture and refusals."""

import pytest

from testing.forks import forks
from testing.optional_package import needed
from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.analysis import evaluation_speed as module
from txl_tf.inference.evaluation import evaluate

SMALL = ("--n_layer=1", "--d_model=8", "--n_head=2", "--tgt_len=4", "--attention_length=6,9", "--n_token=20")


@pytest.fixture
def run(tmp_path):
    """A function that runs the command with flags, to its end."""
    return lambda *flags: forks().run("-m", "txl_tf.analysis.evaluation_speed", *flags, cwd=tmp_path)


def test_the_window_gives_the_numbers_of_evaluation():
    model, ids = tiny_model(mem_len=0), tiny_tokens(1, 7)
    by_window = float(module._last_token(model, ids[:, :-1])[0, 0, ids[0, -1]])
    segments = [(ids[:, place:place + 1], ids[:, place + 1:place + 2]) for place in range(6)]
    total = evaluate(model, segments, mem_len=40)[0] * 6 - evaluate(model, segments[:5], mem_len=40)[0] * 5
    assert -by_window == pytest.approx(total, abs=1e-4)


def test_measures(monkeypatch):
    seconds = iter([9.0, 9.0, *[2.0, 0.8] * 3])  # the first round makes the programs
    monkeypatch.setattr(module, "_seconds", lambda work: (work(), next(seconds))[1])
    speed = module.evaluation_speed(tiny_model(), 5, tgt_len=3)
    assert speed.vanilla == 2.0 and speed.cached == pytest.approx(0.8 / 48) and speed.ratio == pytest.approx(120)
    assert speed.vanilla_flops < speed.cached_flops * 10


def test_the_window_counts_the_head_once():
    config = tiny_model().config
    assert module._vanilla_flops(config, 1) == pytest.approx(sum(module.forward_flops(config, 1, 1, 0).values()))
    one, two = (module._vanilla_flops(config, length) for length in (8, 9))
    head = module.forward_flops(config, 1, 1, 0)["head"]
    assert two - one < sum(module.forward_flops(config, 1, 9, 0).values()) - sum(module.forward_flops(config, 1, 8, 0).values()) - head / 2


@pytest.mark.slow
def test_command_prints_a_table_and_plots(run, tmp_path):
    needed("matplotlib")
    done = run(*SMALL, f"--plot_file={tmp_path / 'speed.png'}")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split("|")[1].strip() for line in lines[2:]] == ["6", "9"]
    assert (tmp_path / "speed.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("argument, sentence", [
    ("--attention_length=0", "attention_length must be integers of at least 1"), ("--attention_length=a", "attention_length must be"),
    ("--attention_length=", "attention_length must be integers of at least 1"), ("--plot_file=/nowhere/speed.png", "plot_file "),
    ("--tgt_len=0", "tgt_len must be"), ("stray", "must be flags"), ("--d_model=0", "d_model must be"),
])
def test_refusals(run, argument, sentence):
    done = run(*SMALL, argument)
    assert done.returncode == 1 and sentence in done.stderr and "Received: " in done.stderr and "Traceback" not in done.stderr
    assert not done.stdout


def test_bad_numbers():
    for name in ("attention_length", "tgt_len", "repeats"):
        with pytest.raises(ValueError, match=f"{name} must be at least 1. Received: {name}=0"):
            module.evaluation_speed(tiny_model(), **{"attention_length": 5, name: 0})
