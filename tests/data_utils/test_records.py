"""A stream becomes contiguous rows of records."""

import numpy as np
import pytest
import tensorflow as tf

from data_utils.records import is_intact, write_records


def read_back(path):
    """Returns the token ids of every record."""
    examples = (tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path)))
    return [list(example.features.feature["token_ids"].int64_list.value) for example in examples]


def test_records_hold_consecutive_tokens_of_a_row_chunk_by_chunk(tmp_path):
    write_records(np.arange(23), tmp_path / "r", rows=2, chunk_len=4)  # rows 0..10 and 11..21, token 22 is left out
    assert read_back(tmp_path / "r") == [
        [0, 1, 2, 3, 4],
        [11, 12, 13, 14, 15],
        [4, 5, 6, 7, 8],
        [15, 16, 17, 18, 19],
        [8, 9, 10],
        [19, 20, 21],
    ]


@pytest.mark.parametrize("row_len, lengths", [(2, [2]), (5, [5]), (6, [5, 2]), (9, [5, 5])])
def test_no_record_is_without_a_label(tmp_path, row_len, lengths):
    write_records(np.arange(3 * row_len), tmp_path / "r", rows=3, chunk_len=4)
    assert [len(record) for record in read_back(tmp_path / "r")[::3]] == lengths


def test_metadata(tmp_path):
    metadata = write_records(np.arange(23, dtype=np.uint8), tmp_path / "r", rows=2, chunk_len=4)
    assert (metadata["rows"], metadata["chunk_len"], metadata["n_tokens"]) == (2, 4, 23)
    assert metadata["size"] == (tmp_path / "r").stat().st_size
    assert is_intact(tmp_path / "r", metadata)


@pytest.mark.parametrize("damage", ["delete", "truncate", "flip"])
def test_damage_is_noticed(tmp_path, damage):
    path = tmp_path / "r"
    metadata = write_records(np.arange(50), path, rows=3, chunk_len=4)
    content = path.read_bytes()
    path.unlink()
    if damage == "truncate":
        path.write_bytes(content[:-1])
    if damage == "flip":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert not is_intact(path, metadata)


def test_an_interrupted_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "r"
    metadata = write_records(np.arange(50), path, rows=3, chunk_len=4)

    def interrupt(self, record):
        raise KeyboardInterrupt

    monkeypatch.setattr(tf.io.TFRecordWriter, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_records(np.arange(80), path, rows=3, chunk_len=4)
    assert is_intact(path, metadata)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="Expected to be able to write"):
        write_records(np.arange(50), tmp_path / "missing" / "r", rows=3)


@pytest.mark.parametrize("rows, chunk_len", [(0, 4), (2, 0)])
def test_sizes_below_one_are_refused(tmp_path, rows, chunk_len):
    with pytest.raises(ValueError, match="Expected rows and chunk_len of at least 1. Received:"):
        write_records(np.arange(9), tmp_path / "r", rows=rows, chunk_len=chunk_len)


def test_rows_of_one_token_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 2 tokens a row. Received: n_tokens=9, rows=5"):
        write_records(np.arange(9), tmp_path / "r", rows=5)
    assert not list(tmp_path.iterdir())
