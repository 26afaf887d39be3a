"""Pickled corpora and vocabularies of the original code and of Hugging Face, read without running anything in them.

`pickle.Unpickler` with a strict `find_class` would not do: it allocates as much as a memo index in the file says, and
overflows the stack when it hashes tuples that are nested deeply enough. So `_Machine` goes through the opcodes itself.
It calls nothing but what `_ADMITTED` lists and hashes nothing but texts, and its time and memory grow in proportion to
the file.
"""

import dataclasses
import functools
import io
import pickle
import pickletools
import re
import struct
import zipfile
from pathlib import Path

import numpy as np

_INTEGERS = {f"{kind}{size}" for kind in "iu" for size in (1, 2, 4, 8)}
_TORCH_MAGIC = 0x1950A86A20F9469CFC6C  # how a file of torch.save began until 2020
_DAMAGE = (ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError,
           struct.error, zipfile.BadZipFile)  # what reading broken bytes raises
_ESCAPED = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)


@dataclasses.dataclass(frozen=True, eq=False)
class OriginalPickle:
    """What a cache.pkl, vocab.pkl or vocab.bin holds; what a file does not have is None or empty.

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
    (a dict) or a vocab.bin (such a dict in either layout of torch.save). Pickles may have any protocol. What Python 2
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
        raise FileNotFoundError(f"Expected a cache.pkl, vocab.pkl or vocab.bin. Received: path={path}")
    content = path.read_bytes()
    try:
        return _corpus(_unpacked(content))
    except _RefusedError as error:
        raise ValueError(f"{error}, path={path}") from None
    except _DAMAGE as error:
        raise ValueError(f"Expected an undamaged pickle. Received: {type(error).__name__}, path={path}") from error


class _RefusedError(Exception):
    """A sentence on what a file holds, without the file's name."""


def _corpus(root):
    attributes = root.attributes if isinstance(root, _Instance) else {"vocab": root}
    vocabulary = attributes.get("vocab")
    vocabulary = vocabulary.attributes if isinstance(vocabulary, _Instance) else _typed(vocabulary, dict, "vocabulary")
    symbols = _texts(vocabulary.get("idx2sym"), "idx2sym")
    numbers = {symbol: number for number, symbol in enumerate(symbols)}
    if len(numbers) < len(symbols) or vocabulary.get("sym2idx", numbers) != numbers:
        raise _RefusedError(f"Expected idx2sym without repeats and sym2idx to agree. Received: symbols={len(symbols)}")
    counter = _typed(vocabulary.get("counter", {}), dict, "counter")
    streams = {split: attributes[split] for split in ("train", "valid", "test") if attributes.get(split) is not None}
    return OriginalPickle(
        symbols=symbols,
        special=tuple(_texts(vocabulary.get("special", []), "special")),
        lower_case=_optional(vocabulary, "lower_case", bool),
        unk_id=_id(vocabulary, "unk_idx", len(symbols)),
        eos_id=_id(vocabulary, "eos_idx", len(symbols)),
        counter={symbol: _typed(count, int, "count") for symbol, count in counter.items()},
        dataset=_optional(attributes, "dataset", str),
        cutoffs=tuple(_typed(limit, int, "cutoff") for limit in _typed(attributes.get("cutoffs", []), list, "cutoffs")),
        streams={split: _stream(value, split, len(symbols)) for split, value in streams.items()},
    )


def _stream(value, split, n_token):
    if isinstance(value, list):
        return _texts(value, split)
    ids = _typed(value, _Array, split).values
    if ids.size and not 0 <= ids.min() <= ids.max() < n_token:
        raise _RefusedError(f"Expected ids from 0 to {n_token - 1} in the streams. Received: split={split}")
    return ids.astype(ids.dtype.newbyteorder("="), copy=False)


def _optional(attributes, name, kind):
    value = attributes.get(name)
    return None if value is None else _typed(_text(value), kind, name)


def _id(vocabulary, name, n_token):
    value = _optional(vocabulary, name, int)
    if value is not None and not 0 <= value < n_token:
        raise _RefusedError(f"Expected {name} to be the id of a symbol. Received: symbols={n_token}")
    return value


def _typed(value, kind, name):
    if type(value) is not kind:
        raise _RefusedError(f"Expected {name} to be a {kind.__name__}. Received: type={type(value).__name__}")
    return value


def _unpacked(content):
    """Returns the object in the bytes of a file, whichever of the three layouts it has."""
    file = io.BytesIO(_zip_member(content) if content.startswith(b"PK") else content)
    value = _Machine(file).load()
    if type(value) is int and value == _TORCH_MAGIC:
        _, _, value, _ = [_Machine(file).load() for _ in range(4)]  # version, sizes of C's types, ours, keys of tensors
    if file.read(1):
        raise _RefusedError(f"Expected nothing after the pickle. Received: position={file.tell() - 1}")
    return value


def _zip_member(content):
    """Returns the pickle in a zip file of torch.save, which does not compress."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith("/data.pkl")]
        if [member.compress_type for member in members] != [zipfile.ZIP_STORED]:
            raise _RefusedError(f"Expected one data.pkl in a zip file, uncompressed. Received: number={len(members)}")
        return archive.read(members[0])


class _Python2Text(bytes):
    """A str of Python 2: text, or the content of an array."""

    @functools.cached_property
    def text(self):
        try:
            return self.decode("utf-8")
        except UnicodeDecodeError:
            return self.decode("latin-1")


def _texts(values, name):
    return [_typed(_text(value), str, name) for value in _typed(values, list, name)]


def _text(value):
    return value.text if isinstance(value, _Python2Text) else value


class _Instance:
    """Stands for a Corpus or a Vocab."""

    def __init__(self):
        self.attributes = {}

    def set_state(self, state):
        self.attributes = _typed(state, dict, "state")


class _Dtype:
    """Stands for a numpy.dtype of integers."""

    def __init__(self, code, align=False, copy=True):
        if _typed(_text(code), str, "dtype") not in _INTEGERS:
            raise _RefusedError(f"Expected arrays of integers. Received: dtype={ascii(_text(code)[:20])}")
        self.value = np.dtype(_text(code))

    def set_state(self, state):
        byte_order = _typed(state, tuple, "state")[1]
        self.value = self.value.newbyteorder(_typed(_text(byte_order), str, "byte order"))


class _Array:
    """Stands for a numpy.ndarray of one axis."""

    values = np.zeros(0, np.int64)  # as after numpy's _reconstruct, until its state is set

    def set_state(self, state):
        _, shape, dtype, _, data = _typed(state, tuple, "state")
        dtype = _typed(dtype, _Dtype, "dtype").value
        if not isinstance(data, (bytes, bytearray)) or shape != (len(data) // dtype.itemsize,):
            raise _RefusedError(f"Expected an array of one axis, as long as its data. Received: dtype={dtype}")
        self.values = np.frombuffer(data, dtype)


def _new_array(data, dtype, shape, order):
    array = _Array()
    array.set_state((None, shape, dtype, None, data))
    return array


def _new_mapping(items=()):
    return items if isinstance(items, dict) else _filled({}, items)


def _filled(mapping, items):
    for key, value in items:
        mapping[_typed(_text(key), str, "key")] = value
    return mapping


def _bytes_of_text(text, encoding):
    if _typed(encoding, str, "encoding") != "latin1":
        raise _RefusedError(f"Expected _codecs.encode to use latin1. Received: encoding={ascii(encoding[:20])}")
    return _typed(text, str, "text").encode("latin-1")


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


class _Machine:
    """Loads one pickle from a BytesIO."""

    def __init__(self, file):
        self._file = file
        self._budget = len(file.getbuffer())
        self._memo = {}
        self._stack = []
        self._below = []  # the stack under each mark

    def load(self):
        while (code := self._file.read(1)) != pickle.STOP:
            if code not in _STEPS:
                opcode = pickletools.code2op[code.decode("latin-1")].name  # LookupError at the end of the file
                raise _RefusedError(f"Expected no pickle opcode {opcode}. Received: position={self._file.tell() - 1}")
            argument = _READERS[code](self._file) if code in _READERS else None
            _STEPS[code](self, argument)
        return self._stack.pop()

    def push(self, value):
        self._stack.append(value)

    def mark(self, _):
        self._below.append(self._stack)
        self._stack = []

    def above_mark(self):
        values, self._stack = self._stack, self._below.pop()
        return values

    def last(self, count):
        return [self._stack.pop() for _ in range(count)][::-1]

    def put(self, index):
        self._memo[len(self._memo) if index is None else index] = self._stack[-1]

    def get(self, index):
        self.push(self._memo[index])

    def append(self, values):
        _typed(self._stack[-1], list, "target").extend(values)

    def set_items(self, values):
        _filled(_typed(self._stack[-1], dict, "target"), zip(values[::2], values[1::2], strict=True))

    def push_dict(self, values):
        self.push({})
        self.set_items(values)

    def push_named(self, names):
        module, name = (_typed(_text(name), str, "name") for name in names)
        if (module, name) not in _ADMITTED:
            received = ascii(f"{module[:80]}.{name[:80]}")[1:-1]
            raise _RefusedError(f"Expected no other names than those of a corpus. Received: name={received}")
        self.push(_ADMITTED[module, name])

    def call(self, function, arguments):
        self._budget -= sum(len(argument) for argument in arguments if hasattr(argument, "__len__"))
        if self._budget < 0:  # else one long text might become many
            raise _RefusedError(f"Expected no part of a pickle to be used so often. Received: bytes={-self._budget}")
        self.push(function(*arguments))  # values of a pickle cannot be called, so this is one of _ADMITTED

    def reduce(self, _):
        function, arguments = self.last(2)
        self.call(function, _typed(arguments, tuple, "arguments"))

    def make_instance(self, names):
        arguments = self.above_mark()
        self.push_named(names)
        self.call(self._stack.pop(), arguments)

    def build(self, _):
        target, state = self.last(2)
        if not isinstance(target, (_Instance, _Array, _Dtype)):
            raise _RefusedError(f"Expected an object that has a state. Received: type={type(target).__name__}")
        target.set_state(state)
        self.push(target)


def _read_names(file):
    return [file.readline().rstrip(b"\n").decode("utf-8") for _ in range(2)]


def _read_counted(file, size):
    return _Python2Text(file.read(int.from_bytes(file.read(size), "little")))  # when it is short, no STOP follows


def _read_quoted(file):
    line = file.readline()
    if len(line) < 3 or line[:1] not in (b"'", b'"') or line[-2:] != line[:1] + b"\n":
        raise EOFError
    return _Python2Text(_ESCAPED.sub(_unescaped, line[1:-2]))


def _unescaped(match):
    code = match[1]
    return bytes((int(code[1:], 16),)) if len(code) == 3 else {b"n": b"\n", b"r": b"\r", b"t": b"\t"}.get(code, code)


_READERS = {opcode.code.encode("latin-1"): opcode.arg.reader for opcode in pickletools.opcodes if opcode.arg}
_READERS |= {
    **dict.fromkeys((pickle.GLOBAL, pickle.INST), _read_names),
    pickle.STRING: _read_quoted,
    pickle.BINSTRING: functools.partial(_read_counted, size=4),
    pickle.SHORT_BINSTRING: functools.partial(_read_counted, size=1),
}
_VALUES = (
    pickle.INT, pickle.BININT, pickle.BININT1, pickle.BININT2, pickle.LONG, pickle.LONG1, pickle.LONG4,
    pickle.STRING, pickle.BINSTRING, pickle.SHORT_BINSTRING, pickle.UNICODE, pickle.BINUNICODE, pickle.SHORT_BINUNICODE,
    pickle.BINUNICODE8, pickle.BINBYTES, pickle.SHORT_BINBYTES, pickle.BINBYTES8, pickle.BYTEARRAY8,
)  # fmt: skip
_STEPS = dict.fromkeys(_VALUES, _Machine.push) | {  # opcode: what it does with a machine and the argument
    **dict.fromkeys((pickle.PROTO, pickle.FRAME), lambda machine, _: None),
    pickle.NONE: _Machine.push,
    pickle.NEWTRUE: lambda machine, _: machine.push(True),
    pickle.NEWFALSE: lambda machine, _: machine.push(False),
    pickle.EMPTY_TUPLE: lambda machine, _: machine.push(()),
    pickle.EMPTY_LIST: lambda machine, _: machine.push([]),
    pickle.EMPTY_DICT: lambda machine, _: machine.push({}),
    pickle.MARK: _Machine.mark,
    pickle.TUPLE: lambda machine, _: machine.push(tuple(machine.above_mark())),
    pickle.TUPLE1: lambda machine, _: machine.push(tuple(machine.last(1))),
    pickle.TUPLE2: lambda machine, _: machine.push(tuple(machine.last(2))),
    pickle.TUPLE3: lambda machine, _: machine.push(tuple(machine.last(3))),
    pickle.LIST: lambda machine, _: machine.push(machine.above_mark()),
    pickle.DICT: lambda machine, _: machine.push_dict(machine.above_mark()),
    pickle.APPEND: lambda machine, _: machine.append(machine.last(1)),
    pickle.APPENDS: lambda machine, _: machine.append(machine.above_mark()),
    pickle.SETITEM: lambda machine, _: machine.set_items(machine.last(2)),
    pickle.SETITEMS: lambda machine, _: machine.set_items(machine.above_mark()),
    **dict.fromkeys((pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE), _Machine.put),
    **dict.fromkeys((pickle.GET, pickle.BINGET, pickle.LONG_BINGET), _Machine.get),
    pickle.GLOBAL: _Machine.push_named,
    pickle.STACK_GLOBAL: lambda machine, _: machine.push_named(machine.last(2)),
    pickle.INST: _Machine.make_instance,
    **dict.fromkeys((pickle.REDUCE, pickle.NEWOBJ), _Machine.reduce),
    pickle.BUILD: _Machine.build,
}
