"""Bytes to ids and back."""

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from testing.odd_texts import SYMBOLS, check_tokenizer, odd_texts

from data_utils.byte_vocabulary import ByteVocabulary


def test_ids_are_the_bytes_of_the_text():
    vocabulary = ByteVocabulary()
    ids = vocabulary.encode("né")
    assert ids.dtype == np.uint8
    assert ids.tolist() == [110, 195, 169]
    assert vocabulary.encode(bytes(range(256))).tolist() == list(range(256))
    assert (vocabulary.n_token, vocabulary.unknown_id) == (256, None)


def test_arrays_are_not_copied():
    text = np.frombuffer(b"ab\xff\n", np.uint8)
    assert np.shares_memory(ByteVocabulary().encode(text), text)


def test_bytes_that_are_not_utf8_keep_their_ids_and_decode_to_the_replacement_character():
    vocabulary = ByteVocabulary()
    ids = vocabulary.encode(b"a\xff\xc3b")
    assert ids.tolist() == [97, 255, 195, 98]
    assert vocabulary.decode(ids) == "a\ufffd\ufffdb"


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_round_trip(text):
    vocabulary = ByteVocabulary()
    assert vocabulary.decode(vocabulary.encode(text).astype(np.int32).tolist()) == text


@pytest.mark.parametrize("ids", [[0, 256], np.array([-1, 5], np.int32)])
def test_an_id_that_is_no_byte_is_refused(ids):
    with pytest.raises(ValueError, match="Expected ids from 0 to 255. Received: ids from"):
        ByteVocabulary().decode(ids)


def test_in_a_graph_it_is_the_same(tmp_path):
    check_tokenizer(ByteVocabulary(), odd_texts(symbols=SYMBOLS), tmp_path)


def test_a_graph_takes_bytes_that_are_not_utf8():
    tokenizer = ByteVocabulary().tokenizer
    text = bytes(range(256))
    assert tokenizer.tokenize(tf.constant([text])).to_list() == [list(range(256))]
    assert tokenizer.detokenize(tf.range(256)[None]).numpy().tolist() == [text]
