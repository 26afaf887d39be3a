"""The token ids of a text, in a file, read piece by piece."""

import dataclasses
import functools

import numpy as np

_COPIED = 1 << 20  # tokens that `shuffled` holds at once, more or less


@dataclasses.dataclass(eq=False)
class TokenStream:
    """The token ids of a text in text order, or of several passes over it.

    Args:
        path: a file of raw ids.
        dtype: their type.
        size: how many there are.
        raw_to_id: the id of every raw id; None: they are the ids.
        line_lengths: tokens of every line, int array; None: not known.
        start: bytes of the file before the first raw id.
        starts: where each pass over the text begins; a pass goes on from the text's end to its beginning.

    Example:
        stream = TokenStream("train.raw", np.uint8, size=1000)
        stream.read(0, 10)  # the first ten ids
        len(stream)         # 1000
    """

    path: str
    dtype: type
    size: int
    raw_to_id: np.ndarray | None = None
    line_lengths: np.ndarray | None = None
    start: int = 0
    starts: tuple = (0,)

    def __len__(self):
        return self.size * len(self.starts)

    def read(self, start, stop):
        """Returns the ids from `start` to `stop` (without), an integer array (stop - start,)."""
        pieces = [self._raw[:0]]
        while start < stop:
            turn, done = divmod(start, self.size)
            first = (self.starts[turn] + done) % self.size
            count = min(stop - start, self.size - done, self.size - first)
            pieces.append(self._raw[first:first + count])
            start += count
        raw = pieces[1] if len(pieces) == 2 else np.concatenate(pieces)
        return raw if self.raw_to_id is None else self.raw_to_id[raw]

    def rotated(self, num_passes, random):
        """Returns `num_passes` passes over this text, each from a place of its own; one pass begins at the beginning.

        Args:
            num_passes: passes.
            random: a np.random.RandomState, which draws one place a pass if there are several.

        Source: the original code's batchify, with the draws of numpy's legacy generator.
        """
        if num_passes == 1 or self.size == 0:
            return self
        return dataclasses.replace(self, starts=tuple(int(random.randint(0, self.size)) for _ in range(num_passes)))

    def shuffled(self, order, path):
        """Returns this text with its lines in another order, written to a file.

        Args:
            order: the numbers of all lines, int array.
            path: the file.

        Raises:
            OSError: the file can't be written.
        """
        first = np.cumsum(self.line_lengths) - self.line_lengths
        lengths = self.line_lengths[order]
        together = max(_COPIED * len(order) // max(self.size, 1), 1)  # lines
        with open(path, "wb") as file:
            for begin in range(0, len(order), together):
                part = slice(begin, begin + together)
                stop = np.cumsum(lengths[part])
                within = np.arange(stop[-1]) - np.repeat(stop - lengths[part], lengths[part])
                file.write(self._raw[np.repeat(first[order[part]], lengths[part]) + within])
        return dataclasses.replace(self, path=str(path), start=0, line_lengths=lengths)

    @functools.cached_property
    def _raw(self):
        if self.size == 0:
            return np.zeros(0, self.dtype)
        return np.memmap(self.path, self.dtype, mode="r", offset=self.start, shape=(self.size,)).view(np.ndarray)
