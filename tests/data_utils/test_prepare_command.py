"""python -m data_utils.prepare."""

import json
from pathlib import Path

import pytest
from absl import flags
from testing.prepare_command import PrepareCommand

from data_utils.corpus import Corpus
from data_utils.prepare import prepare_corpus

ROOT = Path(__file__).parents[2]
TEXT = "a b c d\n" * 60


@pytest.fixture(scope="module")
def command():
    """Runs commands."""
    with PrepareCommand() as command:
        yield command


@pytest.fixture
def folder(tmp_path):
    """A folder with three texts."""
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(TEXT)
    return tmp_path


def times(folder):
    return {path.name: path.stat().st_mtime_ns for path in (folder / "tfrecords").iterdir()}


@pytest.mark.slow
def test_it_says_what_was_made_and_left_out(folder, command):
    (folder / "valid.txt").write_text(TEXT[:-3])
    returncode, output, errors = command.run("--dataset=text", f"--data_dir={folder}", "--per_host_train_bsz=7", "--per_host_valid_bsz=2",
                                             "--per_host_test_bsz=10", "--tgt_len=5")
    assert returncode == 0, errors
    assert output.splitlines() == [
        "train: 480 tokens in 7 rows, 469 of them predicted, 4 left out so that rows have one length",
        "valid: 477 tokens in 2 rows, 474 of them predicted, 1 left out so that rows have one length",
        "test: 480 tokens in 10 rows, 470 of them predicted, 0 left out so that rows have one length",
        f"vocabulary: byte, 256 ids; {folder} is prepared",
    ]
    assert "10 of the 480 tokens of the test split are not scored, 2.1 %" in errors
    assert "valid split are not scored" not in errors


def test_rows_are_those_of_a_host(folder, command):
    assert command.run("--dataset=text", f"--data_dir={folder}", "--per_host_train_bsz=3", "--per_host_valid_bsz=2", "--num_host=2",
                       "--tgt_len=5", "--per_host_test_bsz=1")[0] == 0
    corpus = Corpus(folder)
    assert [corpus.rows(split) for split in corpus.splits] == [6, 4, 2]
    assert corpus.num_hosts == 2


@pytest.mark.slow
def test_one_split_alone_leaves_the_others_as_they_were(folder, command):
    prepare_corpus("text", folder, 4, 2, num_passes=3, shuffle_seed=5)
    before = times(folder)
    identity = Corpus(folder).identity
    returncode, _, errors = command.run("--dataset=text", f"--data_dir={folder}", "--per_host_test_bsz=3", "--num_passes=1", "--tgt_len=9")
    assert returncode == 0, errors
    after = times(folder)
    assert set(after) == {"train.bsz-4.tfrecord", "valid.bsz-2.tfrecord", "test.bsz-3.tfrecord"}
    assert all(after[name] == before[name] for name in ("train.bsz-4.tfrecord", "valid.bsz-2.tfrecord"))
    assert Corpus(folder).identity == identity
    assert command.run("--dataset=text", f"--data_dir={folder}", "--per_host_valid_bsz=5")[0] == 0
    assert [Corpus(folder).rows(split) for split in ("train", "valid", "test")] == [4, 5, 3]
    assert command.run("--dataset=text", f"--data_dir={folder}", "--per_host_train_bsz=4", "--num_passes=1", "--tgt_len=9")[0] == 0
    assert Corpus(folder).n_tokens("train") == len(TEXT)
    assert command.run("--dataset=text", f"--data_dir={folder}", "--num_passes=2", "--tgt_len=9")[0] == 0
    assert Corpus(folder).n_tokens("train") == 2 * len(TEXT)


def test_all_settings_arrive(folder, command):
    for split, words in {"train": "A b b C c c\n", "valid": "a b\n", "test": "c\n"}.items():
        (folder / f"my-{split}").write_text(words * 40)
    flags = [f"--{split}_files={folder}/my-{split}" for split in ("train", "valid", "test")]
    returncode, output, errors = command.run(
        "--dataset=text", f"--data_dir={folder}/new", *flags, "--vocabulary=word", "--vocab_size=4", "--min_freq=50", "--lower_case",
        "--num_procs=1", "--per_host_train_bsz=2", "--per_host_valid_bsz=1", "--per_host_test_bsz=1", "--num_passes=2",
        "--shuffle_seed=3", "--tgt_len=4")
    assert returncode == 0, errors
    other = prepare_corpus("text", folder / "other", 2, 1, vocabulary="word", vocab_size=4, min_freq=50, lower_case=True,
                           num_passes=2, shuffle_seed=3, **{f"{split}_files": f"{folder}/my-{split}" for split in ("train", "valid", "test")})
    assert Corpus(folder / "new").identity == other.identity
    assert other.vocabulary.symbols == ["<unk>", "<eos>", "c", "b"]
    assert "vocabulary: word, 4 ids" in output


BAD = {
    "no text": (["--dataset=text"], "Expected --data_dir to exist and hold the text. Received: data_dir="),
    "dataset": (["--dataset=enwik0"], "Expected --dataset to be one of enwik8, "),
    "rows": (["--per_host_train_bsz=-1"], "Expected --per_host_train_bsz of at least 1. Received: per_host_train_bsz=-1"),
    "cores": (["--per_host_train_bsz=6", "--num_core_per_host=4"],
              "Expected --per_host_train_bsz to be a multiple of --num_core_per_host. Received: per_host_train_bsz=6"),
    "no cores": (["--num_core_per_host=0"], "Expected --num_core_per_host of at least 1"),
    "shuffles": (["--num_shuffle=0"], "Expected --num_shuffle of at least 1. Received: num_shuffle=0"),
    "hosts": (["--num_hosts=0"], "Expected --num_hosts of at least 1"),
    "words": (["stray"], "Expected flags alone. Received: stray"),
    "options": (["--train_files=x"], "Expected --train_files with a dataset that takes it; stdlib takes none"),
    "contradiction": (["--vocab_size=5"], "Expected --vocab_size and --min_freq with a vocabulary that is made"),
}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("given, message", BAD.values(), ids=BAD)
def test_bad_input_ends_with_one_sentence(given, message, tmp_path, command):
    returncode, output, errors = command.run(f"--data_dir={tmp_path}/new", *given)
    assert (returncode, output) == (1, "")
    assert errors.splitlines()[-1].startswith(f"data_utils.prepare: {message}")
    assert "Traceback" not in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.slow_but_first
@pytest.mark.parametrize("given", [["--no_such_flag=1"], ["--per_host_train_bsz=many"], ["--vocabulary=runes"], []])
def test_flags_that_do_not_parse_are_refused(given, tmp_path, command):
    returncode, _, errors = command.run(*([f"--data_dir={tmp_path}"] if given else []), *given)
    assert returncode == 1
    assert "Traceback" not in errors
    assert "Flags parsing error" in errors


def test_the_original_s_commands_parse(command):
    commands = json.loads((ROOT / "tests" / "golden" / "original_commands.json").read_text())
    lines = [entry["flags"] for entry in commands if entry["program"] == "data_utils.py"]
    assert len(lines) == 16
    _, output, errors = command.run(before=f"""
import json, sys
from absl import flags
from absl.testing import flagsaver
import data_utils.prepare as prepare
for line in {lines!r}:
    with flagsaver.flagsaver():
        flags.FLAGS(["data_utils.py", *line])
        print(json.dumps(prepare._arguments()))
sys.exit()
""")
    parsed = [json.loads(line) for line in output.splitlines()]
    assert len(parsed) == len(lines), errors
    for flags_given, arguments in zip(lines, parsed, strict=True):
        given = dict(flag.removeprefix("--").split("=") for flag in flags_given)
        assert (arguments["dataset"], arguments["data_dir"], arguments["tgt_len"]) == (
            given["dataset"], given["data_dir"], int(given["tgt_len"]))
        for split in ("train", "valid", "test"):
            rows = given.get(f"per_host_{split}_bsz")
            assert arguments[f"{split}_batch_size"] == (rows and int(rows))
        assert arguments["num_passes"] == (int(given["num_passes"]) if "per_host_train_bsz" in given else None)


def test_importing_the_module_defines_no_flags():
    assert "per_host_train_bsz" not in flags.FLAGS


def test_it_may_be_interrupted(folder, command):
    interrupt = "import os, signal\nsignal.signal(signal.SIGINT, signal.default_int_handler)\nimport data_utils.prepare\ndata_utils.prepare.prepare_corpus = lambda **_: os.kill(os.getpid(), signal.SIGINT)"
    returncode, output, errors = command.run("--dataset=text", f"--data_dir={folder}", before=interrupt)
    assert (returncode, output) == (130, "") and "Traceback" not in errors
    assert errors.endswith("data_utils.prepare: interrupted; the same command begins anew\n")
