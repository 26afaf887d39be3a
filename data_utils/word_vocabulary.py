"""Words as tokens."""

import re

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import tensorflow as tf

from data_utils.vocabulary_base import VocabularyBase, utf8

_RARE_BLANKS = "\x1c-\x1f\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000"  # blanks of str.split beyond \t to \r
_LONGEST_WORD = 1 << 30  # bytes
_ASIDE = "\ufdd0"  # a code point that Unicode keeps free of characters


class WordVocabulary(VocabularyBase):
    """What stands between blanks as tokens, the frequent ones first, with a symbol at the end of every line.

    Lines end at \\n, \\r\\n or \\r; blanks are those of str.split, and only separate: a line's words are joined by one
    blank when decoded. A text that stops within a line has no end of line there, so that a prompt can be gone on with.
    The tokenizer in a graph leaves capital letters that Unicode got after version 13 (2020) as they are.

    Args:
        symbols: the words in the order of their ids, those of line_start, line_end and unknown among them.
        lower_case: whether text is lower-cased first (str.lower).
        line_start: symbol before every line; None: none. One Billion Word has "<S>".
        line_end: symbol after every line; None: none. WikiText and Penn Treebank have "<eos>", One Billion Word "<S>".
        unknown: symbol for every word that is not among the symbols; None: such a word is refused.

    Raises:
        ValueError: a symbol occurs twice, is empty or has a blank in it, or a special one is not among the symbols.

    Source: the rules of the original code, run on Python 3; words of equal count are in the order of their first place.

    Example:
        vocabulary = WordVocabulary(["<eos>", "on", "and"])
        vocabulary.encode("on and on\\n")  # array([1, 2, 1, 0], dtype=int32)
        vocabulary.decode([1, 2, 1, 0])    # "on and on\\n"
    """

    kind = "word"

    def __init__(self, symbols, lower_case=False, line_start=None, line_end="<eos>", unknown=None):
        self.symbols = list(symbols)
        self.lower_case = lower_case
        self.line_start = line_start
        self.line_end = line_end
        self.unknown = unknown
        self.n_token = len(self.symbols)
        self.ids = {symbol: index for index, symbol in enumerate(self.symbols)}
        wrong = next((symbol for symbol in self.symbols if symbol.split() != [symbol]), None)
        if wrong is not None:
            raise ValueError(f"Expected symbols without blanks. Received: {wrong!r} among the symbols")
        if len(self.ids) < self.n_token:
            twice = next(symbol for index, symbol in enumerate(self.symbols) if self.ids[symbol] != index)
            raise ValueError(f"Expected symbols that differ. Received: {twice!r} twice among the symbols")
        for name in ("line_start", "line_end", "unknown"):
            symbol = getattr(self, name)
            if symbol is not None and symbol not in self.ids:
                raise ValueError(f"Expected {name} to be one of the symbols. Received: {name}={symbol!r}")
        self.unknown_id = None if unknown is None else self.ids[unknown]

    def grown(self, splitter, counts, max_size=None, min_freq=0, unknown=None):
        """Returns this vocabulary with the counted words added, the frequent ones first, up to max_size in all.

        `unknown` is a word that becomes the unknown symbol if it is among them.
        """
        order = np.argsort(-counts, kind="stable")
        order = order[counts[order] >= max(min_freq, 1)]
        words = splitter.words
        added = [words[index] for index in order.tolist() if words[index] not in self.ids]
        room = len(added) if max_size is None else max(max_size - self.n_token, 0)
        symbols = self.symbols + added[:room]
        unknown = unknown if self.unknown is None and unknown in symbols else self.unknown
        return WordVocabulary(symbols, self.lower_case, self.line_start, self.line_end, unknown)

    def encode(self, text):
        """Returns the ids (N,) int32 of a str or of UTF-8 bytes.

        Raises:
            ValueError: a word is not in the vocabulary, and there is no symbol for unknown ones; or no UTF-8.
        """
        words = list(self._words(utf8(text)))
        unlisted = -1 if self.unknown_id is None else self.unknown_id
        ids = np.array([self.ids.get(word, unlisted) for word in words], np.int32)
        if ids.size and ids.min() < 0:
            raise ValueError(f"Expected words of the vocabulary alone. Received: {words[ids.argmin()]!r}")
        return ids

    def decode(self, ids):
        """Returns the str of ids (N,): a line for every end of line, words joined by one blank.

        Raises:
            ValueError: an id is not in the vocabulary.
        """
        shown = self._shown()
        text = re.sub(" *\n *", "\n", " ".join(shown[index] for index in self._checked(ids).tolist())).lstrip(" ")
        return re.sub("^\n", "", re.sub("\n+", "\n", text)) if self._doubled else text

    def _token_ids(self, text):
        return [self.ids[text]] if text in self.ids else []

    def splitter(self):
        return _WordSplitter(self.lower_case, self.line_start, self.line_end)

    def raw_to_id(self, splitter):
        return np.array([self.ids.get(word, -1) for word in splitter.words], np.int32)

    def _make_tokenizer(self):
        return _WordTokenizer(self)

    def to_json(self):
        return {"symbols": self.symbols, "lower_case": self.lower_case, "line_start": self.line_start,
                "line_end": self.line_end, "unknown": self.unknown}

    @classmethod
    def from_json(cls, content):
        return cls(**content)

    @property
    def _doubled(self):
        """Whether one symbol both starts and ends lines, so that two of them stand between lines."""
        return self.line_start is not None and self.line_start == self.line_end

    def _words(self, text):
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        *lines, rest = (text.lower() if self.lower_case else text).split("\n")
        start, end = ([] if symbol is None else [symbol] for symbol in (self.line_start, self.line_end))
        for line in lines:
            yield from [*start, *line.split(), *end]
        if rest:
            yield from [*start, *rest.split()]

    def _shown(self):
        """Returns what stands for every id in a decoded text."""
        starts_and_ends = {self.line_end: "\n"} if self.line_start in (None, self.line_end) else {
            self.line_start: "", self.line_end: "\n"}
        return [starts_and_ends.get(symbol, symbol) for symbol in self.symbols]


class _WordSplitter:
    """Raw ids number the words in the order of their first place; the symbols of line ends and starts come first.

    Attributes:
        words: the word of every raw id.
    """

    dtype = np.int32
    is_text = False

    def __init__(self, lower_case, line_start, line_end):
        self.lower_case, self.line_start, self.line_end = lower_case, line_start, line_end
        self._words = pa.array([], pa.string())
        self._edges = [-1 if symbol is None else int(self._numbers(pa.array([symbol]))[0]) for symbol in (line_end, line_start)]

    @property
    def words(self):
        return self._words.to_pylist()

    def border(self, block):
        """Returns a place before a blank, so that a block never ends within a word and never with the text's last line end."""
        cut = max(block.rfind(b"\n"), block.rfind(b" "))
        if cut <= 0:
            cut = max(block.rfind(b"\t"), block.rfind(b"\r"), 0)
        if not cut and len(block) > _LONGEST_WORD:
            raise ValueError(f"Expected words of at most {_LONGEST_WORD} bytes. Received: {len(block)} bytes without a blank")
        return cut - 1 if cut and block[cut - 1:cut + 1] == b"\r\n" else cut

    def split(self, block, first, last):
        """Returns (local ids, local words, their counts, tokens of each line); the edges of lines have local ids 0 and 1."""
        lines, rare_blanks = self._lines(block)
        words = (pc.utf8_split_whitespace if rare_blanks else pc.ascii_split_whitespace)(lines)
        encoded = pc.dictionary_encode(words.values)
        local, lengths, symbols = _without_empty(
            encoded.indices.to_numpy(), words.offsets.to_numpy(), encoded.dictionary)
        counts = np.bincount(local, minlength=len(symbols))
        starts, ends = np.ones(len(lines), bool), np.ones(len(lines), bool)
        starts[0] = first
        ends[-1] = last
        if last and len(lines) > 1 and lines[-1].as_py() == "":  # the text ends with its last line
            starts[-1] = ends[-1] = False
        starts &= self.line_start is not None
        ends &= self.line_end is not None
        tokens = lengths + starts + ends
        return _with_edges(local + 2, tokens, starts, ends), symbols, counts, tokens

    def collect(self, found):
        local, words, counts, tokens = found
        numbers = self._numbers(words)
        known = np.zeros(len(self._words), np.int64)
        known[numbers] = counts
        return np.concatenate([self._edges, numbers]).astype(np.int32)[local], known, np.cumsum(tokens)[:-1]

    def symbol(self, raw):
        return self._words[int(raw)].as_py()

    def _numbers(self, words):
        """Returns the raw ids of different words, after giving the new ones the next free numbers."""
        numbers = pc.index_in(words, self._words)
        is_new = pc.is_null(numbers)
        new = words.filter(is_new)
        numbers = pc.replace_with_mask(numbers, is_new, pa.array(np.arange(len(new)) + len(self._words), pa.int32()))
        self._words = pa.concat_arrays([self._words, new])
        return numbers.to_numpy()

    def _lines(self, block):
        """Returns the lines of a block without a copy, and whether they hold other blanks than ASCII's."""
        if self.lower_case:
            block = block.lower() if block.isascii() else block.decode("utf-8").lower().encode("utf-8")
        elif not block.isascii():
            block.decode("utf-8")
        if b"\r" in block:
            block = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        ends = np.flatnonzero(np.frombuffer(block, np.uint8) == ord("\n"))
        compact = block.replace(b"\n", b"")
        offsets = np.concatenate([[0], ends - np.arange(len(ends)), [len(compact)]]).astype(np.int32)
        lines = pa.StringArray.from_buffers(len(offsets) - 1, pa.py_buffer(offsets), pa.py_buffer(compact))
        rare = pc.any(pc.match_substring_regex(lines, f"[{_RARE_BLANKS}]")).as_py()
        return lines, rare


def _without_empty(local, offsets, symbols):
    """Returns (local ids, words of each line, symbols) less the empty words that arrow sees before and after a line's blanks."""
    empty = pc.index(symbols, "").as_py()
    if empty >= 0:
        is_word = local != empty
        offsets = np.concatenate([[0], np.cumsum(is_word)])[offsets]
        local = local[is_word]
        local = local - (local > empty)
        symbols = symbols.filter(pc.not_equal(symbols, ""))
    return local.astype(np.int32), np.diff(offsets), symbols


def _with_edges(words, tokens, starts, ends):
    """Returns the words of lines of `tokens` tokens with a 1 before the lines that start and a 0 after those that end."""
    stop = np.cumsum(tokens)
    result = np.zeros(int(stop[-1]), np.int32)
    is_word = np.ones(len(result), bool)
    at_start, at_end = (stop - tokens)[starts], stop[ends] - 1
    result[at_start] = 1
    is_word[at_start] = is_word[at_end] = False
    result[is_word] = words
    return result


class _WordTokenizer(tf.Module):
    """The vocabulary in a graph, of core TensorFlow operations; a word it lacks fails, or becomes the unknown one."""

    def __init__(self, vocabulary):
        super().__init__()
        self._start, self._end = vocabulary.line_start, vocabulary.line_end
        self._lower_case, self._doubled = vocabulary.lower_case, vocabulary._doubled
        self._shown = tf.constant([f"{shown} " for shown in vocabulary._shown()], tf.string)
        keys = tf.constant(vocabulary.symbols, tf.string)
        self._table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(keys, tf.range(vocabulary.n_token)),
            -1 if vocabulary.unknown_id is None else vocabulary.unknown_id)

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def tokenize(self, text):
        text = tf.strings.regex_replace(text, "\r\n?", "\n")
        text = self._lowered(text) if self._lower_case else text
        text = tf.strings.regex_replace(text, f"[{_RARE_BLANKS}]", " ")
        if self._start is not None:
            started = tf.strings.regex_replace(text, "\n", f"\n{_verbatim(self._start)} ")
            started = tf.strings.regex_replace(started, rf"\n{re.escape(self._start)} \z", "\n")
            text = tf.where(text == "", text, tf.strings.join([f"{self._start} ", started]))
        text = tf.strings.regex_replace(text, "\n", f" {_verbatim(self._end or '')} ")
        words = tf.strings.split(text)
        ids = self._table.lookup(words.flat_values)
        with tf.control_dependencies([tf.debugging.assert_non_negative(ids, "Expected words of the vocabulary alone.")]):
            return words.with_flat_values(tf.identity(ids))

    def _lowered(self, text):
        """Lowers as str.lower does; TensorFlow's operation would stop at a NUL, so one stands aside meanwhile."""
        text = tf.strings.regex_replace(text, "\\x00", _ASIDE)
        return tf.strings.regex_replace(tf.strings.lower(text, encoding="utf-8"), _ASIDE, "\x00")

    @tf.function(reduce_retracing=True)
    def detokenize(self, ids):
        ids = tf.RaggedTensor.from_tensor(ids) if isinstance(ids, tf.Tensor) else ids
        text = tf.strings.reduce_join(ids.with_flat_values(tf.gather(self._shown, ids.flat_values)), axis=-1)
        text = tf.strings.regex_replace(tf.strings.regex_replace(text, r" \z|\A +", ""), " *\n *", "\n")
        return tf.strings.regex_replace(tf.strings.regex_replace(text, "\n+", "\n"), "^\n", "") if self._doubled else text


def _verbatim(symbol):
    """Returns what stands for a symbol in the replacement of a regular expression."""
    return symbol.replace("\\", "\\\\")
