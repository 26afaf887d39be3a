"""The table of datasets."""

import dataclasses
import functools

import pytest

import data_utils.datasets
from data_utils.dataset_texts import ARCHIVES, SPLITS
from data_utils.datasets import DATASETS, STARTS, dataset_entry
from data_utils.vocabulary import VOCABULARIES


@pytest.mark.parametrize("name", DATASETS)
def test_entries_agree_with_the_other_tables(name):
    entry = dataset_entry(name)
    assert entry is DATASETS[name]
    assert entry.vocabulary in VOCABULARIES
    assert set(entry.counted) <= set(SPLITS)
    assert entry.archives is None or entry.archives in ARCHIVES
    if entry.start is not None:
        VOCABULARIES[entry.vocabulary](**entry.start)


def test_every_kind_has_a_start():
    assert set(STARTS) == set(VOCABULARIES)


def test_the_original_has_other_texts_of_three_datasets():
    originals = {name for name in DATASETS if name.endswith("_original")}
    assert originals == {"enwik8_original", "text8_original", "lm1b_original"}
    for name in originals:
        plain, original = DATASETS[name.removesuffix("_original")], DATASETS[name]
        assert dataclasses.replace(plain, texts=None) == dataclasses.replace(original, texts=None)


def test_only_one_billion_word_is_shuffled():
    assert {name for name, entry in DATASETS.items() if entry.lines_shuffled} == {"lm1b", "lm1b_original"}


def test_the_texts_of_enwik8_and_text8(tmp_path):
    for name, symbols in [("enwik8", ["97 98 \n 99 10", b"ab\nc\n"]), ("text8", ["_ a b _", b" ab "])]:
        for split in SPLITS:
            (tmp_path / f"{split}.txt").write_text(symbols[0])
        dropped = {"enwik8": b"abc", "text8": b"ab"}[name]
        assert b"".join(DATASETS[name].texts(tmp_path)["valid"][0].blocks()) == symbols[1]
        assert b"".join(DATASETS[f"{name}_original"].texts(tmp_path)["valid"][0].blocks()) == dropped


def test_a_data_set_of_tensorflow_datasets(monkeypatch):
    monkeypatch.setattr(data_utils.datasets, "tfds_text", lambda data_dir, name, tfds_splits=None: (data_dir, name, tfds_splits))
    entry = dataset_entry("tfds:wiki40b/en:text")
    assert entry.texts("folder", tfds_splits="a,b,c") == ("folder", "wiki40b/en:text", "a,b,c")
    assert (entry.options, entry.vocabulary) == (("tfds_splits",), "byte")


@pytest.mark.parametrize("name", ["enwik0", "", "tfds:", "TEXT"])
def test_other_names_are_refused(name):
    with pytest.raises(ValueError, match=f"Expected --dataset to be one of enwik8, .*or tfds:NAME. Received: dataset='{name}'"):
        dataset_entry(name)


def test_options_are_arguments_of_the_texts():
    for name, entry in DATASETS.items():
        function = entry.texts
        while isinstance(function, functools.partial):
            function = function.func
        assert set(entry.options) <= set(function.__code__.co_varnames), name
