"""The script, as a user types it: a whole run, a second one, the command it ends with, and bad input."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from absl import flags

import train_gpu
from testing.forks import forks
from txl_tf.flags import define_flags
from txl_tf.presets import PRESETS

ROOT = Path(__file__).parents[1]
TINY = ["--n_layer=1", "--d_model=16", "--n_head=2", "--d_inner=16", "--tgt_len=8", "--mem_len=8", "--train_batch_size=2",
        "--eval_batch_size=2", "--eval_tgt_len=8", "--train_steps=7", "--warmup_steps=2", "--iterations=3", "--save_steps=4"]


def text_folder(folder, train=100):
    """Makes a folder with three small texts."""
    folder.mkdir()
    for split, size in (("train", train), ("valid", 60), ("test", 40)):
        (folder / f"{split}.txt").write_bytes((b"hello world. " * 100)[:size])
    return folder


def typed(*command, cwd):
    """Runs Python with arguments in a folder, as from a terminal of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.run([sys.executable, *command], cwd=cwd, env=environment, capture_output=True, text=True, timeout=300, check=False)


def log_of(folder):
    return [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]


def files(folder):
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*")}


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder to work in, with the text of one's own."""
    place = tmp_path_factory.mktemp("place")
    text_folder(place / "mine")
    return place


@pytest.fixture(scope="module")
def first(place):
    """The first run of the script there."""
    return typed(ROOT / "train_gpu.py", "--data_dir=mine", *TINY, cwd=place)


class TestWholeRun:
    @pytest.mark.slow
    def test_it_ends_well(self, first):
        assert first.returncode == 0, first.stderr
        assert "Traceback" not in first.stderr

    def test_it_shows_progress(self, first):
        reports = re.findall(r"^step (\d+)/7 \| [\d.]+ bpc \| lr [\d.e+-]+ \| [\d,]+ tokens/s \| \d+:\d\d left$", first.stdout, re.M)
        assert reports == ["3", "4", "6", "7"]  # a report each 3 steps, before a checkpoint, at the end of a pass (6) and at the end

    def test_it_says_how_large_the_model_and_a_step_are(self, first):
        assert re.search(r"[\d,]+ parameters, 16 tokens a step, 7 steps a pass over the data; the run lies in runs/mine", first.stdout)

    def test_it_evaluates_with_a_longer_memory_and_shows_a_sample(self, first):
        assert re.search(r"^valid: [\d.]+ bpc over 58 tokens \(memory 32\)$", first.stdout, re.M)
        assert re.search(r"^test: [\d.]+ bpc over 38 tokens \(memory 32\)$", first.stdout, re.M)
        assert re.search(r"^--- context\nhello wo\n--- sample\n(.|\n)+\n---$", first.stdout, re.M)

    def test_it_leaves_the_run_where_it_says(self, first, place):
        assert "The model lies in runs/mine" in first.stdout
        assert {"config.json", "vocabulary.json", "model.weights.h5", "results.json"} <= files(place / "runs" / "mine")
        assert json.loads((place / "runs" / "mine" / "results.json").read_text())["step"] == 7

    @pytest.mark.slow
    def test_the_command_that_it_ends_with_works(self, first, place):
        line = next(line for line in first.stdout.splitlines() if "txl_tf.generate" in line)
        words = shlex.split(line.strip().replace('"..."', '"hello"'))
        assert words[0] == "python"
        sampled = forks().run(*words[1:], "--max_new_tokens=5", cwd=place)
        assert sampled.returncode == 0, sampled.stderr
        assert sampled.stdout.startswith("hello") and len(sampled.stdout) > len("hello\n")

    def test_the_second_run_says_that_it_is_finished(self, first, place):
        weights = (place / "runs" / "mine" / "model.weights.h5").read_bytes()
        second = forks().run("train_gpu.py", "--data_dir=mine", *TINY, cwd=place)
        assert second.returncode == 0, second.stderr
        assert "runs/mine is finished: 7 of 7 steps" in second.stdout and "step 7/7 |" not in second.stdout
        assert (place / "runs" / "mine" / "model.weights.h5").read_bytes() == weights


class TestTwoDevices:
    @pytest.mark.slow
    def test_they_go_on_where_one_stopped(self, first, place):
        copy = shutil.copytree(place / "runs" / "mine", place / "two")
        for path in (copy / "checkpoints").glob("step-7*"):
            path.unlink()
        ended = forks().run("train_gpu.py", "--data_dir=mine", "--model_dir=two", *TINY, cwd=place, devices=2)
        assert ended.returncode == 0, ended.stderr
        assert "resumes after step 4" in ended.stdout and "on 2 devices" in ended.stdout
        expected, found = log_of(place / "runs" / "mine"), log_of(copy)
        assert [report["step"] for report in found] == [3, 4, 6, 7] and found[:2] == expected[:2]
        for name in ("nll", "gradient_norm", "learning_rate", "tokens"):
            assert [report[name] for report in found] == pytest.approx([report[name] for report in expected], rel=1e-5), name
        results = [json.loads((folder / "results.json").read_text()) for folder in (copy, place / "runs" / "mine")]
        for split in ("valid", "test"):
            assert results[0][split] == pytest.approx(results[1][split], rel=1e-5)

    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("arguments, sentence", [
        (["--train_batch_size=3"], "train_batch_size must be a multiple of the devices times batch_chunk. Received: train_batch_size=3, 2 devices, batch_chunk=1"),
        (["--batch_chunk=2"], "train_batch_size must be a multiple of the devices times batch_chunk. Received: train_batch_size=2, 2 devices, batch_chunk=2"),
        (["--eval_batch_size=3"], "The rows of the valid split must be a multiple of the devices; another --eval_batch_size or --num_core_per_host "
                                  "makes them so. Received: 3 rows, 2 devices"),
        (["--num_core_per_host=4", "--train_batch_size=4"], "num_core_per_host must be from 1 to 2, the CPUs that are visible. Received: num_core_per_host=4"),
    ], ids=str)
    def test_what_they_cannot_share_is_refused(self, tmp_path, arguments, sentence):
        text_folder(tmp_path / "mine")
        ended = forks().run("train_gpu.py", "--data_dir=mine", *TINY, *arguments, cwd=tmp_path, devices=2)
        assert ended.returncode == 1 and ended.stderr.splitlines()[-1] == f"train_gpu.py: {sentence}"
        assert not (tmp_path / "runs").exists()


@pytest.mark.slow
def test_two_hosts_train_as_one(place):
    """They share the text, what is prepared of it, and the folder of the run."""
    for name in ("shared", "lonely"):
        text_folder(place / name, train=400)
    few = [*TINY, "--train_batch_size=4", "--eval_batch_size=4", "--dropout=0", "--eval_steps=4"]
    alone = forks().run("train_gpu.py", *few, "--data_dir=lonely", "--model_dir=alone", cwd=place)
    assert alone.returncode == 0, alone.stderr
    port = 20_000 + os.getpid() % 20_000
    for steps in (4, 7):  # the second time they go on
        cluster = {"worker": [f"localhost:{port + steps}", f"localhost:{port + steps + 1}"]}
        hosts = [forks().start("train_gpu.py", *few, "--data_dir=shared", "--model_dir=hosts", "--num_hosts=2", cwd=place,
                               env={"TF_CONFIG": json.dumps({"cluster": cluster, "task": {"type": "worker", "index": index}})})
                 for index in range(2)]
        for host in hosts:
            assert host.wait().returncode == 0, host.stderr
        if steps == 4:
            for path in (place / "hosts" / "checkpoints").glob("step-7*"):
                path.unlink()
            (place / "hosts" / "results.json").unlink()
    assert "on 2 devices" in hosts[0].stdout and "resumes after step 4" in hosts[0].stdout
    assert [line for line in hosts[1].stdout.splitlines() if " waits for " not in line] in ([], ["all hosts answer"])
    for found, expected in zip(log_of(place / "hosts"), log_of(place / "alone"), strict=True):
        assert found["step"] == expected["step"] and found.keys() == expected.keys()
        if "nll" in expected:
            assert [found["nll"], found["gradient_norm"]] == pytest.approx([expected["nll"], expected["gradient_norm"]], rel=1e-4)
    results = [json.loads((place / folder / "results.json").read_text()) for folder in ("hosts", "alone")]
    assert results[0]["test"] == pytest.approx(results[1]["test"], rel=1e-4)
    assert (place / "hosts" / "best" / "model.weights.h5").exists()


class TestRefusedAtTheTerminal:
    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("arguments, named", [
        (["--data_dir=nowhere"], "data_dir=nowhere"),
        (["--no_such_flag=1"], "no_such_flag"),
        (["--n_layer=four"], "n_layer=four"),
    ], ids=str)
    def test_one_sentence_and_no_traceback(self, tmp_path, arguments, named):
        ended = forks().run("train_gpu.py", *arguments, cwd=tmp_path)
        assert ended.returncode != 0 and named in ended.stderr
        assert "Traceback" not in ended.stderr + ended.stdout
        assert files(tmp_path) == set()


class TestRefused:
    @pytest.fixture
    def refusal(self, tmp_path, monkeypatch, capsys):
        """A function that calls main in a folder of its own and returns the sentence with which it ends."""
        known = set(flags.FLAGS)
        define_flags()
        monkeypatch.chdir(tmp_path)

        def ended(*arguments):
            before = files(tmp_path)
            flags.FLAGS.unparse_flags()
            rest = flags.FLAGS(["train_gpu.py", *arguments])
            with pytest.raises(SystemExit) as end:
                train_gpu.main(rest)
            message = end.value.code
            assert message.startswith("train_gpu.py: ") and "\n" not in message and len(message) < 700
            assert files(tmp_path) - {"mine/.lock", "mine/tfrecords"} == before, "something was written"
            return message

        yield ended
        flags.FLAGS.unparse_flags()
        for name in set(flags.FLAGS) - known:
            delattr(flags.FLAGS, name)

    @pytest.fixture
    def data(self, tmp_path):
        return f"--data_dir={text_folder(tmp_path / 'mine')}"

    @pytest.mark.parametrize("argument, received", [
        ("--n_head=0", "n_head=0"), ("--tgt_len=0", "tgt_len=0"), ("--tgt_len=-3", "tgt_len=-3"), ("--dropout=1.5", "dropout=1.5"),
        ("--warmup_steps=8", "warmup_steps=8, train_steps=7"), ("--train_batch_size=0", "train_batch_size=0"),
        ("--cutoffs=5,3", "cutoffs=(5, 3)"), ("--eval_batch_size=0", "eval_batch_size=0"), ("--dataset=enwik9", "dataset="),
        ("--model_dir=", "model_dir="), ("--data_dir=", "data_dir="),
    ])
    def test_bad_values(self, refusal, data, argument, received):
        message = refusal(data, *TINY, argument)
        assert f"Received: {received}" in message and message.split("=")[0].split()[-1] in argument

    @pytest.mark.parametrize("arguments, received", [
        (["--use_tpu"], "use_tpu=True, tpu=None, master=None"), (["--tpu=mine"], "use_tpu=None, tpu=mine, master=None"),
        (["--master=grpc://a"], "use_tpu=None, tpu=None, master=grpc://a"), (["--num_core_per_host=2"], "num_core_per_host=2"),
        (["--num_hosts=2"], "num_hosts=2"), (["--num_host=2"], "num_hosts=2"),
        (["--do_eval_only", "--do_train"], "do_eval_only=True, do_train=True"), (["--eval_split=all"], "eval_split=all"),
        (["--clip_scope=all"], "clip_scope=all"), (["--warm_start_path=nowhere"], "warm_start_path=nowhere"),
        (["--do_train=False", "--eval_ckpt_path=nowhere"], "eval_ckpt_path=nowhere"), (["--batch_chunk=3"], "train_batch_size=2, num_hosts=1"),
    ], ids=str)
    def test_what_can_not_be_done_or_contradicts_itself(self, refusal, data, arguments, received):
        assert f"Received: {received}" in refusal(data, *TINY, *arguments)

    def test_a_warm_up_longer_than_the_training(self, refusal, data):
        assert "Received: warmup_steps=100, train_steps=50" in refusal(data, "--train_steps=50")

    def test_an_unknown_preset(self, refusal):
        message = refusal("--preset=enwik9")
        assert message.endswith("Received: preset=enwik9") and all(name in message for name in PRESETS)

    def test_a_stray_argument(self, refusal):
        assert refusal("mine").endswith("Received: mine")

    def test_a_data_folder_that_is_missing(self, refusal):
        assert refusal("--data_dir=nowhere").endswith("Received: data_dir=nowhere")

    def test_a_data_folder_that_is_empty(self, refusal, tmp_path):
        (tmp_path / "empty").mkdir()
        message = refusal("--data_dir=empty")
        assert message.endswith("Received: data_dir=empty") and "train.txt" in message

    def test_a_text_that_is_empty(self, refusal, data, tmp_path):
        (tmp_path / "mine" / "valid.txt").write_bytes(b"")
        message = refusal(data, *TINY)
        assert "valid.txt" in message and f"Received: data_dir={tmp_path / 'mine'}" in message

    def test_a_corpus_too_small_says_how_many_tokens_it_needs(self, refusal, data):
        message = refusal(data, *TINY, "--tgt_len=50")
        assert "at least 102 tokens in the train split" in message and "not 100" in message
        assert message.endswith("Received: train_batch_size=2, tgt_len=50")

    def test_a_folder_that_cannot_be_written(self, refusal, data, tmp_path):
        (tmp_path / "file").write_text("text")
        assert refusal(data, *TINY, "--model_dir=file/run").endswith("Received: model_dir=file/run")
        assert refusal(data, *TINY, "--model_dir=file").endswith("Received: model_dir=file")

    def test_a_run_of_another_configuration(self, refusal, first, place):
        run, text = place / "runs" / "mine", f"--data_dir={place / 'mine'}"
        before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
        message = refusal(text, *TINY, f"--model_dir={run}", "--d_model=32", "--mem_len=4")
        assert message.endswith("Received: d_model=32, d_embed=32, d_head=16, mem_len=4") and "d_model=16" in message
        assert {path: path.read_bytes() for path in run.rglob("*") if path.is_file()} == before


@pytest.mark.slow
def test_without_flags_it_trains_on_the_standard_library(tmp_path):
    """The default corpus, with a tiny model: it is prepared under data/stdlib, and the run lies in runs/stdlib."""
    tiny = [argument for argument in TINY if "batch_size" not in argument and "eval_tgt_len" not in argument]
    ended = typed(ROOT / "train_gpu.py", *tiny, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^test: [\d.]+ bpc over \d{3},\d{3} tokens \(memory 32\)$", ended.stdout, re.M)
    assert {"data/stdlib/corpus.json", "runs/stdlib/model.weights.h5"} <= files(tmp_path)
