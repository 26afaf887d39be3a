"""The datasets by name: where the text of each split comes from and how it becomes tokens."""

import dataclasses
import os
import sysconfig
from collections.abc import Callable
from pathlib import Path

import numpy as np

SPLITS = ("train", "valid", "test")

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}


@dataclasses.dataclass(frozen=True)
class DatasetEntry:
    """One dataset.

    Args:
        vocabulary: kind of its vocabulary, a key of `data_utils.vocabulary.VOCABULARIES`.
        read: function of data_dir that returns the raw text, split -> uint8 array (bytes,).
        text_in_data_dir: whether the text is looked for in data_dir, which must exist then; otherwise data_dir only
            receives what is made and is created when missing.
    """

    vocabulary: str
    read: Callable[[Path], dict[str, np.ndarray]]
    text_in_data_dir: bool


def read_split_files(data_dir):
    """Returns the bytes of train.txt, valid.txt and test.txt in data_dir, as they are.

    Raises:
        FileNotFoundError, PermissionError, ValueError: one of the files is missing, not readable or empty.
    """
    paths = {split: Path(data_dir, f"{split}.txt") for split in SPLITS}
    missing = [path.name for path in paths.values() if not path.is_file()]
    if missing:
        raise FileNotFoundError(
            f"Expected train.txt, valid.txt and test.txt in --data_dir, without {', '.join(missing)}. "
            f"Received: data_dir={data_dir}"
        )
    for path in paths.values():
        if not os.access(path, os.R_OK):
            raise PermissionError(f"Expected {path.name} in --data_dir to be readable. Received: data_dir={data_dir}")
        if path.stat().st_size == 0:
            raise ValueError(f"Expected text in {path.name} of --data_dir, not 0 bytes. Received: data_dir={data_dir}")
    return {split: np.fromfile(path, np.uint8) for split, path in paths.items()}


def read_standard_library(data_dir):
    """Returns the .py files of the running Python's standard library as one text, cut 90 % / 5 % / 5 %.

    Tests and installed packages are left out; the order is that of the relative paths. About 12 MB that every machine
    has, the same for one version of Python. `data_dir` is not read.
    """
    del data_dir
    root = Path(sysconfig.get_paths()["stdlib"])
    relative = (path.relative_to(root) for path in root.rglob("*.py"))
    kept = sorted(path.as_posix() for path in relative if _LEFT_OUT.isdisjoint(path.parts))
    text = np.frombuffer(b"".join((root / path).read_bytes() for path in kept), np.uint8)
    train, valid, test = np.split(text, [len(text) * 90 // 100, len(text) * 95 // 100])
    return {"train": train, "valid": valid, "test": test}


DATASETS = {
    "stdlib": DatasetEntry(vocabulary="byte", read=read_standard_library, text_in_data_dir=False),
    "text": DatasetEntry(vocabulary="byte", read=read_split_files, text_in_data_dir=True),
}
