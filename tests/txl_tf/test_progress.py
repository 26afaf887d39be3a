"""The progress line and the TensorBoard summaries."""

import io
import math
import sys

import pytest

import txl_tf.progress
from testing.summaries import summaries
from txl_tf.progress import Progress

REPORT = {"steps": 50, "tokens": 102_400, "nll": 2 * math.log(2), "gradient_norm": 0.9, "learning_rate": 1e-3}


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still until the test moves it: clock[0] is the time in seconds."""
    now = [100.0]
    monkeypatch.setattr(txl_tf.progress.time, "monotonic", lambda: now[0])
    return now


class Terminal(io.StringIO):
    """A stream that takes itself for a terminal."""

    def isatty(self):
        return True


def test_a_line_a_report(tmp_path, clock, capsys):
    progress = Progress(tmp_path, 2_000, "byte")
    for step in (50, 100):
        clock[0] += 10.0
        progress.report(step=step, **REPORT)
    progress.end_line()
    assert capsys.readouterr().out == (
        "step 50/2,000 | 2.000 bpc | lr 1.00e-03 | 10,240 tokens/s | 6:30 left\n"
        "step 100/2,000 | 2.000 bpc | lr 1.00e-03 | 10,240 tokens/s | 6:20 left\n")


def test_a_terminal_shows_one_line_written_over_itself(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(sys, "stdout", Terminal())
    progress = Progress(tmp_path, 2_000, "byte")
    for step in (50, 100):
        clock[0] += 10.0
        progress.report(step=step, **REPORT)
    shown = sys.stdout.getvalue()
    assert "\n" not in shown
    assert shown.split("\r\033[K")[1:] == [
        "step 50/2,000 | 2.000 bpc | lr 1.00e-03 | 10,240 tokens/s | 6:30 left",
        "step 100/2,000 | 2.000 bpc | lr 1.00e-03 | 10,240 tokens/s | 6:20 left"]
    progress.end_line()
    assert sys.stdout.getvalue() == shown + "\n"


def test_words_are_shown_as_perplexity(tmp_path, clock, capsys):
    progress = Progress(tmp_path, 2_000, "word")
    clock[0] += 10.0
    progress.report(step=50, **REPORT)
    assert "| 4.000 ppl |" in capsys.readouterr().out
    assert summaries(tmp_path)["train/ppl", 50] == pytest.approx(4.0)


def test_what_restart_clock_leaves_out_counts_neither_for_speed_nor_time_left(tmp_path, clock, capsys):
    progress = Progress(tmp_path, 100, "byte")
    clock[0] += 1000.0
    progress.restart_clock()
    clock[0] += 10.0
    progress.report(step=50, **REPORT)
    assert "| 10,240 tokens/s | 0:10 left" in capsys.readouterr().out


def test_the_last_report_leaves_nothing(tmp_path, clock, capsys):
    progress = Progress(tmp_path, 50, "byte")
    clock[0] += 10.0
    progress.report(step=50, **REPORT)
    assert capsys.readouterr().out.endswith("| 0:00 left\n")


def test_summaries(tmp_path, clock):
    progress = Progress(tmp_path, 2_000, "byte")
    clock[0] += 10.0
    progress.report(step=50, **REPORT)
    assert summaries(tmp_path) == {
        ("train/bpc", 50): pytest.approx(2.0),
        ("train/gradient_norm", 50): pytest.approx(0.9),
        ("train/learning_rate", 50): pytest.approx(1e-3),
        ("train/tokens_per_second", 50): pytest.approx(10_240.0),
    }
