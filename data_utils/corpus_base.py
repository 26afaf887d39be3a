"""What every corpus knows of its rows and segments."""

import numpy as np
import tensorflow as tf


class CorpusBase:
    """Counts of rows and segments; a subclass has `splits`, `rows(split)` and `_labels_per_row(split)`, a list: one a stream."""

    def n_labels(self, split, tgt_len=None, drop_remainder=False):
        """Returns the tokens of the split that are predicted: every one of a row but its first.

        With drop_remainder, those of whole segments alone, where tgt_len is that of `dataset`.
        """
        labels = self._labels_per_row(split)
        return self.rows(split) * sum(_whole_segments(row, tgt_len)[1] if drop_remainder else row for row in labels)

    def n_segments(self, split, tgt_len, drop_remainder=False):
        """Returns the number of batches of `dataset` with the same arguments."""
        if np.size(tgt_len) == 0 or np.min(tgt_len) < 1:
            raise ValueError(f"Expected --tgt_len of at least 1. Received: tgt_len={tgt_len}")
        count = 0
        for row in self._labels_per_row(split):
            segments, labels = _whole_segments(row, tgt_len)
            count += segments + (labels < row and not drop_remainder)
        return count

    def _counted(self, dataset, *arguments):
        """Returns a dataset that knows how many segments it has, for whoever shows progress; the arguments are those of `n_segments`."""
        return dataset.apply(tf.data.experimental.assert_cardinality(self.n_segments(*arguments)))

    def _check_segments(self, split, tgt_len, drop_remainder):
        """Raises ValueError if there is no segment of such a length."""
        if self.n_segments(split, tgt_len, drop_remainder) == 0:
            raise ValueError(
                f"Expected --tgt_len of at most {max(self._labels_per_row(split))}, the labels of a row of the {split} "
                f"split. Received: tgt_len={tgt_len}"
            )

    def _checked_split(self, split):
        if split not in self.splits:
            raise ValueError(f"Expected a split among {', '.join(self.splits)}. Received: split={split!r}")
        return split


def _whole_segments(labels, tgt_len):
    """Returns how many whole segments there are in a row of so many labels, and the labels in them."""
    stops = np.cumsum(tgt_len)
    turns, rest = divmod(labels, int(stops[-1]))
    segments = int(np.searchsorted(stops, rest, side="right"))
    return turns * len(stops) + segments, labels - rest + (int(stops[segments - 1]) if segments else 0)
