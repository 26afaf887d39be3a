"""A prepared folder is opened, counted and checked."""

import json

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from data_utils.corpus import Corpus, read_manifest, sealed
from data_utils.input_pipeline import random_lengths
from data_utils.prepare import prepare_corpus

FILE = "tfrecords/train.bsz-4.host-1-of-2.tfrecord"


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A prepared folder with 4 training and 2 evaluation rows on 2 hosts, which no test changes."""
    folder = tmp_path_factory.mktemp("prepared")
    (folder / "train.txt").write_bytes(bytes(range(137)))  # rows of 34 tokens, 1 left out
    (folder / "valid.txt").write_bytes(bytes(range(100, 147)))  # rows of 23 tokens, 1 left out
    (folder / "test.txt").write_bytes(b"\xff" * 20)
    prepare_corpus("text", folder, train_batch_size=4, eval_batch_size=2, tgt_len=5, num_hosts=2)
    return folder


@pytest.fixture
def folder(prepared, tmp_path):
    """A copy of the prepared folder."""
    tf.io.gfile.mkdir(str(tmp_path / "tfrecords"))
    for path in prepared.rglob("*"):
        if path.is_file():
            (tmp_path / path.relative_to(prepared)).write_bytes(path.read_bytes())
    return tmp_path


def flip(path, place):
    content = bytearray(path.read_bytes())
    content[place] ^= 1
    path.write_bytes(content)


def test_counts(prepared):
    corpus = Corpus(prepared)
    assert corpus.splits == ("train", "valid", "test")
    assert [corpus.rows(split) for split in corpus.splits] == [4, 2, 2]
    assert [corpus.n_tokens(split) for split in corpus.splits] == [137, 47, 20]
    assert [corpus.n_left_out(split) for split in corpus.splits] == [1, 1, 0]
    assert [corpus.n_labels(split) for split in corpus.splits] == [4 * 33, 2 * 22, 2 * 9]
    assert [corpus.n_unknown(split) for split in corpus.splits] == [0, 0, 0]
    assert (corpus.n_token, corpus.vocabulary.kind, corpus.num_hosts, corpus.cutoffs) == (256, "byte", 2, ())
    assert [path.removeprefix(f"{prepared}/") for path in corpus.record_files("train")] == [FILE.replace("host-1", "host-0"), FILE]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("split, labels_per_row", [("train", 33), ("valid", 22)])
@pytest.mark.parametrize("tgt_len", [1, 11, 50, np.int64(4), (3, 5), random_lengths(30, 7, 0)])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_segments_and_labels_are_as_many_as_said(prepared, split, labels_per_row, tgt_len, drop_remainder):
    corpus = Corpus(prepared)
    if np.ndim(tgt_len) == 0:
        expected = labels_per_row // tgt_len + (labels_per_row % tgt_len > 0 and not drop_remainder)
        assert corpus.n_segments(split, tgt_len, drop_remainder) == expected
    if corpus.n_segments(split, tgt_len, drop_remainder):
        batches = list(corpus.dataset(split, tgt_len, drop_remainder))
        assert len(batches) == corpus.n_segments(split, tgt_len, drop_remainder)
        assert len(batches) == corpus.dataset(split, tgt_len, drop_remainder).cardinality()
        scored = sum(int(np.prod(labels.shape)) for _, labels in batches)
        assert scored == corpus.n_labels(split, tgt_len, drop_remainder)


@settings(max_examples=12, deadline=None)
@given(rows=st.integers(1, 5), tgt_len=st.integers(1, 30), n_tokens=st.integers(10, 256))
def test_scored_tokens_follow_from_the_sizes(tmp_path_factory, rows, tgt_len, n_tokens):
    folder = tmp_path_factory.mktemp("sizes")
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_bytes(bytes(range(n_tokens)))
    corpus = prepare_corpus("text", folder, rows, rows)
    assert corpus.n_labels("valid") == rows * (n_tokens // rows - 1)
    assert corpus.n_labels("valid", tgt_len, drop_remainder=True) == rows * tgt_len * ((n_tokens // rows - 1) // tgt_len)


def test_the_batches_are_the_text(prepared):
    token_ids, labels = next(iter(Corpus(prepared).dataset("train", tgt_len=4)))
    assert token_ids.numpy().tolist() == [[0, 1, 2, 3], [34, 35, 36, 37], [68, 69, 70, 71], [102, 103, 104, 105]]
    assert labels.numpy().tolist() == [[1, 2, 3, 4], [35, 36, 37, 38], [69, 70, 71, 72], [103, 104, 105, 106]]


@pytest.mark.parametrize("host", [0, 1])
def test_a_host_reads_its_rows(prepared, host):
    corpus = Corpus(prepared)
    whole = [tuple(side.numpy()[2 * host:2 * host + 2].tolist() for side in batch) for batch in corpus.dataset("train", 7)]
    assert [tuple(side.numpy().tolist() for side in batch) for batch in corpus.dataset("train", 7, host=host)] == whole


def test_a_dataset_without_a_segment_is_refused(prepared):
    for tgt_len in (23, np.int64(23), [23, 1]):
        with pytest.raises(ValueError, match="Expected --tgt_len of at most 22, .* valid split. Received: tgt_len="):
            Corpus(prepared).dataset("valid", tgt_len=tgt_len, drop_remainder=True)


def test_bad_arguments_are_refused(prepared):
    corpus = Corpus(prepared)
    with pytest.raises(ValueError, match="Expected a split among train, valid, test. Received: split='dev'"):
        corpus.dataset("dev", tgt_len=4)
    for tgt_len in (0, -1, [], [3, 0], np.int64(0)):
        with pytest.raises(ValueError, match="Expected --tgt_len of at least 1. Received: tgt_len="):
            corpus.dataset("train", tgt_len=tgt_len)
    for host in (-1, 2):
        with pytest.raises(ValueError, match=f"Expected a host below 2. Received: host={host}"):
            corpus.dataset("train", tgt_len=4, host=host)


def test_a_folder_that_was_not_prepared_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected --data_dir to be a folder that data_utils.prepare has"):
        Corpus(tmp_path)


def test_a_deleted_record_file_is_named(folder):
    (folder / FILE).unlink()
    with pytest.raises(FileNotFoundError, match=f"Expected {FILE} in --data_dir"):
        Corpus(folder)


def test_a_truncated_record_file_is_named(folder):
    path = folder / FILE
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=rf"Expected {FILE} in --data_dir to have \d+ bytes"):
        Corpus(folder)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("place", [0, 7, 8, 12, 30, -4, -1])  # the length, its checksum, the data, its checksum
def test_a_flipped_bit_is_noticed_at_once(folder, place):
    corpus = Corpus(folder)
    corpus.check()
    flip(folder / FILE, place)
    corpus = Corpus(folder)
    with pytest.raises(tf.errors.DataLossError):
        list(corpus.dataset("train", 5))
    assert list(corpus.dataset("train", 5, host=0)) and list(corpus.dataset("valid", 5))
    with pytest.raises(ValueError, match=f"Expected {FILE} in --data_dir to be as it was written"):
        corpus.check()


def test_the_check_names_what_is_gone_since_it_was_opened(folder):
    corpus = Corpus(folder)
    (folder / FILE).unlink()
    with pytest.raises(FileNotFoundError, match=f"Expected {FILE} in --data_dir"):
        corpus.check()


@pytest.mark.parametrize("content, message", [
    ("{", "Expected JSON in corpus.json"), ("{}", "Expected format"), ("[]", "Expected format"), ("\xff", "Expected JSON"),
    ('{"format": 1}', "Expected format 2"), ('{"format": 2}', "Expected corpus.json of --data_dir as it was written")])
def test_a_manifest_that_cannot_be_read_is_refused(folder, content, message):
    (folder / "corpus.json").write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match=message):
        Corpus(folder)


def test_every_change_of_the_manifest_is_noticed(folder):
    text = (folder / "corpus.json").read_text()
    for changed in (text.replace('"rows": 4', '"rows": 2'), text.replace("137", "138"), text.replace('"byte"', '"char"')):
        assert changed != text
        (folder / "corpus.json").write_text(changed)
        with pytest.raises(ValueError, match="Expected corpus.json of --data_dir as it was written"):
            Corpus(folder)


@pytest.mark.parametrize("content, message", [
    ("{", "Expected a JSON object with the kind"),
    ('{"kind": "char", "symbols": "a", "unit": "byte", "unknown": null}', "Expected vocabulary.json in --data_dir to be the one")])
def test_another_vocabulary_is_refused(folder, content, message):
    (folder / "vocabulary.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        Corpus(folder)


def test_the_identity_is_that_of_the_tokens_and_their_order(folder):
    manifest = read_manifest(folder)
    identity = Corpus(folder).identity
    changes = {
        "text": lambda entry: entry["splits"]["test"]["made_from"].update(text=["0"]),
        "order": lambda entry: entry["splits"]["train"]["made_from"].update(order={"num_passes": 2}),
        "dataset": lambda entry: entry.update(dataset="other"),
    }
    identities = {identity}
    for change in changes.values():
        changed = json.loads(json.dumps(manifest))
        change(changed)
        (folder / "corpus.json").write_text(json.dumps(sealed(changed)))
        identities.add(Corpus(folder).identity)
    assert len(identities) == 4
    assert all(len(identity) == 64 for identity in identities)
