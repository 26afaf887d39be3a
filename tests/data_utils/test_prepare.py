"""What is prepared is what the original program prepared, and what the arguments say."""

import dataclasses
import functools
import logging
import os
from pathlib import Path

import numpy as np
import pytest
from testing.golden_texts import GOLDEN, NAMES, copied, golden_batches, golden_symbols, options
from testing.optional_package import needed

import data_utils.prepare
from data_utils.dataset_texts import SPLITS, cut_file
from data_utils.datasets import DATASETS
from data_utils.prepare import prepare_corpus


def write(folder, **texts):
    for split, text in texts.items():
        (folder / f"{split}.txt").write_bytes(text if isinstance(text, bytes) else text.encode("utf-8"))
    return folder


def ids_of(corpus, split):
    """Returns the tokens of a split that has one row."""
    (token_ids, labels), = corpus.dataset(split, 1_000_000)
    return np.concatenate([token_ids.numpy()[0, :1], labels.numpy()[0]])


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Function name -> a folder with the text of a golden dataset, the same one each time."""
    return functools.cache(lambda name: copied(name, tmp_path_factory.mktemp(name)))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("rows, tgt_len", [(3, 7), (4, 8)])
@pytest.mark.parametrize("name", NAMES)
def test_every_batch_is_the_original_s(name, rows, tgt_len, folders):
    corpus = prepare_corpus(NAMES[name], folders(name), rows, rows, tgt_len, **options(name))
    assert "".join(corpus.vocabulary.symbols) == "".join(golden_symbols(name))
    for split in SPLITS:
        for mode, drop_remainder in (("gpu", False), ("tpu_core2", True)):
            expected = golden_batches(name, split, rows, tgt_len, mode)
            found = [tuple(side.numpy() for side in batch) for batch in corpus.dataset(split, tgt_len, drop_remainder)]
            assert len(found) == len(expected) == corpus.n_segments(split, tgt_len, drop_remainder) > 5
            for batch, golden in zip(found, expected, strict=True):
                for side, golden_side in zip(batch, golden, strict=True):
                    np.testing.assert_array_equal(side, golden_side)


@pytest.mark.parametrize("name", NAMES)
def test_every_token_is_the_original_s(name, folders):
    corpus = prepare_corpus(NAMES[name], folders(name), 1, 1, **options(name))
    expected = np.load(GOLDEN / name / "encoded.npz")
    for split in ("valid", "test") if name == "lm1b" else SPLITS:
        np.testing.assert_array_equal(ids_of(corpus, split), expected[split])


def raw_alone(name, folder, monkeypatch):
    """Writes the golden text as one raw file and lets the dataset cut it where the golden splits end."""
    parts = [(GOLDEN / name / "raw" / f"{split}.txt.raw").read_bytes() for split in SPLITS]
    (folder / name).write_bytes(b"".join(parts))
    texts = functools.partial(cut_file, name=name, lengths=tuple(map(len, parts)), symbol_kind="byte" if name == "enwik8" else "character")
    monkeypatch.setitem(DATASETS, name, dataclasses.replace(DATASETS[name], texts=texts))
    return parts


@pytest.mark.parametrize("name", ["enwik8", "text8"])
def test_plain_names_keep_every_byte_whatever_the_file(name, folders, tmp_path, monkeypatch):
    symbols = prepare_corpus(name, folders(name), 1, 1)
    parts = raw_alone(name, tmp_path, monkeypatch)
    raw = prepare_corpus(name, tmp_path, 1, 1)
    for split, part in zip(SPLITS, parts, strict=True):
        assert raw.vocabulary.encode(part).tolist() == ids_of(raw, split).tolist()
        assert raw.vocabulary.decode(ids_of(symbols, split)).encode() == (part if name == "enwik8" else part.strip(b" "))
    assert ("\n" in raw.vocabulary.symbols) == (name == "enwik8")
    assert (raw.identity == symbols.identity) == (name == "enwik8")  # text8's symbols lack the blanks at both ends


def test_plain_one_billion_word_reads_its_own_test_text(folders):
    corpus = prepare_corpus("lm1b", folders("lm1b"), 1, 1, **options("lm1b"))
    for split in ("valid", "test"):
        text = (folders("lm1b") / f"{split}.txt").read_text(encoding="utf-8")
        assert ids_of(corpus, split).tolist() == corpus.vocabulary.encode(text).tolist()
    assert corpus.n_tokens("test") != corpus.n_tokens("valid")
    assert (corpus.n_tokens("train"), corpus.cutoffs) == (2 * (659 + 763), (60_000, 100_000, 640_000))


def test_stdlib_makes_its_folder(tmp_path):
    corpus = prepare_corpus("stdlib", tmp_path / "new" / "folder", 16, 8, 128)
    token_ids, _ = next(iter(corpus.dataset("train", 40)))
    assert corpus.vocabulary.decode(token_ids[0]) == Path(os.__file__).with_name("__future__.py").read_text()[:40]
    assert prepare_corpus("stdlib", tmp_path / "other", 4, 4).identity == corpus.identity


def test_the_identity_does_not_depend_on_the_folder(tmp_path):
    write(tmp_path, train="abc" * 9, valid="ab" * 9, test="a" * 9)
    first = prepare_corpus("text", tmp_path, 2, 2, vocabulary="char")
    moved = tmp_path.rename(tmp_path.with_name(f"{tmp_path.name}-moved"))
    assert prepare_corpus("text", moved, 2, 2, vocabulary="char").identity == first.identity


@pytest.mark.slow_but_first
@pytest.mark.parametrize("kind", ["byte", "char", "word", "subword"])
def test_every_kind_of_vocabulary(tmp_path, kind):
    arguments = {}
    if kind == "subword":
        needed("sentencepiece")
        arguments["vocab_size"] = 270
    texts = {"train": "the cat\nsaw the dog\n" * 40, "valid": "the dog saw\n" * 4, "test": "cats saw a dög\n"}
    corpus = prepare_corpus("text", write(tmp_path, **texts), 1, 1, vocabulary=kind, **arguments)
    for split, text in texts.items():
        assert ids_of(corpus, split).tolist() == corpus.vocabulary.encode(text).tolist()
    assert corpus.n_unknown("test") == {"char": 1, "word": 3}.get(kind, 0)
    assert corpus.n_token == corpus.vocabulary.n_token == {"byte": 256, "subword": 270}.get(kind, corpus.n_token)


def test_a_model_file_of_subwords(tmp_path):
    needed("sentencepiece")
    write(tmp_path, train="the cat\nsaw the dog\n" * 40, valid="the dog saw\n" * 4, test="cats saw a dög\n")
    made = prepare_corpus("text", tmp_path, 1, 1, vocabulary="subword", vocab_size=270)
    (tmp_path / "my.model").write_bytes(made.vocabulary.model)
    read = prepare_corpus("text", tmp_path, 1, 1, vocabulary="subword", vocab_file=str(tmp_path / "my.model"))
    assert read.identity == made.identity
    assert ids_of(read, "train").tolist() == ids_of(made, "train").tolist()


def test_line_ends_make_no_difference_to_words(tmp_path):
    write(tmp_path, train="a b\n\nc a\n" * 5, valid="a\nb\n" * 5, test="c\n" * 5)
    unix = prepare_corpus("text", tmp_path, 1, 1, vocabulary="word")
    for path in tmp_path.glob("*.txt"):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    windows = prepare_corpus("text", tmp_path, 1, 1, vocabulary="word")
    assert windows.vocabulary.symbols == unix.vocabulary.symbols
    assert [ids_of(windows, split).tolist() for split in SPLITS] == [ids_of(unix, split).tolist() for split in SPLITS]
    assert ids_of(unix, "train")[:7].tolist() == unix.vocabulary.encode("a b\n\nc a\n").tolist()


def test_nul_bytes_are_text(tmp_path):
    write(tmp_path, train="a\x00b c\n\x00\n" * 5, valid="\x00\n" * 5, test="a\x00b\n" * 5)
    for kind in ("byte", "char", "word"):
        corpus = prepare_corpus("text", tmp_path, 1, 1, vocabulary=kind)
        assert corpus.vocabulary.decode(ids_of(corpus, "train")) == "a\x00b c\n\x00\n" * 5
        assert corpus.n_unknown("test") == 0


def test_files_elsewhere_in_their_order(tmp_path):
    for name in ("x", "y", "z"):
        (tmp_path / name).write_text(f"{name} {name}\n" * 3)
    names = {f"{split}_files": str(tmp_path / name) for split, name in zip(SPLITS, "xyz", strict=True)}
    corpus = prepare_corpus("text", tmp_path / "new", 1, 1, **{**names, "train_files": f"{tmp_path}/z,{tmp_path}/x"})
    assert corpus.vocabulary.decode(ids_of(corpus, "train")) == "z z\n" * 3 + "x x\n" * 3


def test_a_loss_of_more_than_one_percent_in_evaluation_is_said(tmp_path, caplog):
    write(tmp_path, train=b"a" * 200, valid=b"a" * 300, test=b"a" * 300)
    with caplog.at_level(logging.WARNING):
        prepare_corpus("text", tmp_path, 100, 3, test_batch_size=4)
    said = [record.getMessage() for record in caplog.records if "scored" in record.getMessage()]
    assert len(said) == 1
    assert said[0].startswith("4 of the 300 tokens of the test split are not scored, 1.3 %")


def test_unknown_words_are_said(tmp_path, caplog):
    write(tmp_path, train="a b\n" * 9, valid="a c d\n" * 9, test="a\n" * 9)
    with caplog.at_level(logging.WARNING):
        prepare_corpus("text", tmp_path, 1, 1, vocabulary="word")
    assert "18 of the 36 tokens of the valid split are not in the vocabulary" in caplog.text


def test_text_is_obtained_where_it_can_be(tmp_path, monkeypatch):
    calls = []
    monkeypatch.setattr(data_utils.prepare, "obtain", lambda name, folder, without: calls.append((name, folder, without)))
    copied("ptb", tmp_path)
    prepare_corpus("ptb", tmp_path, 1, 1, valid_files=str(tmp_path / "valid.txt"))
    assert calls == [("ptb", tmp_path, ["valid", "vocabulary"])]


@pytest.mark.parametrize("changes, without", [({}, []), (dict(vocab_size=50), ["vocabulary"]), (dict(vocab_file=True), ["vocabulary"])])
def test_one_billion_word_needs_no_list_of_words_beside_another(tmp_path, monkeypatch, changes, without):
    calls = []
    monkeypatch.setattr(data_utils.prepare, "obtain", lambda name, folder, without: calls.append(without))
    copied("lm1b", tmp_path)
    if "vocab_file" in changes:
        (tmp_path / "1b_word_vocab.txt").rename(tmp_path / "list")
        changes = dict(vocab_file=str(tmp_path / "list"))
    prepare_corpus("lm1b", tmp_path, 1, 1, **changes)
    assert calls == [without]
