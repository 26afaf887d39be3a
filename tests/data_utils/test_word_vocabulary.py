"""Words to ids and back."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from testing.odd_texts import ALPHABET, BLANKS, check_tokenizer, odd_texts, words_of

from data_utils.word_vocabulary import WordVocabulary

TEXTS = odd_texts()
RULES = {
    "wt103": dict(),
    "ptb": dict(lower_case=True),
    "lm1b": dict(line_start="<S>", line_end="<S>"),
    "start and end": dict(line_start="<s>", line_end="</s>"),
    "start alone": dict(line_start="<s>", line_end=None),
    "no edges": dict(line_end=None),
    "awkward edges": dict(line_start="\\1", line_end="\\0(", lower_case=True),
}


def vocabulary_of(texts, lower_case=False, line_start=None, line_end="<eos>", **rules):
    """Returns a vocabulary of all words of some texts."""
    edges = [symbol for symbol in (line_start, line_end) if symbol]
    words = [word for text in texts for word in words_of(text, lower_case)]
    return WordVocabulary(list(dict.fromkeys(edges + words)), lower_case, line_start, line_end, **rules)


def test_words_and_line_ends():
    vocabulary = WordVocabulary(["<eos>", "on", "and"])
    assert vocabulary.encode("on and on\n").tolist() == [1, 2, 1, 0]
    assert vocabulary.encode("on and on\n").dtype == np.int32
    assert vocabulary.encode(b"on\n\n  on\tand") .tolist() == [1, 0, 0, 1, 2]
    assert vocabulary.decode([1, 2, 1, 0]) == "on and on\n"
    assert vocabulary.decode([1, 0, 0, 1, 2]) == "on\n\non and"
    assert vocabulary.decode([]) == ""


def test_all_line_ends_are_one():
    vocabulary = WordVocabulary(["<eos>", "a"])
    expected = vocabulary.encode("a\na\n\na\n").tolist()
    for end in ("\r\n", "\r"):
        assert vocabulary.encode(f"a{end}a{end}{end}a{end}").tolist() == expected


@pytest.mark.parametrize("blank", BLANKS)
def test_every_blank_separates(blank):
    assert WordVocabulary(["<eos>", "a"]).encode(f"{blank}a{blank}{blank}a\n").tolist() == [1, 1, 0]


def test_one_billion_word_has_one_symbol_on_both_sides():
    vocabulary = WordVocabulary(["<S>", "a", "b", "<UNK>"], line_start="<S>", line_end="<S>", unknown="<UNK>")
    assert vocabulary.encode("a b\nb c\n").tolist() == [0, 1, 2, 0, 0, 2, 3, 0]
    assert vocabulary.decode([0, 1, 2, 0, 0, 2, 3, 0]) == "a b\nb <UNK>\n"
    assert vocabulary.encode("a").tolist() == [0, 1]


@pytest.mark.parametrize("text", ["a b\nb\n", "a", "", "\n", "a\n\nb\n", "\n\n", "b\na"])
def test_starts_of_lines_are_not_shown(text):
    vocabulary = WordVocabulary(["<s>", "</s>", "a", "b"], line_start="<s>", line_end="</s>")
    assert vocabulary.decode(vocabulary.encode(text)) == text


def test_case_is_kept_unless_asked_for():
    assert WordVocabulary(["a", "A"], line_end=None).encode("A a").tolist() == [1, 0]
    assert WordVocabulary(["a"], line_end=None, lower_case=True).encode("A a").tolist() == [0, 0]


def test_an_unknown_word_is_refused_or_becomes_the_unknown_symbol():
    with pytest.raises(ValueError, match="Expected words of the vocabulary alone. Received: 'zebra'"):
        WordVocabulary(["<eos>", "a"]).encode("a zebra")
    assert WordVocabulary(["<eos>", "a", "?"], unknown="?").encode("a zebra").tolist() == [1, 2]


def test_text_that_is_not_utf8_is_refused():
    with pytest.raises(ValueError, match="Expected UTF-8. Received: byte 0xff at 2"):
        WordVocabulary(["<eos>", "a"]).encode(b"a \xff")


@pytest.mark.parametrize("symbols, rules, message", [
    (["a", "<eos>", "a"], {}, "Expected symbols that differ. Received: 'a' twice"),
    (["<eos>", "a b"], {}, "Expected symbols without blanks. Received: 'a b'"),
    (["<eos>", ""], {}, "Expected symbols without blanks. Received: ''"),
    (["<eos>", "a\u3000"], {}, "Expected symbols without blanks"),
    (["a"], {}, "Expected line_end to be one of the symbols. Received: line_end='<eos>'"),
    (["<eos>"], {"line_start": "<S>"}, "Expected line_start to be one of the symbols"),
    (["<eos>"], {"unknown": "<unk>"}, "Expected unknown to be one of the symbols"),
])
def test_arguments_are_checked(symbols, rules, message):
    with pytest.raises(ValueError, match=message):
        WordVocabulary(symbols, **rules)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_all_words_in_a_graph(rules):
    check_tokenizer(vocabulary_of(TEXTS, **rules), TEXTS, same_text=False)


@pytest.mark.parametrize("rules", [
    pytest.param(rules, id=name, marks=[] if name in ("ptb", "lm1b", "start and end") else pytest.mark.slow) for name, rules in RULES.items()])
def test_unknown_words_in_a_graph(rules, tmp_path):
    half = vocabulary_of(TEXTS[::2], **rules)
    vocabulary = WordVocabulary([*half.symbols, "<none>"], unknown="<none>", **{"line_end": "<eos>", **rules})
    unknown = sum(int((vocabulary.encode(text) == vocabulary.unknown_id).sum()) for text in TEXTS)
    assert unknown > 100
    check_tokenizer(vocabulary, TEXTS, tmp_path, same_text=False)


def test_a_graph_refuses_what_is_unknown_too():
    vocabulary = WordVocabulary(["<eos>", "a"])
    with pytest.raises(tf.errors.InvalidArgumentError, match="words of the vocabulary alone"):
        vocabulary.tokenizer.tokenize(tf.constant(["a b"]))


def test_a_graph_lowers_every_letter_of_unicode_13():
    letters = [chr(code) for code in range(0x2C2F) if chr(code).lower() != chr(code)]
    assert len(letters) > 900
    vocabulary = WordVocabulary(sorted({letter.lower() for letter in letters}), lower_case=True, line_end=None)
    expected = [vocabulary.encode(letter).tolist() for letter in letters]
    assert vocabulary.tokenizer.tokenize(tf.constant(letters)).to_list() == expected


@given(st.lists(st.sampled_from([symbol for symbol in ALPHABET if symbol != "<eos>"])).map("".join), st.booleans())
def test_a_decoded_text_has_single_blanks_and_the_same_ids(text, lower_case):
    vocabulary = vocabulary_of([text], lower_case)
    ids = vocabulary.encode(text)
    shown = vocabulary.decode(ids)
    lines = (text.lower() if lower_case else text).replace("\r\n", "\n").replace("\r", "\n").split("\n")
    assert shown == "\n".join(" ".join(line.split()) for line in lines)
    assert vocabulary.encode(shown).tolist() == ids.tolist()


def test_json():
    vocabulary = WordVocabulary(["<s>", "é", "</s>", "?"], True, "<s>", "</s>", "?")
    again = WordVocabulary.from_json(vocabulary.to_json())
    assert again.sha256() == vocabulary.sha256()
    assert again.encode("É x\n").tolist() == vocabulary.encode("É x\n").tolist() == [0, 1, 3, 2]
    others = [WordVocabulary(["<s>", "é", "</s>", "?"], *rules) for rules in ((False, "<s>", "</s>", "?"), (True, None, "</s>", "?"),
                                                                          (True, "<s>", None, "?"), (True, "<s>", "</s>", None))]
    assert len({vocabulary.sha256(), *(other.sha256() for other in others)}) == 5
