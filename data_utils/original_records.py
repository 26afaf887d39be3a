"""TFRecords that the original code prepared -> a tf.data.Dataset of (token_ids, labels) segments."""

import json
import os
import re

import tensorflow as tf

_NAME = re.compile(r"record_info-(.+)\.bsz-(\d+)\.tlen-(\d+)(?:\.core-(\d+))?\.json")
_FEATURE = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True, default_value=-1)  # -1: what no id is
_INFO = "JSON with filenames (a list of names without folders), bin_sizes (numbers) and num_batch (at least 1)"
_CHECKED_LEN = 4096  # tokens of a row that are looked at together


def find_record_info(folder, split):
    """Tells in which sizes a split was prepared.

    Args:
        folder: where the record_info files are, a path or gs://...
        split: "train", "valid" or "test".

    Returns:
        A sorted list of (batch_size, tgt_len, num_core); num_core is None for files for GPUs. Each names a file,
        record_info-{split}.bsz-{batch_size}.tlen-{tgt_len}[.core-{num_core}].json.

    Raises:
        FileNotFoundError: there is no such folder.
    """
    if not tf.io.gfile.isdir(str(folder)):
        raise FileNotFoundError(f"Expected a folder with record_info files. Received: folder={folder}")
    matches = [_NAME.fullmatch(name) for name in tf.io.gfile.listdir(str(folder))]
    sizes = [match.groups()[1:] for match in matches if match and match[1] == split]
    found = [tuple(size and int(size) for size in three) for three in sizes]
    return sorted(found, key=lambda three: (three[2] is not None, three))


class OriginalRecords:
    """The record files of one split as the original's data_utils.py wrote them.

    A file holds B records for every batch, one a row, with the features `inputs` and `labels`. Within a file, row b of
    a batch goes on where row b of the batch before it ended; the next file starts anew. A file for GPUs may end with
    a shorter batch. What files for TPUs hold besides these two features is not read.

    Args:
        record_info_path: a file record_info-{split}.bsz-{B}.tlen-{T}[.core-{cores}].json, a path or gs://...
        data_dir: the folder of the record files, a path or gs://..., None: that of record_info_path.

    Attributes:
        rows: B, rows of a batch.
        tgt_len: T, tokens of a segment as written.
        num_core: the TPU cores of a host that the files were written for, or None.
        num_batch: batches in all files.
        files: tuple of the paths of the record files, in order.
        highest_id: the highest id that `check` has found, -1 before.

    Raises:
        FileNotFoundError: the record_info file or one of the record files is missing.
        ValueError: the name or the content of the record_info file is not what the original writes.

    Example:
        records = OriginalRecords("wikitext-103/tfrecords/record_info-valid.bsz-60.tlen-150.json")
        records.check()
        for token_ids, labels in records.dataset(tgt_len=64):  # (60, 64), (60, 64)
            ...
    """

    def __init__(self, record_info_path, data_dir=None):
        folder, name = os.path.split(str(record_info_path))
        match = _NAME.fullmatch(name)
        if match is None or 0 in (int(match[2]), int(match[3])):
            raise ValueError(
                "Expected a file named record_info-{split}.bsz-{B}.tlen-{T}[.core-{cores}].json. "
                f"Received: record_info_path={record_info_path}"
            )
        self.record_info_path = str(record_info_path)
        self.data_dir = folder if data_dir is None else str(data_dir)
        self.rows, self.tgt_len = int(match[2]), int(match[3])
        self.num_core = match[4] and int(match[4])
        names, self.num_batch = _read_info(self.record_info_path)
        self.highest_id = -1
        self.files = tuple(tf.io.gfile.join(self.data_dir, name) for name in names)
        for file in self.files:
            if not tf.io.gfile.exists(file):
                raise FileNotFoundError(f"Expected the record file that {name} names. Received: file={file}")

    def dataset(self, tgt_len=None, drop_remainder=False):
        """Returns the segments of all files in text order as a tf.data.Dataset of (token_ids, labels).

        Args:
            tgt_len: T, tokens of a segment; None: as written. Any other cuts the rows of every file anew.
            drop_remainder: whether to leave out the last segment of a file when it is shorter than T.

        Returns:
            int32 (B, T) and (B, T), or (B, None) unless drop_remainder. Row b goes on from batch to batch within a
            file; labels are the inputs one token later. Reading a file that `check` would refuse may raise an error
            of TensorFlow.

        Raises:
            ValueError: tgt_len is below 1.
        """
        tgt_len = self.tgt_len if tgt_len is None else tgt_len
        if tgt_len < 1:
            raise ValueError(f"Expected tgt_len of at least 1. Received: tgt_len={tgt_len}")
        length = tgt_len if drop_remainder else None

        def inputs_and_labels(tokens):
            tokens = tf.ensure_shape(tf.transpose(tokens, (2, 1, 0)), (2, self.rows, length))
            return tokens[0], tokens[1]

        def segments(file):
            return self._tokens(file).rebatch(tgt_len, drop_remainder=drop_remainder).map(inputs_and_labels)

        return tf.data.Dataset.from_tensor_slices(list(self.files)).flat_map(segments).prefetch(tf.data.AUTOTUNE)

    def check(self):
        """Reads all files once, inside tf.data, to find what would train a model on the wrong text.

        Returns:
            The labels of a row of each file, as a list.

        Raises:
            ValueError: a file is cut off or changed, its number of records is no multiple of B, a row does not go on
                from batch to batch, or all files together have not num_batch batches.
        """
        labels = [self._row_len(file) for file in self.files]
        found = sum(-(-count // self.tgt_len) for count in labels)
        if found != self.num_batch:
            where = self.files[0] if len(self.files) == 1 else f"the files of {self.record_info_path}"
            raise ValueError(f"Expected {self.num_batch} batches in {where}. Received: batches={found}")
        return labels

    def _tokens(self, file):
        """Returns a dataset of the batches of a file, (T, B, 2) int32: time first, inputs and labels last."""

        def parsed(serialized):
            features = {"inputs": _FEATURE, "labels": _FEATURE}
            examples = tf.io.parse_example(tf.ensure_shape(serialized, (self.rows,)), features)
            tokens = tf.stack([examples["inputs"], examples["labels"]])  # fails if their shapes differ
            with tf.control_dependencies([tf.debugging.assert_non_negative(tokens, "rows differ in length")]):
                return tf.transpose(tf.cast(tokens, tf.int32))

        return tf.data.TFRecordDataset(file).batch(self.rows).map(parsed)

    def _row_len(self, file):
        """Returns the labels of a row of a file, having checked that it goes on from token to token."""

        def step(state, tokens):
            length, goes_on, expected, highest = state
            inputs, labels = tokens[..., 0], tokens[..., 1]  # (T, B)
            expected = tf.concat([tf.where(length == 0, inputs[0], expected)[None], labels[:-1]], axis=0)
            goes_on &= tf.reduce_all(inputs == expected)
            return length + tf.shape(inputs, tf.int64)[0], goes_on, labels[-1], tf.maximum(highest, tf.reduce_max(tokens))

        start = (tf.constant(0, tf.int64), tf.constant(True), tf.zeros(self.rows, tf.int32), tf.constant(-1))
        try:
            length, goes_on, _, highest = self._tokens(file).rebatch(_CHECKED_LEN).reduce(start, step)
        except (tf.errors.DataLossError, tf.errors.InvalidArgumentError) as error:
            raise ValueError(f"Expected whole, unchanged batches of {self.rows} rows. Received: file={file}") from error
        if not goes_on:
            raise ValueError(f"Expected rows that go on from token to token. Received: file={file}")
        self.highest_id = max(self.highest_id, int(highest))
        return int(length)


def _read_info(path):
    """Returns the names of the record files and the number of batches that a record_info file states."""
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"Expected a record_info file. Received: record_info_path={path}")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            info = json.loads(file.read().decode("utf-8"))
        names, bin_sizes, num_batch = info["filenames"], info["bin_sizes"], info["num_batch"]
        sound = all(type(number) is int and number > 0 for number in [num_batch, *bin_sizes])
        sound = sound and type(names) is list and len(names) > 0 and all(map(_is_file_name, names))
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"Expected {_INFO}. Received: record_info_path={path}") from error
    if not sound:
        raise ValueError(f"Expected {_INFO}. Received: record_info_path={path}")
    return names, num_batch


def _is_file_name(name):
    return type(name) is str and os.path.basename(name) == name and name not in ("", ".", "..")
