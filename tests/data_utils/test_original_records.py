"""The original's record files give its batches, in its lengths and in others, and damage does not go unnoticed."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from data_utils.original_records import OriginalRecords, find_record_info

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
INFOS = sorted(GOLDEN.glob("*/tfrecords/record_info-*.json"))
PTB = "ptb/tfrecords/record_info-valid.bsz-3.tlen-7.json"  # one file of 38 batches of 3 rows of 7 tokens, and one of 5
LM1B = "lm1b/tfrecords/record_info-train.bsz-3.tlen-7.json"  # four files


def golden_batches(info):
    """Returns [file] of [batch] of (inputs, labels) as the original wrote them."""
    split = info.name.split(".")[0].removeprefix("record_info-")
    sizes = info.name.removeprefix(f"record_info-{split}.").removesuffix(".json")
    name = f"{split}.{sizes.replace('.core-', '.tpu_core')}" + ("" if ".core-" in sizes else ".gpu")
    with np.load(info.with_name(f"{name}.npz")) as arrays:
        files = []
        while f"file{len(files)}/inputs" in arrays:
            prefix = f"file{len(files)}"
            files.append(list(zip(arrays[f"{prefix}/inputs"], arrays[f"{prefix}/labels"])))
            if f"{prefix}/inputs_last" in arrays:
                files[-1].append((arrays[f"{prefix}/inputs_last"], arrays[f"{prefix}/labels_last"]))
    return files


def assert_batches(dataset, expected):
    batches = list(dataset.as_numpy_iterator())
    assert len(batches) == len(expected)
    for batch, golden in zip(batches, expected):
        for tokens, golden_tokens in zip(batch, golden, strict=True):
            assert tokens.dtype == np.int32
            np.testing.assert_array_equal(tokens, golden_tokens)


def cut(batches, tgt_len, drop_remainder):
    """Returns the batches of one file cut anew."""
    inputs, labels = (np.concatenate(parts, axis=1) for parts in zip(*batches))
    end = inputs.shape[1] - (inputs.shape[1] % tgt_len if drop_remainder else 0)
    return [(inputs[:, start:start + tgt_len], labels[:, start:start + tgt_len]) for start in range(0, end, tgt_len)]


def copied(folder, name=PTB):
    """Copies record files to a folder that may be changed."""
    info = GOLDEN / name
    for source in [info, *(info.with_name(file) for file in json.loads(info.read_text())["filenames"])]:
        shutil.copy(source, folder)
    return folder / info.name


def example(inputs, labels):
    lists = {"inputs": inputs, "labels": labels}
    features = {name: tf.train.Feature(int64_list=tf.train.Int64List(value=ids)) for name, ids in lists.items() if ids}
    return tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString()


def written(folder, records, num_batch):
    """Writes record files for 2 rows of 4 tokens."""
    with tf.io.TFRecordWriter(str(folder / "r")) as writer:
        for record in records:
            writer.write(record)
    info = folder / "record_info-train.bsz-2.tlen-4.json"
    info.write_text(json.dumps({"filenames": ["r"], "bin_sizes": [], "num_batch": num_batch}))
    return OriginalRecords(info)


def record_ends(content):
    """Returns where each record of a file's bytes ends."""
    ends = [0]
    while ends[-1] < len(content):
        ends.append(ends[-1] + 16 + int.from_bytes(content[ends[-1]:ends[-1] + 8], "little"))
    return ends[1:]


def assert_refused(records, complaint, file=0):
    with pytest.raises(ValueError, match="^Expected .*" + complaint) as caught:
        records.check()
    assert records.files[file] in str(caught.value) and "\n" not in str(caught.value)


def test_the_golden_files_cover_every_data_set_in_both_modes():
    modes = {(info.parents[1].name, ".core-" in info.name) for info in INFOS}
    assert modes == {(name, tpu) for name in ("enwik8", "text8", "ptb", "wt103", "lm1b") for tpu in (False, True)}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("info", INFOS, ids=lambda info: f"{info.parents[1].name}-{info.stem}")
def test_batches_as_the_original_wrote_them(info):
    records, expected = OriginalRecords(info), golden_batches(info)
    records.check()
    assert (records.rows, records.tgt_len) == expected[0][0][0].shape
    assert records.num_core == (2 if ".core-" in info.name else None)
    assert len(records.files) == len(expected)
    assert records.num_batch == sum(map(len, expected))
    assert_batches(records.dataset(), sum(expected, []))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", [PTB, LM1B], ids=["one file", "four files"])
@pytest.mark.parametrize("drop_remainder", [False, True])
@pytest.mark.parametrize("tgt_len", [1, 5, 7, 64, 100_000])
def test_other_lengths_cut_every_file_for_itself(name, tgt_len, drop_remainder):
    expected = [batch for file in golden_batches(GOLDEN / name) for batch in cut(file, tgt_len, drop_remainder)]
    dataset = OriginalRecords(GOLDEN / name).dataset(tgt_len, drop_remainder)
    assert_batches(dataset, expected)
    assert dataset.element_spec[0].shape.as_list() == [3, tgt_len if drop_remainder else None]


@pytest.mark.slow
def test_segments_in_files_of_several_checked_stretches(tmp_path):
    rows = np.arange(2 * 9001).reshape(2, 9001)
    records = [example(row[start:start + 4].tolist(), row[start + 1:start + 5].tolist())
               for start in range(0, 9000, 4) for row in rows]
    original = written(tmp_path, records, 2250)
    original.check()
    assert_batches(original.dataset(6000), cut([(rows[:, :-1], rows[:, 1:])], 6000, False))
    for number in (2, 2046, 2048, 2050, 4496):  # 2048: the first record of the second stretch
        assert_refused(written(tmp_path, records[:number] + records[number + 2:], 2249), "go on from token to token")


def test_another_data_dir_and_a_remote_one(tmp_path):
    info = copied(tmp_path)
    (tmp_path / "data").mkdir()
    record_file = next(tmp_path.glob("*.tfrecords")).rename(tmp_path / "data" / "valid.bsz-3.tlen-7.tfrecords")
    expected = golden_batches(GOLDEN / PTB)[0]
    assert_batches(OriginalRecords(info, tmp_path / "data").dataset(), expected)
    tf.io.gfile.makedirs("ram://original/records")
    tf.io.gfile.copy(str(record_file), f"ram://original/records/{record_file.name}", overwrite=True)
    tf.io.gfile.copy(str(info), f"ram://original/records/{info.name}", overwrite=True)
    for records in (OriginalRecords(info, "ram://original/records"),
                    OriginalRecords(f"ram://original/records/{info.name}")):
        assert records.files == (f"ram://original/records/{record_file.name}",)
        records.check()
        assert_batches(records.dataset(), expected)
    assert find_record_info("ram://original/records", "valid") == [(3, 7, None)]
    with pytest.raises(FileNotFoundError, match="file=ram://original/none/valid"):
        OriginalRecords(info, "ram://original/none")


def test_what_is_available(tmp_path):
    for name in ("valid.bsz-4.tlen-8.core-2", "valid.bsz-16.tlen-8", "valid.bsz-4.tlen-8", "valid.bsz-4.tlen-8.core-16",
                 "train.bsz-1.tlen-2", "valid.bsz-4", "valid.bsz-x.tlen-8", "valid2.bsz-4.tlen-9"):
        (tmp_path / f"record_info-{name}.json").touch()
    (tmp_path / "valid.bsz-4.tlen-9.tfrecords").touch()
    assert find_record_info(tmp_path, "valid") == [(4, 8, None), (16, 8, None), (4, 8, 2), (4, 8, 16)]
    assert find_record_info(str(tmp_path), "test") == []
    with pytest.raises(FileNotFoundError, match="Expected a folder .* Received: folder="):
        find_record_info(tmp_path / "none", "valid")


def test_a_file_that_was_cut_off_is_refused(tmp_path):
    records = OriginalRecords(copied(tmp_path))
    path, content = Path(records.files[0]), Path(records.files[0]).read_bytes()
    ends = record_ends(content)
    assert len(ends) == 39 * 3
    for length, complaint in [
        (ends[-4], "39 batches .* Received: batches=38"),
        (0, "39 batches .* Received: batches=0"),
        (ends[2], "39 batches .* Received: batches=1"),  # after a batch
        (ends[3], "batches of 3 rows"),  # after a record
        (ends[3] + 5, "batches of 3 rows"),  # in the length of a record
        (ends[2] + 30, "batches of 3 rows"),  # in a record
        (len(content) - 1, "batches of 3 rows"),
    ]:
        path.write_bytes(content[:length])
        assert_refused(records, complaint)


@pytest.mark.parametrize("position", [0, 9, 40, 500, -1])
def test_a_changed_byte_is_refused(tmp_path, position):
    records = OriginalRecords(copied(tmp_path))
    content = bytearray(Path(records.files[0]).read_bytes())
    content[position] ^= 1
    Path(records.files[0]).write_bytes(content)
    assert_refused(records, "whole, unchanged batches of 3 rows")
    with pytest.raises(tf.errors.OpError):
        list(records.dataset())


def test_the_file_among_several_that_is_damaged_is_named(tmp_path):
    records = OriginalRecords(copied(tmp_path, LM1B))
    Path(records.files[2]).write_bytes(Path(records.files[2]).read_bytes()[:-1])
    assert_refused(records, "unchanged", file=2)


def test_another_number_of_batches_is_refused(tmp_path):
    records = OriginalRecords(copied(tmp_path, LM1B))
    shutil.copy(records.files[0], records.files[3])
    with pytest.raises(ValueError, match=r"138 batches in the files of .*record_info.* Received: batches=1\d\d$"):
        records.check()


def test_a_batch_that_is_missing_is_refused(tmp_path):
    info = copied(tmp_path)
    info.write_text(info.read_text().replace("39", "38"))
    path = next(tmp_path.glob("*.tfrecords"))
    content = path.read_bytes()
    _, _, first, _, _, second, *_ = record_ends(content)
    path.write_bytes(content[first:])
    OriginalRecords(info).check()  # nothing tells that the first one is gone but num_batch
    path.write_bytes(content[:first] + content[second:])
    assert_refused(OriginalRecords(info), "go on from token to token")


GOOD = [example([1, 2, 3, 4], [2, 3, 4, 5]), example([6, 7, 8, 9], [7, 8, 9, 1]), example([5, 3], [3, 2]),
        example([1, 9], [9, 1])]  # fmt: skip


@pytest.mark.parametrize("change, complaint", [
    ({}, None),
    ({3: example([1, 9], [9, 0])}, None),
    ({3: example([2, 9], [9, 1])}, "go on"),
    ({2: GOOD[3], 3: GOOD[2]}, "go on"),
    ({1: example([6, 7, 8, 9], [7, 8, 2, 1])}, "go on"),
    ({1: example([6, 7, 8], [7, 8, 1])}, "2 rows"),
    ({1: example([6, 7, 8, 9], [7, 8, 9])}, "2 rows"),
    ({1: example([6, 7, 8, 9], None)}, "2 rows"),
    ({2: example([5, 3], None), 3: example([1, 9], None)}, "2 rows"),
    ({2: example([5, 3], [3]), 3: example([1, 9], [9])}, "2 rows"),
    ({3: example([1, -1], [-1, 1])}, "2 rows"),
    ({3: b"no example"}, "2 rows"),
    ({3: tf.train.Example().SerializeToString()}, "2 rows"),
    ({2: tf.train.Example().SerializeToString(), 3: tf.train.Example().SerializeToString()}, "Received: batches=1"),
    ({0: GOOD[2], 1: GOOD[3], 2: example([2], [1]), 3: example([1], [1])}, "Received: batches=1"),
])  # fmt: skip
def test_records_that_do_not_fit_each_other_are_refused(tmp_path, change, complaint):
    records = written(tmp_path, [change.get(number, record) for number, record in enumerate(GOOD)], num_batch=2)
    if complaint is None:
        records.check()
        assert next(iter(records.dataset()))[0].numpy().tolist() == [[1, 2, 3, 4], [6, 7, 8, 9]]
    else:
        assert_refused(records, complaint)


def test_a_batch_too_many_is_refused(tmp_path):
    assert_refused(written(tmp_path, GOOD, num_batch=1), "1 batches in .* Received: batches=2")


def test_missing_files(tmp_path):
    info = copied(tmp_path)
    next(tmp_path.glob("*.tfrecords")).unlink()
    with pytest.raises(FileNotFoundError, match="Expected the record file .* Received: file=.*tlen-7.tfrecords$"):
        OriginalRecords(info)
    info.unlink()
    with pytest.raises(FileNotFoundError, match="Expected a record_info file. Received: record_info_path="):
        OriginalRecords(info)


@pytest.mark.parametrize("name", ["info.json", "record_info-valid.json", "record_info-valid.bsz-0.tlen-7.json",
                                  "record_info-valid.bsz-3.tlen-0.json", "record_info-valid.bsz-3.tlen-7.core-.json"])
def test_a_name_without_sizes_is_refused(tmp_path, name):
    copied(tmp_path).rename(tmp_path / name)
    with pytest.raises(ValueError, match="Expected a file named .* Received: record_info_path="):
        OriginalRecords(tmp_path / name)


@pytest.mark.parametrize("content", [
    b"", b"[]", b"3", b"{", b"\xff", b"[" * 100_000,
    b'{"filenames": ["r"], "bin_sizes": []}',
    b'{"filenames": [], "bin_sizes": [], "num_batch": 3}',
    b'{"filenames": "r", "bin_sizes": [], "num_batch": 3}',
    b'{"filenames": [5], "bin_sizes": [], "num_batch": 3}',
    b'{"filenames": ["../r"], "bin_sizes": [], "num_batch": 3}',
    b'{"filenames": ["/r"], "bin_sizes": [], "num_batch": 3}',
    b'{"filenames": [".."], "bin_sizes": [], "num_batch": 3}',
    b'{"filenames": ["r"], "bin_sizes": [], "num_batch": 0}',
    b'{"filenames": ["r"], "bin_sizes": [], "num_batch": "3"}',
    b'{"filenames": ["r"], "bin_sizes": [], "num_batch": true}',
    b'{"filenames": ["r"], "bin_sizes": ["8"], "num_batch": 3}',
    b'{"filenames": ["r"], "bin_sizes": 8, "num_batch": 3}',
], ids=lambda content: repr(content[:60]))  # fmt: skip
def test_a_record_info_without_sense_is_refused(tmp_path, content):
    info = tmp_path / "record_info-valid.bsz-3.tlen-7.json"
    (tmp_path / "r").touch()
    info.write_bytes(content)
    with pytest.raises(ValueError, match="^Expected JSON with .* Received: record_info_path="):
        OriginalRecords(info)


@pytest.mark.parametrize("tgt_len", [0, -1])
def test_a_length_below_one_is_refused(tgt_len):
    with pytest.raises(ValueError, match=f"Expected tgt_len of at least 1. Received: tgt_len={tgt_len}"):
        OriginalRecords(GOLDEN / PTB).dataset(tgt_len)
