"""Where the text of every dataset comes from."""

import os
import sysconfig
from pathlib import Path

import numpy as np
import pytest

from data_utils.datasets import DATASETS, SPLITS, read_split_files, read_standard_library
from data_utils.vocabulary import VOCABULARIES


@pytest.fixture
def small_library(tmp_path, monkeypatch):
    """A standard library of a few files; returns its folder."""
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    for path, text in {
        "b.py": b"B" * 20,
        "a/z.py": b"Z" * 10,
        "a.py": b"A" * 7,
        "a-b.py": b"-" * 3,
        "notes.txt": b"no",
        "test/x.py": b"no",
        "a/tests/x.py": b"no",
        "idlelib/idle_test/x.py": b"no",
        "site-packages/x.py": b"no",
        "dist-packages/x.py": b"no",
        "a/__pycache__/x.py": b"no",
        "testing/x.py": b"\xff",
    }.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_bytes(text)
    return tmp_path


def test_entries_name_known_vocabularies():
    assert {entry.vocabulary for entry in DATASETS.values()} <= set(VOCABULARIES)


def test_standard_library_in_path_order_without_tests_and_packages(small_library):
    texts = read_standard_library(small_library)
    whole = b"".join(texts[split].tobytes() for split in SPLITS)
    assert whole == b"-" * 3 + b"A" * 7 + b"Z" * 10 + b"B" * 20 + b"\xff"


def test_standard_library_is_cut_90_5_5(small_library):
    texts = read_standard_library(small_library)
    assert {split: len(text) for split, text in texts.items()} == {"train": 36, "valid": 2, "test": 3}  # of 41


def test_the_real_standard_library_is_contiguous_and_reproducible(tmp_path):
    first, second = read_standard_library(tmp_path), read_standard_library(tmp_path)
    for split in SPLITS:
        np.testing.assert_array_equal(first[split], second[split])
    total = sum(len(text) for text in first.values())
    assert total > 5_000_000
    assert len(first["train"]) == total * 90 // 100
    assert first["train"].tobytes().startswith(Path(os.__file__).with_name("__future__.py").read_bytes())


def test_split_files_are_read_as_they_are(tmp_path):
    contents = {"train": b"a\r\n\xff", "valid": b"\xef\xbb\xbfb", "test": b"c\n"}
    for split, content in contents.items():
        (tmp_path / f"{split}.txt").write_bytes(content)
    assert {split: text.tobytes() for split, text in read_split_files(tmp_path).items()} == contents


def test_missing_split_files_are_named(tmp_path):
    (tmp_path / "train.txt").write_text("a")
    with pytest.raises(FileNotFoundError, match="in --data_dir, without valid.txt, test.txt. Received: data_dir="):
        read_split_files(tmp_path)


def test_an_empty_split_file_is_named(tmp_path):
    for split in SPLITS:
        (tmp_path / f"{split}.txt").write_text("" if split == "valid" else "a")
    with pytest.raises(ValueError, match="Expected text in valid.txt of --data_dir, not 0 bytes"):
        read_split_files(tmp_path)


def test_an_unreadable_split_file_is_named(tmp_path, monkeypatch):
    for split in SPLITS:
        (tmp_path / f"{split}.txt").write_text("a")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "test.txt")
    with pytest.raises(PermissionError, match="Expected test.txt in --data_dir to be readable"):
        read_split_files(tmp_path)
