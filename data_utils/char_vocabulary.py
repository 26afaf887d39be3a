"""Characters as tokens."""

import numpy as np
import tensorflow as tf

from data_utils.vocabulary_base import VocabularyBase, utf8

UNITS = ("character", "byte")


class CharVocabulary(VocabularyBase):
    """Characters as tokens, the frequent ones first.

    Args:
        symbols: the characters in the order of their ids. With unit "byte" each stands for the byte of its value, U+0000
            to U+00FF, as in the original code's enwik8, whose symbols are byte values.
        unit: "character" or "byte".
        unknown: the one of the symbols that stands for every character that is not among them; None: there is no such.

    Raises:
        ValueError: a symbol occurs twice, is longer than a character or no byte, or unknown is not among them.

    Source: the original code orders symbols by count, and equal counts by their first place in the text.

    Example:
        vocabulary = CharVocabulary(" eta")
        vocabulary.encode("tea")      # array([2, 1, 3], dtype=int32)
        vocabulary.decode([2, 1, 3])  # "tea"
    """

    kind = "char"

    def __init__(self, symbols, unit="character", unknown=None):
        self.symbols = "".join(symbols)
        self.unit = unit
        self.unknown = unknown
        self.n_token = len(self.symbols)
        self._values = np.array([ord(symbol) for symbol in self.symbols], np.int64)
        if unit not in UNITS:
            raise ValueError(f"Expected unit to be one of {', '.join(UNITS)}. Received: unit={unit!r}")
        if len(set(self.symbols)) < self.n_token:
            raise ValueError(f"Expected symbols that differ. Received: symbols={self.symbols!r}")
        if unit == "byte" and self.n_token and self._values.max() > 255:
            raise ValueError(f"Expected symbols up to U+00FF for unit='byte'. Received: symbols={self.symbols!r}")
        if unknown is not None and (len(unknown) != 1 or unknown not in self.symbols):
            raise ValueError(f"Expected unknown to be one of the symbols. Received: unknown={unknown!r}")
        self.unknown_id = None if unknown is None else self.symbols.index(unknown)
        self._ids = np.full(256 if unit == "byte" else 0x110000, -1, np.int32)
        self._ids[self._values] = np.arange(self.n_token)

    def grown(self, splitter, counts, max_size=None, min_freq=0):
        """Returns this vocabulary with the counted characters added, the frequent ones first, up to max_size in all."""
        seen = np.array(splitter.seen, np.int64)
        order = seen[np.argsort(-counts[seen], kind="stable")]
        added = [chr(value) for value in order if counts[value] >= max(min_freq, 1) and chr(value) not in self.symbols]
        room = len(added) if max_size is None else max(max_size - self.n_token, 0)
        return CharVocabulary(self.symbols + "".join(added[:room]), self.unit, self.unknown)

    def encode(self, text):
        """Returns the ids (N,) int32 of a str or of UTF-8 bytes.

        Raises:
            ValueError: a character is not in the vocabulary, and there is no symbol for unknown ones; or no UTF-8.
        """
        if self.unit == "byte":
            data = text.encode("utf-8") if isinstance(text, str) else text
            raw = np.frombuffer(data, np.uint8)
        else:
            raw = _code_points(utf8(text))
        ids = self._ids[raw]
        if self.unknown_id is not None:
            ids[ids < 0] = self.unknown_id
        elif ids.size and ids.min() < 0:
            wrong = chr(raw[ids.argmin()])
            raise ValueError(f"Expected {self.unit}s of the vocabulary alone. Received: {wrong!r}")
        return ids

    def decode(self, ids):
        """Returns the str of ids (N,); with unit "byte", bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        values = self._values[self._checked(ids)]
        if self.unit == "byte":
            return values.astype(np.uint8).tobytes().decode("utf-8", errors="replace")
        return values.astype("<u4").tobytes().decode("utf-32-le", errors="surrogatepass")

    def splitter(self):
        return _CharSplitter(self.unit)

    def raw_to_id(self, splitter):
        del splitter
        return self._ids

    def _make_tokenizer(self):
        return _CharTokenizer(self)

    def to_json(self):
        return {"symbols": self.symbols, "unit": self.unit, "unknown": self.unknown}

    @classmethod
    def from_json(cls, content):
        return cls(content["symbols"], content["unit"], content["unknown"])


class _CharSplitter:
    """Raw ids are bytes or code points.

    Attributes:
        seen: the raw ids in the order of their first place.
    """

    line_end = ord("\n")
    is_text = False

    def __init__(self, unit):
        self.unit = unit
        self.dtype = np.uint8 if unit == "byte" else np.int32
        self.seen = []
        self._is_seen = np.zeros(256 if unit == "byte" else 0x110000, bool)

    def border(self, block):
        """Returns where the last character that is whole ends."""
        if self.unit == "byte":
            return len(block)
        for back in range(1, min(4, len(block)) + 1):
            lead = block[-back]
            if lead < 0x80 or lead >= 0xC0:
                length = 1 if lead < 0x80 else 2 if lead < 0xE0 else 3 if lead < 0xF0 else 4
                return len(block) - back if length > back else len(block)
        return len(block)

    def split(self, block, first, last):
        del first, last
        raw = np.frombuffer(block, np.uint8) if self.unit == "byte" else _code_points(block.decode("utf-8"))
        return raw, np.bincount(raw, minlength=len(self._is_seen))

    def collect(self, found):
        raw, counts = found
        is_new = (counts > 0) & ~self._is_seen
        if is_new.any():
            self._is_seen |= is_new
            values, places = np.unique(raw[is_new[raw]], return_index=True)
            self.seen.extend(values[np.argsort(places)].tolist())
        return raw, counts, None

    def symbol(self, raw):
        return chr(raw)


class _CharTokenizer(tf.Module):
    """The vocabulary in a graph, of core TensorFlow operations; a character it lacks fails, or becomes the unknown one."""

    def __init__(self, vocabulary):
        super().__init__()
        encoded = [symbol.encode("latin-1" if vocabulary.unit == "byte" else "utf-8") for symbol in vocabulary.symbols]
        self._unit = vocabulary.unit
        self._symbols = tf.constant(encoded, tf.string)
        ids = tf.range(vocabulary.n_token)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(self._symbols, ids),
            -1 if vocabulary.unknown_id is None else vocabulary.unknown_id)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(self, text):
        symbols = tf.strings.bytes_split(text) if self._unit == "byte" else tf.strings.unicode_split(text, "UTF-8")
        ids = self._table.lookup(symbols.flat_values)
        with tf.control_dependencies([tf.debugging.assert_non_negative(ids, "Expected symbols of the vocabulary alone.")]):
            return symbols.with_flat_values(tf.identity(ids))

    @tf.function(reduce_retracing=True)
    def detokenize(self, ids):
        ids = tf.RaggedTensor.from_tensor(ids) if isinstance(ids, tf.Tensor) else ids
        return tf.strings.reduce_join(ids.with_flat_values(tf.gather(self._symbols, ids.flat_values)), axis=-1)


def _code_points(text):
    return np.frombuffer(text.encode("utf-32-le", errors="surrogatepass"), np.int32)
