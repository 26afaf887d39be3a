"""Of two hosts that train together one is lost: the other says so and ends, and both go on from the last checkpoint."""

import json
import os
import signal
import time

import pytest

from testing.forks import forks

pytestmark = pytest.mark.slow
FLAGS = ["--data_dir=mine", "--num_hosts=2", "--n_layer=1", "--d_model=16", "--n_head=2", "--d_inner=16", "--tgt_len=8", "--mem_len=8",
         "--train_batch_size=4", "--eval_batch_size=4", "--eval_tgt_len=8", "--train_steps=100000", "--iterations=10", "--save_steps=10"]
SENTENCE = "Every host must answer until the end; the same command on all hosts goes on from the last checkpoint. Received: nothing more from"


@pytest.fixture
def hosts(tmp_path):
    """A function that starts the command on two hosts."""
    (tmp_path / "mine").mkdir()
    for split, size in (("train", 4000), ("valid", 60), ("test", 40)):
        (tmp_path / "mine" / f"{split}.txt").write_bytes((b"hello world. " * 400)[:size])

    def start(port):
        cluster = {"worker": [f"localhost:{port}", f"localhost:{port + 1}"]}
        return [forks().start("train_gpu.py", *FLAGS, "--model_dir=run", cwd=tmp_path,
                              env={"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})})
                for index in range(2)]

    return start


@pytest.mark.parametrize("lost, signal_number", [(0, signal.SIGKILL), (1, signal.SIGKILL), (1, signal.SIGSTOP)])
def test_the_other_host_ends_and_both_go_on(hosts, lost, signal_number):
    port = 20_000 + os.getpid() % 20_000 + 10 * lost + 4 * signal_number
    first = hosts(port)
    assert first[0].seen("step 30/"), first[0].stderr
    os.kill(first[lost].pid, signal_number)
    since = time.monotonic()
    ended = first[1 - lost].wait()
    os.kill(first[lost].pid, signal.SIGKILL)
    assert time.monotonic() - since < 60
    assert ended.returncode == 1 and "Traceback" not in ended.stderr
    assert ended.stderr.splitlines()[-1] == f"train_gpu.py: {SENTENCE} worker {lost} (localhost:{port + lost})"
    first[lost].wait()
    again = hosts(port + 2)
    assert again[0].seen("\nstep "), again[0].stderr
    for host in again:
        os.kill(host.pid, signal.SIGTERM)
    assert [host.wait().returncode for host in again] == [143, 143], again[0].stderr
    assert "resumes after step" in again[0].stdout and "told to end: saved at step" in again[0].stdout
