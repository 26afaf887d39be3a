"""Vocabularies from files of others."""

import json

import pytest
from testing.golden_texts import GOLDEN, golden_symbols
from testing.optional_package import needed

from data_utils.char_vocabulary import CharVocabulary
from data_utils.detokenize import detokenize
from data_utils.original_pickles import OriginalPickle
from data_utils.subword_vocabulary import SubwordVocabulary
from data_utils.tokenize import tokenize
from data_utils.vocabulary_files import original_vocabulary, read_vocabulary_file
from data_utils.word_vocabulary import WordVocabulary

WORDS = dict(symbols=("<unk>", "<eos>"), unknown="<unk>")
LM1B = dict(symbols=("<S>", "<UNK>"), line_start="<S>", line_end="<S>", unknown="<UNK>")


@pytest.mark.parametrize("content", ["b 3\na 2\n\nb 1\n<eos>\n<unk>", "b\r\na\r\n<eos>\r\n<unk>\r\n"])
def test_a_list_of_words_has_the_first_of_every_line_once(tmp_path, content):
    (tmp_path / "list.txt").write_text(content, newline="")
    vocabulary = read_vocabulary_file(tmp_path / "list.txt", "word", WORDS)
    assert vocabulary.symbols == ["b", "a", "<eos>", "<unk>"]
    assert (vocabulary.unknown_id, vocabulary.lower_case) == (3, False)


def test_special_symbols_that_a_list_lacks_come_last(tmp_path):
    (tmp_path / "list").write_text("a\nb\n")
    assert read_vocabulary_file(tmp_path / "list", "word", WORDS).symbols == ["a", "b", "<eos>", "<unk>"]
    assert read_vocabulary_file(tmp_path / "list", "word", LM1B).symbols == ["a", "b", "<S>", "<UNK>"]


def test_the_list_of_one_billion_word():
    vocabulary = read_vocabulary_file(GOLDEN / "lm1b" / "raw" / "1b_word_vocab.txt", "word", LM1B)
    assert vocabulary.symbols == golden_symbols("lm1b")
    assert (vocabulary.line_start, vocabulary.unknown) == ("<S>", "<UNK>")


def test_a_vocabulary_of_a_prepared_folder(tmp_path):
    saved = WordVocabulary(["<eos>", "a"], lower_case=True)
    saved.save(tmp_path / "vocabulary.json")
    assert read_vocabulary_file(tmp_path / "vocabulary.json", "word", WORDS).sha256() == saved.sha256()
    with pytest.raises(ValueError, match="Expected a vocabulary of kind char in --vocab_file, not word. Received: vocab_file="):
        read_vocabulary_file(tmp_path / "vocabulary.json", "char", WORDS)


def test_a_sentencepiece_model(tmp_path):
    needed("sentencepiece")
    vocabulary = SubwordVocabulary.trained([b"ab abc\n" * 50], 264)
    (tmp_path / "m.model").write_bytes(vocabulary.model)
    assert read_vocabulary_file(tmp_path / "m.model", "subword", {}).encode("ab c\n").tolist() == vocabulary.encode("ab c\n").tolist()


@pytest.mark.parametrize("name", ["hub_style/vocab.pkl", "hub_style/vocab.bin", "hub_style/vocab.json", "hub_style_bin_legacy/vocab.bin"])
def test_a_vocabulary_of_hugging_face(name):
    vocabulary = read_vocabulary_file(GOLDEN / name, "word", WORDS)
    assert (vocabulary.symbols, vocabulary.unknown) == (golden_symbols("hub_style"), "<unk>")
    encodings = json.loads((GOLDEN.parent / "hf" / "tokenizer" / "encodings.json").read_text())
    for example in encodings:
        ids = [vocabulary.unknown_id if number == len(vocabulary.symbols) else number for number in example["ids"]]  # <formula>, added there
        assert vocabulary.encode(tokenize(example["text"])).tolist() == ids
        decoded = example["decoded"].replace(" <eos>", "\n").replace("<formula>", "<unk>")
        assert detokenize(vocabulary.decode(ids)) == decoded


@pytest.mark.parametrize("name", ["ptb/cache.pkl", "ptb/cache_py27.pkl"])
def test_a_pickle_of_the_original_code(name):
    vocabulary = read_vocabulary_file(GOLDEN / name, "word", dict(symbols=(), lower_case=False))
    assert sorted(vocabulary.symbols) == sorted(golden_symbols("ptb"))
    assert vocabulary.lower_case
    assert vocabulary.unknown == ("<unk>" if "<unk>" in vocabulary.symbols else None)
    assert vocabulary.encode("\n").tolist() == [0]


def test_byte_values_of_the_original_are_characters():
    symbols = ["32", "101", "10", *map(str, range(40, 50))]
    vocabulary = original_vocabulary(OriginalPickle(symbols, lower_case=True), "char", {})
    assert isinstance(vocabulary, CharVocabulary)
    assert vocabulary.encode("e \n(").tolist() == [1, 0, 2, 3]


def test_characters_of_the_original_have_a_blank():
    vocabulary = original_vocabulary(OriginalPickle(["_", "a"]), "char", {})
    assert vocabulary.encode("a a").tolist() == [1, 0, 1]


def test_other_symbols_of_the_original_are_no_characters():
    with pytest.raises(ValueError, match="Expected byte values or characters as symbols. Received: .'the', 'of'"):
        original_vocabulary(OriginalPickle(["the", "of"]), "char", {})


@pytest.mark.parametrize("original, start, unknown, lower_case", [
    (OriginalPickle(["a", "<unk>", "<eos>"], lower_case=False), dict(lower_case=True), "<unk>", False),
    (OriginalPickle(["a", "?", "<eos>"], lower_case=True, unk_id=1), {}, "?", True),
    (OriginalPickle(["a", "<eos>"]), dict(lower_case=True), None, True),
    (OriginalPickle(["a", "<S>"]), LM1B, "<UNK>", False),
])
def test_what_the_original_says_counts_more(original, start, unknown, lower_case):
    vocabulary = original_vocabulary(original, "word", start)
    assert (vocabulary.unknown, vocabulary.lower_case) == (unknown, lower_case)


@pytest.mark.parametrize("name, content, kind", [
    ("list.txt", b"a\n\xff\n", "word"), ("m.model", b"garbage", "subword"), ("cache.pkl", b"garbage", "word"),
    ("vocab.bin", b"", "word"), ("vocabulary.json", b"{", "word"), ("vocab.json", b'{"idx2sym": ["a", "a"]}', "word"), ("vocab.json", b'{"idx2sym": [1]}', "word"),
    ("list.txt", b"a\n", "char"), ("list.txt", b"a\x1fb\n", "subword"),
])
def test_every_bad_file_is_one_sentence_with_its_name(tmp_path, name, content, kind):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=f"Expected a vocabulary of kind {kind} in --vocab_file .*{name}") as caught:
        read_vocabulary_file(tmp_path / name, kind, WORDS if kind == "word" else {})
    assert "\n" not in str(caught.value)


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="Expected --vocab_file to be a file. Received: vocab_file="):
        read_vocabulary_file(tmp_path / "no", "word", WORDS)
