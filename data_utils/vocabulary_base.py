"""What all vocabularies share."""

import functools
import hashlib
import json

import numpy as np
import tensorflow as tf

from data_utils.atomic_files import write_json


class VocabularyBase:
    """A table of symbols that turns text into ids and back; a subclass says what a symbol is.

    Attributes:
        kind: its name in `data_utils.vocabulary.VOCABULARIES`, in vocabulary.json and in --vocabulary.
        n_token: V, the number of different ids, which are 0 to V - 1.
        unknown_id: the id of every symbol that is not in the vocabulary; None: such a symbol is refused.
        tokenizer: a tf.Module that does the same in a graph, for a SavedModel: `tokenize` turns (B,) strings into a
            RaggedTensor (B, None) of int32 ids, `detokenize` turns ids (B, T), dense or ragged, into (B,) strings.

    A subclass has, besides `encode` (text -> ids (N,)) and `decode` (ids (N,) -> str):
        to_json(), from_json(content): what vocabulary.json holds apart from the kind.
        splitter(): what takes large texts apart into raw ids, block by block, for `data_utils.encode`. It has
            dtype: type of its raw ids; is_text: whether they are the bytes of the text and nothing is counted.
            line_end: the raw id that ends a line, where that is one.
            border(block): how many bytes of a block can be worked on without the next block.
            split(block, first, last): the heavy part, safe in threads, for a block of a text, its first, its last.
            collect(found): called in order with what split returns; gives (raw ids, how often each raw id occurs or None,
                where in them lines stop or None: at line_end).
            symbol(raw): the symbol of a raw id that may have no id.
        raw_to_id(splitter): the ids of its raw ids, -1 for those that have none; None: they are the ids.
    """

    kind = None
    n_token = None
    unknown_id = None

    @functools.cached_property
    def tokenizer(self):
        return self._traced_tokenizer()

    def _traced_tokenizer(self):
        tokenizer = self._make_tokenizer()
        for spec in (tf.TensorSpec([None, None], tf.int32), tf.RaggedTensorSpec([None, None], tf.int32)):
            tokenizer.detokenize.get_concrete_function(spec)  # a SavedModel holds what was traced
        return tokenizer

    def token_id(self, text):
        """Returns the id of the token that a text is; a line's end may be named by its symbol, such as <eos>.

        Raises:
            ValueError: the text is no token, or more than one.
        """
        ids = self._token_ids(text)
        if len(ids) != 1:
            raise ValueError(f"Expected a text that is one token of the vocabulary. Received: {text!r}")
        return ids[0]

    def _token_ids(self, text):
        """Returns the ids of the tokens that a text is, none if some of it is unknown, as a list."""
        ids = self.encode(text).tolist()
        return [] if self.unknown_id in ids else ids

    def save(self, path):
        """Writes what `data_utils.vocabulary.load_vocabulary` needs to `path`, atomically."""
        write_json(path, self._content())

    def sha256(self):
        """Returns the hex digest that is equal for vocabularies that give the same ids for every text."""
        return hashlib.sha256(json.dumps(self._content(), sort_keys=True).encode("utf-8")).hexdigest()

    def _content(self):
        return {"kind": self.kind, **self.to_json()}

    def _checked(self, ids):
        """Returns ids as int64 (N,), or raises ValueError for one that is not in the vocabulary."""
        ids = np.asarray(ids, np.int64).reshape(-1)
        if ids.size and not 0 <= ids.min() <= ids.max() < self.n_token:
            raise ValueError(
                f"Expected ids from 0 to {self.n_token - 1}. Received: ids from {ids.min()} to {ids.max()}"
            )
        return ids


def utf8(text):
    """Returns the str of a str or of UTF-8 bytes, in anything that holds bytes.

    Raises:
        ValueError: the bytes are not UTF-8; the sentence names the first wrong one.
    """
    if isinstance(text, str):
        return text
    try:
        return bytes(text).decode("utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"Expected UTF-8. Received: byte {error.object[error.start]:#04x} at {error.start}") from error
