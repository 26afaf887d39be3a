"""Ctrl-C ends every command with one sentence, also while it is importing what it needs."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INTERRUPTED = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    os._exit(3)
os._exit(4)
"""


def run(*arguments, **environment):
    """Runs Python as a terminal would: behind the & of a shell's script, a test's own process ignores Ctrl-C, and what it starts, too."""
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, cwd=ROOT, env={**os.environ, **environment},
                          preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))


@pytest.mark.parametrize("command, name", [
    (["train_gpu.py"], "train_gpu.py"), (["train_tpu.py"], "train_tpu.py"), (["-m", "data_utils.prepare"], "data_utils.prepare"),
    (["-m", "txl_tf.generate"], "txl_tf"), (["-m", "txl_tf.analysis.attention_length"], "txl_tf")], ids=str)
def test_while_it_imports(command, name, tmp_path):
    for package in ("absl", "keras", "numpy", "tensorflow"):
        (tmp_path / f"{package}.py").write_text(INTERRUPTED)
    done = run(*command, PYTHONPATH=str(tmp_path))
    assert (done.returncode, done.stdout, done.stderr) == (130, "", f"{name}: interrupted\n")


@pytest.mark.parametrize("first, code, said", [("", 130, "mine: interrupted\n"), ("from absl import flags\n", 130, "mine: interrupted\n"),
                                               ("from absl import flags\nflags.FLAGS(['mine'])\n", 3, ""),
                                               ("import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n", 4, "")], ids=repr)
def test_until_the_flags_are_parsed(first, code, said):
    done = run("-c", f"{first}from data_utils.interrupts import end_at_interrupt\nend_at_interrupt('mine')\n{INTERRUPTED}")
    assert (done.returncode, done.stderr) == (code, said)
