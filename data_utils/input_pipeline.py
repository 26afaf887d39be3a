"""A TFRecord file -> a tf.data.Dataset of (token_ids, labels) segments."""

import tensorflow as tf

from data_utils.records import TOKEN_IDS


def segment_dataset(path, rows, tgt_len, drop_remainder=False):
    """Reads segments of any length from a file that `data_utils.records.write_records` made.

    Row b of a batch goes on where row b of the batch before it ended, which is what a model with memory needs. Labels
    are the inputs one token later: they are shifted here and nowhere else. The order never changes and nothing is
    repeated; that is the caller's (`.skip`, `.repeat`).

    Args:
        path: the TFRecord file.
        rows: B, the rows that the file was written with.
        tgt_len: T, tokens of a segment.
        drop_remainder: whether to leave out the last segment when it is shorter than T.

    Returns:
        A dataset of (token_ids, labels), both int32 of shape (B, T), or (B, None) unless drop_remainder.
    """
    length = tgt_len if drop_remainder else None

    def inputs_and_labels(serialized):
        feature = tf.io.FixedLenSequenceFeature([], tf.int64, allow_missing=True)
        token_ids = tf.io.parse_example(serialized, {TOKEN_IDS: feature})[TOKEN_IDS]
        token_ids = tf.transpose(tf.cast(token_ids, tf.int32))  # (chunk_len + 1, B)
        return token_ids[:-1], token_ids[1:]

    def batch_first(*segment):
        return tuple(tf.ensure_shape(tf.transpose(tensor), (rows, length)) for tensor in segment)

    dataset = tf.data.TFRecordDataset(str(path))
    dataset = dataset.batch(rows, drop_remainder=True).map(inputs_and_labels)  # time first: the axis to cut anew
    dataset = dataset.rebatch(tgt_len, drop_remainder=drop_remainder).map(batch_first)
    return dataset.prefetch(tf.data.AUTOTUNE)
