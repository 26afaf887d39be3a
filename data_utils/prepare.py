"""Prepares a dataset for training: `python -m data_utils.prepare --dataset=stdlib --data_dir=data/stdlib`."""

import hashlib
import os
import sys
from pathlib import Path

from absl import app, flags

from data_utils.atomic_files import PARTIAL_SUFFIX, locked, write_json
from data_utils.corpus import FORMAT, MANIFEST, VOCABULARY, Corpus, read_manifest
from data_utils.datasets import DATASETS
from data_utils.encode import encode_split
from data_utils.records import CHUNK_LEN, is_intact, write_records
from data_utils.vocabulary import VOCABULARIES

RECORDS = "tfrecords"  # the folder of the record files in data_dir


def prepare_corpus(dataset, data_dir, train_batch_size, eval_batch_size, tgt_len):
    """Writes the TFRecords, vocabulary.json and corpus.json of a dataset into data_dir and opens them.

    Files are used again when corpus.json says that they were made from the same text with the same settings and they
    are still what was written; all others are made anew. Everything is checked before the first file is written.

    Args:
        dataset: a name in `data_utils.datasets.DATASETS`.
        data_dir: the folder to write to, which also holds the text of `text`.
        train_batch_size: rows of a batch of the train split.
        eval_batch_size: rows of a batch of the valid and test splits.
        tgt_len: tokens of a segment. The files serve every length; it is asked for because the train split must hold
            one whole segment.

    Returns:
        A `data_utils.corpus.Corpus`.

    Raises:
        ValueError, FileNotFoundError, NotADirectoryError, PermissionError: one sentence that names the flag.

    Example:
        corpus = prepare_corpus("text", "data/mine", train_batch_size=16, eval_batch_size=8, tgt_len=128)
    """
    _check_positive(train_batch_size=train_batch_size, eval_batch_size=eval_batch_size, tgt_len=tgt_len)
    if dataset not in DATASETS:
        known = ", ".join(sorted(DATASETS))
        raise ValueError(f"Expected --dataset to be one of {known}. Received: dataset={dataset!r}")
    entry = DATASETS[dataset]
    _check_data_dir(data_dir, must_exist=entry.text_in_data_dir)
    data_dir = Path(data_dir)
    texts = entry.read(data_dir)
    vocabulary = VOCABULARIES[entry.vocabulary]()
    streams = {split: encode_split(text, vocabulary) for split, text in texts.items()}
    rows = {split: train_batch_size if split == "train" else eval_batch_size for split in streams}
    _check_lengths(streams, rows, tgt_len)
    origins = {split: _origin(texts[split], vocabulary, rows[split]) for split in streams}

    _make_record_folder(data_dir)
    with locked(data_dir):
        for left_by_a_killed_run in (data_dir / RECORDS).glob("*.tfrecord" + PARTIAL_SUFFIX):
            left_by_a_killed_run.unlink()
        splits = _make_records(data_dir, streams, origins)
        vocabulary.save(data_dir / VOCABULARY)
        write_json(data_dir / MANIFEST, {"format": FORMAT, "dataset": dataset, "splits": splits})
        return Corpus(data_dir)


def _check_positive(**sizes):
    for name, value in sizes.items():
        if value < 1:
            raise ValueError(f"Expected --{name} of at least 1. Received: {name}={value}")


def _check_data_dir(data_dir, must_exist):
    if not data_dir:
        raise ValueError(f"Expected --data_dir to name a folder. Received: data_dir={data_dir!r}")
    nearest = Path(data_dir).absolute()
    if must_exist and not nearest.exists():
        raise FileNotFoundError(f"Expected --data_dir to exist and hold the text. Received: data_dir={data_dir}")
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise NotADirectoryError(
            f"Expected --data_dir to be a folder, but {nearest} is a file. Received: data_dir={data_dir}"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"Expected --data_dir to be writable, unlike {nearest}. Received: data_dir={data_dir}")


def _check_lengths(streams, rows, tgt_len):
    for split, stream in streams.items():
        flag = "train_batch_size" if split == "train" else "eval_batch_size"
        row_len = tgt_len + 1 if split == "train" else 2
        reason = "--tgt_len + 1" if split == "train" else "2"
        if len(stream) < rows[split] * row_len:
            raise ValueError(
                f"Expected at least {rows[split] * row_len} tokens in the {split} split, {reason} for each of the "
                f"--{flag} rows, not {len(stream)}. Received: {flag}={rows[split]}, tgt_len={tgt_len}"
            )


def _make_record_folder(data_dir):
    folder = data_dir / RECORDS
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise PermissionError(
            f"Expected to be able to make the folder {RECORDS} in --data_dir ({error.strerror}). "
            f"Received: data_dir={data_dir}"
        ) from error
    if not os.access(folder, os.W_OK | os.X_OK):
        raise PermissionError(f"Expected {RECORDS} in --data_dir to be writable. Received: data_dir={data_dir}")


def _origin(text, vocabulary, rows):
    """Returns what the record file of a split is made from; equal origins give equal files."""
    return {
        "text_sha256": hashlib.sha256(text).hexdigest(),
        "vocabulary": vocabulary.kind,
        "rows": rows,
        "chunk_len": CHUNK_LEN,
    }


def _make_records(data_dir, streams, origins):
    """Returns the manifest's entry of every split, after writing the record files that cannot be used again."""
    splits = {split: _finished_entry(data_dir, split, origins[split]) for split in streams}
    if None in splits.values():
        (data_dir / MANIFEST).unlink(missing_ok=True)  # until the new one is written the folder is not complete
    for split, stream in streams.items():
        if splits[split] is None:
            file = f"{RECORDS}/{split}.bsz-{origins[split]['rows']}.tfrecord"
            metadata = write_records(stream, data_dir / file, origins[split]["rows"])
            splits[split] = {"file": file, **origins[split], **metadata}
    return splits


def _finished_entry(data_dir, split, origin):
    """Returns the manifest's entry of a split whose record file can be used again, otherwise None."""
    try:
        entry = read_manifest(data_dir)["splits"][split]
        same = origin.items() <= entry.items() and is_intact(data_dir / entry["file"], entry)
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return None
    return entry if same else None


def _define_flags():
    flags.DEFINE_string("dataset", "stdlib", f"One of {', '.join(sorted(DATASETS))}.")
    flags.DEFINE_string("data_dir", None, "Folder to write to; for text also the folder of the text.", required=True)
    flags.DEFINE_integer("train_batch_size", 32, "Rows of a batch of the train split.")
    flags.DEFINE_integer("eval_batch_size", 16, "Rows of a batch of the valid and test splits.")
    flags.DEFINE_integer("tgt_len", 64, "Tokens of a segment.")


def _main(argv):
    if len(argv) > 1:
        raise app.UsageError(f"Expected flags alone. Received: {' '.join(argv[1:])}")
    names = ("dataset", "data_dir", "train_batch_size", "eval_batch_size", "tgt_len")
    try:
        corpus = prepare_corpus(**{name: flags.FLAGS[name].value for name in names})
    except (ValueError, OSError) as error:
        sys.exit(str(error))
    for split in corpus.splits:
        tokens, rows = corpus.n_tokens(split), corpus.rows(split)
        print(
            f"{split}: {tokens} tokens in {rows} rows of {tokens // rows}, "
            f"{tokens % rows} left out at the end: {corpus.record_file(split)}"
        )


if __name__ == "__main__":
    _define_flags()
    app.run(_main)
