"""The kinds of vocabularies: what turns text into token ids and back."""

import json

import tensorflow as tf

from data_utils.byte_vocabulary import ByteVocabulary
from data_utils.char_vocabulary import CharVocabulary
from data_utils.subword_vocabulary import SubwordVocabulary
from data_utils.word_vocabulary import WordVocabulary

VOCABULARIES = {kind.kind: kind for kind in (ByteVocabulary, CharVocabulary, WordVocabulary, SubwordVocabulary)}


def load_vocabulary(path):
    """Returns the vocabulary that `save` wrote to `path`, a file here or at any address that tf.io.gfile opens.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file holds no vocabulary, or one of a kind that is not in `VOCABULARIES`.
    """
    path = str(path)
    if not tf.io.gfile.exists(path) or tf.io.gfile.isdir(path):
        raise FileNotFoundError(f"Expected a vocabulary file. Received: path={path}")
    try:
        with tf.io.gfile.GFile(path, "rb") as file:
            content = json.loads(file.read().decode("utf-8"))
        kind = content.pop("kind")
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"Expected a JSON object with the kind of a vocabulary. Received: path={path}") from error
    if kind not in list(VOCABULARIES):
        raise ValueError(
            f"Expected a vocabulary of a known kind ({', '.join(sorted(VOCABULARIES))}). "
            f"Received: kind={kind!r}, path={path}"
        )
    try:
        return VOCABULARIES[kind].from_json(content)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"Expected the content of a vocabulary of kind {kind} ({error}). Received: path={path}") from error
