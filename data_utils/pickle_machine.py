"""Reads pickles without running anything in them: a machine that goes through the opcodes itself.

`pickle.Unpickler` with a strict `find_class` would not do: it allocates as much as a memo index in the file says, and
overflows the stack when it hashes tuples that are nested deeply enough. `PickleMachine` calls nothing but what it is told
to admit and hashes nothing but texts, and its time and memory grow in proportion to the file.
"""

import functools
import pickle
import pickletools
import re
import struct
import zipfile

_ESCAPED = re.compile(rb"\\(x[0-9a-fA-F]{2}|.)", re.DOTALL)


DAMAGE = (ArithmeticError, AttributeError, EOFError, LookupError, OSError, RuntimeError, TypeError, ValueError,
          struct.error, zipfile.BadZipFile)  # what reading broken bytes raises


class RefusedError(Exception):
    """A sentence on what a file holds, without the file's name."""


class Python2Text(bytes):
    """A str of Python 2: text, or the content of an array."""

    @functools.cached_property
    def text(self):
        try:
            return self.decode("utf-8")
        except UnicodeDecodeError:
            return self.decode("latin-1")


def text_of(value):
    """Returns a value, as str if it is one of Python 2."""
    return value.text if isinstance(value, Python2Text) else value


def typed(value, kind, name):
    """Returns a value. Raises RefusedError unless it is of exactly one type."""
    if type(value) is not kind:
        raise RefusedError(f"Expected {name} to be a {kind.__name__}. Received: type={type(value).__name__}")
    return value


def filled(mapping, items):
    """Returns a dict after more items, whose keys must be text."""
    for key, value in items:
        mapping[typed(text_of(key), str, "key")] = value
    return mapping


class PickleMachine:
    """Loads one pickle. A subclass says what is admitted.

    Args:
        file: what has read, readline and tell, as a BytesIO or a mmap.
        size: bytes in the file.

    Attributes:
        subject: what the pickles hold, for messages.
        admitted: {(module, name): what is called in its place}.
        stateful: tuple of the classes whose set_state takes what BUILD gives.
    """

    subject = "plain values"
    admitted = {}
    stateful = ()

    def __init__(self, file, size):
        self._file = file
        self._budget = size
        self._memo = {}
        self._stack = []
        self._below = []  # the stack under each mark

    def load(self):
        """Returns the object; the file stands behind its pickle then. Raises RefusedError, or one of DAMAGE."""
        while (code := self._file.read(1)) != pickle.STOP:
            if code not in _STEPS:
                opcode = pickletools.code2op[code.decode("latin-1")].name  # LookupError at the end of the file
                raise RefusedError(f"Expected no pickle opcode {opcode}. Received: position={self._file.tell() - 1}")
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
        typed(self._stack[-1], list, "target").extend(values)

    def set_items(self, values):
        filled(typed(self._stack[-1], dict, "target"), zip(values[::2], values[1::2], strict=True))

    def push_dict(self, values):
        self.push({})
        self.set_items(values)

    def push_named(self, names):
        module, name = (typed(text_of(name), str, "name") for name in names)
        if (module, name) not in self.admitted:
            received = ascii(f"{module[:80]}.{name[:80]}")[1:-1]
            raise RefusedError(f"Expected no other names than those of {self.subject}. Received: name={received}")
        self.push(self.admitted[module, name])

    def call(self, function, arguments):
        self._budget -= sum(len(argument) for argument in arguments if hasattr(argument, "__len__"))
        if self._budget < 0:  # else one long text might become many
            raise RefusedError(f"Expected no part of a pickle to be used so often. Received: bytes={-self._budget}")
        self.push(function(*arguments))  # values of a pickle cannot be called, so this is one of those admitted

    def reduce(self, _):
        function, arguments = self.last(2)
        self.call(function, typed(arguments, tuple, "arguments"))

    def make_instance(self, names):
        arguments = self.above_mark()
        self.push_named(names)
        self.call(self._stack.pop(), arguments)

    def build(self, _):
        target, state = self.last(2)
        self.set_state(target, state)
        self.push(target)

    def set_state(self, target, state):
        """Gives an object the state that BUILD has for it."""
        if not isinstance(target, self.stateful):
            raise RefusedError(f"Expected an object that has a state. Received: type={type(target).__name__}")
        target.set_state(state)

    def find_persistent(self, key):
        """Returns what lies outside the pickle under a key; nothing does here."""
        raise RefusedError(f"Expected no pickle opcode BINPERSID. Received: position={self._file.tell() - 1}")


def _read_names(file):
    return [file.readline().rstrip(b"\n").decode("utf-8") for _ in range(2)]


def _read_counted(file, size):
    return Python2Text(file.read(int.from_bytes(file.read(size), "little")))  # when it is short, no STOP follows


def _read_quoted(file):
    line = file.readline()
    if len(line) < 3 or line[:1] not in (b"'", b'"') or line[-2:] != line[:1] + b"\n":
        raise EOFError
    return Python2Text(_ESCAPED.sub(_unescaped, line[1:-2]))


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
_STEPS = dict.fromkeys(_VALUES, PickleMachine.push) | {  # opcode: what it does with a machine and the argument
    **dict.fromkeys((pickle.PROTO, pickle.FRAME), lambda machine, _: None),
    pickle.NONE: PickleMachine.push,
    pickle.NEWTRUE: lambda machine, _: machine.push(True),
    pickle.NEWFALSE: lambda machine, _: machine.push(False),
    pickle.EMPTY_TUPLE: lambda machine, _: machine.push(()),
    pickle.EMPTY_LIST: lambda machine, _: machine.push([]),
    pickle.EMPTY_DICT: lambda machine, _: machine.push({}),
    pickle.MARK: PickleMachine.mark,
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
    **dict.fromkeys((pickle.PUT, pickle.BINPUT, pickle.LONG_BINPUT, pickle.MEMOIZE), PickleMachine.put),
    **dict.fromkeys((pickle.GET, pickle.BINGET, pickle.LONG_BINGET), PickleMachine.get),
    pickle.GLOBAL: PickleMachine.push_named,
    pickle.STACK_GLOBAL: lambda machine, _: machine.push_named(machine.last(2)),
    pickle.INST: PickleMachine.make_instance,
    **dict.fromkeys((pickle.REDUCE, pickle.NEWOBJ), PickleMachine.reduce),
    pickle.BUILD: PickleMachine.build,
    pickle.BINPERSID: lambda machine, _: machine.push(machine.find_persistent(*machine.last(1))),
}
