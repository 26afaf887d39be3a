"""Subwords as tokens, by SentencePiece."""

import base64
import io
import itertools
import re

import numpy as np
import tensorflow as tf

from data_utils.vocabulary_base import VocabularyBase, utf8

_SUBWORDS = 32_000  # where nothing is said, at most
_LONGEST_LINE = 1 << 16  # bytes that are split at once; a longer line is cut before a blank
_TOGETHER = 16  # parts of that length that are split in one call
_TRAINED_TEXT = 16 << 20  # bytes of a text that are used at most; SentencePiece takes some 25 times as much memory
_TRAINED_PART = 1 << 16  # bytes of the parts that are chosen from a longer text
_TRAINED_LINE = 4096  # bytes; SentencePiece leaves longer lines out, so they are cut
_BLANK_SIGN = "\u2581"  # stands for a blank within SentencePiece, so that text with this very character is no blank


class SubwordVocabulary(VocabularyBase):
    """Pieces of words as tokens, as a SentencePiece model says, with </s> at the end of every line.

    Every line is split by itself; its end, \\n, is the model's end symbol. A model that `trained` made loses nothing:
    it changes no character, and characters that it has not seen become bytes, as does U+2581, SentencePiece's own sign
    for a blank. `encode` takes words of more than 64 KiB apart, the tokenizer in a graph does not.

    Args:
        model: a serialized SentencePiece model, the bytes of a .model file.

    Attributes:
        kind: "subword".
        n_token: V, the pieces of the model.

    Raises:
        ValueError: the bytes are no SentencePiece model, or it has no end symbol.

    Source: Kudo and Richardson 2018, arXiv 1808.06226.

    Example:
        vocabulary = SubwordVocabulary.trained([b"one line\\n"], size=300)
        vocabulary.decode(vocabulary.encode("one line\\n"))  # "one line\\n"
    """

    kind = "subword"
    _traced = None

    def __init__(self, model):
        self.model = bytes(model)
        try:
            self._split = self._made()
            self.n_token = int(self._split.vocab_size())
            self.line_end = int(self._split.string_to_id("</s>"))
            ends = self._piece(self.line_end) == "</s>"
        except (tf.errors.OpError, ValueError, RuntimeError) as error:
            raise ValueError(f"Expected a SentencePiece model. Received: {len(self.model)} other bytes") from error
        if not ends:
            raise ValueError("Expected a SentencePiece model with </s> among its pieces. Received: one without")

    def _made(self):
        import tensorflow_text as tf_text  # here, so that nothing else needs it

        return tf_text.SentencepieceTokenizer(self.model)

    @property
    def tokenizer(self):
        try:
            self._split.vocab_size()
        except tf.errors.NotFoundError:  # TensorFlow drops its resource when a random seed is set
            self._split, self._traced = self._made(), None
        if self._traced is None:
            self._traced = self._traced_tokenizer()
        return self._traced

    @classmethod
    def trained(cls, blocks, size=None):
        """Returns the vocabulary of `size` pieces for a text, the bytes of which come in blocks.

        None: 32,000, as in the Synthesizer paper, or as many as the text admits. At most 16 MiB of the text, spread over all of it, are used.

        Raises:
            ValueError: the text is too small for so many pieces, or too varied for so few, or the package sentencepiece
                is not installed.
        """
        try:
            import sentencepiece
        except ImportError as error:
            raise ValueError("Expected the package sentencepiece for a vocabulary of subwords to be made: "
                              "pip install sentencepiece. Received: vocabulary='subword'") from error
        if size is not None and not size < 1 << 31:
            raise ValueError(f"Expected --vocab_size below 2**31. Received: vocab_size={size}")
        model = io.BytesIO()
        sentencepiece.set_random_generator_seed(0)
        try:
            sentencepiece.SentencePieceTrainer.train(
                sentence_iterator=_lines(_sample(blocks)), model_writer=model, vocab_size=size or _SUBWORDS, byte_fallback=True,
                hard_vocab_limit=size is not None,
                normalization_rule_name="identity", remove_extra_whitespaces=False, add_dummy_prefix=False,
                max_sentence_length=_TRAINED_LINE, minloglevel=2)
        except RuntimeError as error:
            most = re.search(r"value <= (\d+)", str(error))
            wanted = f"of at most {most[1]}, which this text admits" if most else "that holds 256 bytes and all characters of the text"
            raise ValueError(f"Expected --vocab_size {wanted}. Received: vocab_size={size}") from error
        return cls(model.getvalue())

    def encode(self, text):
        """Returns the ids (N,) int32 of a str or of UTF-8 bytes.

        Raises:
            ValueError: the bytes are not UTF-8.
        """
        return _tokenized(self.tokenizer, utf8(text).encode("utf-8"))

    def decode(self, ids):
        """Returns the str of ids (N,); bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        ids = tf.constant(self._checked(ids)[None], tf.int32)
        return self.tokenizer.detokenize(ids)[0].numpy().decode("utf-8", errors="replace")

    def _token_ids(self, text):
        return [self.line_end] if text == "</s>" else super()._token_ids(text)

    def splitter(self):
        return _SubwordSplitter(self)

    def raw_to_id(self, splitter):
        del splitter
        return None

    def _make_tokenizer(self):
        sign = [f"<0x{value:02X}>" for value in _BLANK_SIGN.encode("utf-8")]
        ids = [int(self._split.string_to_id(piece)) for piece in sign]
        return _SubwordTokenizer(self._split, self.line_end, ids if [self._piece(index) for index in ids] == sign else None)

    def _piece(self, index):
        return self._split.id_to_string(index).numpy().decode("utf-8")

    def to_json(self):
        return {"model": base64.b64encode(self.model).decode("ascii")}

    @classmethod
    def from_json(cls, content):
        return cls(base64.b64decode(content["model"]))


class _SubwordSplitter:
    """Raw ids are the ids."""

    dtype = np.int32
    is_text = False

    def __init__(self, vocabulary):
        self._tokenizer = vocabulary.tokenizer
        self.line_end = vocabulary.line_end

    def border(self, block):
        """Returns the place behind the last line; within a very long line, one before a blank."""
        cut = block.rfind(b"\n") + 1
        return cut if cut or len(block) < _LONGEST_LINE else max(block.rfind(b" "), 0)

    def split(self, block, first, last):
        del first
        block.decode("utf-8")
        end = b"\n" if last and not block.endswith(b"\n") else b""
        return _tokenized(self._tokenizer, block + end)

    def collect(self, found):
        return found, None, None


class _SubwordTokenizer(tf.Module):
    """The vocabulary in a graph; serving it needs the operations of tensorflow-text."""

    def __init__(self, split, line_end, blank_sign):
        super().__init__()
        self._split, self._line_end = split, line_end
        self._has_bytes = blank_sign is not None
        self._ends = tf.ragged.constant([[], [line_end], blank_sign or []], tf.int32)  # of a part: none, a line's, the sign

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(self, text):
        if self._has_bytes:
            text = tf.strings.regex_replace(text, _BLANK_SIGN, f"{_BLANK_SIGN}\n")
        parts = tf.strings.split(text, "\n")  # (B, parts), lines and what a sign ends; the last of each text is not ended
        lengths = parts.row_lengths()
        end = tf.cast(tf.ragged.range(lengths).flat_values < tf.repeat(lengths, lengths) - 1, tf.int32)
        if self._has_bytes:
            end += tf.cast(tf.strings.regex_full_match(parts.flat_values, f"(?s).*{_BLANK_SIGN}"), tf.int32)
            parts = parts.with_flat_values(tf.strings.regex_replace(parts.flat_values, _BLANK_SIGN, ""))
        ids = self._split.tokenize(parts.flat_values)
        return parts.with_flat_values(tf.concat([ids, tf.gather(self._ends, end)], axis=1)).merge_dims(1, 2)

    @tf.function(reduce_retracing=True)
    def detokenize(self, ids):
        ids = tf.RaggedTensor.from_tensor(ids) if isinstance(ids, tf.Tensor) else ids
        is_end = ids.flat_values == self._line_end
        lines = tf.reduce_sum(tf.cast(ids.with_flat_values(is_end), tf.int64), axis=1) + 1  # of every text
        line = tf.cumsum(tf.cast(is_end, tf.int64), exclusive=True) + ids.value_rowids()  # of every id
        pieces = tf.RaggedTensor.from_value_rowids(
            tf.boolean_mask(ids.flat_values, ~is_end), tf.boolean_mask(line, ~is_end), nrows=tf.reduce_sum(lines))
        last = tf.cumsum(lines)[:, None] - 1  # (B, 1), the line of every text that is not ended
        ended = tf.tensor_scatter_nd_update(tf.fill([tf.reduce_sum(lines)], "\n"), last, tf.fill([tf.shape(last)[0]], ""))
        text = tf.strings.join([self._split.detokenize(pieces), ended])
        return tf.strings.reduce_join(tf.RaggedTensor.from_row_lengths(text, lines), axis=-1)


def _tokenized(tokenizer, text):
    """Returns the ids of a text (bytes) of any length."""
    parts = list(_cut(text, _LONGEST_LINE))
    found = [tokenizer.tokenize(tf.constant(parts[start:start + _TOGETHER], tf.string)).flat_values.numpy()
             for start in range(0, len(parts), _TOGETHER)]
    return np.concatenate([np.zeros(0, np.int32), *found])


def _sample(blocks):
    """Returns all of a text (bytes), or of a long one parts at equal distances, each on lines of its own."""
    parts, distance, number, rest = [], 1, 0, b""
    for block in itertools.chain(blocks, [None]):
        rest += block or b""
        stop = len(rest) if block is None else len(rest) - len(rest) % _TRAINED_PART
        for start in range(0, stop, _TRAINED_PART):
            if number % distance == 0:
                parts.append(rest[start:start + _TRAINED_PART])
            number += 1
            if len(parts) * _TRAINED_PART > _TRAINED_TEXT:
                parts, distance = parts[::2], 2 * distance
        rest = rest[stop:]
    return (b"" if distance == 1 else b"\n").join(parts)


def _lines(text):
    """Yields the lines of a text as str, long ones in parts; what is not UTF-8 is left out, and refused when it is encoded."""
    for line in text.split(b"\n"):
        yield from (part.decode("utf-8", errors="ignore") for part in _cut(line, _TRAINED_LINE))


def _cut(text, size):
    """Yields the bytes of a text in parts of at most size: cut behind a line, or before a blank, or where it must be."""
    start = 0
    while len(text) - start > size:
        stop = start + size
        cut = text.rfind(b"\n", start, stop) + 1 or max(text.rfind(b" ", start + 1, stop), 0)
        if not cut:
            cut = next((place for place in range(stop, start, -1) if text[place] & 0xC0 != 0x80), stop)
        yield text[start:cut]
        start = cut
    if start < len(text):
        yield text[start:]
