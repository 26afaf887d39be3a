"""The texts of all splits become streams of ids in one pass."""

import collections
import tempfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from testing.golden_texts import GOLDEN, golden_symbols, read_json
from testing.odd_texts import ALPHABET, OddBlocks, lines_of, stream_ids, words_of
from testing.optional_package import needed

from data_utils.byte_vocabulary import ByteVocabulary
from data_utils.char_vocabulary import CharVocabulary
from data_utils.dataset_texts import SPLITS
from data_utils.edited_text import EditedText
from data_utils.encode import encode_splits
from data_utils.subword_vocabulary import SubwordVocabulary
from data_utils.text_sources import TextFile
from data_utils.word_vocabulary import WordVocabulary

TEXT = st.lists(st.sampled_from(ALPHABET)).map("".join)
SIZES = st.lists(st.integers(1, 9), min_size=1, max_size=4)
EXAMPLES = [("a\r\nb\n", [2]), ("a\r", [1]), ("\r\n", [1]), (" ", [1]), ("é😀", [1]), ("a\n\n", [2]), ("\n", [9]), ("a \n ", [3]), ("Σ Σ", [1])]
WORD_RULES = [{}, dict(lower_case=True), dict(line_start="<S>", line_end="<S>"), dict(line_start="<s>", line_end="</s>"),
              dict(line_start="<s>", line_end=None), dict(line_end=None)]


def with_examples(test):
    for text, sizes in EXAMPLES:
        test = example(text=text, sizes=sizes)(test)
    return settings(deadline=None, max_examples=25)(given(text=TEXT, sizes=SIZES)(test))


def encoded(texts, vocabulary, sizes=(7,), counted=(), **arguments):
    """Returns the vocabulary, split -> list of (ids, line lengths), and the unknown tokens; texts are str or lists of them."""
    splits = {split: [OddBlocks(f"{split}{number}.txt", data if isinstance(data, bytes) else data.encode("utf-8"), sizes)
                      for number, data in enumerate([text] if isinstance(text, (str, bytes)) else text)]
              for split, text in texts.items()}
    with tempfile.TemporaryDirectory() as folder:
        vocabulary, streams, unknown = encode_splits(splits, vocabulary, Path(folder), counted, **arguments)
        found = {split: [(stream_ids(stream).tolist(), stream.line_lengths) for stream in streams[split]] for split in splits}
        return vocabulary, found, unknown


def ids_of(found, split="train"):
    (ids, _), = found[split]
    return ids


@with_examples
def test_bytes(text, sizes):
    _, found, unknown = encoded({"train": text}, ByteVocabulary(), sizes)
    assert ids_of(found) == list(text.encode("utf-8"))
    assert unknown == {"train": 0}


@pytest.mark.parametrize("unit", ["character", "byte"])
@with_examples
def test_characters_in_the_order_of_their_counts(unit, text, sizes):
    vocabulary, found, _ = encoded({"train": text}, CharVocabulary("", unit), sizes, counted=("train",), num_procs=3)
    symbols = text if unit == "character" else text.encode("utf-8").decode("latin-1")
    assert vocabulary.symbols == "".join(symbol for symbol, _ in collections.Counter(symbols).most_common())
    assert ids_of(found) == vocabulary.encode(text).tolist()
    assert vocabulary.decode(ids_of(found)) == text


def whole_lines(text):
    return text if not text or text.endswith(("\n", "\r")) else f"{text}\n"


@pytest.mark.parametrize("rules", WORD_RULES, ids=str)
@with_examples
def test_words_in_the_order_of_their_counts(rules, text, sizes):
    rules = {"line_end": "<eos>", **rules}
    edges = list(dict.fromkeys(symbol for symbol in (rules.get("line_start"), rules["line_end"]) if symbol))
    start = WordVocabulary(edges, **rules)
    vocabulary, found, _ = encoded({"train": text}, start, sizes, counted=("train",), lines_of=("train",))
    counter = collections.Counter(words_of(text, rules.get("lower_case", False)))
    assert vocabulary.symbols == edges + [word for word, _ in counter.most_common() if word not in edges]
    ids, line_lengths = found["train"][0]
    assert ids == vocabulary.encode(whole_lines(text)).tolist()
    around = (rules.get("line_start") is not None) + (rules["line_end"] is not None)
    lengths = [len(line.split()) + around for line in lines_of(text)]
    assert line_lengths.tolist() == [length for length in lengths if length]


@pytest.fixture(scope="module")
def subwords():
    """A small vocabulary of subwords."""
    needed("sentencepiece")
    return SubwordVocabulary.trained([b"a be ab bea\n" * 30], 264)


@with_examples
def test_subwords(subwords, text, sizes):
    _, found, _ = encoded({"train": text}, subwords, sizes, lines_of=("train",))
    text = text if not text or text.endswith("\n") else f"{text}\n"
    ids, line_lengths = found["train"][0]
    assert ids == subwords.encode(text).tolist()
    assert line_lengths.tolist() == [len(subwords.encode(f"{line}\n")) for line in text.split("\n")[:-1]]


def test_long_words_of_subwords(subwords, monkeypatch):
    monkeypatch.setattr("data_utils.subword_vocabulary._LONGEST_LINE", 16)
    text = "be ab " + "ab" * 40 + " a\n" + "é" * 50 + " be" * 30 + "\n"
    expected = subwords.encode(text).tolist()
    for sizes in ([3], [17], [40, 1], [1000]):
        assert ids_of(encoded({"train": text}, subwords, sizes)[1]) == expected


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_threads_and_blocks_change_nothing(threads):
    text = "".join(np.random.RandomState(0).choice(ALPHABET, 3000))
    for sizes in ([1], [5, 300], [10_000]):
        vocabulary, found, unknown = encoded({"train": text, "test": text[::-1]}, WordVocabulary(["<eos>", "?"], unknown="?"), sizes,
                                             counted=("train",), num_procs=threads)
        assert ids_of(found) == vocabulary.encode(whole_lines(text)).tolist()
        assert ids_of(found, "test") == vocabulary.encode(whole_lines(text[::-1])).tolist()
        known = set(vocabulary.symbols)
        assert unknown == {"train": 0, "test": sum(word not in known for word in words_of(text[::-1]))}


@pytest.mark.parametrize("kind", [ByteVocabulary(), CharVocabulary("", "byte"), WordVocabulary(["<eos>"])], ids=lambda kind: kind.kind)
def test_several_files_are_one_stream_or_one_each(kind):
    texts = {"train": ["a b", "b\n", "", "c"], "valid": ["a", "b"]}
    vocabulary, found, _ = encoded(texts, kind, [2], counted=("train", "valid") if kind.kind != "byte" else (), lines_of=("train",))
    ended = whole_lines if kind.kind == "word" else str
    assert [ids for ids, _ in found["train"]] == [vocabulary.encode(ended(text)).tolist() for text in texts["train"]]
    assert ids_of(found, "valid") == vocabulary.encode("".join(map(ended, texts["valid"]))).tolist()
    assert [lengths.tolist() for _, lengths in found["train"]][2] == []
    assert found["valid"][0][1] is None


def test_the_vocabulary_takes_up_the_counted_splits_alone():
    texts = {"train": "a b b\n", "valid": "c c c a\n", "test": "d\n"}
    start = WordVocabulary(["<unk>", "<eos>"], unknown="<unk>")
    vocabulary, _, unknown = encoded(texts, start, counted=("train",))
    assert vocabulary.symbols == ["<unk>", "<eos>", "b", "a"]
    assert unknown == {"train": 0, "valid": 3, "test": 1}
    assert encoded(texts, start, counted=("valid", "train"))[0].symbols == ["<unk>", "<eos>", "c", "a", "b"]
    assert encoded(texts, start, counted=tuple(texts), max_size=4)[0].symbols == ["<unk>", "<eos>", "c", "a"]
    assert encoded(texts, start, counted=tuple(texts), min_freq=2)[0].symbols == ["<unk>", "<eos>", "c", "a", "b"]
    assert encoded(texts, start)[2] == {"train": 3, "valid": 4, "test": 1}


@pytest.mark.parametrize("vocabulary", [
    WordVocabulary(["<eos>", "a"]), WordVocabulary(["<eos>", "a"], lower_case=True), CharVocabulary("a\n")], ids=["word", "lower", "char"])
@pytest.mark.parametrize("text, line, place", [
    (b"\xffa\n", 1, 0), (b"a\na\xc3", 2, 3), (b"a\r\na\xe6\x97", 2, 4), (b"a\n" * 30 + b"\x80a", 31, 60), (b"a\xf0\x9f\x98", 1, 1),
    (b"a\xed\xa0\x80", 1, 1)])
@pytest.mark.parametrize("sizes", [[1], [4], [100]])
def test_text_that_is_not_utf8_is_refused_with_its_place(vocabulary, text, line, place, sizes):
    if vocabulary.kind == "char":
        text, place = text.replace(b"\r", b""), place - text[:place].count(b"\r")
    message = f"Expected UTF-8 in train0.txt, unlike line {line}, byte {place} of the file. Received: {text[place]:#04x}"
    with pytest.raises(ValueError, match=message):
        encoded({"train": text}, vocabulary, sizes)


def test_subwords_refuse_what_is_not_utf8(subwords):
    with pytest.raises(ValueError, match="Expected UTF-8 in train0.txt, unlike line 2, byte 3 of the file. Received: 0xff"):
        encoded({"train": b"a\nb\xff\n"}, subwords, [4])


@pytest.mark.parametrize("vocabulary, text, line, symbol", [
    (WordVocabulary(["<eos>", "a"]), "a\n\na zebra a\nb", 3, "'zebra'"),
    (WordVocabulary(["<eos>", "a"]), "a\r\na b", 2, "'b'"),
    (WordVocabulary(["a"], line_end=None), "a\n\nb", 3, "'b'"),
    (WordVocabulary(["<S>", "a"], line_start="<S>", line_end="<S>", lower_case=True), "a\na\na\nA B", 4, "'b'"),
    (CharVocabulary("a\n"), "a\naé", 2, "'é'"),
    (CharVocabulary("ab"), "ab\na", 1, r"'\\n'"),
    (CharVocabulary("a\n", "byte"), "a\n\né", 3, "'Ã'"),
])
@pytest.mark.parametrize("sizes", [[1], [4], [100]])
def test_an_unknown_symbol_is_refused_with_its_place(vocabulary, text, line, symbol, sizes):
    message = f"Expected symbols of the vocabulary alone in test1.txt, unlike line {line}. Received: {symbol}"
    with pytest.raises(ValueError, match=message):
        encoded({"train": "a", "test": ["a", text]}, vocabulary, sizes)


@pytest.mark.parametrize("name", ["enwik8", "text8", "ptb", "wt103"])
def test_the_original_encodes_alike(name, tmp_path):
    raw = ".raw" if name in ("enwik8", "text8") else ""
    edits = {"enwik8": dict(dropped=b"\n"), "text8": dict(stripped=b" ")}.get(name, {})
    texts = {split: [EditedText(TextFile(GOLDEN / name / "raw" / f"{split}.txt{raw}"), **edits)] for split in SPLITS}
    start = CharVocabulary("", "byte") if raw else WordVocabulary(["<eos>"], lower_case=name == "ptb")
    vocabulary, streams, _ = encode_splits(texts, start, tmp_path, ("train",) if name == "wt103" else SPLITS)
    assert "".join(vocabulary.symbols) == "".join(golden_symbols(name))
    expected = np.load(GOLDEN / name / "encoded.npz")
    for split in SPLITS:
        np.testing.assert_array_equal(stream_ids(streams[split][0]), expected[split])
    counted = ["train"] if name == "wt103" else SPLITS
    counts = np.bincount(np.concatenate([stream_ids(streams[split][0]) for split in counted]))
    named = read_json(f"{name}/vocab.json")
    assert {symbol: counts[index] for index, symbol in enumerate(named["idx2sym"]) if symbol != "<eos>"} == named["counter"]


def test_the_original_encodes_the_shards_of_one_billion_word_alike(tmp_path):
    shards = [TextFile(GOLDEN / "lm1b" / "raw" / name) for name in read_json("lm1b/train_shards.json")]
    vocabulary = WordVocabulary(golden_symbols("lm1b"), line_start="<S>", line_end="<S>", unknown="<UNK>")
    _, streams, _ = encode_splits({"train": shards}, vocabulary, tmp_path, lines_of=("train",))
    expected = np.load(GOLDEN / "lm1b" / "encoded.npz")
    for number, stream in enumerate(streams["train"]):
        np.testing.assert_array_equal(stream_ids(stream), expected[f"train_shard{number}"])
        np.testing.assert_array_equal(stream.line_lengths, expected[f"train_shard{number}_sentence_lengths"])
