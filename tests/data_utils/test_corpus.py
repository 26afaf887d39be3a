"""A prepared folder is opened, counted and checked."""

import json

import numpy as np
import pytest

from data_utils.corpus import Corpus
from data_utils.prepare import prepare_corpus

TRAIN_TOKENS, VALID_TOKENS = 103, 47  # rows of 34 tokens (1 left out) and of 23 tokens (1 left out)


@pytest.fixture
def folder(tmp_path):
    """A prepared folder with 3 training and 2 evaluation rows."""
    (tmp_path / "train.txt").write_bytes(bytes(range(TRAIN_TOKENS)))
    (tmp_path / "valid.txt").write_bytes(bytes(range(100, 100 + VALID_TOKENS)))
    (tmp_path / "test.txt").write_bytes(b"\xff" * 20)
    prepare_corpus("text", tmp_path, train_batch_size=3, eval_batch_size=2, tgt_len=5)
    return tmp_path


def test_counts(folder):
    corpus = Corpus(folder)
    assert corpus.splits == ("train", "valid", "test")
    assert [corpus.rows(split) for split in corpus.splits] == [3, 2, 2]
    assert [corpus.n_tokens(split) for split in corpus.splits] == [103, 47, 20]
    assert [corpus.n_labels(split) for split in corpus.splits] == [3 * 33, 2 * 22, 2 * 9]
    assert (corpus.n_token, corpus.vocabulary.kind) == (256, "byte")


@pytest.mark.parametrize("split, labels_per_row", [("train", 33), ("valid", 22)])
@pytest.mark.parametrize("tgt_len", [1, 4, 11, 22, 50])
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_segments_are_as_many_as_said(folder, split, labels_per_row, tgt_len, drop_remainder):
    corpus = Corpus(folder)
    expected = labels_per_row // tgt_len + (labels_per_row % tgt_len > 0 and not drop_remainder)
    assert corpus.n_segments(split, tgt_len, drop_remainder) == expected
    if expected:
        batches = list(corpus.dataset(split, tgt_len, drop_remainder))
        assert len(batches) == expected
        if not drop_remainder:
            assert sum(int(np.prod(labels.shape)) for _, labels in batches) == corpus.n_labels(split)


def test_the_batches_are_the_text(folder):
    token_ids, labels = next(iter(Corpus(folder).dataset("train", tgt_len=4)))
    assert token_ids.numpy().tolist() == [[0, 1, 2, 3], [34, 35, 36, 37], [68, 69, 70, 71]]
    assert labels.numpy().tolist() == [[1, 2, 3, 4], [35, 36, 37, 38], [69, 70, 71, 72]]


def test_a_dataset_without_a_segment_is_refused(folder):
    with pytest.raises(ValueError, match="Expected --tgt_len of at most 22, .* valid split. Received: tgt_len=23"):
        Corpus(folder).dataset("valid", tgt_len=23, drop_remainder=True)


def test_bad_arguments_are_refused(folder):
    corpus = Corpus(folder)
    with pytest.raises(ValueError, match="Expected a split among train, valid, test. Received: split='dev'"):
        corpus.dataset("dev", tgt_len=4)
    with pytest.raises(ValueError, match="Expected --tgt_len of at least 1. Received: tgt_len=0"):
        corpus.dataset("train", tgt_len=0)


def test_a_folder_that_was_not_prepared_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected --data_dir to be a folder that data_utils.prepare has"):
        Corpus(tmp_path)


def test_a_deleted_record_file_is_named(folder):
    (folder / "tfrecords/valid.bsz-2.tfrecord").unlink()
    with pytest.raises(FileNotFoundError, match="Expected tfrecords/valid.bsz-2.tfrecord in --data_dir"):
        Corpus(folder)


def test_a_truncated_record_file_is_named(folder):
    path = folder / "tfrecords/train.bsz-3.tfrecord"
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(ValueError, match=r"Expected tfrecords/train.bsz-3.tfrecord in --data_dir to have \d+ bytes"):
        Corpus(folder)


@pytest.mark.parametrize("content, message", [("{", "Expected JSON in corpus.json"), ("{}", "Expected format")])
def test_a_manifest_that_cannot_be_read_is_refused(folder, content, message):
    (folder / "corpus.json").write_text(content)
    with pytest.raises(ValueError, match=message):
        Corpus(folder)


def test_the_identity_depends_on_everything_that_decides_the_tokens(folder):
    manifest = json.loads((folder / "corpus.json").read_text())
    identities = {Corpus(folder).identity}
    for key, value in [("text_sha256", "0" * 64), ("vocabulary", "word")]:
        changed = json.loads(json.dumps(manifest))
        changed["splits"]["test"][key] = value
        (folder / "corpus.json").write_text(json.dumps(changed))
        identities.add(Corpus(folder).identity)
    assert len(identities) == 3
    assert all(len(identity) == 64 for identity in identities)
