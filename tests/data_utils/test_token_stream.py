"""Ids are read from files piece by piece, in passes and in shuffled lines."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from testing.golden_texts import GOLDEN, read_json

import data_utils.token_stream
from data_utils.token_stream import TokenStream


def stream_of(ids, path, **arguments):
    ids = np.asarray(ids)
    ids.tofile(path)
    return TokenStream(str(path), ids.dtype.type, len(ids), **arguments)


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    """A file that the examples of a test share."""
    return tmp_path_factory.mktemp("streams") / "ids.raw"


@given(st.integers(1, 40), st.lists(st.integers(0, 1000), min_size=1, max_size=4), st.data())
def test_passes_go_on_from_the_end_to_the_beginning(path, size, starts, data):
    starts = tuple(start % size for start in starts)
    stream = stream_of(np.arange(size, dtype=np.int32), path, starts=starts)
    expected = [(start + place) % size for start in starts for place in range(size)]
    assert len(stream) == len(expected)
    begin = data.draw(st.integers(0, len(expected)))
    end = data.draw(st.integers(begin, len(expected)))
    assert stream.read(begin, end).tolist() == expected[begin:end]


def test_raw_ids_become_ids(path):
    stream = stream_of(np.array([2, 0, 1], np.uint8), path, raw_to_id=np.array([70_000, 5, 6], np.int32))
    assert stream.read(0, 3).tolist() == [6, 70_000, 5]
    assert stream.read(1, 1).tolist() == []


def test_an_empty_stream(path):
    stream = stream_of(np.zeros(0, np.uint8), path, line_lengths=np.zeros(0, int))
    assert stream.read(0, 0).tolist() == []
    assert len(stream.rotated(3, np.random.RandomState(0))) == 0
    assert len(stream.shuffled(np.zeros(0, int), path.with_name("shuffled"))) == 0


@pytest.mark.parametrize("case", range(5))
def test_passes_are_those_of_the_original(path, case):
    given_case = read_json("functions/batchify_cases.json")[case]
    expected = np.load(GOLDEN / "functions" / "batchify.npz")[f"case{case}/out"]
    stream = stream_of(np.arange(given_case["n"], dtype=np.int32), path)
    stream = stream.rotated(given_case["num_passes"], np.random.RandomState(given_case["numpy_seed"]))
    row_len = len(stream) // given_case["batch_size"]
    rows = [stream.read(row * row_len, (row + 1) * row_len) for row in range(given_case["batch_size"])]
    np.testing.assert_array_equal(rows, expected)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=12), st.randoms(), st.integers(1, 9))
def test_lines_are_shuffled_whole(path, lengths, random, together):
    lines = np.split(np.arange(sum(lengths), dtype=np.uint16), np.cumsum(lengths)[:-1])
    order = list(range(len(lines)))
    random.shuffle(order)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(data_utils.token_stream, "_COPIED", together)
        shuffled = stream_of(np.concatenate(lines), path, line_lengths=np.array(lengths)).shuffled(np.array(order), f"{path}.new")
    assert shuffled.read(0, len(shuffled)).tolist() == np.concatenate([lines[index] for index in order]).tolist()
    assert shuffled.line_lengths.tolist() == [lengths[index] for index in order]
