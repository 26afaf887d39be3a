"""A run that is killed again and again ends exactly as one that never was."""

import json
import os
import random
import signal
import time

import numpy as np
import pytest

from testing.forks import forks
from txl_tf.model_folder import load_model

pytestmark = pytest.mark.slow
KILLS = 21
FLAGS = ["--data_dir=mine", "--n_layer=1", "--d_model=16", "--n_head=2", "--d_inner=16", "--tgt_len=8", "--mem_len=10", "--dropout=0.2",
         "--dropatt=0.1", "--train_batch_size=2", "--eval_batch_size=2", "--eval_tgt_len=8", "--train_steps=300", "--warmup_steps=5",
         "--iterations=2", "--save_steps=3", "--eval_steps=12"]


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    (place / "mine").mkdir()
    for split, size in (("train", 450), ("valid", 60), ("test", 40)):
        (place / "mine" / f"{split}.txt").write_bytes((b"hello world, once more. " * 100)[:size])
    return place


@pytest.fixture(scope="module")
def never_killed(place):
    """The folder of a run from its beginning to its end."""
    ended = forks().run("train_gpu.py", *FLAGS, "--model_dir=whole", cwd=place)
    assert ended.returncode == 0, ended.stderr
    return place / "whole"


def assert_same_run(folder, other):
    for name in ("log.jsonl", "results.json", "best/results.json"):
        assert (folder / name).read_text() == (other / name).read_text(), name
    for name in (".", "best"):
        for ours, theirs in zip(load_model(folder / name).get_weights(), load_model(other / name).get_weights(), strict=True):
            np.testing.assert_array_equal(ours, theirs)
    checkpoints = [sorted(path.name for path in (each / "checkpoints").iterdir()) for each in (folder, other)]
    assert checkpoints[0] == checkpoints[1]


def wait_for_a_checkpoint_that_is_being_written(folder, fork):
    """Waits until a temporary file of a checkpoint is there, or the program ends."""
    while fork.returncode is None:
        for _ in range(2000):
            try:
                if any("temp" in entry.name for entry in os.scandir(folder / "checkpoints")):
                    return True
            except FileNotFoundError:
                pass
        fork.returncode = forks().ask("poll", fork.pid)
    return False


def test_killed_at_random_moments(place, never_killed):
    draw, folder, in_writing, steps = random.Random(7), place / "killed", 0, []
    for number in range(KILLS):
        fork = forks().start("train_gpu.py", *FLAGS, "--model_dir=killed", cwd=place)
        if number % 3 == 0:
            in_writing += wait_for_a_checkpoint_that_is_being_written(folder, fork)
        elif fork.seen(draw.choice(["parameters", "step ", "step "])):
            time.sleep(draw.uniform(0.0, 1.0))
        if fork.returncode is None:
            os.kill(fork.pid, signal.SIGKILL)
        assert fork.wait().returncode == -signal.SIGKILL, f"it ended before kill {number}: {fork.stderr}"
        steps.append(max((json.loads(line)["step"] for line in (folder / "log.jsonl").read_text().splitlines()), default=0))
    assert in_writing >= KILLS // 6
    assert steps[0] < steps[-1] < 300, steps
    ended = forks().run("train_gpu.py", *FLAGS, "--model_dir=killed", cwd=place)
    assert ended.returncode == 0, ended.stderr
    assert_same_run(folder, never_killed)


def test_told_to_end(place, never_killed):
    for _ in range(3):
        fork = forks().start("train_gpu.py", *FLAGS, "--model_dir=told", cwd=place)
        assert fork.seen("\nstep ")
        os.kill(fork.pid, signal.SIGTERM)
        assert fork.wait().returncode == 143, fork.stderr
        assert "told to end: saved at step" in fork.stdout and "Traceback" not in fork.stderr
    ended = forks().run("train_gpu.py", *FLAGS, "--model_dir=told", cwd=place)
    assert ended.returncode == 0, ended.stderr
    assert_same_run(place / "told", never_killed)
