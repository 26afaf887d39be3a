"""Pickled corpora and vocabularies of the original code and of Hugging Face, read without running anything in them."""

import dataclasses
import io
import json
import zipfile
from pathlib import Path

import numpy as np

from data_utils.pickle_machine import DAMAGE, PickleMachine, RefusedError, filled, text_of, typed

_INTEGERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # how a file of torch.save began until 2020


@dataclasses.dataclass(frozen=True, eq=False)
class OriginalPickle:
    """What a cache.pkl, vocab.pkl, vocab.bin or vocab.json holds; what a file does not have is None or empty.

    Args:
        symbols: list of the V different symbols (str); the id of a symbol is its index.
        special: tuple of the symbols that the vocabulary was told to have.
        lower_case: whether the text was lower-cased.
        unk_id: id that unknown symbols get, if the file says so. The original's vocabularies of wt103 and ptb do not,
            though `<unk>` is one of their symbols.
        eos_id: id of the symbol that ends a line.
        counter: dict of how often each symbol of the text was seen, those included that have no id.
        dataset: name of the data set (cache.pkl only, as all that follows).
        cutoffs: tuple of the limits of the adaptive softmax, as written: with 0 and V.
        streams: dict of split -> token ids (N,), a read-only array of some integer dtype; for train of lm1b, a list of
            the paths of text files.

    Example:
        corpus = read_original("wikitext-103/cache.pkl")
        corpus.symbols[corpus.streams["valid"][0]]  # "<eos>"
    """

    symbols: list
    special: tuple = ()
    lower_case: bool | None = None
    unk_id: int | None = None
    eos_id: int | None = None
    counter: dict = dataclasses.field(default_factory=dict)
    dataset: str | None = None
    cutoffs: tuple = ()
    streams: dict = dataclasses.field(default_factory=dict)


def read_original(path):
    """Reads a file of the original code or of Hugging Face, which need not be trusted: nothing in it is run.

    The content, not the name, tells which it is: a cache.pkl (the original's Corpus, from Python 2 or 3), a vocab.pkl
    (a dict), a vocab.bin (such a dict in either layout of torch.save) or a vocab.json (such a dict as JSON). Pickles may have any protocol. What Python 2
    wrote as str is read as UTF-8, or as Latin-1 if it is not UTF-8.

    Args:
        path: the file.

    Returns:
        An `OriginalPickle`.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: the file is none of these, is damaged, names anything but the classes of these, or contradicts
            itself: symbols that repeat, ids outside the vocabulary, arrays that are not of integers.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"Expected a cache.pkl, vocab.pkl, vocab.bin or vocab.json. Received: path={path}")
    content = path.read_bytes()
    try:
        return _corpus(_unpacked(content))
    except RefusedError as error:
        raise ValueError(f"{error}, path={path}") from None
    except DAMAGE as error:
        raise ValueError(f"Expected an undamaged pickle, or JSON. Received: {type(error).__name__}, path={path}") from error


def _corpus(root):
    attributes = root.attributes if isinstance(root, _Instance) else {"vocab": root}
    vocabulary = attributes.get("vocab")
    vocabulary = vocabulary.attributes if isinstance(vocabulary, _Instance) else typed(vocabulary, dict, "vocabulary")
    symbols = _texts(vocabulary.get("idx2sym"), "idx2sym")
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    if len(numbers) < len(symbols) or vocabulary.get("sym2idx", numbers) != numbers:
        raise RefusedError(f"Expected idx2sym without repeats and sym2idx to agree. Received: symbols={len(symbols)}")
    counter = typed(vocabulary.get("counter", {}), dict, "counter")
    streams = {split: attributes[split] for split in ("train", "valid", "test") if attributes.get(split) is not None}
    return OriginalPickle(
        symbols=symbols,
        special=tuple(_texts(vocabulary.get("special", []), "special")),
        lower_case=_optional(vocabulary, "lower_case", bool),
        unk_id=_id(vocabulary, "unk_idx", len(symbols)),
        eos_id=_id(vocabulary, "eos_idx", len(symbols)),
        counter={symbol: typed(count, int, "count") for symbol, count in counter.items()},
        dataset=_optional(attributes, "dataset", str),
        cutoffs=tuple(typed(limit, int, "cutoff") for limit in typed(attributes.get("cutoffs", []), list, "cutoffs")),
        streams={split: _stream(value, split, len(symbols)) for split, value in streams.items()},
    )


def _stream(value, split, n_token):
    if isinstance(value, list):
        return _texts(value, split)
    ids = typed(value, _Array, split).values
    if ids.size and not 0 <= ids.min() <= ids.max() < n_token:
        raise RefusedError(f"Expected ids from 0 to {n_token - 1} in the streams. Received: split={split}")
    return ids.astype(ids.dtype.newbyteorder("="), copy=False)


def _optional(attributes, name, kind):
    value = attributes.get(name)
    return None if value is None else typed(text_of(value), kind, name)


def _id(vocabulary, name, n_token):
    value = _optional(vocabulary, name, int)
    if value is not None and not 0 <= value < n_token:
        raise RefusedError(f"Expected {name} to be the id of a symbol. Received: symbols={n_token}")
    return value


def _unpacked(content):
    """Returns the object in the bytes of a file, whichever of the four layouts it has."""
    if content.lstrip().startswith(b"{"):
        return json.loads(content)
    content = _zip_member(content) if content.startswith(b"PK") else content
    file = io.BytesIO(content)
    value = _CorpusMachine(file, len(content)).load()
    if type(value) is int and value == _TORCH_MAGIC:
        _, _, value, _ = [_CorpusMachine(file, len(content)).load() for _ in range(4)]  # version, sizes of C's types, ours, keys of tensors
    if file.read(1):
        raise RefusedError(f"Expected nothing after the pickle. Received: position={file.tell() - 1}")
    return value


def _zip_member(content):
    """Returns the pickle in a zip file of torch.save, which does not compress."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith("/data.pkl")]
        if [member.compress_type for member in members] != [zipfile.ZIP_STORED]:
            raise RefusedError(f"Expected one data.pkl in a zip file, uncompressed. Received: number={len(members)}")
        return archive.read(members[0])


def _texts(values, name):
    return [typed(text_of(value), str, name) for value in typed(values, list, name)]


class _Instance:
    """Stands for a Corpus or a Vocab."""

    def __init__(self):
        self.attributes = {}

    def set_state(self, state):
        self.attributes = typed(state, dict, "state")


class _Dtype:
    """Stands for a numpy.dtype of integers."""

    def __init__(self, code, align=False, copy=True):
        if typed(text_of(code), str, "dtype") not in _INTEGERS:
            raise RefusedError(f"Expected arrays of integers. Received: dtype={ascii(text_of(code)[:20])}")
        self.value = np.dtype(text_of(code))

    def set_state(self, state):
        byte_order = typed(state, tuple, "state")[1]
        self.value = self.value.newbyteorder(typed(text_of(byte_order), str, "byte order"))


class _Array:
    """Stands for a numpy.ndarray of one axis."""

    values = np.zeros(0, np.int64)  # as after numpy's _reconstruct, until its state is set

    def set_state(self, state):
        _, shape, dtype, _, data = typed(state, tuple, "state")
        dtype = typed(dtype, _Dtype, "dtype").value
        if not isinstance(data, (bytes, bytearray)) or shape != (len(data) // dtype.itemsize,):
            raise RefusedError(f"Expected an array of one axis, as long as its data. Received: dtype={dtype}")
        self.values = np.frombuffer(data, dtype)


def _new_array(data, dtype, shape, order):
    array = _Array()
    array.set_state((None, shape, dtype, None, data))
    return array


def _new_mapping(items=()):
    return items if isinstance(items, dict) else filled({}, items)


def _bytes_of_text(text, encoding):
    if typed(encoding, str, "encoding") != "latin1":
        raise RefusedError(f"Expected _codecs.encode to use latin1. Received: encoding={ascii(encoding[:20])}")
    return typed(text, str, "text").encode("latin-1")


_ADMITTED = {  # (module, name): what is called in its place
    ("__main__", "Corpus"): _Instance,
    ("data_utils", "Corpus"): _Instance,
    ("vocabulary", "Vocab"): _Instance,
    ("copy_reg", "_reconstructor"): lambda *arguments: _Instance(),
    ("__builtin__", "object"): _Instance,  # only ever an argument
    ("collections", "Counter"): _new_mapping,
    ("collections", "OrderedDict"): _new_mapping,
    ("numpy", "dtype"): _Dtype,
    ("numpy", "ndarray"): _Array,  # only ever an argument
    **{(f"numpy.{core}.multiarray", "_reconstruct"): lambda *arguments: _Array() for core in ("core", "_core")},
    **{(f"numpy.{core}.numeric", "_frombuffer"): _new_array for core in ("core", "_core")},
    ("_codecs", "encode"): _bytes_of_text,  # how Python 3 writes bytes for Python 2
    ("__builtin__", "bytes"): lambda: b"",
}


class _CorpusMachine(PickleMachine):
    """Loads one pickle of a corpus or a vocabulary."""

    subject = "a corpus"
    admitted = _ADMITTED
    stateful = (_Instance, _Array, _Dtype)
