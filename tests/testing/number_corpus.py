"""A corpus of random numbers for runs that are to be short."""

import numpy as np
import tensorflow as tf

from data_utils.vocabulary import ByteVocabulary


class NumberCorpus:
    """A corpus without files: what `txl_tf.training.Training` asks of one.

    Args:
        n_token: how many different tokens.
        rows: of every split.
        labels: of a row of every split.
    """

    def __init__(self, n_token=256, rows=2, labels=19):
        self.vocabulary, self.n_token, self.splits = ByteVocabulary(), n_token, ("train", "valid", "test")
        self.identity = f"{n_token} {rows} {labels}"
        self._rows = rows
        self._tokens = {split: np.random.default_rng(seed).integers(0, n_token, (rows, labels + 1)).astype(np.int32) ** 2 % n_token
                        for seed, split in enumerate(self.splits)}

    def rows(self, split):
        del split
        return self._rows

    def n_segments(self, split, tgt_len, drop_remainder=False):
        labels = self._tokens[split].shape[1] - 1
        return labels // tgt_len if drop_remainder else -(-labels // tgt_len)

    def dataset(self, split, tgt_len, drop_remainder=False, host=None):
        del host
        ids, labels = (tf.data.Dataset.from_tensor_slices(side.T) for side in (self._tokens[split][:, :-1], self._tokens[split][:, 1:]))
        dataset = tf.data.Dataset.zip((ids, labels)).batch(tgt_len, drop_remainder)
        return dataset.map(lambda *pair: tuple(tf.ensure_shape(tf.transpose(side), (self._rows, None)) for side in pair))

    def check(self):
        """Nothing can be damaged."""
