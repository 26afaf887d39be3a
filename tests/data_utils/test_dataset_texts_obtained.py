"""How every dataset's text gets into data_dir: from the network, from an archive put there by hand, or not at all."""

import gzip
import tarfile
import zipfile
from pathlib import Path

import pytest
from testing.text_folders import texts, write_files

import data_utils.dataset_texts
from data_utils.atomic_files import locked
from data_utils.dataset_texts import (
    ARCHIVES,
    PTB_FILES,
    WIKITEXT_FILES,
    cut_file,
    lm1b_files,
    obtain,
    split_files,
)

LM1B = "1-billion-word-language-modeling-benchmark-r13output"
SHARDS = f"{LM1B}/training-monolingual.tokenized.shuffled"
HELD_OUT = f"{LM1B}/heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050"


@pytest.fixture
def network(monkeypatch):
    """Stands in for the network: {url: content} that can be downloaded; `network["fetched"]` lists what was."""
    contents = {"fetched": []}

    def fetch(url, path, sha256=None):
        if url not in contents:
            raise OSError(f"no network for {url}")
        contents["fetched"].append((url, path.name, sha256))
        path.write_bytes(contents[url])

    monkeypatch.setattr(data_utils.dataset_texts, "fetch", fetch)
    return contents


def zip_of(tmp_path, files):
    with zipfile.ZipFile(tmp_path / "made.zip", "w") as opened:
        for name, content in files.items():
            opened.writestr(name, content)
    return (tmp_path / "made.zip").read_bytes()


def tgz_of(tmp_path, files):
    write_files(tmp_path / "tree", files)
    with tarfile.open(tmp_path / "made.tgz", "w:gz") as opened:
        for top in (tmp_path / "tree").iterdir():
            opened.add(top, f"./{top.name}")
    return (tmp_path / "made.tgz").read_bytes()


def test_every_archive_is_described_in_full():
    assert set(ARCHIVES) == {"enwik8", "text8", "wt103", "wt2", "ptb", "lm1b"}
    unverified = {archive.file for archives in ARCHIVES.values() for archive in archives if archive.sha256 is None}
    assert unverified == {"simple-examples.tgz", "1b_word_vocab.txt"}
    for archives in ARCHIVES.values():
        for archive in archives:
            assert archive.url is None or archive.url.endswith("/" + archive.file)
            assert archive.sha256 is None or len(bytes.fromhex(archive.sha256)) == 32


@pytest.mark.parametrize("dataset", ["enwik8", "text8"])
def test_a_raw_file_is_obtained(tmp_path, network, dataset):
    archive = ARCHIVES[dataset][0]
    network[archive.url] = zip_of(tmp_path, {dataset: b"0123456789"})
    for _ in range(2):
        obtain(dataset, tmp_path / "new" / "data")
    assert network["fetched"] == [(archive.url, f"{dataset}.zip", archive.sha256)]
    assert texts(cut_file(tmp_path / "new" / "data", dataset, (8, 1, 1), "byte"))["train"] == b"01234567"


@pytest.mark.parametrize("dataset, folder", [("wt103", "wikitext-103"), ("wt2", "wikitext-2")])
def test_wikitext_is_obtained(tmp_path, network, dataset, folder):
    archive = ARCHIVES[dataset][0]
    network[archive.url] = zip_of(tmp_path, {f"{folder}/{name}": name for name in WIKITEXT_FILES})
    for _ in range(2):
        obtain(dataset, tmp_path / "data")
    assert network["fetched"] == [(archive.url, f"{folder}-v1.zip", archive.sha256)]
    found = split_files(tmp_path / "data", alternatives=WIKITEXT_FILES)
    assert list(texts(found).values()) == [name.encode() for name in WIKITEXT_FILES]


def test_ptb_is_obtained_file_by_file(tmp_path, network):
    archives = {archive.file: archive for archive in ARCHIVES["ptb"] if archive.url}
    network |= {archive.url: archive.file.encode() for archive in archives.values()}
    write_files(tmp_path, {"valid.txt.gz": gzip.compress(b"mine")})
    for _ in range(2):
        obtain("ptb", tmp_path)
    assert [name for _, name, _ in network["fetched"]] == ["ptb.train.txt", "ptb.test.txt"]
    assert all(sha256 == archives[name].sha256 for _, name, sha256 in network["fetched"])
    expected = {"train": b"ptb.train.txt", "valid": b"mine", "test": b"ptb.test.txt"}
    assert texts(split_files(tmp_path, alternatives=PTB_FILES)) == expected


@pytest.mark.parametrize(
    "dataset, name, pack, files",
    [
        ("enwik8", "enwik8.zip", zip_of, {"enwik8": b"raw"}),
        ("wt2", "wikitext-2-v1.zip", zip_of, {f"wikitext-2/{name}": b"a" for name in WIKITEXT_FILES}),
        ("ptb", "simple-examples.tgz", tgz_of, {f"simple-examples/data/{name}": b"a" for name in PTB_FILES}),
    ],
)
def test_an_archive_that_was_put_there_by_hand(tmp_path, network, dataset, name, pack, files):
    write_files(tmp_path / "data", {name: pack(tmp_path, files)})
    obtain(dataset, tmp_path / "data")
    assert network["fetched"] == []
    made = {path.name for path in (tmp_path / "data").iterdir()} - {name, ".lock"}
    assert made == {Path(file).name for file in files}


def test_lm1b_and_its_vocabulary_are_obtained(tmp_path, network):
    shards = {f"{SHARDS}/news.en-0000{number}-of-00100": str(number).encode() for number in (1, 2)}
    others = {f"{LM1B}/README": b"no", HELD_OUT: b"held", HELD_OUT.replace("heldout-00000", "heldout-00001"): b"no"}
    archive, vocabulary = ARCHIVES["lm1b"]
    network |= {archive.url: tgz_of(tmp_path, {**shards, **others}), vocabulary.url: b"the\n"}
    data_dir = tmp_path / "data"
    for _ in range(2):
        obtain("lm1b", data_dir)
    assert [name for _, name, _ in network["fetched"]] == [f"{LM1B}.tar.gz", "1b_word_vocab.txt"]
    assert texts(lm1b_files(data_dir)) == {"train": b"12", "valid": b"held", "test": b"held"}
    files = {path.relative_to(data_dir).as_posix() for path in data_dir.rglob("*") if path.is_file()}
    assert files == {*shards, HELD_OUT, f"{LM1B}.tar.gz", "1b_word_vocab.txt", ".lock"}


def test_nothing_is_obtained_for_splits_from_elsewhere(tmp_path, network):
    write_files(tmp_path, {"valid.txt": b"v", "test.txt": b"t", "1b_word_vocab.txt": b"the"})
    obtain("lm1b", tmp_path, without=("train",))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1b_word_vocab.txt", "test.txt", "valid.txt"]
    with pytest.raises(OSError, match="no network"):
        obtain("lm1b", tmp_path)


def test_what_a_killed_run_left_does_not_count(tmp_path, network):
    write_files(
        tmp_path, {f"{SHARDS}/news.en-00001-of-00100.partial": b"1", HELD_OUT: b"h", "1b_word_vocab.txt": b"the"}
    )
    with pytest.raises(OSError, match="no network"):
        obtain("lm1b", tmp_path)


@pytest.mark.parametrize(
    "dataset, files",
    [
        ("enwik8", ["enwik8"]),
        ("text8", ["train.txt", "valid.txt", "test.txt"]),
        ("wt103", ["train.txt", "wiki.valid.tokens", "test.txt.gz"]),
        ("ptb", list(PTB_FILES)),
    ],
)
def test_a_text_that_is_there_is_left_alone(tmp_path, network, dataset, files):
    write_files(tmp_path, {name: b"mine" for name in files})
    obtain(dataset, tmp_path)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == {name: b"mine" for name in files}
    (tmp_path / files[-1]).unlink()
    with pytest.raises(OSError, match="no network"):
        obtain(dataset, tmp_path)


def test_one_process_obtains_at_a_time(tmp_path, network, monkeypatch):
    network[ARCHIVES["enwik8"][0].url] = zip_of(tmp_path, {"enwik8": b"raw"})
    held = []

    def noted(folder):
        held.append(folder)
        return locked(folder)

    monkeypatch.setattr(data_utils.dataset_texts, "locked", noted)
    obtain("enwik8", tmp_path / "data")
    obtain("enwik8", tmp_path / "data")  # the second time there is nothing to hold it for
    assert held == [tmp_path / "data"]


def test_a_damaged_archive_leaves_nothing(tmp_path, network):
    write_files(tmp_path, {"enwik8.zip": b"<html>Not found</html>"})
    with pytest.raises(ValueError, match=r"Expected an archive that is whole \(.*\)\. Received: archive=.*enwik8\.zip"):
        obtain("enwik8", tmp_path)
    assert not (tmp_path / "enwik8").exists()
