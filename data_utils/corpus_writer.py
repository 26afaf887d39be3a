"""Writes what a prepared folder holds, made anew only where something has changed."""

import contextlib
import os
import re
import shutil
from pathlib import Path

import numpy as np

from data_utils.atomic_files import PARTIAL_SUFFIX, locked, write_json
from data_utils.corpus import FORMAT, MANIFEST, VOCABULARY, Corpus, read_manifest, sealed, split_files
from data_utils.encode import encode_splits
from data_utils.records import CHUNK_LEN, is_intact, record_dtype, write_records
from data_utils.vocabulary import load_vocabulary

RECORDS = "tfrecords"  # the folder of the record files in data_dir
_RAW = "tokens" + PARTIAL_SUFFIX  # the folder of raw ids in data_dir, while they are needed
_RECORD_FILE = re.compile(r"(train|valid|test)(-\d{5})?\.bsz-\d+(\.host-\d+-of-\d+)?\.tfrecord")
_ROWS = {"train": 32, "valid": 16, "test": 16}  # where nothing is said
_ORDER = {"num_passes": 1, "num_shuffle": 4, "shuffle_shards": False, "shuffle_seed": 123456}  # likewise
_FLAGS = {"train": "train_batch_size", "valid": "eval_batch_size", "test": "eval_batch_size"}


class CorpusWriter:
    """One dataset, one folder, one set of wishes: `corpus()` makes the folder hold what is wished for.

    What is there and was made from the same is used again. Nothing is replaced before all texts are encoded and checked,
    the manifest goes before the first file does and comes back last, so that a killed run leaves no folder that looks
    finished; the next run removes what it left.

    Args:
        dataset: the name of the dataset.
        data_dir: the folder.
        texts: split -> list of `data_utils.text_sources` sources.
        recipe: the `VocabularyRecipe`.
        rows: split -> rows of a batch over all hosts; None: as it was prepared, or 32, 16 and 16.
        num_hosts: files a stream, a divisor of all rows.
        order: of the train split: num_passes, num_shuffle, shuffle_shards, shuffle_seed; None: as it was prepared, or 1, 4,
            False and 123456.
        lines_shuffled: whether the lines of the train split are shuffled; if not, the order is num_passes alone.
        tgt_len: tokens of a segment, which a row of the train split must hold.
        num_procs: threads.
        chosen: what the user chose of vocabulary and sources, kept in the manifest for the next preparation.

    Raises, from `corpus`:
        ValueError, OSError: one sentence about a text, a setting, a file that can't be written.
    """

    def __init__(self, dataset, data_dir, texts, recipe, rows, num_hosts, order, lines_shuffled, tgt_len, num_procs, chosen):
        self.dataset, self.data_dir, self.texts, self.recipe = dataset, Path(data_dir), texts, recipe
        self.rows, self.num_hosts, self.order, self.lines_shuffled = rows, num_hosts, order, lines_shuffled
        self.tgt_len, self.num_procs, self.chosen = tgt_len, num_procs, chosen

    def corpus(self):
        """Returns the `Corpus` of the folder, after making what is missing of it."""
        self._make_record_folder()
        with self._named_errors(), locked(self.data_dir):
            self._remove_leftovers()
            previous = self._previous()
            wanted = self._wanted(previous)
            vocabulary = self._kept_vocabulary(previous, wanted)
            kept = {split: previous["splits"][split] for split in self.texts
                    if vocabulary and self._is_kept(previous, wanted, split)}
            if len(kept) < len(self.texts) or previous["num_hosts"] != self.num_hosts or previous["dataset"] != self.dataset:
                self._make(wanted, vocabulary, kept)
            corpus = Corpus(self.data_dir)
            self._remove_replaced(corpus)
            return corpus

    def _previous(self):
        """Returns the manifest of the folder, an empty one when there is none that can be read."""
        try:
            return read_manifest(self.data_dir)
        except (FileNotFoundError, ValueError):
            return {"splits": {}, "vocabulary": {}, "num_hosts": None, "dataset": None}

    def _wanted(self, previous):
        """Returns what the vocabulary and the records of every split are to be made from."""
        text = {split: [source.sha256() for source in sources] for split, sources in self.texts.items()}
        vocabulary = self.recipe.description(text)
        splits = {}
        for split in self.texts:
            before = previous["splits"].get(split, {"rows": None, "made_from": {"order": {}}})
            splits[split] = {"text": text[split], "vocabulary": vocabulary, "rows": self._rows(split, before["rows"]),
                             "num_hosts": self.num_hosts, "chunk_len": CHUNK_LEN,
                             "order": self._order(before["made_from"]["order"]) if split == "train" else {}}
        return {"vocabulary": vocabulary, "splits": splits}

    def _rows(self, split, before):
        rows = self.rows[split]
        if rows is None:
            return before if before and before % self.num_hosts == 0 else -(-_ROWS[split] // self.num_hosts) * self.num_hosts
        if rows % self.num_hosts:
            raise ValueError(f"Expected --{_FLAGS[split]} to be a multiple of --num_hosts. "
                             f"Received: {_FLAGS[split]}={rows}, num_hosts={self.num_hosts}")
        return rows

    def _order(self, before):
        order = {name: before.get(name, _ORDER[name]) if value is None else value for name, value in self.order.items()}
        if self.lines_shuffled:
            return order
        kept = ["num_passes", "shuffle_seed"] if order["num_passes"] > 1 else ["num_passes"]  # the seed where it matters
        return {name: order[name] for name in kept}

    def _kept_vocabulary(self, previous, wanted):
        """Returns the folder's vocabulary if it is the one that is wanted and intact, otherwise None."""
        if previous["vocabulary"].get("made_from") != wanted["vocabulary"]:
            return None
        try:
            vocabulary = load_vocabulary(self.data_dir / VOCABULARY)
        except (FileNotFoundError, ValueError):
            return None
        return vocabulary if vocabulary.sha256() == previous["vocabulary"]["sha256"] else None

    def _is_kept(self, previous, wanted, split):
        entry = previous["splits"].get(split)
        return (entry is not None and entry["made_from"] == wanted["splits"][split]
                and all(is_intact(self.data_dir / file["file"], file) for file in split_files(entry)))

    def _make(self, wanted, vocabulary, kept):
        raw = self.data_dir / _RAW
        raw.mkdir()
        try:
            texts = {split: sources for split, sources in self.texts.items() if split not in kept}
            vocabulary, streams, unknown = self._encoded(texts, vocabulary, wanted["splits"]["train"]["order"], raw)
            for split in texts:
                self._check_lengths(split, streams[split], wanted["splits"][split]["rows"])
                _check_known(split, unknown[split], sum(map(len, streams[split])))
            (self.data_dir / MANIFEST).unlink(missing_ok=True)
            entries = {split: kept.get(split) or self._written(split, streams[split], unknown[split], vocabulary.n_token,
                                                              wanted["splits"][split]) for split in self.texts}
        finally:
            shutil.rmtree(raw)
        vocabulary.save(self.data_dir / VOCABULARY)
        write_json(self.data_dir / MANIFEST, sealed({
            "format": FORMAT, "dataset": self.dataset, "num_hosts": self.num_hosts, "cutoffs": list(self.recipe.cutoffs),
            "chosen": self.chosen,
            "vocabulary": {"kind": vocabulary.kind, "n_token": vocabulary.n_token, "sha256": vocabulary.sha256(),
                           "made_from": wanted["vocabulary"]},
            "splits": entries}))

    def _encoded(self, texts, vocabulary, order, raw):
        """Returns the vocabulary, the streams of every split as they are to be written, and its unknown tokens."""
        counted = ()
        if vocabulary is None:
            vocabulary, counted = self.recipe.begin(texts)
        vocabulary, streams, unknown = encode_splits(
            texts, vocabulary, raw, counted, self.num_procs, lines_of=("train",) if "num_shuffle" in order else (),
            **(self.recipe.limits if counted else {}))
        if "train" in streams:
            streams["train"] = list(_ordered(streams["train"], order, raw))
            unknown["train"] *= order["num_passes"] * order.get("num_shuffle", 1)
        return vocabulary, streams, unknown

    def _check_lengths(self, split, streams, rows):
        row_len, reason = (self.tgt_len + 1, "--tgt_len + 1") if split == "train" else (2, "2")
        shortest = min(map(len, streams))
        if shortest < rows * row_len:
            where = "the" if len(streams) == 1 else "every shard of the"
            raise ValueError(
                f"Expected at least {rows * row_len} tokens in {where} {split} split, {reason} for each of the "
                f"--{_FLAGS[split]} rows, not {shortest}. Received: {_FLAGS[split]}={rows}, tgt_len={self.tgt_len}"
            )

    def _written(self, split, streams, unknown, n_token, made_from):
        """Returns the manifest's entry of a split, after writing its record files."""
        rows, dtype, entries = made_from["rows"], record_dtype(n_token), []
        for number, stream in enumerate(streams):
            part = "" if len(streams) == 1 else f"-{number:05d}"
            hosts = [f".host-{host}-of-{self.num_hosts}" if self.num_hosts > 1 else "" for host in range(self.num_hosts)]
            files = [f"{RECORDS}/{split}{part}.bsz-{rows}{host}.tfrecord" for host in hosts]
            fingerprints = write_records(stream, [self.data_dir / file for file in files], rows, dtype)
            entries.append({"n_tokens": len(stream), "files": [
                {"file": file, **fingerprint} for file, fingerprint in zip(files, fingerprints, strict=True)]})
        return {"rows": rows, "dtype": dtype, "n_unknown": unknown, "streams": entries, "made_from": made_from}

    def _make_record_folder(self):
        folder = self.data_dir / RECORDS
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise type(error)(
                f"Expected to be able to make the folder {RECORDS} in --data_dir ({error.strerror}). "
                f"Received: data_dir={self.data_dir}"
            ) from error
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(f"Expected {RECORDS} in --data_dir to be writable. Received: data_dir={self.data_dir}")

    def _remove_leftovers(self):
        """Removes what a killed run left."""
        shutil.rmtree(self.data_dir / _RAW, ignore_errors=True)
        manifest, vocabulary = (self.data_dir / (name + PARTIAL_SUFFIX) for name in (MANIFEST, VOCABULARY))
        for partial in [manifest, vocabulary, *(self.data_dir / RECORDS).glob("*" + PARTIAL_SUFFIX)]:
            partial.unlink(missing_ok=True)

    def _remove_replaced(self, corpus):
        """Removes the record files of earlier runs, finished or not."""
        kept = {Path(path).name for split in corpus.splits for path in corpus.record_files(split)}
        for path in (self.data_dir / RECORDS).iterdir():
            if _RECORD_FILE.fullmatch(path.name) and path.name not in kept:
                path.unlink()

    @contextlib.contextmanager
    def _named_errors(self):
        """Makes errors of the operating system, such as a full disk, a sentence with the file or the folder."""
        try:
            yield
        except OSError as error:
            if error.errno is None:
                raise
            raise type(error)(f"Expected to be able to read and write {error.filename or self.data_dir} ({error.strerror}). "
                              f"Received: data_dir={self.data_dir}") from error


def settled_manifest(data_dir):
    """Returns the manifest of a local folder when nobody is writing there, or None: a preparation takes it away meanwhile."""
    if not Path(data_dir, RECORDS).is_dir():
        return None
    try:
        with locked(data_dir) if os.access(data_dir, os.W_OK) else contextlib.nullcontext():
            return read_manifest(data_dir)
    except (OSError, ValueError):
        return None


def _check_known(split, unknown, tokens):
    if split == "train" and unknown > tokens / 2:
        raise ValueError("Expected a vocabulary that has most tokens of the train split, by --vocab_size, --min_freq or --vocab_file. "
                         f"Received: one that lacks {unknown} of {tokens}")


def _ordered(streams, order, raw):
    """Yields the streams of the train split with their passes and shuffles, by the original code's draws."""
    random = np.random.RandomState(order.get("shuffle_seed"))
    if order.get("shuffle_shards"):
        streams = [streams[index] for index in random.permutation(len(streams))]
    for shard, stream in enumerate(streams):
        if "num_shuffle" not in order:
            yield stream.rotated(order["num_passes"], random)
            continue
        lines = np.arange(len(stream.line_lengths))
        for shuffle in range(order["num_shuffle"]):
            random.shuffle(lines)
            yield stream.shuffled(lines, raw / f"train-{shard}-{shuffle}.raw").rotated(order["num_passes"], random)
