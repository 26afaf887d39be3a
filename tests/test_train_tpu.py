"""The script for TPUs where there is none: one sentence says what it looked for."""

import pytest

from testing.forks import forks


@pytest.mark.slow_but_first
@pytest.mark.parametrize("arguments, parts", [
    ([], ["A TPU must be reachable", "Received: tpu=None, tpu_zone=None, gcp_project=None"]),
    (["--tpu=local"], ["A TPU must be reachable", "Received: tpu=local, tpu_zone=None, gcp_project=None"]),
    (["--master=grpc://127.0.0.1:9", "--tpu_zone=here"], ["A TPU must be reachable", "Received: tpu=grpc://127.0.0.1:9, tpu_zone=here"]),
    (["--use_tpu=False"], ["GPUs and CPUs are for train_gpu.py. Received: use_tpu=False"]),
    (["--precision=mixed_float16"], ["precision must be float32 or mixed_bfloat16 on a TPU. Received: precision=mixed_float16"]),
    (["--use_tpu=False", "--tpu=local"], ["must come with use_tpu=True or without use_tpu. Received: tpu=local, use_tpu=False"]),
], ids=str)
def test_without_a_tpu_it_says_so(tmp_path, arguments, parts):
    ended = forks().run("train_tpu.py", *arguments, cwd=tmp_path)
    said = [line for line in ended.stderr.splitlines() if line.startswith("train_tpu.py: ")]
    assert ended.returncode == 1 and len(said) == 1 and said[0] == ended.stderr.splitlines()[-1]
    assert all(part in said[0] for part in parts), said
    assert "Traceback" not in ended.stderr and list(tmp_path.iterdir()) == []
