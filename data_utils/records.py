"""A stream of token ids -> a TFRecord file of contiguous rows."""

import hashlib
import os
from pathlib import Path

import tensorflow as tf

from data_utils.atomic_files import replacing

TOKEN_IDS = "token_ids"  # the one feature of a record
CHUNK_LEN = 4096  # labels in a record


def write_records(token_ids, path, rows, chunk_len=CHUNK_LEN):
    """Writes a stream as `rows` rows of equal length, each of which goes on from record to record.

    The N tokens are cut into `rows` contiguous rows of N // rows tokens; the N % rows last ones are left out. A record
    is a `tf.train.Example` whose `token_ids` are chunk_len + 1 consecutive tokens of one row. Its last token is also
    the first of the row's next record, so that inputs and labels never look across records; a row's last record is
    shorter. Order in the file: chunk 0 of every row, then chunk 1 of every row, and so on.

    Args:
        token_ids: integer array (N,), N at least 2 * rows.
        path: the file, which appears whole or not at all.
        rows: number of rows, the batch size that will be read.
        chunk_len: labels in a record.

    Returns:
        What tells this file from another: {"rows", "chunk_len", "n_tokens", "size", "sha256"}; `n_tokens` is N, size
        and sha256 are those of the file.

    Raises:
        ValueError: rows or chunk_len is below 1, or a row would be shorter than 2 tokens.
        OSError: the file cannot be written.
    """
    if rows < 1 or chunk_len < 1:
        raise ValueError(f"Expected rows and chunk_len of at least 1. Received: rows={rows}, chunk_len={chunk_len}")
    row_len = len(token_ids) // rows
    if row_len < 2:
        raise ValueError(f"Expected at least 2 tokens a row. Received: n_tokens={len(token_ids)}, rows={rows}")
    table = token_ids[: rows * row_len].reshape(rows, row_len)
    chunks = (table[:, start : start + chunk_len + 1] for start in range(0, row_len - 1, chunk_len))
    with replacing(path) as partial:
        _write(partial, (_serialized(row) for chunk in chunks for row in chunk))
        fingerprint = {"size": os.path.getsize(partial), "sha256": _sha256(partial)}
    return {"rows": rows, "chunk_len": chunk_len, "n_tokens": len(token_ids), **fingerprint}


def is_intact(path, metadata):
    """Tells whether `path` still holds, byte by byte, what `write_records` returned `metadata` for."""
    path = Path(path)
    return path.is_file() and path.stat().st_size == metadata["size"] and _sha256(path) == metadata["sha256"]


def _write(path, records):
    try:
        with tf.io.TFRecordWriter(str(path)) as writer:
            for record in records:
                writer.write(record)
    except tf.errors.OpError as error:
        raise OSError(f"Expected to be able to write {path}: {error.message}") from error


def _serialized(token_ids):
    values = tf.train.Int64List(value=token_ids.tolist())
    features = tf.train.Features(feature={TOKEN_IDS: tf.train.Feature(int64_list=values)})
    return tf.train.Example(features=features).SerializeToString()


def _sha256(path):
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
