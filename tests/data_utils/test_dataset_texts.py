"""Where every dataset's text is looked for, and what is said when it is not there."""

import gzip
import os
import sysconfig
import uuid
from pathlib import Path

import pytest
from testing.text_folders import texts, write_files

from data_utils.dataset_texts import (
    PTB_FILES,
    SPLITS,
    WIKITEXT_FILES,
    cut_file,
    lm1b_files,
    split_files,
    standard_library,
)
from data_utils.text_sources import MemoryText, SymbolFile, TextFile

LM1B = "1-billion-word-language-modeling-benchmark-r13output"
SHARDS = f"{LM1B}/training-monolingual.tokenized.shuffled"
HELD_OUT = f"{LM1B}/heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050"


def write(folder, **files):
    """Writes {name: content} below a folder; "__" in a keyword stands for a dot."""
    return write_files(folder, {name.replace("__", "."): content for name, content in files.items()})


def names(found, split="train"):
    return [Path(source.name).name for source in found[split]]


# --- split_files


def test_split_files_are_read_as_they_are(tmp_path):
    write(tmp_path, train__txt=b"a\r\n\xff", valid__txt=b"\xef\xbb\xbfb", test__txt=b"c\n")
    found = split_files(tmp_path)
    assert texts(found) == {"train": b"a\r\n\xff", "valid": b"\xef\xbb\xbfb", "test": b"c\n"}
    assert all(type(source) is TextFile for sources in found.values() for source in sources)


@pytest.mark.parametrize("alternatives", [WIKITEXT_FILES, PTB_FILES])
def test_the_names_in_the_archive_come_last(tmp_path, alternatives):
    write_files(tmp_path, {name: name.encode() for name in alternatives})
    assert list(texts(split_files(tmp_path, alternatives=alternatives)).values()) == [
        name.encode() for name in alternatives
    ]
    write_files(tmp_path, {"train.txt.gz": gzip.compress(b"compressed"), "valid.txt": b"plain"})
    write_files(tmp_path, {"valid.txt.gz": gzip.compress(b"not this one")})
    expected = {"train": b"compressed", "valid": b"plain", "test": alternatives[2].encode()}
    assert texts(split_files(tmp_path, alternatives=alternatives)) == expected


def test_missing_split_files_are_named(tmp_path):
    write(tmp_path, train__txt=b"a")
    with pytest.raises(FileNotFoundError) as error:
        split_files(tmp_path)
    assert str(error.value) == (
        "Expected train.txt, valid.txt and test.txt in --data_dir, without valid.txt, test.txt. "
        f"Received: data_dir={tmp_path}"
    )
    with pytest.raises(FileNotFoundError) as error:
        split_files(tmp_path, alternatives=PTB_FILES, test_files=tmp_path / "train.txt")
    assert str(error.value) == (
        "Expected train.txt and valid.txt (or ptb.train.txt and ptb.valid.txt) in --data_dir, without valid.txt. "
        f"Received: data_dir={tmp_path}"
    )


@pytest.mark.parametrize(
    "name, content", [("valid.txt", b""), ("valid.txt.gz", b""), ("valid.txt.gz", gzip.compress(b""))]
)
def test_an_empty_split_file_is_named(tmp_path, name, content):
    write_files(tmp_path, {"train.txt": b"a", "test.txt": b"a", name: content})
    with pytest.raises(ValueError) as error:
        split_files(tmp_path)
    assert str(error.value) == f"Expected text in {name} of --data_dir, not 0 bytes. Received: data_dir={tmp_path}"


def test_a_split_file_that_is_not_what_its_name_says(tmp_path):
    write(tmp_path, train__txt=b"a", valid__txt=b"a", test__txt__gz=b"not compressed")
    with pytest.raises(ValueError, match=r"Expected a whole gzip file \(.*\)\. Received: path=.*test\.txt\.gz"):
        split_files(tmp_path)


def test_an_unreadable_split_file_is_named(tmp_path, monkeypatch):
    write(tmp_path, train__txt=b"a", valid__txt=b"a", test__txt=b"a")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "test.txt")
    with pytest.raises(PermissionError, match="Expected test.txt in --data_dir to be readable"):
        split_files(tmp_path)
    with pytest.raises(
        PermissionError, match=r"Expected .*test.txt in --train_files to be readable. Received: train_files="
    ):
        split_files(tmp_path, train_files=tmp_path / "test.txt")


@pytest.fixture
def parts(tmp_path, monkeypatch):
    """The current folder, with train.txt, valid.txt, test.txt and some parts of a text."""
    monkeypatch.chdir(tmp_path)
    write_files(tmp_path, {f"part-{number}.txt": str(number).encode() for number in (3, 1, 2, 10)})
    (tmp_path / "part-dir.txt").mkdir()
    write_files(tmp_path, {"part-4.txt.gz": gzip.compress(b"4"), "a,b [c].txt": b"odd"})
    return write(tmp_path, train__txt=b"train", valid__txt=b"valid", test__txt=b"test")


@pytest.mark.parametrize(
    "files, expected",
    [
        ("part-3.txt", [b"3"]),
        ("part-3.txt, part-1.txt,part-4.txt.gz", [b"3", b"1", b"4"]),
        ("part-?.txt", [b"1", b"2", b"3"]),
        ("part-10.txt,part-[12].txt", [b"10", b"1", b"2"]),
        (["part-2.txt", Path("part-*0.txt")], [b"2", b"10"]),
        (["a,b [c].txt"], [b"odd"]),  # a file of that name comes before what the pattern matches
        (Path("part-2.txt"), [b"2"]),
    ],
)
def test_files_elsewhere(parts, files, expected):
    for split in SPLITS:
        found = split_files(
            parts / "nowhere", **{f"{other}_files": "train.txt" for other in SPLITS} | {f"{split}_files": files}
        )
        assert [b"".join(source.blocks()) for source in found[split]] == expected
        assert names(found, "valid" if split == "train" else "train") == ["train.txt"]


def test_only_the_splits_without_a_list_come_from_the_folder(parts):
    assert texts(split_files(parts, valid_files="part-?.txt")) == {"train": b"train", "valid": b"123", "test": b"test"}
    with pytest.raises(FileNotFoundError, match="Expected train.txt in --data_dir, without train.txt. Received"):
        split_files(parts / "nowhere", valid_files="part-1.txt", test_files="part-1.txt")


@pytest.mark.parametrize(
    "files, kind, message",
    [
        (
            "part-1.txt,z.txt,q*",
            FileNotFoundError,
            "Expected a file for every name in --valid_files, without one for z.txt, q*.",
        ),
        (
            "part-dir.txt",
            FileNotFoundError,
            "Expected a file for every name in --valid_files, without one for part-dir.txt.",
        ),
        ("part-1.txt,part-[13].txt", ValueError, "Expected every file once in --valid_files, not part-1.txt twice."),
        ("part-1.txt,./part-1.txt", ValueError, "Expected every file once in --valid_files, not ./part-1.txt twice."),
        ("part-1.txt,,part-2.txt", ValueError, "Expected file names separated by commas in --valid_files."),
        ("", ValueError, "Expected file names separated by commas in --valid_files."),
        ([], ValueError, "Expected file names separated by commas in --valid_files."),
    ],
)
def test_wrong_lists_of_files(parts, files, kind, message):
    with pytest.raises(kind) as error:
        split_files(parts, valid_files=files)
    assert str(error.value).startswith(message)
    assert f" Received: valid_files={files}" in str(error.value).replace("'", "")


def test_an_empty_file_elsewhere(parts):
    write_files(parts, {"empty.txt": b""})
    with pytest.raises(
        ValueError, match="Expected text in empty.txt of --test_files, not 0 bytes. Received: test_files=empty.txt"
    ):
        split_files(parts, test_files="empty.txt")


def test_remote_files(parts):
    import tensorflow as tf

    folder = f"ram://{uuid.uuid4()}"
    for name in ("b.txt", "a.txt", "inner/c.txt"):
        tf.io.gfile.makedirs(f"{folder}/inner")
        with tf.io.gfile.GFile(f"{folder}/{name}", "w") as file:
            file.write(name)
    assert texts(split_files(parts, train_files=f"{folder}/*"))["train"] == b"a.txtb.txt"
    found = split_files(parts, train_files=f"{folder}/b.txt,part-1.txt,{folder}/a.txt")
    assert texts(found)["train"] == b"b.txt1a.txt"
    with pytest.raises(FileNotFoundError, match=rf"without one for {folder}/z\*\.txt, {folder}/z\.txt\. Received"):
        split_files(parts, train_files=f"{folder}/z*.txt,{folder}/z.txt")
    with pytest.raises(ValueError, match=f"not {folder}/a.txt twice"):
        split_files(parts, train_files=f"{folder}/a.txt,{folder}/*.txt")


# --- cut_file


def test_a_raw_file_is_cut(tmp_path):
    write(tmp_path, enwik8=b"0123456789")
    found = cut_file(tmp_path, "enwik8", (7, 1, 2), "byte")
    assert texts(found) == {"train": b"0123456", "valid": b"7", "test": b"89"}
    assert found["valid"] == [TextFile(tmp_path / "enwik8", 7, 8)]


def test_symbol_files_come_before_the_raw_file(tmp_path):
    write(tmp_path, enwik8=b"0123456789", train__txt=b"62 32", valid__txt=b"9 \n", test__txt=b"255")
    found = cut_file(tmp_path, "enwik8", (7, 1, 2), "byte")
    assert texts(found) == {"train": b"> ", "valid": b"\t\n", "test": b"\xff"}
    assert found["train"] == [SymbolFile(tmp_path / "train.txt", "byte")]
    (tmp_path / "valid.txt").unlink()
    assert texts(cut_file(tmp_path, "enwik8", (7, 1, 2), "byte"))["train"] == b"0123456"


def test_equal_texts_have_equal_hashes_as_symbols_and_as_a_raw_file(tmp_path):
    write_files(tmp_path / "raw", {"text8": b" ab c"})
    write(tmp_path / "symbols", train__txt=b"_ a b", valid__txt=b"_", test__txt=b"c")
    raw, symbols = (cut_file(tmp_path / folder, "text8", (3, 1, 1), "character") for folder in ("raw", "symbols"))
    assert texts(raw) == texts(symbols)
    assert [raw[split][0].sha256() for split in SPLITS] == [symbols[split][0].sha256() for split in SPLITS]


def test_no_file_to_cut(tmp_path):
    write(tmp_path, train__txt=b"62", valid__txt=b"62")
    with pytest.raises(FileNotFoundError) as error:
        cut_file(tmp_path, "enwik8", (7, 1, 2), "byte")
    assert str(error.value) == (
        "Expected enwik8, or train.txt, valid.txt and test.txt as the original code prepares them, in --data_dir. "
        f"Received: data_dir={tmp_path}"
    )


@pytest.mark.parametrize("size", [0, 9, 11])
def test_a_raw_file_of_another_size(tmp_path, size):
    write(tmp_path, text8=b"x" * size)
    with pytest.raises(ValueError) as error:
        cut_file(tmp_path, "text8", (7, 1, 2), "character")
    assert (
        str(error.value) == f"Expected text8 in --data_dir to have 10 bytes, not {size}. Received: data_dir={tmp_path}"
    )


def test_an_unreadable_raw_file(tmp_path, monkeypatch):
    write(tmp_path, text8=b"0123456789")
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(PermissionError, match="Expected text8 in --data_dir to be readable. Received: data_dir="):
        cut_file(tmp_path, "text8", (7, 1, 2), "character")


def test_wrong_symbol_files_are_noticed_at_once(tmp_path, monkeypatch):
    write(tmp_path, train__txt=b"62 32", valid__txt=b"<mediawiki>", test__txt=b"255")
    with pytest.raises(
        ValueError, match=r"decimal byte values .* in line 1 of .*valid\.txt\. Received: symbol='<mediawiki>'"
    ):
        cut_file(tmp_path, "enwik8", (7, 1, 2), "byte")
    write(tmp_path, valid__txt=b" ")
    with pytest.raises(ValueError, match="Expected text in valid.txt of --data_dir, not 0 bytes"):
        cut_file(tmp_path, "enwik8", (7, 1, 2), "byte")
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path).name != "train.txt")
    with pytest.raises(PermissionError, match="Expected train.txt in --data_dir to be readable"):
        cut_file(tmp_path, "enwik8", (7, 1, 2), "byte")


# --- lm1b_files


@pytest.fixture
def lm1b(tmp_path):
    """A folder with three shards, one half-written one, and the archive's held-out file."""
    shards = {f"{SHARDS}/news.en-0000{number}-of-00100": str(number).encode() for number in (3, 1, 2)}
    return write_files(
        tmp_path / "lm1b", {**shards, f"{SHARDS}/news.en-00004-of-00100.partial": b"half", HELD_OUT: b"held"}
    )


def test_the_archive_of_lm1b(lm1b):
    assert texts(lm1b_files(lm1b)) == {"train": b"123", "valid": b"held", "test": b"held"}
    assert len(lm1b_files(lm1b)["train"]) == 3


def test_valid_and_test_of_lm1b_come_before_the_held_out_file(lm1b):
    write(lm1b, test__txt=b"test")
    assert texts(lm1b_files(lm1b)) == {"train": b"123", "valid": b"held", "test": b"test"}
    assert texts(lm1b_files(lm1b, same_test=True))["test"] == b"held"
    write(lm1b, valid__txt=b"valid")
    assert texts(lm1b_files(lm1b)) == {"train": b"123", "valid": b"valid", "test": b"test"}
    assert texts(lm1b_files(lm1b, same_test=True)) == {"train": b"123", "valid": b"valid", "test": b"valid"}


def test_listed_files_of_lm1b(lm1b, monkeypatch):
    monkeypatch.chdir(write_files(lm1b.parent, {"mine.txt": b"mine"}))
    listed = f"{SHARDS}/news.en-*3-of-*,mine.txt,{lm1b}/{SHARDS}/news.en-00001-of-00100"
    assert texts(lm1b_files(lm1b, train_files=listed))["train"] == b"3mine1"
    with pytest.raises(
        FileNotFoundError, match=r"in --train_files, without one for yours\.txt\. Received: train_files=yours"
    ):
        lm1b_files(lm1b, train_files="yours.txt")


def test_what_lm1b_lacks(tmp_path):
    with pytest.raises(FileNotFoundError) as error:
        lm1b_files(tmp_path)
    assert str(error.value) == (
        f"Expected {SHARDS}/news.en-*, valid.txt and test.txt (or {HELD_OUT} for the last two) in --data_dir, "
        f"without {SHARDS}/news.en-*, valid.txt, test.txt. Received: data_dir={tmp_path}"
    )
    write(tmp_path, valid__txt=b"valid", mine__txt=b"mine")
    with pytest.raises(FileNotFoundError, match=r"without test\.txt\. Received: "):
        lm1b_files(tmp_path, train_files="mine.txt")
    assert texts(lm1b_files(tmp_path, train_files="mine.txt", same_test=True))["test"] == b"valid"


def test_an_empty_shard_of_lm1b(lm1b):
    write_files(lm1b, {f"{SHARDS}/news.en-00002-of-00100": b""})
    with pytest.raises(ValueError, match="Expected text in news.en-00002-of-00100 of --data_dir, not 0 bytes"):
        lm1b_files(lm1b)


# --- standard_library


@pytest.fixture
def small_library(tmp_path, monkeypatch):
    """A standard library of a few files; returns its folder."""
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"stdlib": str(tmp_path)})
    kept = {"b.py": b"B" * 20, "a/z.py": b"Z" * 10, "a.py": b"A" * 7, "a-b.py": b"-" * 3, "testing/x.py": b"\xff"}
    folders = ("test", "a/tests", "idlelib/idle_test", "site-packages", "dist-packages", "a/__pycache__")
    return write_files(tmp_path, {**kept, "notes.txt": b"no", **{f"{folder}/x.py": b"no" for folder in folders}})


def test_the_standard_library_in_path_order_without_tests_and_packages(small_library):
    found = standard_library(small_library)
    assert b"".join(texts(found).values()) == b"-" * 3 + b"A" * 7 + b"Z" * 10 + b"B" * 20 + b"\xff"
    assert [source.name for sources in found.values() for source in sources] == [
        f"standard library {split}" for split in SPLITS
    ]


def test_the_standard_library_is_cut_90_5_5(small_library):
    lengths = {split: len(text) for split, text in texts(standard_library(small_library)).items()}
    assert lengths == {"train": 36, "valid": 2, "test": 3}  # of 41


def test_the_real_standard_library_is_contiguous_and_reproducible(tmp_path):
    first, second = texts(standard_library(tmp_path)), texts(standard_library(tmp_path))
    assert first == second
    total = sum(len(text) for text in first.values())
    assert total > 5_000_000
    assert len(first["train"]) == total * 90 // 100
    assert first["train"].startswith(Path(os.__file__).with_name("__future__.py").read_bytes())
    assert all(type(source) is MemoryText for sources in standard_library(tmp_path).values() for source in sources)
