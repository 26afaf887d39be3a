"""Scores texts with a trained model: `python -m txl_tf.score --model_dir=runs/mine FILE [FILE...]`."""

import contextlib
import json
import re
import sys
import typing

import numpy as np
from absl import app, flags, logging

from data_utils.tokenize import tokenize
from data_utils.vocabulary_base import utf8
from txl_tf.config import EVAL_TGT_LEN
from txl_tf.faults import one_sentence, say
from txl_tf.inference.evaluation import evaluation_model
from txl_tf.inference.scoring import check_sizes, score
from txl_tf.metrics import bits_per_character, perplexity
from txl_tf.model_folder import load_model_and_vocabulary

_COLUMNS = {"tokens": ("tokens", ",d"), "unknown": ("unknown", ",d"), "log_prob": ("log prob", ",.2f"), "nll": ("nll", ".4f"),
            "perplexity": ("ppl", ",.3f"), "bits_per_token": ("bits/token", ".4f"), "bits_per_character": ("bpc", ".4f"),
            "bits_per_byte": ("bits/byte", ".4f")}  # a number's name in JSON: its column in the table, and how it is printed there


class _Document(typing.NamedTuple):
    """A text, the name that it is reported by, what is read of it, and the token ids (n,) that this becomes."""

    name: str
    text: str
    read: str
    ids: np.ndarray


def main(argv):
    logging.set_verbosity(logging.WARNING)
    settings = flags.FLAGS
    with one_sentence("txl_tf.score", ValueError, OSError):
        _check(argv[1:], settings)
        texts = [part for path in argv[1:] for part in _texts(path, settings.lines)]
        model, vocabulary = load_model_and_vocabulary(settings.model_dir)
        documents = [_document(name, text, tokenize(text) if settings.tokenize else text, vocabulary) for name, text in texts]
        model = evaluation_model(model, clamp_len=settings.clamp_len, same_length=settings.same_length)
        tgt_len, mem_len = model.config.evaluation_lengths(settings.tgt_len, settings.mem_len)
        scores = _scores(model, documents, mem_len, tgt_len, settings)
    with one_sentence("txl_tf.score", OSError), contextlib.suppress(BrokenPipeError):  # the reader has had enough
        if settings.json:
            _print_json(documents, scores, vocabulary, settings.tokens)
        else:
            _print_table([document.name for document in documents], [_counts(*pair, vocabulary) for pair in zip(documents, scores)])
            say(f"log prob and nll are in nats, with memory {mem_len} and segments of {tgt_len}. The first token of "
                f"{'the stream' if settings.stream else 'a document'} has no context, hence no score. Characters (bpc) and bytes are "
                "those of the text itself, also where tokens lose some of it.")


def _check(paths, settings):
    if not paths:
        raise ValueError("At least one FILE must be given, where - is standard input. Received: none")
    if settings.tokens and not settings.json:
        raise ValueError("tokens must come with json. Received: tokens=True, json=False")
    check_sizes(mem_len=settings.mem_len, tgt_len=settings.tgt_len, batch_size=settings.batch_size)


def _texts(path, lines):
    """Returns [(name, text)] of a file: the whole, or each of its lines with its end."""
    try:
        if path == "-":
            data = sys.stdin.buffer.read()
        else:
            with open(path, "rb") as file:
                data = file.read()
        text = utf8(data)
    except (OSError, ValueError) as error:
        raise ValueError(f"FILE must be a UTF-8 file that can be read ({error}). Received: FILE={path}") from error
    if not lines:
        return [(path, text)]
    return [(f"{path}:{number}", line) for number, line in enumerate(re.findall("[^\n]*\n|[^\n]+", text) or [""], 1)]


def _document(name, text, read, vocabulary):
    try:
        return _Document(name, text, read, vocabulary.encode(read))
    except ValueError as error:
        raise ValueError(f"FILE must be a text in the symbols of the model's vocabulary ({error}). Received: FILE={name}") from error


def _scores(model, documents, mem_len, tgt_len, settings):
    """Returns the scores of every document; in a stream only the first token of all has none."""
    ids = [document.ids for document in documents]
    if not settings.stream:
        return score(model, ids, mem_len, tgt_len, settings.batch_size)
    scores, = score(model, [np.concatenate(ids)], mem_len, tgt_len)
    return np.split(scores, np.maximum(np.cumsum([len(part) for part in ids[:-1]], dtype=int) - 1, 0))


def _counts(document, scores, vocabulary):
    """Returns the numbers that add up over documents, without the token that has no score and the text that it stands for."""
    ids, data = document.ids[len(document.ids) - len(scores):], np.frombuffer(document.text.encode("utf-8"), np.uint8)
    if len(ids) < len(document.ids):
        data = data[_bytes_of_first(document, vocabulary):]
    return {"tokens": len(ids), "unknown": int(np.sum(ids == vocabulary.unknown_id)), "bytes": len(data),
            "characters": int(np.sum(data & 0xC0 != 0x80)), "log_prob": float(np.sum(scores, dtype=np.float64))}


def _bytes_of_first(document, vocabulary):
    """Returns how many bytes of a text its first token stands for."""
    if document.ids[0] == vocabulary.unknown_id:
        shown = document.read.split()[0] if vocabulary.kind == "word" else document.read[0]
    else:
        shown = vocabulary.decode(document.ids[:1])
    if document.read != document.text:
        shown = document.text.lstrip()[:len(shown)]  # signs that are written otherwise are as many
    return 1 if shown == "\ufffd" else len(shown.encode("utf-8"))  # U+FFFD: a byte that is no whole character


def _rated(counts):
    """Returns the counts and the rates that are compared; None where there is nothing to divide by."""
    nats = {name: (0.0 - counts["log_prob"]) / counts[name] if counts[name] else None for name in ("tokens", "characters", "bytes")}
    rates = {"nll": ("tokens", float), "perplexity": ("tokens", perplexity), "bits_per_token": ("tokens", bits_per_character),
             "bits_per_character": ("characters", bits_per_character), "bits_per_byte": ("bytes", bits_per_character)}
    return {**counts, **{name: None if nats[per] is None else unit(nats[per]) for name, (per, unit) in rates.items()}}


def _print_json(documents, scores, vocabulary, with_tokens):
    """Prints an object a document, on a line each; the token without a score has the log-probability null."""
    for document, found in zip(documents, scores, strict=True):
        content = {"document": document.name, **_rated(_counts(document, found, vocabulary))}
        if with_tokens:
            ids = document.ids.tolist()
            strings = {token: vocabulary.decode([token]) for token in set(ids)}
            content.update(token_ids=ids, token_strings=[strings[token] for token in ids],
                           token_log_probs=[None] * (len(ids) - len(found)) + found.tolist())
        say(json.dumps(content))


def _print_table(names, counts):
    """Prints a line a document and, if there are several, one for all together."""
    if len(counts) > 1:
        names, counts = [*names, "total"], [*counts, {name: sum(part[name] for part in counts) for name in counts[0]}]
    columns = [name for name in _COLUMNS if name != "unknown" or any(part["unknown"] for part in counts)]
    rows = [["", *(_COLUMNS[column][0] for column in columns)]]
    for name, rated in zip(names, map(_rated, counts), strict=True):
        rows.append([name, *("-" if rated[column] is None else format(rated[column], _COLUMNS[column][1]) for column in columns)])
    widths = [max(map(len, column)) for column in zip(*rows)]
    for name, *cells in rows:
        say("  ".join([name.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(cells, widths[1:]))]))


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, "folder of a run or a saved model", required=True)
    flags.DEFINE_bool("lines", False, "every line of a FILE is a document, with its end")
    flags.DEFINE_bool("stream", False, "the documents are one text: the memory goes on from one to the next")
    flags.DEFINE_bool("tokenize", False, "read the text as WikiText is written: words, signs and numbers apart")
    flags.DEFINE_bool("json", False, "print a JSON object a document, on a line each, instead of a table")
    flags.DEFINE_bool("tokens", False, "with --json: also every token and its log-probability, in text order")
    flags.DEFINE_integer("batch_size", 16, "documents that are read side by side")
    flags.DEFINE_integer("tgt_len", None, f"tokens of a segment; unset: {EVAL_TGT_LEN}, or the model's where it learned each distance by itself")
    flags.DEFINE_integer("mem_len", None, "slots of the memory; unset: 4 x the model's, or as many as the model's")
    flags.DEFINE_integer("clamp_len", None, "largest distance with a position of its own; unset: the model's")
    flags.DEFINE_bool("same_length", None, "give every token mem_len + 1 keys; unset: the model's")
    app.run(main)
