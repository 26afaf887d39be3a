"""Every bad input of a preparation is one sentence, and nothing is written."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from testing.optional_package import needed

from data_utils.prepare import prepare_corpus

ROOT = Path(__file__).parents[2]
SIZES = dict(train_batch_size=3, eval_batch_size=2, tgt_len=5)


@pytest.fixture
def folder(tmp_path):
    """A folder with three texts."""
    folder = tmp_path / "data"
    folder.mkdir()
    for split, length in {"train": 103, "valid": 47, "test": 20}.items():
        (folder / f"{split}.txt").write_bytes((b"a bc\n" * length)[:length])
    return folder


def snapshot(folder):
    """Returns the content of every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path.name != ".lock"}


def refused(folder, message, dataset="text", **changes):
    """Checks that a call is refused with one sentence, and that no file comes, goes or changes."""
    before = snapshot(folder.parent)
    with pytest.raises((ValueError, OSError), match=message) as caught:
        prepare_corpus(dataset, folder, **{**SIZES, **changes})
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("Expected ")
    assert snapshot(folder.parent) == before
    assert not list(folder.parent.rglob("*.partial"))


ARGUMENTS = {
    "Expected --dataset to be one of enwik8, .* Received: dataset='enwik0'": dict(dataset="enwik0"),
    "Expected --train_files with a dataset that takes it; stdlib takes none. Received: train_files='x'": dict(dataset="stdlib", train_files="x"),
    "Expected --tfds_splits with a dataset that takes it; text takes train_files, valid_files, test_files": dict(tfds_splits="a,b,c"),
    "Expected --valid_files with a dataset that takes it; lm1b takes train_files": dict(dataset="lm1b", valid_files="x"),
    "Expected --vocabulary to be one of byte, char, word, subword. Received: vocabulary='runes'": dict(vocabulary="runes"),
    "Expected --vocab_size and --min_freq with a vocabulary that is made .*vocabulary='byte'": dict(vocab_size=9),
    "Expected --vocab_size and --min_freq .*vocab_file=": dict(vocabulary="word", vocab_size=9, vocab_file="x"),
    "Expected no --vocab_file for bytes": dict(vocab_file="x"),
    "Expected --vocab_file to be a file. Received: vocab_file=x": dict(vocabulary="word", vocab_file="x"),
    "Expected --lower_case with words alone": dict(lower_case=True),
    "Expected --eval_batch_size to be a multiple of --num_hosts. Received: eval_batch_size=2, num_hosts=3": dict(num_hosts=3),
    "Expected --train_batch_size to be a multiple of --num_hosts. Received: train_batch_size=3, num_hosts=2": dict(num_hosts=2),
    "Expected --vocab_size that holds 256 bytes and all characters of the text": dict(vocabulary="subword", vocab_size=3),
    "Expected symbols of the vocabulary alone in .*train.txt, unlike line 1. Received: 'a'": dict(dataset="wt103", min_freq=1000),
    **{f"Expected --{name} of at least 1. Received: {name}=0": {name: 0} for name in (
        "train_batch_size", "eval_batch_size", "valid_batch_size", "test_batch_size", "tgt_len", "num_hosts", "num_passes",
        "num_shuffle", "num_procs", "vocab_size", "min_freq")},
}


@pytest.mark.parametrize("message", ARGUMENTS)
def test_arguments(folder, message):
    changes = ARGUMENTS[message]
    if changes.get("vocabulary") == "subword":
        needed("sentencepiece")
    refused(folder, message, **changes)


WRONG = {
    "empty split": ("test.txt", b"", {}, "Expected text in test.txt of --data_dir, not 0 bytes"),
    "missing split": ("valid.txt", None, {}, "in --data_dir, without valid.txt. Received: data_dir="),
    "short train split": ("train.txt", b"a" * 17, {}, "at least 18 tokens in the train split, .*--train_batch_size rows, not 17"),
    "short valid split": ("valid.txt", b"a" * 3, {}, "at least 4 tokens in the valid split, .*--eval_batch_size rows, not 3"),
    "wrong encoding": ("valid.txt", b"a\r\nb \xe9t\xe9\n", dict(vocabulary="word"),
                       "Expected UTF-8 in .*/valid.txt, unlike line 2, byte 5 of the file. Received: 0xe9"),
    "wrong encoding of characters": ("train.txt", b"a\n" * 50 + b"\xff", dict(vocabulary="char"),
                                     "Expected UTF-8 in .*/train.txt, unlike line 51, byte 100 of the file. Received: 0xff"),
    "wrong encoding of subwords": ("train.txt", b"a bc\n" * 50 + b"\xff", dict(vocabulary="subword", vocab_size=264),
                                   "Expected UTF-8 in .*/train.txt, unlike line 51, byte 250 of the file. Received: 0xff"),
    "unseen word": ("test.txt", b"a\n\na zebra\n", dict(dataset="wt103"),
                    "Expected symbols of the vocabulary alone in .*/test.txt, unlike line 3. Received: 'zebra'"),
    "words that are all blank": ("train.txt", b" \t" * 50, dict(vocabulary="word"), "at least 18 tokens in the train split, .* not 1"),
    "nothing but line ends": ("train.txt", b"10 10", dict(dataset="enwik8_original"), "Expected decimal byte values"),
}


@pytest.mark.parametrize("name, content, changes, message", WRONG.values(), ids=WRONG)
def test_text(folder, name, content, changes, message):
    if changes.get("vocabulary") == "subword":
        needed("sentencepiece")
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    refused(folder, message, **changes)


@pytest.mark.parametrize("passes", [1, 2])
def test_a_text_of_which_nothing_is_left(tmp_path, passes):
    folder = tmp_path / "data"
    folder.mkdir()
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text("\n\n" if split == "train" else "97 " * 30)
    refused(folder, "at least 18 tokens in the train split, .* not 0", dataset="enwik8_original", num_passes=passes)


def test_a_shard_that_is_too_short(folder):
    (folder / "list").write_text("a\nbc\n")
    (folder / "short").write_text("\n")  # two symbols, twice
    refused(folder, "at least 18 tokens in every shard of the train split, .* not 4. Received: train_batch_size=3",
            dataset="lm1b", vocab_file=str(folder / "list"), train_files="train.txt,short", num_passes=2)


def test_the_shortest_texts_that_will_do(folder):
    (folder / "train.txt").write_bytes(b"a" * 18)
    (folder / "valid.txt").write_bytes(b"a" * 4)
    corpus = prepare_corpus("text", folder, **SIZES)
    assert (corpus.n_segments("train", 5, drop_remainder=True), corpus.n_labels("valid")) == (1, 2)


def test_bad_input_leaves_a_prepared_folder_as_it_was(folder):
    prepare_corpus("text", folder, **SIZES)
    (folder / "valid.txt").write_bytes(b"\xff" * 30)
    refused(folder, "Expected UTF-8 in .*/valid.txt", vocabulary="word")


class TestFolder:
    """What is wrong with the folder."""

    def test_missing(self, folder):
        refused(folder / "no", "Expected --data_dir to exist and hold the text. Received:")

    @pytest.mark.parametrize("dataset, below", [("text", "."), ("stdlib", "."), ("stdlib", "sub")])
    def test_a_file(self, folder, dataset, below):
        path = folder / "train.txt" / below
        before = snapshot(folder)
        with pytest.raises(NotADirectoryError, match="Expected --data_dir to be a folder, but"):
            prepare_corpus(dataset, path, **SIZES)
        assert snapshot(folder) == before

    @pytest.mark.parametrize("name, message", [
        ("", "Expected --data_dir to name a folder. Received: data_dir=''"),
        (None, "Expected --data_dir to name a folder. Received: data_dir=None"),
        ("gs://bucket/folder", "Expected --data_dir to be a local folder, which can be copied")])
    def test_none(self, name, message):
        with pytest.raises(ValueError, match=message):
            prepare_corpus("stdlib", name, **SIZES)

    @pytest.mark.parametrize("below, dataset", [(".", "text"), ("new", "stdlib")])
    def test_not_writable(self, folder, monkeypatch, below, dataset):
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
        refused(folder / below, "Expected --data_dir to be writable, unlike", dataset=dataset)

    def test_records_folder_that_cannot_be_made(self, folder):
        (folder / "tfrecords").write_text("a file")
        refused(folder, "Expected to be able to make the folder tfrecords in --data_dir")

    def test_a_file_of_its_own_that_is_a_folder(self, folder):
        (folder / "vocabulary.json").mkdir()
        with pytest.raises(OSError, match=r"Expected to be able to read and write .*vocabulary.json.* \(Is a directory\)"):
            prepare_corpus("text", folder, **SIZES)
        assert not (folder / "corpus.json").exists() and not list(folder.rglob("*.partial"))


LINE = {"byte": b"a bc", "char": "a\u00e9 b".encode(), "word": b"a bc ", "long word": b"ab", "subword": b"ab bc ", "long subword": b"ab"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", LINE)
def test_one_very_long_line(tmp_path, kind):
    part, length = LINE[kind], 30_000_000 if "subword" in kind else 100_000_000
    vocabulary = "subword" if "subword" in kind else kind.removeprefix("long ")
    if vocabulary == "subword":
        needed("sentencepiece")
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_bytes(part * (length // len(part) if split == "train" else 1000))
    flags = ["--dataset=text", f"--data_dir={tmp_path}", f"--vocabulary={vocabulary}", "--per_host_train_bsz=1", "--per_host_valid_bsz=1",
             "--per_host_test_bsz=1", "--tgt_len=1"] + [f"--vocab_size={262 if kind == 'long subword' else 263}"] * (vocabulary == "subword")
    code = ("import sys, os, resource, subprocess\n"
            "done = subprocess.run([sys.executable, '-m', 'data_utils.prepare', *sys.argv[1:]], capture_output=True, text=True)\n"
            "print(done.returncode, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss // 1024, done.stdout, done.stderr)")
    done = subprocess.run([sys.executable, "-c", code, *flags], capture_output=True, text=True, check=True, cwd=ROOT)
    returncode, mebibytes = map(int, done.stdout.split()[:2])
    if kind == "long word":  # one word and the end of its line make a row of two tokens
        assert "train: 2 tokens in 1 rows" in done.stdout
    assert returncode == 0, done.stdout
    assert "Traceback" not in done.stdout
    assert length >> 20 < mebibytes < 1500
