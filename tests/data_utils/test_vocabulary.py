"""Bytes to ids and back."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_utils.vocabulary import VOCABULARIES, ByteVocabulary, load_vocabulary

ROOT = Path(__file__).parents[2]


def test_ids_are_the_bytes_of_the_text():
    vocabulary = ByteVocabulary()
    ids = vocabulary.encode("né")
    assert ids.dtype == np.uint8
    assert ids.tolist() == [110, 195, 169]
    assert vocabulary.encode(bytes(range(256))).tolist() == list(range(256))
    assert vocabulary.n_token == 256


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


def test_save_and_load(tmp_path):
    ByteVocabulary().save(tmp_path / "vocabulary.json")
    assert json.loads((tmp_path / "vocabulary.json").read_text()) == {"kind": "byte"}
    assert isinstance(load_vocabulary(tmp_path / "vocabulary.json"), ByteVocabulary)


def test_the_table_is_keyed_by_kind():
    assert all(kind == vocabulary.kind for kind, vocabulary in VOCABULARIES.items())


def test_loading_refuses_an_unknown_kind_by_name(tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_text('{"kind": "runes"}')
    with pytest.raises(ValueError, match=r"known kind \(byte\)\. Received: kind='runes'"):
        load_vocabulary(path)


@pytest.mark.parametrize("content", ["", "[]", "{}", "3"])
def test_loading_refuses_what_is_no_vocabulary(tmp_path, content):
    path = tmp_path / "vocabulary.json"
    path.write_text(content)
    with pytest.raises(ValueError, match="Expected a JSON object"):
        load_vocabulary(path)


def test_loading_refuses_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected a vocabulary file. Received: path="):
        load_vocabulary(tmp_path / "vocabulary.json")


def test_a_vocabulary_needs_no_tensorflow():
    code = "import sys; from data_utils import ByteVocabulary; sys.exit('tensorflow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode == 0
