"""Records, vocabulary and corpus-info.json of the original code, opened for reading."""

import hashlib
import json
import os

import numpy as np
import tensorflow as tf

from data_utils.corpus_base import CorpusBase
from data_utils.dataset_texts import SPLITS
from data_utils.datasets import DATASETS, STARTS
from data_utils.original_pickles import read_original
from data_utils.original_records import OriginalRecords, find_record_info
from data_utils.vocabulary_files import original_vocabulary, read_vocabulary_file

_PICKLE = "cache.pkl"


class OriginalCorpus(CorpusBase):
    """What the original's data_utils.py made, with the methods of a `data_utils.corpus.Corpus`.

    Segments of any length are cut from its records. They serve one host.

    Args:
        record_info_dir: folder of its record_info files, a path or gs://...
        data_dir: folder of its record files, likewise.
        corpus_info_path: its corpus-info.json; None: the one in the folder above data_dir.
        rows: split -> rows of a batch; None: those of the only records that there are. A split without such records is left
            out.
        vocab_file: its cache.pkl, a local file; None: the one beside corpus-info.json.

    Attributes:
        name: that of the dataset.
        vocabulary, n_token, cutoffs, splits, num_hosts, identity: as those of a `Corpus`.

    Raises:
        FileNotFoundError: a file is missing.
        ValueError: a file is not what it should be, or the files do not belong together.

    Example:
        corpus = OriginalCorpus("wikitext-103/tfrecords", "wikitext-103/tfrecords", "wikitext-103/corpus-info.json")
    """

    num_hosts = 1

    def __init__(self, record_info_dir, data_dir, corpus_info_path=None, rows=None, vocab_file=None):
        above = os.path.dirname(str(data_dir).rstrip("/"))
        info_path = os.path.join(above, "corpus-info.json") if corpus_info_path is None else str(corpus_info_path)
        info = read_corpus_info(info_path)
        self._found = {split: find_record_info(record_info_dir, split) for split in SPLITS}
        chosen = {split: _chosen(found, (rows or {}).get(split)) for split, found in self._found.items()}
        self._records = {split: OriginalRecords(_record_info_path(record_info_dir, split, sizes), data_dir)
                         for split, sizes in chosen.items() if sizes is not None}
        self.splits = tuple(self._records)
        self._labels = {split: records.check() for split, records in self._records.items()}
        self.name = info["dataset"]
        self.vocabulary, streams = _vocabulary(vocab_file or os.path.join(os.path.dirname(info_path), _PICKLE), self.name)
        self._check_belonging(streams)
        self.n_token = self.vocabulary.n_token
        if self.n_token != info["vocab_size"]:
            raise ValueError(f"Expected a vocabulary of {info['vocab_size']} symbols, as corpus-info.json says. "
                             f"Received: n_token={self.n_token}, corpus_info_path={info_path}")
        self.cutoffs = tuple(cutoff for cutoff in info["cutoffs"] if 0 < cutoff < self.n_token)
        sizes = [[split, records.rows, self._labels[split]] for split, records in self._records.items()]
        content = json.dumps([info, sizes, self.vocabulary.sha256()], sort_keys=True)
        self.identity = hashlib.sha256(content.encode("utf-8")).hexdigest()

    def dataset(self, split, tgt_len, drop_remainder=False, host=None):
        """Returns the segments of a split, as `data_utils.corpus.Corpus.dataset` does."""
        self._check_segments(split, tgt_len, drop_remainder)
        if host not in (None, 0):
            raise ValueError(f"Expected host 0, for records of the original code serve one host. Received: host={host}")
        return self._counted(self._part(split).dataset(tgt_len, drop_remainder), split, tgt_len, drop_remainder)

    def rows(self, split):
        """Returns B, the rows of a batch of the split."""
        return self._part(split).rows

    def check(self):
        """Raises ValueError where a record file is damaged; opening has done the same."""
        for records in self._records.values():
            records.check()

    def _check_belonging(self, streams):
        """Raises ValueError if the vocabulary is not that of the records: an id beyond it, or another text than its own."""
        for split, records in self._records.items():
            token_ids, _ = next(iter(records.dataset()))
            first, stream = token_ids.numpy()[0], streams.get(split)
            if split != "train" and isinstance(stream, np.ndarray) and not np.array_equal(first, stream[:len(first)]):
                raise ValueError(f"Expected the vocabulary and corpus-info.json of these records, not of another text. "
                                 f"Received: {split} records in {records.data_dir}")
            if records.highest_id >= self.vocabulary.n_token:
                raise ValueError(f"Expected ids below {self.vocabulary.n_token}, those of the vocabulary, in the {split} records in "
                                 f"{records.data_dir}. Received: {records.highest_id}")

    def _labels_per_row(self, split):
        return self._labels[self._checked_split(split)]

    def _part(self, split):
        return self._records[self._checked_split(split)]

    def _checked_split(self, split):
        if self._found.get(split) and split not in self.splits:
            sizes = " or ".join(str(rows) for rows in sorted({sizes[0] for sizes in self._found[split]}))
            flag = "train_batch_size" if split == "train" else "eval_batch_size"
            raise ValueError(f"Expected --{flag} to be {sizes}, the rows of the records of the {split} split. Received: another or none")
        return super()._checked_split(split)


def _chosen(found, rows):
    """Returns the sizes of the records with so many rows, or of all that there are if they have equally many; otherwise None."""
    fitting = [sizes for sizes in found if rows in (None, sizes[0])]
    return fitting[0] if len({sizes[0] for sizes in fitting}) == 1 else None


def _record_info_path(folder, split, sizes):
    batch_size, tgt_len, cores = sizes
    suffix = "" if cores is None else f".core-{cores}"
    return os.path.join(str(folder), f"record_info-{split}.bsz-{batch_size}.tlen-{tgt_len}{suffix}.json")


def read_corpus_info(path):
    """Returns the dict of vocab_size, cutoffs and dataset in a corpus-info.json of the original code.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds something else.
    """
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(f"Expected corpus-info.json of the original code at --corpus_info_path. "
                                f"Received: corpus_info_path={path}")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            info = json.loads(file.read().decode("utf-8"))
        sound = type(info["vocab_size"]) is int and type(info["dataset"]) is str
        sound = sound and type(info["cutoffs"]) is list and all(type(cutoff) is int for cutoff in info["cutoffs"])
    except (ValueError, LookupError, TypeError, RecursionError) as error:
        raise ValueError(f"Expected JSON with vocab_size, cutoffs and dataset. Received: corpus_info_path={path}") from error
    if not sound:
        raise ValueError(f"Expected JSON with vocab_size, cutoffs and dataset. Received: corpus_info_path={path}")
    return info


def _vocabulary(path, dataset):
    """Returns the vocabulary of a file, and the streams of ids that lie beside it there: split -> array."""
    entry = DATASETS.get(dataset)
    kind = "word" if entry is None else entry.vocabulary
    start = STARTS[kind] if entry is None else entry.start_of(kind)
    if not os.path.isfile(path):
        raise FileNotFoundError(f"Expected the original code's {_PICKLE} at --vocab_file or beside corpus-info.json. "
                                f"Received: vocab_file={path}")
    if path.endswith(".pkl"):
        original = read_original(path)
        return original_vocabulary(original, kind, start), original.streams
    return read_vocabulary_file(path, kind, start), {}
