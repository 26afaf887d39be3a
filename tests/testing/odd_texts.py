"""Texts with everything that makes text hard, and what must hold for a vocabulary on each of them."""

import random

import numpy as np
import tensorflow as tf

BLANKS = [" ", "\t", "\x0b", "\x0c", "\x1c", "\x1d", "\x1e", "\x1f", "\x85", "\xa0", "\u1680", *map(chr, range(0x2000, 0x200B)),
          "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"]
LINE_ENDS = ["\n", "\r\n", "\r"]
SYMBOLS = ["a", "b", "B", "be", "é", "e\u0301", "\u0301", "İ", "ß", "Σ", "σ", "ΑΣ", "日", "本", "😀", "👩‍💻", "\u200b", "\ufeff", "\x00", "\ufdd0",
           "\ufffd", "\x7f", "▁", ".", "'", "\\", "\\1", "(", "<eos>", "<unk>", "<S>", "</S>", "<s>", "</s>", "<0x41>", "\U0010ffff"]
ALPHABET = SYMBOLS + BLANKS + LINE_ENDS
PLAIN = [symbol for symbol in SYMBOLS if symbol != "\ufdd0"]  # what a word may hold in a graph too


def odd_texts(count=200, symbols=PLAIN):
    """Returns `count` texts, the same ones each time."""
    chosen = ["", " ", "\n", "\r", "\r\n", "\n\n", " \n ", "a", "a\n", "a\r\nb\rB\n", "\ra", "a\n\n\nb", "a \n", "a\n ", " a", "".join(BLANKS),
              "a" + "a".join(BLANKS) + "a\n", "ΑΣ ΑΣ.\nΑΣ", "ΑΣ\x00Α ΣΑ", "a\x00b\n", "\x00", "be " * 5000 + "\n", "b" * 20_000, "\n" * 300]
    draw = random.Random(0)
    weighted = symbols * 3 + BLANKS + [" "] * 30 + LINE_ENDS * 5
    while len(chosen) < count:
        chosen.append("".join(draw.choices(weighted, k=draw.randrange(1, 30))))
    return chosen


def saved_and_loaded(vocabulary, folder):
    """Returns a vocabulary's tokenizer out of a SavedModel."""
    module = tf.Module()
    module.tokenizer = vocabulary.tokenizer
    tf.saved_model.save(module, str(folder))
    return tf.saved_model.load(str(folder)).tokenizer


def check_tokenizer(vocabulary, texts, folder=None, same_text=True):
    """Holds a vocabulary's tokenizer, as it is and, with a folder, out of a SavedModel, against `encode` and `decode`."""
    ids = [vocabulary.encode(text).tolist() for text in texts]
    shown = [vocabulary.decode(numbers).encode("utf-8") for numbers in ids]
    if same_text:
        assert shown == [text.encode("utf-8") for text in texts]
    for tokenizer in [vocabulary.tokenizer] + ([saved_and_loaded(vocabulary, folder)] if folder else []):
        found = tokenizer.tokenize(tf.constant(texts))
        assert found.dtype == tf.int32
        assert found.to_list() == ids
        assert tokenizer.detokenize(found).numpy().tolist() == shown
        for numbers, text in list(zip(ids, shown, strict=True))[:8]:
            assert tokenizer.detokenize(tf.constant([numbers, numbers], tf.int32)).numpy().tolist() == [text] * 2
        assert tokenizer.tokenize(tf.constant([], tf.string)).shape[0] == 0


def lines_of(text):
    """Returns the lines of a text, each ended; the last one need not be in the text."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def words_of(text, lower_case=False):
    return [word for line in lines_of(text.lower() if lower_case else text) for word in line.split()]


class OddBlocks:
    """A source of text whose blocks have sizes of their own, whatever is asked for.

    Args:
        name: for messages.
        data: bytes.
        sizes: bytes of the blocks, taken from the front again when they are used up.
    """

    def __init__(self, name, data, sizes=(7,)):
        self.name, self.data, self.sizes = name, data, sizes

    def blocks(self, size=None):
        del size
        start, turn = 0, 0
        while start < len(self.data):
            stop = start + self.sizes[turn % len(self.sizes)]
            yield self.data[start:stop]
            start, turn = stop, turn + 1


def stream_ids(stream):
    """Returns all ids of a TokenStream as an array of int64."""
    return np.asarray(stream.read(0, len(stream)), np.int64)
