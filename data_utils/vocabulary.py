"""Text to token ids and back, by kind."""

import json
from pathlib import Path

import numpy as np

from data_utils.atomic_files import write_json


class ByteVocabulary:
    """Bytes as tokens: the id of a token is the value of the byte, so every file can be encoded and nothing is unknown.

    Attributes:
        kind: "byte", the name of this class in `VOCABULARIES` and in vocabulary.json.
        n_token: 256, the number of different ids.

    Example:
        vocabulary = ByteVocabulary()
        vocabulary.encode("né")             # array([110, 195, 169], dtype=uint8)
        vocabulary.decode([110, 195, 169])  # "né"
    """

    kind = "byte"
    n_token = 256

    def encode(self, text):
        """Returns the ids (N,) uint8 of a str (as UTF-8) or of anything that holds bytes, which is not copied."""
        if isinstance(text, str):
            text = text.encode("utf-8")
        return np.frombuffer(text, np.uint8)

    def decode(self, ids):
        """Returns the str that the ids (N,) spell in UTF-8; bytes that are not UTF-8 become U+FFFD.

        Raises:
            ValueError: an id is no byte.
        """
        ids = np.asarray(ids, np.int64)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.n_token:
            raise ValueError(
                f"Expected ids from 0 to {self.n_token - 1}. Received: ids from {ids.min()} to {ids.max()}"
            )
        return ids.astype(np.uint8).tobytes().decode("utf-8", errors="replace")

    def save(self, path):
        """Writes what `load_vocabulary` needs to `path`, atomically."""
        write_json(path, {"kind": self.kind})


VOCABULARIES = {ByteVocabulary.kind: ByteVocabulary}


def load_vocabulary(path):
    """Returns the vocabulary that `save` wrote to `path`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds no vocabulary, or one of a kind that is not in `VOCABULARIES`.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a vocabulary file. Received: path={path}")
    try:
        kind = json.loads(path.read_text(encoding="utf-8"))["kind"]
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(f"Expected a JSON object with the kind of a vocabulary. Received: path={path}") from error
    if kind not in VOCABULARIES:
        raise ValueError(
            f"Expected a vocabulary of a known kind ({', '.join(sorted(VOCABULARIES))}). "
            f"Received: kind={kind!r}, path={path}"
        )
    return VOCABULARIES[kind]()
