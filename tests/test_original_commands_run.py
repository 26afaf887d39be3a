"""Every training command of the original's scripts, on little data with a small model: it trains, saves and evaluates."""

import json
from pathlib import Path

import pytest

from testing.forks import forks

pytestmark = pytest.mark.slow
FILE = Path(__file__).parent / "golden" / "original_commands.json"
TRAININGS = {command["name"]: command["flags"] for command in json.loads(FILE.read_text(encoding="utf-8")) if command["name"].endswith(" train")}
ELSEWHERE = ("data_dir", "record_info_dir", "corpus_info_path", "model_dir")  # folders that are not here
SMALL = {"n_layer": 1, "d_model": 32, "d_embed": 32, "n_head": 2, "d_head": 8, "d_inner": 16, "tgt_len": 8, "mem_len": 8, "train_batch_size": 2,
         "warmup_steps": 1, "train_steps": 3, "eval_batch_size": 2, "eval_tgt_len": 8, "num_hosts": 1, "num_core_per_host": 1, "use_tpu": False}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = tmp_path_factory.mktemp("place")
    (place / "mine").mkdir()
    for split, size in (("train", 200), ("valid", 60), ("test", 40)):
        (place / "mine" / f"{split}.txt").write_bytes((b"hello world. " * 100)[:size])
    return place


@pytest.mark.parametrize("name", TRAININGS)
def test_it_trains(place, name):
    kept = [flag for flag in TRAININGS[name] if flag.removeprefix("--").split("=")[0] not in ELSEWHERE]
    small = [f"--{flag}={value}" for flag, value in SMALL.items()]
    cutoffs = ["--cutoffs=60,120"] if name.startswith(("lm1b", "wt103")) else []
    folder = place / name.replace(" ", "-")
    ended = forks().run("train_gpu.py", *kept, *small, *cutoffs, "--data_dir=mine", f"--model_dir={folder}", cwd=place)
    assert ended.returncode == 0, ended.stderr
    reports = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    assert reports[-1]["step"] == 3 and 3 < reports[-1]["nll"] < 8
    splits = {"valid", "test"} if "--do_eval=False" not in kept else set()
    assert json.loads((folder / "results.json").read_text()).keys() == {"step", "settings"} | splits
