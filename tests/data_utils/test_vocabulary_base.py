"""What all vocabularies share."""

import json

import numpy as np
import pytest
import tensorflow as tf

from data_utils.byte_vocabulary import ByteVocabulary
from data_utils.char_vocabulary import CharVocabulary
from data_utils.vocabulary_base import VocabularyBase, utf8
from data_utils.word_vocabulary import WordVocabulary


@pytest.mark.parametrize("text", ["né", "né".encode(), bytearray("né".encode()), np.frombuffer("né".encode(), np.uint8)])
def test_text_comes_in_many_forms(text):
    assert utf8(text) == "né"


def test_bytes_that_are_not_utf8_are_named():
    with pytest.raises(ValueError, match="Expected UTF-8. Received: byte 0xe9 at 1"):
        utf8(b"n\xe9")


def test_the_digest_is_that_of_the_content(tmp_path):
    vocabulary = WordVocabulary(["<eos>", "a"])
    vocabulary.save(tmp_path / "v.json")
    assert json.loads((tmp_path / "v.json").read_text()) == {"kind": "word", **vocabulary.to_json()}
    assert vocabulary.sha256() == WordVocabulary(["<eos>", "a"]).sha256()
    assert vocabulary.sha256() != WordVocabulary(["a", "<eos>"]).sha256()


def test_the_tokenizer_is_made_once_and_takes_any_shape():
    vocabulary = ByteVocabulary()
    tokenizer = vocabulary.tokenizer
    assert vocabulary.tokenizer is tokenizer
    for ids in (tf.constant([[97, 98]]), tf.ragged.constant([[97], [], [98, 99]], tf.int32), tf.zeros([0, 3], tf.int32)):
        assert tokenizer.detokenize(ids).shape[0] == ids.shape[0]
    assert tokenizer.detokenize.experimental_get_tracing_count() == 2


WORDS = WordVocabulary(["<S>", "the", "<UNK>"], line_start="<S>", line_end="<S>", unknown="<UNK>")


@pytest.mark.parametrize("vocabulary, text, token", [
    (ByteVocabulary(), "\n", 10), (CharVocabulary("aé"), "é", 1), (WORDS, "<S>", 0), (WORDS, "the", 1), (WORDS, "<UNK>", 2)])
def test_a_text_that_is_one_token(vocabulary, text, token):
    assert vocabulary.token_id(text) == token


@pytest.mark.parametrize("vocabulary, text", [
    (ByteVocabulary(), "é"), (ByteVocabulary(), ""), (CharVocabulary("aé"), "b"), (CharVocabulary("a?", unknown="?"), "b"),
    (WORDS, "fox"), (WORDS, "the fox"), (WORDS, "the the"), (WORDS, "")])
def test_a_text_that_is_not_one_token(vocabulary, text):
    with pytest.raises(ValueError, match=f"Received: .*{text}"):
        vocabulary.token_id(text)


def test_no_ids_are_no_text():
    assert VocabularyBase()._checked([]).tolist() == []
    assert ByteVocabulary().decode(np.zeros((0, 4), np.int32)) == ""
