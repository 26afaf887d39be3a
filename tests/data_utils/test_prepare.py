"""Preparing checks first, writes whole files, and uses only those again that are still right."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import data_utils.prepare
from data_utils.corpus import Corpus
from data_utils.prepare import prepare_corpus

ROOT = Path(__file__).parents[2]
SIZES = {"train_batch_size": 3, "eval_batch_size": 2, "tgt_len": 5}
RECORD_FILES = {"train": "train.bsz-3.tfrecord", "valid": "valid.bsz-2.tfrecord", "test": "test.bsz-2.tfrecord"}


@pytest.fixture
def folder(tmp_path):
    """A folder with the three texts."""
    for split, length in {"train": 103, "valid": 47, "test": 20}.items():
        (tmp_path / f"{split}.txt").write_bytes((split.encode() * length)[:length])
    return tmp_path


@pytest.fixture
def written(monkeypatch):
    """The list of the record files that are written from now on."""
    names = []
    write_records = data_utils.prepare.write_records

    def noted(token_ids, path, rows):
        names.append(path.name)
        return write_records(token_ids, path, rows)

    monkeypatch.setattr(data_utils.prepare, "write_records", noted)
    return names


def text_of(corpus, split):
    """Returns the bytes that the rows of a split hold, the first of every row left out."""
    return b"".join(bytes(row) for _, labels in corpus.dataset(split, 1000) for row in labels.numpy().tolist())


def snapshot(folder):
    """Returns the content of every file below a folder."""
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_what_is_made(folder):
    corpus = prepare_corpus("text", folder, **SIZES)
    made = sorted(path.relative_to(folder).as_posix() for path in snapshot(folder))
    texts = ["test.txt", "train.txt", "valid.txt"]
    records = [f"tfrecords/{name}" for name in sorted(RECORD_FILES.values())]
    assert made == sorted([".lock", "corpus.json", "vocabulary.json", *records, *texts])
    assert [corpus.rows(split) for split in corpus.splits] == [3, 2, 2]
    assert Corpus(folder).identity == corpus.identity


def test_a_second_call_uses_the_files_again(folder, written):
    first = prepare_corpus("text", folder, **SIZES)
    assert written == list(RECORD_FILES.values())
    second = prepare_corpus("text", folder, **(SIZES | {"tgt_len": 7}))  # the files serve every length
    assert written == list(RECORD_FILES.values())
    assert second.identity == first.identity


def test_the_identity_does_not_depend_on_the_folder(folder):
    first = prepare_corpus("text", folder, **SIZES)
    moved = folder.rename(folder.with_name("moved"))
    assert prepare_corpus("text", moved, **SIZES).identity == first.identity


def test_an_edited_text_is_never_served_from_old_records(folder, written):
    first = prepare_corpus("text", folder, **SIZES)
    (folder / "train.txt").write_bytes(b"x" * 103)  # as long as before
    second = prepare_corpus("text", folder, **SIZES)
    assert text_of(second, "train") == b"x" * 99
    assert second.identity != first.identity
    assert written == [*RECORD_FILES.values(), RECORD_FILES["train"]]


def test_another_batch_size_makes_other_records(folder, written):
    first = prepare_corpus("text", folder, **SIZES)
    second = prepare_corpus("text", folder, **(SIZES | {"train_batch_size": 4}))
    assert second.rows("train") == 4
    assert second.identity == first.identity
    assert written == [*RECORD_FILES.values(), "train.bsz-4.tfrecord"]


@pytest.mark.parametrize("damage", ["delete", "truncate", "overwrite"])
def test_damaged_records_are_made_anew(folder, damage, written):
    expected = text_of(prepare_corpus("text", folder, **SIZES), "valid")
    path = folder / "tfrecords" / RECORD_FILES["valid"]
    content = path.read_bytes()
    path.unlink()
    if damage == "truncate":
        path.write_bytes(content[: len(content) // 2])
    if damage == "overwrite":
        path.write_bytes(bytes(len(content)))
    assert text_of(prepare_corpus("text", folder, **SIZES), "valid") == expected
    assert written == [*RECORD_FILES.values(), RECORD_FILES["valid"]]


@pytest.mark.parametrize("content", ["", "[]", '{"format": 1}', '{"format": 1, "splits": []}', '{"format": 0}'])
def test_a_broken_manifest_is_made_anew(folder, content):
    identity = prepare_corpus("text", folder, **SIZES).identity
    (folder / "corpus.json").write_text(content)
    assert prepare_corpus("text", folder, **SIZES).identity == identity


@pytest.mark.parametrize("finished", [0, 1, 2])
def test_an_interrupted_preparation_is_repaired_by_the_next(folder, finished, monkeypatch):
    prepare_corpus("text", folder, **SIZES)
    for split in RECORD_FILES:
        (folder / f"{split}.txt").write_bytes(b"x" * 103)
    write_records = data_utils.prepare.write_records

    def interrupted(token_ids, path, rows):
        if path.name == list(RECORD_FILES.values())[finished]:
            raise KeyboardInterrupt
        return write_records(token_ids, path, rows)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(data_utils.prepare, "write_records", interrupted)
        prepare_corpus("text", folder, **SIZES)
    with pytest.raises(FileNotFoundError):
        Corpus(folder)
    corpus = prepare_corpus("text", folder, **SIZES)
    assert all(set(text_of(corpus, split)) == set(b"x") for split in corpus.splits)


def test_a_killed_preparation_leaves_nothing_for_good(folder):
    prepare_corpus("text", folder, **SIZES)
    complete = snapshot(folder)
    (folder / "corpus.json").unlink()
    (folder / "tfrecords" / "train.bsz-9.tfrecord.partial").write_bytes(b"half")
    (folder / "corpus.json.partial").write_bytes(b"{")
    (folder / "mine.partial").write_bytes(b"the user's own")
    prepare_corpus("text", folder, **SIZES)
    assert snapshot(folder) == complete | {folder / "mine.partial": b"the user's own"}


def test_stdlib_makes_its_folder(tmp_path):
    corpus = prepare_corpus("stdlib", tmp_path / "new" / "folder", 16, 8, 128)
    again = prepare_corpus("stdlib", tmp_path / "other", 16, 8, 128)
    assert again.identity == corpus.identity
    token_ids, _ = next(iter(corpus.dataset("train", 40)))
    assert corpus.vocabulary.decode(token_ids[0]) == Path(os.__file__).with_name("__future__.py").read_text()[:40]


class TestBadInput:
    """Every bad input is one sentence that names the flag, and nothing is written."""

    def check(self, folder, error, message, dataset="text", **sizes):
        before = snapshot(folder.parent)
        with pytest.raises(error, match=message) as caught:
            prepare_corpus(dataset, folder, **(SIZES | sizes))
        assert "\n" not in str(caught.value)
        assert snapshot(folder.parent) == before

    def test_unknown_dataset(self, folder):
        message = r"Expected --dataset to be one of stdlib, text\. Received: dataset='enwik0'"
        self.check(folder, ValueError, message, dataset="enwik0")

    @pytest.mark.parametrize("name", SIZES)
    def test_sizes_below_one(self, folder, name):
        self.check(folder, ValueError, f"Expected --{name} of at least 1. Received: {name}=0", **{name: 0})

    def test_missing_folder(self, folder):
        self.check(folder / "no", FileNotFoundError, "Expected --data_dir to exist and hold the text. Received:")

    def test_folder_that_is_a_file(self, folder):
        self.check(folder / "train.txt", NotADirectoryError, "Expected --data_dir to be a folder, but")

    @pytest.mark.parametrize("below", [".", "sub"])
    def test_folder_that_is_a_file_for_stdlib(self, folder, below):
        path = folder / "train.txt" / below
        self.check(path, NotADirectoryError, "Expected --data_dir to be a folder, but", dataset="stdlib")

    def test_folder_not_named(self):
        with pytest.raises(ValueError, match="Expected --data_dir to name a folder. Received: data_dir=''"):
            prepare_corpus("stdlib", "", **SIZES)

    def test_missing_text(self, folder):
        (folder / "valid.txt").unlink()
        self.check(folder, FileNotFoundError, "in --data_dir, without valid.txt. Received: data_dir=")

    def test_empty_text(self, folder):
        (folder / "test.txt").write_bytes(b"")
        self.check(folder, ValueError, "Expected text in test.txt of --data_dir, not 0 bytes")

    def test_short_train_split(self, folder):
        (folder / "train.txt").write_bytes(b"a" * 17)
        message = "at least 18 tokens in the train split, .*--train_batch_size rows, not 17. Received: train_batch"
        self.check(folder, ValueError, message)
        (folder / "train.txt").write_bytes(b"a" * 18)
        assert prepare_corpus("text", folder, **SIZES).n_segments("train", 5, drop_remainder=True) == 1

    def test_short_evaluation_split(self, folder):
        (folder / "valid.txt").write_bytes(b"a" * 3)
        message = "at least 4 tokens in the valid split, .*--eval_batch_size rows, not 3. Received: eval_batch_size=2"
        self.check(folder, ValueError, message)
        (folder / "valid.txt").write_bytes(b"a" * 4)
        assert prepare_corpus("text", folder, **SIZES).n_labels("valid") == 2

    def test_folder_that_is_not_writable(self, folder, monkeypatch):
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
        self.check(folder, PermissionError, "Expected --data_dir to be writable, unlike")

    def test_parent_that_is_not_writable(self, folder, monkeypatch):
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
        self.check(folder / "new", PermissionError, "Expected --data_dir to be writable, unlike", dataset="stdlib")

    def test_records_folder_that_cannot_be_made(self, folder):
        (folder / "tfrecords").write_text("a file")
        self.check(folder, PermissionError, "Expected to be able to make the folder tfrecords in --data_dir")


class TestCommand:
    """python -m data_utils.prepare."""

    def run(self, *flags):
        command = [sys.executable, "-m", "data_utils.prepare", *flags]
        return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)

    def test_bad_input_ends_with_one_sentence(self, tmp_path):
        done = self.run("--dataset=text", f"--data_dir={tmp_path}")
        assert done.returncode not in (0, None)
        assert "Traceback" not in done.stderr
        assert done.stderr.splitlines()[-1].startswith("Expected train.txt, valid.txt and test.txt in --data_dir")
        assert done.stdout == ""

    def test_it_says_what_was_made(self, folder):
        sizes = [f"--{name}={value}" for name, value in SIZES.items()]
        done = self.run("--dataset=text", f"--data_dir={folder}", *sizes)
        assert done.returncode == 0, done.stderr
        path = folder / "tfrecords" / RECORD_FILES["train"]
        assert done.stdout.splitlines()[0] == f"train: 103 tokens in 3 rows of 34, 1 left out at the end: {path}"
        assert len(done.stdout.splitlines()) == 3

    def test_importing_the_module_defines_no_flags(self):
        code = "import data_utils.prepare; from absl import flags; assert 'data_dir' not in flags.FLAGS"
        assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
