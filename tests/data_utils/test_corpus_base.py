"""Rows and segments are counted the same way for every corpus."""

import pytest

from data_utils.corpus_base import CorpusBase


class Rows(CorpusBase):
    """A corpus of 3 rows, in two streams of 10 and 7 labels a row."""

    splits = ("train",)

    def rows(self, split):
        return 3

    def _labels_per_row(self, split):
        return [10, 7]


@pytest.mark.parametrize("tgt_len, drop_remainder, segments, labels", [
    (5, False, 4, 51), (5, True, 3, 45), (7, True, 2, 42), (11, False, 2, 51), (11, True, 0, 0), ([4, 3], False, 5, 51),
    ([4, 3], True, 4, 42)])
def test_counts(tgt_len, drop_remainder, segments, labels):
    assert Rows().n_segments("train", tgt_len, drop_remainder) == segments
    assert Rows().n_labels("train", tgt_len, drop_remainder) == labels


@pytest.mark.parametrize("tgt_len", [0, -1, [], [3, 0]])
def test_lengths_below_one(tgt_len):
    with pytest.raises(ValueError, match="at least 1"):
        Rows().n_segments("train", tgt_len)


def test_no_segment_of_such_a_length():
    with pytest.raises(ValueError, match="at most 10, the labels of a row of the train split. Received: tgt_len=11"):
        Rows()._check_segments("train", 11, True)


def test_an_unknown_split():
    with pytest.raises(ValueError, match="Expected a split among train. Received: split='x'"):
        Rows()._checked_split("x")
