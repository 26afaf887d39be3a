"""Characters to ids and back."""

import collections

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from testing.odd_texts import SYMBOLS, check_tokenizer, odd_texts

from data_utils.char_vocabulary import CharVocabulary

TEXTS = odd_texts(symbols=SYMBOLS)
BYTES = [bytes([value]) for value in range(256)]


def test_ids_are_places_among_the_symbols():
    vocabulary = CharVocabulary(" eta")
    assert vocabulary.encode("tea").tolist() == [2, 1, 3]
    assert vocabulary.encode("tea").dtype == np.int32
    assert vocabulary.encode(b"tea").tolist() == [2, 1, 3]
    assert vocabulary.decode([2, 1, 3]) == "tea"
    assert (vocabulary.n_token, vocabulary.unknown_id) == (4, None)


def test_symbols_of_unit_byte_are_bytes():
    vocabulary = CharVocabulary("aÃ©", unit="byte")  # "é" is the bytes of Ã and ©
    assert vocabulary.encode("éa").tolist() == [1, 2, 0]
    assert vocabulary.decode([1, 2, 0]) == "éa"
    assert vocabulary.decode([1, 0]) == "\ufffda"


@pytest.mark.parametrize("unit, text, wrong", [("character", "tex", "'x'"), ("byte", "té", "'Ã'")])
def test_without_an_unknown_symbol_others_are_refused(unit, text, wrong):
    with pytest.raises(ValueError, match=f"Expected {unit}s of the vocabulary alone. Received: {wrong}"):
        CharVocabulary(" eta", unit).encode(text)


def test_an_unknown_symbol_stands_for_all_others():
    vocabulary = CharVocabulary("a\ufffd", unknown="\ufffd")
    assert vocabulary.encode("ab😀a").tolist() == [0, 1, 1, 0]


def test_text_that_is_not_utf8_is_refused():
    with pytest.raises(ValueError, match="Expected UTF-8. Received: byte 0xff at 1"):
        CharVocabulary("a").encode(b"a\xff")


@pytest.mark.parametrize("ids", [[3], [-1]])
def test_ids_beyond_the_vocabulary_are_refused(ids):
    with pytest.raises(ValueError, match="Expected ids from 0 to 2. Received: ids from"):
        CharVocabulary("abc").decode(ids)


@pytest.mark.parametrize("arguments, message", [
    (dict(symbols="aa"), "Expected symbols that differ"),
    (dict(symbols="aĀ", unit="byte"), r"Expected symbols up to U\+00FF"),
    (dict(symbols="a", unit="word"), "Expected unit to be one of character, byte"),
    (dict(symbols="a", unknown="b"), "Expected unknown to be one of the symbols"),
    (dict(symbols="ab", unknown="ab"), "Expected unknown to be one of the symbols"),
])
def test_arguments_are_checked(arguments, message):
    with pytest.raises(ValueError, match=message):
        CharVocabulary(**arguments)


@settings(max_examples=20, deadline=None)
@given(st.text("abc", min_size=1), st.integers(1, 5), st.integers(0, 3))
def test_it_grows_by_the_most_frequent_first(text, max_size, min_freq):
    splitter = CharVocabulary("").splitter()
    _, counts, _ = splitter.collect(splitter.split(text.encode(), True, True))
    grown = CharVocabulary("#b").grown(splitter, counts, max_size, min_freq)
    counter = collections.Counter(text)
    added = [symbol for symbol, count in counter.most_common() if symbol != "b" and count >= min_freq]
    assert grown.symbols == "#b" + "".join(added[:max(max_size - 2, 0)])


def test_every_character_in_a_graph():
    symbols = "".join(sorted({symbol for text in TEXTS for symbol in text}))
    check_tokenizer(CharVocabulary(symbols), TEXTS)


def test_unknown_characters_in_a_graph(tmp_path):
    check_tokenizer(CharVocabulary("a\n?é", unknown="?"), TEXTS, tmp_path, same_text=False)


def test_bytes_in_a_graph(tmp_path):
    check_tokenizer(CharVocabulary(bytes(range(255, -1, -1)).decode("latin-1"), unit="byte"), TEXTS, tmp_path)


def test_a_graph_refuses_what_is_unknown_too():
    vocabulary = CharVocabulary("a")
    with pytest.raises(tf.errors.InvalidArgumentError, match="symbols of the vocabulary alone"):
        vocabulary.tokenizer.tokenize(tf.constant(["ab"]))


@pytest.mark.parametrize("symbol", ["a", "é", "日", "😀"])
def test_a_block_is_cut_where_a_character_ends(symbol):
    splitter = CharVocabulary("").splitter()
    data = ("a" + symbol).encode()
    assert [splitter.border(data[:stop]) for stop in range(1, len(data) + 1)] == [1] * (len(data) - 1) + [len(data)]


def test_a_block_of_broken_utf8_is_not_waited_with_forever():
    splitter = CharVocabulary("").splitter()
    assert splitter.border(b"\x80" * 9) == 9
    assert splitter.border(b"ab\xff") == 2


def test_json(tmp_path):
    vocabulary = CharVocabulary("é\n\x00 \ufffd😀", unknown="\ufffd")
    again = CharVocabulary.from_json(vocabulary.to_json())
    assert again.sha256() == vocabulary.sha256()
    assert (again.symbols, again.unit, again.unknown) == ("é\n\x00 \ufffd😀", "character", "\ufffd")
    assert vocabulary.sha256() != CharVocabulary("é\n\x00 \ufffd😀").sha256()
