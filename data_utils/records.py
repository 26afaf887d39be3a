"""A stream of token ids -> TFRecord files of contiguous rows, one a host."""

import contextlib
import os
from pathlib import Path

import numpy as np
import tensorflow as tf

from data_utils.atomic_files import replacing
from data_utils.text_sources import TextFile

TOKEN_IDS = "token_ids"  # the one feature of a record
CHUNK_LEN = 1 << 14  # labels in a record


def write_records(stream, paths, rows, dtype, chunk_len=CHUNK_LEN):
    """Writes a stream as `rows` rows of equal length, each of which goes on from record to record.

    The N tokens are cut into `rows` contiguous rows of N // rows tokens; the N % rows last ones are left out. The first
    file has the first rows, the second the next ones, and so on. A record is a `tf.train.Example` whose `token_ids` are
    chunk_len + 1 consecutive tokens of one row, as the bytes of little-endian numbers of type `dtype`. Its last token is
    also the first of the row's next record, so that inputs and labels never look across records; a row's last record is
    shorter. Order in a file: chunk 0 of every row, then chunk 1 of every row, and so on.

    Args:
        stream: a `data_utils.token_stream.TokenStream` of N tokens, N at least 2 * rows.
        paths: the files, one a host, which appear whole or not at all.
        rows: number of rows of all files, a multiple of their number.
        dtype: name of the type of the numbers, `record_dtype(n_token)`.
        chunk_len: labels in a record.

    Returns:
        What tells the files from others, in their order: [{"size", "sha256"}].

    Raises:
        ValueError: rows or chunk_len is below 1, rows is no multiple, or a row would be shorter than 2 tokens.
        OSError: a file cannot be written.
    """
    if rows < 1 or chunk_len < 1 or rows % len(paths):
        raise ValueError(f"Expected rows, a multiple of the number of files, and chunk_len of at least 1. "
                         f"Received: rows={rows}, chunk_len={chunk_len}, {len(paths)} files")
    row_len = len(stream) // rows
    if row_len < 2:
        raise ValueError(f"Expected at least 2 tokens a row. Received: n_tokens={len(stream)}, rows={rows}")
    share = rows // len(paths)
    fingerprints = []
    for host, path in enumerate(paths):
        starts = [row * row_len for row in range(host * share, (host + 1) * share)]
        with replacing(path) as partial:
            _write(partial, stream, starts, row_len, dtype, chunk_len)
            fingerprints.append({"size": os.path.getsize(partial), "sha256": sha256_of_file(partial)})
    return fingerprints


def record_dtype(n_token):
    """Returns the name of the smallest type that holds ids below n_token: uint8, uint16 or int32."""
    return "uint8" if n_token <= 1 << 8 else "uint16" if n_token <= 1 << 16 else "int32"


def is_intact(path, fingerprint):
    """Tells whether `path` still holds, byte by byte, what `write_records` returned `fingerprint` for."""
    path = Path(path)
    return path.is_file() and path.stat().st_size == fingerprint["size"] and sha256_of_file(path) == fingerprint["sha256"]


def sha256_of_file(path):
    """Returns the hex sha256 of the bytes of a file, here or at any address that tf.io.gfile opens."""
    return TextFile(path).sha256()


def _write(path, stream, starts, row_len, dtype, chunk_len):
    little_endian = np.dtype(dtype).newbyteorder("<")
    with _writer(path) as writer:
        for begin in range(0, row_len - 1, chunk_len):
            end = min(begin + chunk_len + 1, row_len)
            for start in starts:
                writer.write(_serialized(stream.read(start + begin, start + end).astype(little_endian, copy=False)))


@contextlib.contextmanager
def _writer(path):
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            yield writer
    except tf.errors.OpError as error:
        raise OSError(f"Expected to be able to write {path}: {error.message}") from error


def _serialized(token_ids):
    values = tf.train.BytesList(value=[token_ids.tobytes()])
    features = tf.train.Features(feature={TOKEN_IDS: tf.train.Feature(bytes_list=values)})
    return tf.train.Example(features=features).SerializeToString()
