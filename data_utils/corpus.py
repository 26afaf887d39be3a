"""A prepared folder, opened for reading."""

import hashlib
import json
import os

import tensorflow as tf

from data_utils.corpus_base import CorpusBase
from data_utils.input_pipeline import segment_dataset
from data_utils.records import sha256_of_file
from data_utils.vocabulary import load_vocabulary

MANIFEST = "corpus.json"
VOCABULARY = "vocabulary.json"
FORMAT = 2  # raised when the same text and settings would give other files


class Corpus(CorpusBase):
    """What `data_utils.prepare` made in a folder: the vocabulary and the segments of every split.

    The folder's manifest, corpus.json, is written last, so a folder that has one is complete. It says what was made
    from what. A split is one stream of tokens, or several: with shuffled shards each shard and shuffle is one.

    Args:
        data_dir: the prepared folder, here or at any address that tf.io.gfile opens, such as gs://bucket/corpus.

    Attributes:
        vocabulary: turns text into ids and back.
        n_token: V, the number of different ids.
        cutoffs: the adaptive softmax's customary cutoffs for the dataset, () if there are none.
        splits: the names of the splits.
        num_hosts: files a stream is written to, one for each host that trains on it.
        identity: hex sha256 over the texts and how they became tokens: equal for equal tokens in equal order, wherever,
            whenever and in however many rows they were prepared. A resumed run compares it.

    Raises:
        FileNotFoundError: the folder was not prepared, or one of its files is gone.
        ValueError: a file is not what the manifest says.

    Example:
        corpus = Corpus("data/stdlib")
        for token_ids, labels in corpus.dataset("train", tgt_len=128):  # (B, T), (B, T)
            ...
    """

    def __init__(self, data_dir):
        self.data_dir = str(data_dir)
        manifest = read_manifest(self.data_dir)
        self._entries = manifest["splits"]
        self.splits = tuple(self._entries)
        self.identity = manifest_identity(manifest)
        self.cutoffs = tuple(manifest["cutoffs"])
        self.num_hosts = manifest["num_hosts"]
        for split in self.splits:
            for file in split_files(self._entries[split]):
                self._check_record_file(file)
        self.vocabulary = load_vocabulary(os.path.join(self.data_dir, VOCABULARY))
        if self.vocabulary.sha256() != manifest["vocabulary"]["sha256"]:
            raise ValueError(f"Expected {VOCABULARY} in --data_dir to be the one that {MANIFEST} names. "
                             f"Received: data_dir={self.data_dir}")
        self.n_token = self.vocabulary.n_token

    def dataset(self, split, tgt_len, drop_remainder=False, host=None):
        """Returns the segments of a split in text order as a tf.data.Dataset of (token_ids, labels).

        Args:
            split: "train", "valid" or "test".
            tgt_len: T, tokens of a segment; any number, whatever the folder was prepared with. Or the lengths of the
                segments one after the other, such as `data_utils.random_lengths` gives.
            drop_remainder: whether to leave out the last segment of a stream when it is shorter than T.
            host: number of the host whose rows are read, below num_hosts; None: the rows of all hosts, in order.

        Returns:
            int32 (B, T) and (B, T); row b goes on from batch to batch, labels are the inputs one token later. B are the
            rows of the split, or of one host.

        Raises:
            ValueError: no such split or host, or no segment of that length.
        """
        self._check_segments(split, tgt_len, drop_remainder)
        if host is not None and not 0 <= host < self.num_hosts:
            raise ValueError(f"Expected a host below {self.num_hosts}. Received: host={host}")
        hosts = range(self.num_hosts) if host is None else [host]
        parts = [[os.path.join(self.data_dir, stream["files"][number]["file"]) for number in hosts]
                 for stream in self._entry(split)["streams"]]
        rows = self.rows(split) // self.num_hosts * len(hosts)
        segments = segment_dataset(parts, rows, self._entry(split)["dtype"], tgt_len, drop_remainder)
        return self._counted(segments, split, tgt_len, drop_remainder)

    def rows(self, split):
        """Returns B, the rows of a batch of the split, of all hosts together."""
        return self._entry(split)["rows"]

    def n_tokens(self, split):
        """Returns the tokens of the split, those included that are left out so that rows have one length."""
        return sum(stream["n_tokens"] for stream in self._entry(split)["streams"])

    def n_left_out(self, split):
        """Returns the tokens of the split that are left out so that rows have one length."""
        return sum(stream["n_tokens"] % self.rows(split) for stream in self._entry(split)["streams"])

    def n_unknown(self, split):
        """Returns how many tokens of the split are the unknown symbol because the vocabulary lacks them."""
        return self._entry(split)["n_unknown"]

    def check(self):
        """Reads all record files and raises ValueError, which names the file, if one is not what was written."""
        for split in self.splits:
            for file in split_files(self._entries[split]):
                self._check_record_file(file)
                if sha256_of_file(os.path.join(self.data_dir, file["file"])) != file["sha256"]:
                    raise ValueError(f"Expected {file['file']} in --data_dir to be as it was written; preparing the folder "
                                     f"again mends it. Received: data_dir={self.data_dir}")

    def record_files(self, split):
        """Returns the paths of the split's TFRecord files."""
        return [os.path.join(self.data_dir, file["file"]) for file in split_files(self._entry(split))]

    def _entry(self, split):
        return self._entries[self._checked_split(split)]

    def _labels_per_row(self, split):
        """Returns the labels of a row of each stream."""
        return [stream["n_tokens"] // self.rows(split) - 1 for stream in self._entry(split)["streams"]]

    def _check_record_file(self, file):
        path = os.path.join(self.data_dir, file["file"])
        if not tf.io.gfile.exists(path):
            raise FileNotFoundError(
                f"Expected {file['file']} in --data_dir, which {MANIFEST} names. Received: data_dir={self.data_dir}"
            )
        size = tf.io.gfile.stat(path).length
        if size != file["size"]:
            raise ValueError(
                f"Expected {file['file']} in --data_dir to have {file['size']} bytes, as {MANIFEST} says, "
                f"not {size}. Received: data_dir={self.data_dir}"
            )


def split_files(entry):
    """Returns the manifest's entries of all files of a split's entry, stream by stream."""
    return [file for stream in entry["streams"] for file in stream["files"]]


def sealed(content):
    """Returns the manifest of a content: with a digest of it, so that damage is noticed."""
    return {**content, "sha256": _digest(content)}


def read_manifest(data_dir):
    """Returns the content of data_dir/corpus.json.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not JSON, has another format than this code writes, or is damaged.
    """
    path = os.path.join(str(data_dir), MANIFEST)
    if not tf.io.gfile.exists(path):
        raise FileNotFoundError(
            f"Expected --data_dir to be a folder that data_utils.prepare has finished, with {MANIFEST} in it. "
            f"Received: data_dir={data_dir}"
        )
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            manifest = json.loads(file.read().decode("utf-8"))
    except ValueError as error:
        raise ValueError(f"Expected JSON in {MANIFEST} of --data_dir. Received: data_dir={data_dir}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"Expected format {FORMAT} in {MANIFEST} of --data_dir. Received: data_dir={data_dir}")
    digest = manifest.pop("sha256", None)
    if digest != _digest(manifest):
        raise ValueError(f"Expected {MANIFEST} of --data_dir as it was written. Received: data_dir={data_dir}")
    return manifest


def manifest_identity(manifest):
    """Returns the hex sha256 over what decides the tokens and their order: dataset, vocabulary, texts, passes, shuffles."""
    splits = {split: [entry["made_from"]["text"], entry["made_from"]["order"]] for split, entry in manifest["splits"].items()}
    return _digest([manifest["format"], manifest["dataset"], manifest["vocabulary"]["sha256"], splits])


def _digest(content):
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode("utf-8")).hexdigest()
