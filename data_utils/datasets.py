"""The datasets by name: where the text of each split comes from and how it becomes tokens."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

from data_utils.dataset_texts import (
    PTB_FILES, SPLITS, WIKITEXT_FILES, cut_file, lm1b_files, split_files, standard_library, tfds_text)
from data_utils.edited_text import EditedText

TFDS = "tfds:"  # before the name of a tensorflow-datasets data set
_MB = 1_000_000
_FILES = ("train_files", "valid_files", "test_files")

# What a vocabulary of each kind begins with where a dataset has no rules of its own; it is made from the train split.
STARTS = {
    "byte": {},
    "char": dict(symbols="\ufffd", unknown="\ufffd"),
    "word": dict(symbols=("<unk>", "<eos>"), unknown="<unk>"),
    "subword": {},
}


@dataclasses.dataclass(frozen=True)
class DatasetEntry:
    """One dataset.

    Args:
        texts: function (data_dir, **options) -> split -> list of `data_utils.text_sources` sources.
        vocabulary: kind of its vocabulary, a key of `data_utils.vocabulary.VOCABULARIES`.
        start: arguments of the vocabulary that it begins with; None: those of `STARTS`.
        counted: splits whose symbols the vocabulary takes up.
        unknown_word: the word that becomes the unknown symbol if the counted text has it.
        vocab_file: file of data_dir with the words of the vocabulary, which counts nothing then.
        cutoffs: the adaptive softmax's customary cutoffs.
        lines_shuffled: whether the lines of the train split are independent and are shuffled.
        options: the options that `texts` takes.
        archives: key of `ARCHIVES`; None: nothing can be downloaded.
        text_in_data_dir: whether the text is looked for in data_dir, which must exist then unless files are named.
    """

    texts: Callable[..., dict[str, list[Any]]]
    vocabulary: str = "byte"
    start: dict | None = None
    counted: tuple[str, ...] = ("train",)
    unknown_word: str | None = None
    vocab_file: str | None = None
    cutoffs: tuple[int, ...] = ()
    lines_shuffled: bool = False
    options: tuple[str, ...] = ()
    archives: str | None = None
    text_in_data_dir: bool = False

    def start_of(self, kind):
        """Returns the arguments that a vocabulary of a kind begins with: the dataset's own for its own kind."""
        return dict(self.start if kind == self.vocabulary and self.start is not None else STARTS[kind])


def _edited(texts, edits, data_dir):
    return {split: [EditedText(source, **edits) for source in sources] for split, sources in texts(data_dir).items()}


def _characters(name, symbol_kind, **edits):
    texts = functools.partial(cut_file, name=name, lengths=(90 * _MB, 5 * _MB, 5 * _MB), symbol_kind=symbol_kind)
    texts = functools.partial(_edited, texts, edits) if edits else texts
    return DatasetEntry(texts, "char", dict(symbols="", unit="byte"), SPLITS, archives=name)


def _words(archives, names, counted=SPLITS, lower_case=False, cutoffs=()):
    texts = functools.partial(split_files, alternatives=names)
    start = dict(symbols=("<eos>",), lower_case=lower_case)
    return DatasetEntry(texts, "word", start, counted, "<unk>", cutoffs=cutoffs, options=_FILES, archives=archives)


def _one_billion_words(**changes):
    start = dict(symbols=("<S>", "<UNK>"), line_start="<S>", line_end="<S>", unknown="<UNK>")
    return DatasetEntry(
        functools.partial(lm1b_files, **changes), "word", start, (), vocab_file="1b_word_vocab.txt",
        cutoffs=(60_000, 100_000, 640_000), lines_shuffled=True, options=("train_files",), archives="lm1b")


DATASETS = {  # NAME_original is what the original program makes of NAME, where that is not what one would expect
    "enwik8": _characters("enwik8", "byte"),
    "enwik8_original": _characters("enwik8", "byte", dropped=b"\n"),
    "text8": _characters("text8", "character"),
    "text8_original": _characters("text8", "character", stripped=b" "),
    "wt103": _words("wt103", WIKITEXT_FILES, ("train",), cutoffs=(20_000, 40_000, 200_000)),
    "wt2": _words("wt2", WIKITEXT_FILES),
    "ptb": _words("ptb", PTB_FILES, lower_case=True),
    "lm1b": _one_billion_words(),
    "lm1b_original": _one_billion_words(same_test=True),
    "stdlib": DatasetEntry(standard_library),
    "text": DatasetEntry(split_files, options=_FILES, text_in_data_dir=True),
}


def dataset_entry(name):
    """Returns the `DatasetEntry` of a name in `DATASETS` or of tfds:NAME.

    Raises:
        ValueError: there is no dataset of that name.
    """
    if name in DATASETS:
        return DATASETS[name]
    if name.startswith(TFDS) and name != TFDS:
        return DatasetEntry(functools.partial(tfds_text, name=name.removeprefix(TFDS)), options=("tfds_splits",))
    raise ValueError(f"Expected --dataset to be one of {', '.join(sorted(DATASETS))} or {TFDS}NAME. "
                     f"Received: dataset={name!r}")
