"""Records become segments whose rows go on from batch to batch."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from data_utils.input_pipeline import random_lengths, segment_dataset
from data_utils.records import write_records
from data_utils.token_stream import TokenStream

ROWS, ROW_LEN, CHUNK_LEN = 3, 26, 8  # 25 labels a row: chunks of 8, 8, 8 and 1
TGT_LENS = [1, 5, 8, 24, 25, 40]  # some divide the chunk, some the row, some neither


def written(folder, n_tokens, rows, hosts=1, chunk_len=CHUNK_LEN, first=0, name="r"):
    """Returns the record files of the stream first, first + 1, ..., one a host."""
    raw, paths = folder / f"{name}.raw", [folder / f"{name}{host}of{hosts}" for host in range(hosts)]
    (first + np.arange(n_tokens, dtype=np.int32)).tofile(raw)
    write_records(TokenStream(str(raw), np.int32, n_tokens), paths, rows, "int32", chunk_len)
    return paths


def batches(dataset):
    return [(token_ids.numpy(), labels.numpy()) for token_ids, labels in dataset]


@pytest.fixture(scope="module")
def paths(tmp_path_factory):
    """A record file of the stream 1000, 1001, ..., the last two of which fall off the rows."""
    return written(tmp_path_factory.mktemp("records"), ROWS * ROW_LEN + 2, ROWS, first=1000)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder that the examples of a test share."""
    return tmp_path_factory.mktemp("records")


@pytest.mark.parametrize("tgt_len", TGT_LENS)
def test_rows_go_on_and_labels_are_one_token_ahead(paths, tgt_len):
    found = batches(segment_dataset([paths], ROWS, "int32", tgt_len))
    rows = 1000 + np.arange(ROWS * ROW_LEN).reshape(ROWS, ROW_LEN)
    np.testing.assert_array_equal(np.concatenate([x for x, _ in found], axis=1), rows[:, :-1])
    np.testing.assert_array_equal(np.concatenate([y for _, y in found], axis=1), rows[:, 1:])
    for (_, labels), (token_ids, _) in zip(found, found[1:], strict=False):
        np.testing.assert_array_equal(token_ids[:, 0], labels[:, -1])


@pytest.mark.parametrize("tgt_len", TGT_LENS)
@pytest.mark.parametrize("drop_remainder", [False, True])
def test_every_segment_but_the_last_has_the_length_asked_for(paths, tgt_len, drop_remainder):
    widths = [x.shape[1] for x, _ in segment_dataset([paths], ROWS, "int32", tgt_len, drop_remainder)]
    whole, rest = divmod(ROW_LEN - 1, tgt_len)
    assert widths == [tgt_len] * whole + ([rest] if rest and not drop_remainder else [])


@pytest.mark.slow
@settings(deadline=None, max_examples=10)
@given(data=st.data())
def test_rows_of_all_hosts_go_on_from_segment_to_segment(folder, data):
    hosts = data.draw(st.sampled_from([1, 2, 4]), "hosts")
    rows = hosts * data.draw(st.integers(1, 3), "rows of a host")
    row_len = data.draw(st.integers(2, 40), "tokens of a row")
    left_out = data.draw(st.integers(0, rows - 1), "left out")
    chunk_len = data.draw(st.integers(1, 12), "chunk_len")
    tgt_len = data.draw(st.integers(1, 45) | st.lists(st.integers(1, 9), min_size=1, max_size=5), "tgt_len")
    paths = written(folder, rows * row_len + left_out, rows, hosts, chunk_len)
    host = data.draw(st.integers(0, hosts - 1), "host")
    share = slice(host * rows // hosts, (host + 1) * rows // hosts)
    expected = np.arange(rows * row_len).reshape(rows, row_len)
    for parts, count, part in ((paths, rows, slice(None)), ([paths[host]], rows // hosts, share)):
        found = batches(segment_dataset([parts], count, "int32", tgt_len))
        np.testing.assert_array_equal(np.concatenate([x for x, _ in found], axis=1), expected[part, :-1])
        np.testing.assert_array_equal(np.concatenate([y for _, y in found], axis=1), expected[part, 1:])
        lengths = itertools.cycle([tgt_len] if isinstance(tgt_len, int) else tgt_len)
        assert all(x.shape[1] == next(lengths) for x, _ in found[:-1])


@pytest.mark.parametrize("drop_remainder", [False, True])
def test_a_pass_goes_on_in_the_next_stream_with_a_new_segment(folder, drop_remainder):
    parts = [written(folder, 2 * 9, 2, 2, 4, name="a"), written(folder, 2 * 6 + 1, 2, 2, 4, first=100, name="b")]
    found = batches(segment_dataset(parts, 2, "int32", 3, drop_remainder))
    rows = [x.tolist() for x, _ in found]
    short = [] if drop_remainder else [[[6, 7], [15, 16]], [[103, 104], [109, 110]]]
    assert rows == [[[0, 1, 2], [9, 10, 11]], [[3, 4, 5], [12, 13, 14]], *short[:1],
                    [[100, 101, 102], [106, 107, 108]], *short[1:]]


@pytest.mark.parametrize("tgt_len, drop_remainder, shape", [(5, False, (ROWS, None)), (5, True, (ROWS, 5)), ((5, 6), True, (ROWS, None))])
def test_shapes_are_static(paths, tgt_len, drop_remainder, shape):
    spec = tf.TensorSpec(shape, tf.int32)
    assert segment_dataset([paths], ROWS, "int32", tgt_len, drop_remainder).element_spec == (spec, spec)


def test_a_second_pass_gives_the_same(paths):
    dataset = segment_dataset([paths], ROWS, "int32", 7)
    first, second = ([x.numpy().tolist() for x, _ in dataset] for _ in range(2))
    assert first == second
    repeated = [x.numpy().tolist() for x, _ in dataset.repeat(2)]
    assert repeated == first + first


def test_skipping_resumes_inside_the_text(paths):
    dataset = segment_dataset([paths], ROWS, "int32", 4)
    token_ids, _ = next(iter(dataset.skip(3)))
    assert token_ids[:, 0].numpy().tolist() == [1012, 1012 + ROW_LEN, 1012 + 2 * ROW_LEN]


@given(st.integers(1, 3000), st.integers(1, 100), st.integers(0, 5))
def test_random_lengths_cover_the_text_and_not_more(total, mean, seed):
    lengths = random_lengths(total, mean, seed)
    assert lengths == random_lengths(total, mean, seed)
    assert sum(lengths[:-1]) < total <= sum(lengths)
    assert min(lengths) >= 5
    assert all(type(length) is int for length in lengths)


def test_random_lengths_are_about_as_long_as_asked_for():
    lengths = np.array(random_lengths(1_000_000, 70, seed=1))
    short = lengths < 52
    assert abs(short.mean() - 0.05) < 0.01
    assert abs(lengths[~short].mean() - 70) < 1
    assert abs(lengths[short].mean() - 35) < 1.5
    assert abs(lengths[~short].std() - 5) < 0.3
    assert lengths.tolist() != list(random_lengths(1_000_000, 70, seed=2))
    assert set(random_lengths(100, 10, seed=1, std=0.0, short_share=0.0)) == {10}
