"""Every kind of vocabulary is saved and loaded."""

import json

import pytest
from testing.optional_package import needed

from data_utils.byte_vocabulary import ByteVocabulary
from data_utils.char_vocabulary import CharVocabulary
from data_utils.subword_vocabulary import SubwordVocabulary
from data_utils.vocabulary import VOCABULARIES, load_vocabulary
from data_utils.word_vocabulary import WordVocabulary

TEXT = "a bé a\n\nbé b\n"


def example(kind):
    """Returns a vocabulary of a kind."""
    if kind == "subword":
        needed("sentencepiece")
        return SubwordVocabulary.trained([b"ab abc\n" * 50], 264)
    return {"byte": ByteVocabulary(), "char": CharVocabulary("ab \né?", unknown="?"),
            "word": WordVocabulary(["<s>", "a", "bé", "b", "</s>"], True, "<s>", "</s>", "b")}[kind]


def test_the_table_is_keyed_by_kind():
    assert list(VOCABULARIES) == ["byte", "char", "word", "subword"]
    assert all(kind == vocabulary.kind for kind, vocabulary in VOCABULARIES.items())


@pytest.mark.parametrize("kind", VOCABULARIES)
def test_save_and_load(kind, tmp_path):
    vocabulary = example(kind)
    vocabulary.save(tmp_path / "vocabulary.json")
    assert json.loads((tmp_path / "vocabulary.json").read_text())["kind"] == kind
    again = load_vocabulary(tmp_path / "vocabulary.json")
    assert type(again) is type(vocabulary)
    assert again.sha256() == vocabulary.sha256()
    assert (again.n_token, again.unknown_id) == (vocabulary.n_token, vocabulary.unknown_id)
    ids = vocabulary.encode(TEXT)
    assert again.encode(TEXT).tolist() == ids.tolist()
    assert again.decode(ids) == vocabulary.decode(ids) == TEXT
    assert [path.name for path in tmp_path.iterdir()] == ["vocabulary.json"]


def test_digests_differ_between_kinds():
    assert len({example(kind).sha256() for kind in ("byte", "char", "word")}) == 3


@pytest.mark.parametrize("content", ["", "[]", "{}", "3", "{", "null", '"byte"', "\xff", "[" * 10 ** 5])
def test_loading_refuses_what_is_no_vocabulary(content, tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_text(content, encoding="latin-1")
    with pytest.raises(ValueError, match="Expected a JSON object with the kind"):
        load_vocabulary(path)


@pytest.mark.parametrize("kind", ['"runes"', "[]", "{}", "1", "null"])
def test_loading_refuses_an_unknown_kind_by_name(kind, tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_text(f'{{"kind": {kind}}}')
    with pytest.raises(ValueError, match=r"of a known kind \(byte, char, subword, word\)\. Received: kind="):
        load_vocabulary(path)


@pytest.mark.parametrize("content", [
    {"kind": "word"}, {"kind": "word", "symbols": 3}, {"kind": "word", "symbols": [1, 2]}, {"kind": "word", "symbols": ["a"]},
    {"kind": "word", "symbols": ["<eos>"], "more": 1}, {"kind": "char", "symbols": "ab"}, {"kind": "subword"},
    {"kind": "char", "symbols": 5, "unit": "byte", "unknown": None}, {"kind": "char", "symbols": ["ab"], "unit": "x", "unknown": None},
    {"kind": "subword", "model": "~~"}, {"kind": "subword", "model": 7}, {"kind": "subword", "model": "YWJj"},
])
def test_loading_refuses_the_content_of_another_kind(content, tmp_path):
    path = tmp_path / "vocabulary.json"
    path.write_text(json.dumps(content))
    with pytest.raises(ValueError, match="Expected the content of a vocabulary of kind"):
        load_vocabulary(path)


@pytest.mark.parametrize("name", ["vocabulary.json", "."])
def test_loading_refuses_a_missing_file(name, tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected a vocabulary file. Received: path="):
        load_vocabulary(tmp_path / name)
