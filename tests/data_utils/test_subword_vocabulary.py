"""Pieces of words to ids and back."""

import random
import sys

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st
from testing.odd_texts import ALPHABET, SYMBOLS, check_tokenizer, odd_texts
from testing.optional_package import needed

import data_utils.subword_vocabulary
from data_utils.subword_vocabulary import SubwordVocabulary

SIZE = 330


def text_of_words(seed=0):
    draw = random.Random(seed)
    words = ["".join(draw.choices("abcdeé", k=draw.randrange(1, 7))) for _ in range(300)]
    return "".join(draw.choice(words) + draw.choice("    \n") for _ in range(3000)).encode("utf-8")


@pytest.fixture(scope="module")
def trained():
    """A vocabulary of a small text."""
    needed("sentencepiece")
    return SubwordVocabulary.trained([text_of_words()], SIZE)


def test_it_has_the_size_asked_for_and_uses_it(trained):
    assert trained.n_token == SIZE
    text = text_of_words().decode("utf-8")
    ids = trained.encode(text)
    assert ids.dtype == np.int32
    assert len(ids) < 0.6 * len(text)
    assert np.count_nonzero(ids == trained.line_end) == text.count("\n")
    assert trained.decode(ids) == text


@settings(deadline=None)
@given(text=st.text(st.characters(exclude_categories=["Cs"])) | st.lists(st.sampled_from(ALPHABET)).map("".join))
def test_nothing_is_lost(trained, text):
    assert trained.decode(trained.encode(text)) == text


def test_the_end_of_a_line_is_a_token(trained):
    assert trained.token_id("</s>") == trained.token_id("\n") == trained.line_end


def test_in_a_graph_it_is_the_same(trained, tmp_path):
    check_tokenizer(trained, odd_texts(symbols=SYMBOLS), tmp_path)


def test_training_is_deterministic_whatever_the_blocks(trained):
    text = text_of_words()
    blocks = [text[start:start + 11] for start in range(0, len(text), 11)]
    assert SubwordVocabulary.trained(blocks, SIZE).model == trained.model
    assert SubwordVocabulary.trained([text_of_words(1)], SIZE).model != trained.model


@pytest.mark.parametrize("size, distance", [(40, 1), (41, 2), (83, 4), (1000, 32)])
def test_of_a_long_text_parts_at_equal_distances_are_used(monkeypatch, size, distance):
    monkeypatch.setattr(data_utils.subword_vocabulary, "_TRAINED_PART", 4)
    monkeypatch.setattr(data_utils.subword_vocabulary, "_TRAINED_TEXT", 40)
    text = bytes(index % 251 for index in range(size)).replace(b"\n", b" ")
    parts = [text[start:start + 4] for start in range(0, size, 4)][::distance]
    for step in (1, 3, 7, 2000):
        blocks = (text[start:start + step] for start in range(0, size, step))
        assert data_utils.subword_vocabulary._sample(blocks) == (b"\n" if distance > 1 else b"").join(parts)
    assert 5 <= len(parts) <= 10


def test_training_survives_awkward_text():
    needed("sentencepiece")
    text = "\n".join(odd_texts(symbols=SYMBOLS)).encode("utf-8") + b"\xff\x80\x80" + b"\x80" * 9000 + text_of_words()
    vocabulary = SubwordVocabulary.trained([text[:5001], text[5001:]], 700)
    assert all(vocabulary.decode(vocabulary.encode(text)) == text for text in odd_texts(symbols=SYMBOLS))


def test_a_word_of_any_length_is_encoded(trained, monkeypatch):
    text = "a" * 100_000 + " é" + "▁" * 50_000
    assert trained.decode(trained.encode(text)) == text
    monkeypatch.setattr(data_utils.subword_vocabulary, "_LONGEST_LINE", 50)
    text = text_of_words().decode("utf-8").replace("\n", " ")  # one line; its words are shorter than 50 bytes
    cut = trained.encode(text).tolist()
    monkeypatch.undo()
    assert cut == trained.encode(text).tolist()


def test_text_that_is_not_utf8_is_refused(trained):
    with pytest.raises(ValueError, match="Expected UTF-8. Received: byte 0xff at 1"):
        trained.encode(b"a\xff")


@pytest.mark.parametrize("ids", [[0, SIZE], [-1]])
def test_ids_beyond_the_vocabulary_are_refused(trained, ids):
    with pytest.raises(ValueError, match=f"Expected ids from 0 to {SIZE - 1}. Received: ids from"):
        trained.decode(ids)


@pytest.mark.parametrize("size", [10, 100_000])
def test_a_size_that_does_not_fit_the_text_is_refused(size):
    needed("sentencepiece")
    with pytest.raises(ValueError, match=f"Expected --vocab_size (of at most|that holds) .*Received: vocab_size={size}") as caught:
        SubwordVocabulary.trained([text_of_words()], size)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("text", [b"", b"\n\n"])
def test_a_text_without_words_is_refused(text):
    needed("sentencepiece")
    with pytest.raises(ValueError, match="Expected --vocab_size that holds 256 bytes and all characters of the text"):
        SubwordVocabulary.trained([text], SIZE)


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sentencepiece", None)
    with pytest.raises(ValueError, match="Expected the package sentencepiece .*pip install sentencepiece"):
        SubwordVocabulary.trained([b"a b\n"], SIZE)


@pytest.mark.parametrize("model", [b"", b"garbage", b"\x0a\x02ab"])
def test_other_bytes_are_no_model(model):
    with pytest.raises(ValueError, match="Expected a SentencePiece model"):
        SubwordVocabulary(model)


def test_a_model_without_an_end_symbol_is_refused(tmp_path):
    sentencepiece = needed("sentencepiece")
    (tmp_path / "text").write_bytes(text_of_words())
    sentencepiece.SentencePieceTrainer.train(input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=100, eos_id=-1)
    with pytest.raises(ValueError, match="Expected a SentencePiece model with </s>"):
        SubwordVocabulary((tmp_path / "m.model").read_bytes())


def test_a_model_that_others_made_keeps_its_ids(tmp_path):
    sentencepiece = needed("sentencepiece")
    (tmp_path / "text").write_bytes(text_of_words())
    sentencepiece.SentencePieceTrainer.train(input=str(tmp_path / "text"), model_prefix=str(tmp_path / "m"), vocab_size=100)
    vocabulary = SubwordVocabulary((tmp_path / "m.model").read_bytes())
    processor = sentencepiece.SentencePieceProcessor(model_file=str(tmp_path / "m.model"))
    line = "bed ▁ \U0001F600 cab"
    assert vocabulary.encode(line).tolist() == processor.encode(line)
    assert vocabulary.encode(f"{line}\n").tolist() == processor.encode(line) + [processor.eos_id()]


def test_json(trained):
    again = SubwordVocabulary.from_json(trained.to_json())
    assert again.sha256() == trained.sha256()
    assert again.encode("bed\n").tolist() == trained.encode("bed\n").tolist()


def test_without_a_size_there_are_as_many_as_the_text_admits():
    needed("sentencepiece")
    vocabulary = SubwordVocabulary.trained([text_of_words()])
    assert 300 < vocabulary.n_token < 32_000
    assert vocabulary.decode(vocabulary.encode("words and\n")) == "words and\n"


def test_a_random_seed_that_is_set_in_between(trained):
    before = trained.encode("words and words\n")
    tf.random.set_seed(3)  # drops the resources of what ran eagerly
    np.testing.assert_array_equal(trained.encode("words and words\n"), before)
    tf.random.set_seed(4)
    assert trained.decode(before) == "words and words\n"
    tf.random.set_seed(5)
    np.testing.assert_array_equal(trained.tokenizer.tokenize(tf.constant(["words and words\n"]))[0], before)
