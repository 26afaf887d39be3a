"""TFRecord files -> a tf.data.Dataset of (token_ids, labels) segments."""

import numpy as np
import tensorflow as tf

from data_utils.records import TOKEN_IDS


def segment_dataset(parts, rows, dtype, tgt_len, drop_remainder=False):
    """Reads segments of any length from files that `data_utils.records.write_records` made.

    Row b of a batch goes on where row b of the batch before it ended, which is what a model with memory needs. Labels
    are the inputs one token later: they are shifted here and nowhere else. The order never changes and nothing is
    repeated; that is the caller's (`.skip`, `.repeat`).

    Args:
        parts: the files: one list a stream, with the files of all hosts whose rows are read. A segment never reaches
            from one stream into the next.
        rows: B, the rows of the files of one stream together.
        dtype: name of the type that the files were written with.
        tgt_len: T, tokens of a segment; or the lengths of the segments one after the other, taken from the front again
            when they are used up, and at every stream.
        drop_remainder: whether to leave out the last segment of a stream when it is shorter than it should be.

    Returns:
        A dataset of (token_ids, labels), both int32 of shape (B, T), or (B, None) where T varies.
    """
    length = int(tgt_len) if drop_remainder and np.ndim(tgt_len) == 0 else None
    hosts = len(parts[0])

    def inputs_and_labels(serialized):
        feature = tf.io.FixedLenFeature([], tf.string)
        token_ids = tf.io.decode_raw(tf.io.parse_example(serialized, {TOKEN_IDS: feature})[TOKEN_IDS], dtype)
        token_ids = tf.transpose(tf.cast(token_ids, tf.int32))  # (chunk_len + 1, rows of a host)
        return token_ids[:-1], token_ids[1:]

    def segments(paths):
        files = [tf.data.TFRecordDataset(paths[host]).batch(rows // hosts, drop_remainder=True).map(inputs_and_labels)
                 for host in range(hosts)]
        dataset = files[0]  # time first: the axis to cut anew
        if hosts > 1:
            dataset = tf.data.Dataset.zip(tuple(files)).map(lambda *pairs: tuple(tf.concat(side, 1) for side in zip(*pairs)))
        return dataset.rebatch(tgt_len, drop_remainder=drop_remainder)

    def batch_first(*segment):
        return tuple(tf.ensure_shape(tf.transpose(tensor), (rows, length)) for tensor in segment)

    dataset = tf.data.Dataset.from_tensor_slices([[str(path) for path in paths] for paths in parts]).flat_map(segments)
    return dataset.map(batch_first).prefetch(tf.data.AUTOTUNE)


def random_lengths(total, mean, seed, std=5.0, short_share=0.05, least=5):
    """Returns lengths of segments drawn at random, so many that they cover `total` labels, as a tuple of int.

    A length is drawn from a normal distribution about `mean`, or about half of it for a share of the segments.

    Args:
        total: labels of a row that the lengths add up to at least.
        mean: the usual length.
        seed: equal seeds give equal lengths.
        std: standard deviation, in tokens.
        short_share: share of the segments about half as long.
        least: the least length.

    Source: the recipe for Penn Treebank; Merity et al. 2017, arXiv 1708.02182, section 5.
    """
    random = np.random.default_rng(seed)
    lengths = []
    while sum(lengths) < total:
        count = total // mean + 1
        means = np.where(random.random(count) < short_share, mean / 2, mean)
        lengths.extend(np.maximum(random.normal(means, std), least).astype(int).tolist())
    needed = int(np.searchsorted(np.cumsum(lengths), total)) + 1
    return tuple(lengths[:needed])
