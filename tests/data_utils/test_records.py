"""A stream becomes contiguous rows of records."""

import errno

import numpy as np
import pytest
import tensorflow as tf

import data_utils.records
from data_utils.records import is_intact, record_dtype, write_records


class Ids:
    """A stream of ids in memory."""

    def __init__(self, ids):
        self.ids = np.asarray(ids)

    def __len__(self):
        return len(self.ids)

    def read(self, start, stop):
        return self.ids[start:stop]


def read_back(path, dtype="uint16"):
    """Returns the token ids of every record."""
    examples = (tf.train.Example.FromString(record.numpy()) for record in tf.data.TFRecordDataset(str(path)))
    return [np.frombuffer(example.features.feature["token_ids"].bytes_list.value[0], np.dtype(dtype).newbyteorder("<")).tolist()
            for example in examples]


def test_records_hold_consecutive_tokens_of_a_row_chunk_by_chunk(tmp_path):
    write_records(Ids(np.arange(23)), [tmp_path / "r"], 2, "uint16", chunk_len=4)  # rows 0..10 and 11..21, token 22 is left out
    assert read_back(tmp_path / "r") == [
        [0, 1, 2, 3, 4],
        [11, 12, 13, 14, 15],
        [4, 5, 6, 7, 8],
        [15, 16, 17, 18, 19],
        [8, 9, 10],
        [19, 20, 21],
    ]


def test_every_host_has_its_share_of_the_rows(tmp_path):
    stream = Ids(np.arange(4 * 5 + 3))
    write_records(stream, [tmp_path / "all"], 4, "uint16", chunk_len=3)
    write_records(stream, [tmp_path / "0", tmp_path / "1"], 4, "uint16", chunk_len=3)
    whole = read_back(tmp_path / "all")
    assert read_back(tmp_path / "0") == whole[0:2] + whole[4:6]
    assert read_back(tmp_path / "1") == whole[2:4] + whole[6:8]


@pytest.mark.parametrize("row_len, lengths", [(2, [2]), (5, [5]), (6, [5, 2]), (9, [5, 5])])
def test_no_record_is_without_a_label(tmp_path, row_len, lengths):
    write_records(Ids(np.arange(3 * row_len)), [tmp_path / "r"], 3, "uint16", chunk_len=4)
    assert [len(record) for record in read_back(tmp_path / "r")[::3]] == lengths


@pytest.mark.parametrize("n_token, dtype", [(2, "uint8"), (256, "uint8"), (257, "uint16"), (65_536, "uint16"), (65_537, "int32")])
def test_the_largest_id_fits_its_type(tmp_path, n_token, dtype):
    assert record_dtype(n_token) == dtype
    write_records(Ids([n_token - 1, 0]), [tmp_path / "r"], 1, dtype)
    assert read_back(tmp_path / "r", dtype) == [[n_token - 1, 0]]


def test_fingerprints(tmp_path):
    paths = [tmp_path / "0", tmp_path / "1"]
    fingerprints = write_records(Ids(np.arange(23)), paths, 2, "uint8", chunk_len=4)
    assert [entry["size"] for entry in fingerprints] == [path.stat().st_size for path in paths]
    assert all(map(is_intact, paths, fingerprints))
    assert not is_intact(paths[0], fingerprints[1])


@pytest.mark.parametrize("damage", ["delete", "truncate", "flip"])
def test_damage_is_noticed(tmp_path, damage):
    path = tmp_path / "r"
    fingerprint, = write_records(Ids(np.arange(50)), [path], 3, "uint8", chunk_len=4)
    content = path.read_bytes()
    path.unlink()
    if damage == "truncate":
        path.write_bytes(content[:-1])
    if damage == "flip":
        path.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    assert not is_intact(path, fingerprint)


def test_an_interrupted_write_leaves_the_old_file_alone(tmp_path, monkeypatch):
    path = tmp_path / "r"
    fingerprint, = write_records(Ids(np.arange(50)), [path], 3, "uint8", chunk_len=4)

    def interrupt(self, record):
        raise KeyboardInterrupt

    monkeypatch.setattr(tf.io.TFRecordWriter, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_records(Ids(np.arange(80)), [path], 3, "uint8", chunk_len=4)
    assert is_intact(path, fingerprint)
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_is_an_os_error(tmp_path):
    with pytest.raises(OSError, match="Expected to be able to write .*missing/r.partial"):
        write_records(Ids(np.arange(50)), [tmp_path / "missing" / "r"], 3, "uint8")


def test_a_full_disk_at_the_last_moment_leaves_nothing(tmp_path, monkeypatch):
    def full(path):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data_utils.records, "sha256_of_file", full)
    with pytest.raises(OSError, match="No space left"):
        write_records(Ids(np.arange(50)), [tmp_path / "r"], 3, "uint8")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("rows, files, chunk_len", [(0, 1, 4), (2, 1, 0), (3, 2, 4), (-2, 2, 4)])
def test_numbers_that_do_not_fit_are_refused(tmp_path, rows, files, chunk_len):
    paths = [tmp_path / str(file) for file in range(files)]
    with pytest.raises(ValueError, match=f"Expected rows, a multiple of the number of files, .*Received: rows={rows}, chunk_len={chunk_len}"):
        write_records(Ids(np.arange(90)), paths, rows, "uint8", chunk_len)
    assert not list(tmp_path.iterdir())


def test_rows_of_one_token_are_refused(tmp_path):
    with pytest.raises(ValueError, match="at least 2 tokens a row. Received: n_tokens=9, rows=5"):
        write_records(Ids(np.arange(9)), [tmp_path / "r"], 5, "uint8")
    assert not list(tmp_path.iterdir())
