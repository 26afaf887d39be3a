"""Vocabularies from files that others made: word lists, SentencePiece models, the original code's pickles."""

import json
from pathlib import Path

from data_utils.char_vocabulary import CharVocabulary
from data_utils.original_pickles import read_original
from data_utils.subword_vocabulary import SubwordVocabulary
from data_utils.vocabulary import load_vocabulary
from data_utils.vocabulary_base import utf8
from data_utils.word_vocabulary import WordVocabulary

_PICKLES = {".pkl", ".bin"}
TELLING = {".json", *_PICKLES}  # suffixes of the files that say whether words are lower-cased


def read_vocabulary_file(path, kind, start):
    """Returns the vocabulary of a file; ids are the order in the file.

    Args:
        path: vocabulary.json of a prepared folder; cache.pkl, vocab.pkl, vocab.bin or vocab.json of the original code or of
            Hugging Face; a SentencePiece .model; any other file is a list of words, the first one of each line, where one that
            has been there before adds nothing.
        kind: "word", "char" or "subword": what it must be.
        start: arguments of a vocabulary of words or characters that the file does not tell: the rules of lines, the
            unknown symbol. Special symbols that a list of words lacks come after its own.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is not what it must be.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected --vocab_file to be a file. Received: vocab_file={path}")
    try:
        vocabulary = _read(path, kind, start)
    except ValueError as error:
        raise ValueError(f"Expected a vocabulary of kind {kind} in --vocab_file ({error}). "
                         f"Received: vocab_file={path}") from error
    if vocabulary.kind != kind:
        raise ValueError(f"Expected a vocabulary of kind {kind} in --vocab_file, not {vocabulary.kind}. "
                         f"Received: vocab_file={path}")
    return vocabulary


def _read(path, kind, start):
    if kind == "subword" and path.suffix != ".json":
        return SubwordVocabulary(path.read_bytes())
    original = original_of(path)
    if original is None and path.suffix == ".json":
        return load_vocabulary(path)
    if original is not None:
        return original_vocabulary(original, kind, start)
    if kind != "word":
        raise ValueError("Expected vocabulary.json or a pickle of the original code")
    words = dict.fromkeys(line.split()[0] for line in utf8(path.read_bytes()).removeprefix("\ufeff").split("\n") if line.split())
    return WordVocabulary(**{**start, "symbols": _with_specials(list(words), start)})


def original_of(path):
    """Returns what a .pkl, .bin or vocab.json holds, as `data_utils.original_pickles.read_original`; None: the file is none of these."""
    path = Path(path)
    return read_original(path) if path.suffix in _PICKLES or (path.suffix == ".json" and _has_symbols(path)) else None


def _has_symbols(path):
    """Whether a file is the JSON object of a vocabulary of the original code."""
    try:
        return "idx2sym" in json.loads(path.read_bytes())
    except (OSError, ValueError, TypeError, RecursionError):
        return False


def original_vocabulary(original, kind, start):
    """Returns the vocabulary of a `data_utils.original_pickles.read_original` result; ids are the original's.

    Args:
        original: the result.
        kind: "char" for enwik8, whose symbols are decimal byte values, and text8, whose blank is "_"; otherwise "word".
        start: as for `read_vocabulary_file`; what the pickle tells itself counts more.

    Raises:
        ValueError: the symbols are none of that kind.
    """
    symbols = list(original.symbols)
    if kind == "char":
        if all(symbol.isascii() and symbol.isdecimal() and int(symbol) < 256 for symbol in symbols) and len(symbols) > 10:
            return CharVocabulary([chr(int(symbol)) for symbol in symbols], unit="byte")
        if all(len(symbol) == 1 for symbol in symbols):
            return CharVocabulary([" " if symbol == "_" else symbol for symbol in symbols], unit="byte")
        raise ValueError(f"Expected byte values or characters as symbols. Received: {symbols[:3]} and others")
    unknown = symbols[original.unk_id] if original.unk_id is not None else start.get("unknown")
    unknown = "<unk>" if unknown is None and "<unk>" in symbols else unknown
    lower_case = start.get("lower_case", False) if original.lower_case is None else original.lower_case
    rules = {**start, "lower_case": lower_case, "unknown": unknown}
    return WordVocabulary(**{**rules, "symbols": _with_specials(symbols, rules)})


def _with_specials(words, rules):
    specials = [rules.get("line_start"), rules.get("line_end", "<eos>"), rules.get("unknown")]
    known = set(words)
    return words + [word for word in dict.fromkeys(specials) if word is not None and word not in known]
