"""What a dataset's vocabulary is made from, and the making of it."""

import dataclasses
import os
from pathlib import Path

from data_utils.records import sha256_of_file
from data_utils.subword_vocabulary import SubwordVocabulary
from data_utils.vocabulary import VOCABULARIES
from data_utils.vocabulary_files import TELLING, read_vocabulary_file


@dataclasses.dataclass(frozen=True)
class VocabularyRecipe:
    """How the vocabulary of a corpus comes about: read from a file, or made from the text of some splits.

    Args:
        kind: a key of `data_utils.vocabulary.VOCABULARIES`.
        start: arguments of the vocabulary that it begins with.
        counted: splits that it is made from; none for one that is complete.
        file: path of a vocabulary that exists; None: there is none.
        limits: arguments of `grown`, or the size of a vocabulary of subwords.
        cutoffs: the adaptive softmax's customary cutoffs.

    Example:
        recipe = VocabularyRecipe.of(DATASETS["ptb"], data_dir="data/ptb")
    """

    kind: str
    start: dict
    counted: tuple
    file: str | None
    limits: dict
    cutoffs: tuple

    @classmethod
    def of(cls, entry, data_dir, kind=None, file=None, size=None, min_freq=None, lower_case=None):
        """Returns the recipe of a `DatasetEntry` with the user's changes; None leaves what the dataset has.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: the changes do not fit each other or the kind.
        """
        own = kind in (None, entry.vocabulary)
        kind = entry.vocabulary if kind is None else kind
        _check(kind, file, size, min_freq, lower_case)
        start = entry.start_of(kind)
        if lower_case is not None:
            start["lower_case"] = lower_case
        if file is None and own and entry.vocab_file and size is None and min_freq is None:
            file = os.path.join(str(data_dir), entry.vocab_file)
        limits = {name: value for name, value in {"max_size": size, "min_freq": min_freq}.items() if value is not None}
        if kind == "subword":
            limits = {} if file else {"size": size}
        elif own and entry.unknown_word and not file:
            limits["unknown"] = entry.unknown_word
        counted = () if kind == "byte" or file is not None else entry.counted if own and entry.counted else ("train",)
        return cls(kind, start, counted, file, limits, entry.cutoffs if own and kind == "word" else ())

    def description(self, text_sha256):
        """Returns, as JSON, what decides the vocabulary: equal descriptions give equal vocabularies.

        Args:
            text_sha256: split -> digests of its texts.
        """
        return {
            "kind": self.kind,
            "start": {name: list(value) if isinstance(value, tuple) else value for name, value in self.start.items()},
            "limits": self.limits, "file": self.file and sha256_of_file(self.file),
            "text": {split: text_sha256[split] for split in self.counted},
        }

    def begin(self, texts):
        """Returns the vocabulary that encoding begins with, and the splits that it then takes up.

        Args:
            texts: split -> list of sources.

        Raises:
            ValueError, OSError: the file is not what it must be, or the text does not fit the size.
        """
        if self.file is not None:
            return read_vocabulary_file(self.file, self.kind, self.start), ()
        if self.kind == "subword":
            blocks = (block for split in self.counted for source in texts[split] for block in source.blocks(1 << 22))
            return SubwordVocabulary.trained(blocks, **self.limits), ()
        return VOCABULARIES[self.kind](**self.start), self.counted


def _check(kind, file, size, min_freq, lower_case):
    """Raises ValueError or FileNotFoundError for wishes that contradict each other."""
    if kind not in VOCABULARIES:
        raise ValueError(f"Expected --vocabulary to be one of {', '.join(VOCABULARIES)}. Received: vocabulary={kind!r}")
    if lower_case is not None and kind != "word":
        raise ValueError(f"Expected --lower_case with words alone. Received: lower_case={lower_case}, vocabulary={kind!r}")
    if (size is not None or min_freq is not None) and (kind == "byte" or file is not None):
        raise ValueError("Expected --vocab_size and --min_freq with a vocabulary that is made from the text. Received: "
                         f"vocab_size={size}, min_freq={min_freq}, vocabulary={kind!r}, vocab_file={file}")
    if min_freq is not None and kind == "subword":
        raise ValueError(f"Expected no --min_freq with subwords. Received: min_freq={min_freq}")
    if file is None:
        return
    if kind == "byte":
        raise ValueError(f"Expected no --vocab_file for bytes, which need none. Received: vocab_file={file}")
    if not Path(file).is_file():
        raise FileNotFoundError(f"Expected --vocab_file to be a file. Received: vocab_file={file}")
    if lower_case is not None and Path(file).suffix in TELLING:
        raise ValueError(f"Expected no --lower_case with a --vocab_file that says it itself. "
                         f"Received: lower_case={lower_case}, vocab_file={file}")
