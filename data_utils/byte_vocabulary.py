"""Bytes as tokens."""

import numpy as np
import tensorflow as tf

from data_utils.vocabulary_base import VocabularyBase


class ByteVocabulary(VocabularyBase):
    """Bytes as tokens: the id of a token is the value of the byte, so every file can be encoded and nothing is unknown.

    Attributes:
        kind: "byte".
        n_token: 256, the number of different ids.

    Example:
        vocabulary = ByteVocabulary()
        vocabulary.encode("né")             # array([110, 195, 169], dtype=uint8)
        vocabulary.decode([110, 195, 169])  # "né"
    """

    kind = "byte"
    n_token = 256

    def encode(self, text):
        """Returns the ids (N,) uint8 of a str (as UTF-8) or of anything that holds bytes, which is not copied."""
        if isinstance(text, str):
            text = text.encode("utf-8")
        return np.frombuffer(text, np.uint8)

    def decode(self, ids):
        """Returns the str that the ids (N,) spell in UTF-8; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is no byte.
        """
        return self._checked(ids).astype(np.uint8).tobytes().decode("utf-8", errors="replace")

    def splitter(self):
        return _ByteSplitter()

    def raw_to_id(self, splitter):
        return None

    def _make_tokenizer(self):
        return _ByteTokenizer()

    def to_json(self):
        return {}

    @classmethod
    def from_json(cls, content):
        del content
        return cls()


class _ByteSplitter:
    """Raw ids are bytes, and ids at that: nothing is counted."""

    dtype = np.uint8
    line_end = ord("\n")
    is_text = True

    def border(self, block):
        return len(block)

    def split(self, block, first, last):
        del first, last
        return np.frombuffer(block, np.uint8)

    def collect(self, found):
        return found, None, None


class _ByteTokenizer(tf.Module):
    """The vocabulary in a graph, of core TensorFlow operations."""

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(self, text):
        symbols = tf.strings.bytes_split(text)
        values = tf.reshape(tf.io.decode_raw(symbols.flat_values, tf.uint8), [-1])
        return symbols.with_flat_values(tf.cast(values, tf.int32))

    @tf.function(reduce_retracing=True)
    def detokenize(self, ids):
        ids = tf.RaggedTensor.from_tensor(ids) if isinstance(ids, tf.Tensor) else ids
        return tf.strings.reduce_join(ids.with_flat_values(tf.gather(_BYTES, ids.flat_values)), axis=-1)


_BYTES = [bytes([value]) for value in range(256)]
