"""A prepared folder, opened for reading."""

import hashlib
import json
from pathlib import Path

from data_utils.input_pipeline import segment_dataset
from data_utils.vocabulary import load_vocabulary

MANIFEST = "corpus.json"
VOCABULARY = "vocabulary.json"
FORMAT = 1  # raised when the same text and settings would give other files


class Corpus:
    """What `data_utils.prepare` made in a folder: the vocabulary and the segments of every split.

    The folder's manifest, corpus.json, is written last, so a folder that has one is complete.

    Args:
        data_dir: the prepared folder.

    Attributes:
        vocabulary: turns text into ids and back.
        n_token: V, the number of different ids.
        splits: the names of the splits.
        identity: hex sha256 over the texts and how they became tokens: equal for equal tokens, wherever, whenever and in
            however many rows they were prepared. A resumed run compares it.

    Raises:
        FileNotFoundError: the folder was not prepared, or one of its files is gone.
        ValueError: a file is not what the manifest says.

    Example:
        corpus = Corpus("data/stdlib")
        for token_ids, labels in corpus.dataset("train", tgt_len=128):  # (B, T), (B, T)
            ...
    """

    def __init__(self, data_dir):
        self.data_dir = Path(data_dir)
        manifest = read_manifest(self.data_dir)
        self._entries = manifest["splits"]
        self.splits = tuple(self._entries)
        self.identity = manifest_identity(manifest)
        for entry in self._entries.values():
            self._check_record_file(entry)
        self.vocabulary = load_vocabulary(self.data_dir / VOCABULARY)
        self.n_token = self.vocabulary.n_token

    def dataset(self, split, tgt_len, drop_remainder=False):
        """Returns the segments of a split in text order as a tf.data.Dataset of (token_ids, labels).

        Args:
            split: "train", "valid" or "test".
            tgt_len: T, tokens of a segment; any number, whatever the folder was prepared with.
            drop_remainder: whether to leave out the last segment when it is shorter than T.

        Returns:
            int32 (B, T) and (B, T); row b goes on from batch to batch, labels are the inputs one token later.

        Raises:
            ValueError: no such split, or no segment of that length.
        """
        if self.n_segments(split, tgt_len, drop_remainder) == 0:
            raise ValueError(
                f"Expected --tgt_len of at most {self._labels_per_row(split)}, the labels of a row of the {split} "
                f"split. Received: tgt_len={tgt_len}"
            )
        return segment_dataset(self.record_file(split), self.rows(split), tgt_len, drop_remainder)

    def rows(self, split):
        """Returns B, the rows of a batch of the split."""
        return self._entry(split)["rows"]

    def n_tokens(self, split):
        """Returns the tokens of the split's text, those included that are left out so that rows have one length."""
        return self._entry(split)["n_tokens"]

    def n_labels(self, split):
        """Returns the tokens of the split that are predicted: every one of a row but its first."""
        return self.rows(split) * self._labels_per_row(split)

    def n_segments(self, split, tgt_len, drop_remainder=False):
        """Returns the number of batches of `dataset` with the same arguments."""
        if tgt_len < 1:
            raise ValueError(f"Expected --tgt_len of at least 1. Received: tgt_len={tgt_len}")
        whole, rest = divmod(self._labels_per_row(split), tgt_len)
        return whole + (rest > 0 and not drop_remainder)

    def record_file(self, split):
        """Returns the path of the split's TFRecord file."""
        return self.data_dir / self._entry(split)["file"]

    def _entry(self, split):
        if split not in self._entries:
            raise ValueError(f"Expected a split among {', '.join(self.splits)}. Received: split={split!r}")
        return self._entries[split]

    def _labels_per_row(self, split):
        return self.n_tokens(split) // self.rows(split) - 1

    def _check_record_file(self, entry):
        path = self.data_dir / entry["file"]
        if not path.is_file():
            raise FileNotFoundError(
                f"Expected {entry['file']} in --data_dir, which {MANIFEST} names. Received: data_dir={self.data_dir}"
            )
        if path.stat().st_size != entry["size"]:
            raise ValueError(
                f"Expected {entry['file']} in --data_dir to have {entry['size']} bytes, as {MANIFEST} says, "
                f"not {path.stat().st_size}. Received: data_dir={self.data_dir}"
            )


def read_manifest(data_dir):
    """Returns the content of data_dir/corpus.json.

    Raises:
        FileNotFoundError: there is none.
        ValueError: it is not JSON or has another format than this code writes.
    """
    path = Path(data_dir, MANIFEST)
    if not path.is_file():
        raise FileNotFoundError(
            f"Expected --data_dir to be a folder that data_utils.prepare has finished, with {MANIFEST} in it. "
            f"Received: data_dir={data_dir}"
        )
    try:
        manifest = json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"Expected JSON in {MANIFEST} of --data_dir. Received: data_dir={data_dir}") from error
    if not isinstance(manifest, dict) or manifest.get("format") != FORMAT:
        raise ValueError(f"Expected format {FORMAT} in {MANIFEST} of --data_dir. Received: data_dir={data_dir}")
    return manifest


def manifest_identity(manifest):
    """Returns the hex sha256 over what decides the tokens: dataset, vocabulary, and every split's text."""
    splits = {split: [entry["text_sha256"], entry["vocabulary"]] for split, entry in manifest["splits"].items()}
    content = json.dumps([manifest["format"], manifest["dataset"], splits], sort_keys=True)
    return hashlib.sha256(content.encode("utf-8")).hexdigest()
