"""Tensors that torch.save wrote, in its zip layout or the one of before 2020, read without torch and without running anything."""

import io
import mmap
import zipfile

import numpy as np
import tensorflow as tf

from data_utils.pickle_machine import DAMAGE, PickleMachine, RefusedError, typed

MAGIC, PROTOCOL = 0x1950A86A20F9469CFC6C, 1001  # how a file of the older layout begins
DTYPES = {"FloatStorage": np.float32, "DoubleStorage": np.float64, "HalfStorage": np.float16,
          "BFloat16Storage": tf.bfloat16.as_numpy_dtype, "LongStorage": np.int64, "IntStorage": np.int32,
          "ShortStorage": np.int16, "CharStorage": np.int8, "ByteStorage": np.uint8, "BoolStorage": np.bool_}


def read_torch(path):
    """Returns {name: array} of a state_dict in a file of torch.save; the arrays are read-only and lie in the file.

    The pickle in it may name only what a state_dict consists of: collections.OrderedDict, the functions that rebuild tensors
    and parameters, and the classes of storages.

    Raises:
        ValueError: if the file is damaged, names anything else, or holds something else than a dict of tensors.
    """
    try:
        with open(path, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        tensors = typed(_from_zip(content) if content[:2] == b"PK" else _from_old_layout(content), dict, "the state_dict")
        return {name: typed(tensor, _Tensor, name).array() for name, tensor in tensors.items()}
    except RefusedError as error:
        raise ValueError(f"{error}, path={path}") from None
    except DAMAGE as error:
        raise ValueError(f"path must be an undamaged file of torch.save ({type(error).__name__}: {error}). Received: path={path}") from error


def _from_zip(content):
    members = {member.filename.partition("/")[2]: member for member in zipfile.ZipFile(content).infolist()}
    if any(member.compress_type != zipfile.ZIP_STORED for member in members.values()):
        raise RefusedError("Expected a zip file whose members are not compressed. Received: compressed members")
    if "byteorder" in members and bytes(_member(content, members["byteorder"])) != b"little":
        raise RefusedError("Expected numbers in little-endian order. Received: byteorder=big")
    pickled = _member(content, members["data.pkl"])
    return _TensorMachine(io.BytesIO(pickled), len(pickled), lambda key, size: _member(content, members[f"data/{key}"])).load()


def _member(content, member):
    """Returns the bytes of a zip file's member, where they lie."""
    names = member.header_offset + 26  # in front of its data stand the lengths of a name and of an extra field, and these
    start = names + 4 + sum(int.from_bytes(content[at:at + 2], "little") for at in (names, names + 2))
    if not 0 <= start <= start + member.file_size <= len(content):
        raise EOFError("a member goes beyond the end")
    return memoryview(content)[start:start + member.file_size]


def _from_old_layout(content):
    storages = {}

    def find(key, size):
        storages.setdefault(key, [size, None])
        return storages[key]

    if _TensorMachine(content, len(content)).load() != MAGIC or _TensorMachine(content, len(content)).load() != PROTOCOL:
        raise RefusedError("Expected a file of torch.save. Received: other first bytes")
    if typed(_TensorMachine(content, len(content)).load(), dict, "the system").get("little_endian") is not True:
        raise RefusedError("Expected numbers in little-endian order. Received: little_endian=False")
    value = _TensorMachine(content, len(content), find).load()
    keys = typed(_TensorMachine(content, len(content)).load(), list, "the keys")
    place = content.tell()
    for key in keys:
        size, count = storages[key][0], int.from_bytes(content[place:place + 8], "little")
        storages[key][1] = memoryview(content)[place + 8:place + 8 + count * size]
        place += 8 + count * size
    return value


class _StorageType:
    """Stands for one of torch's classes of storages."""

    def __init__(self, name):
        self.dtype = np.dtype(DTYPES[name])


class _Storage:
    """The values that tensors share: a buffer, or [size of a value, buffer] where it is found only later."""

    def __init__(self, kind, buffer, count, start=0):
        self.dtype = kind.dtype
        self._buffer = buffer
        self._count = count
        self._start = start

    def values(self):
        buffer = self._buffer[1] if isinstance(self._buffer, list) else self._buffer
        values = np.frombuffer(buffer, self.dtype)
        if not 0 <= self._start <= self._start + self._count <= len(values):
            raise EOFError("a storage goes beyond the end")
        return values[self._start:self._start + self._count]


class _Tensor:
    """A tensor's place in a storage."""

    def __init__(self, storage, offset, size, stride, *_):
        self._storage = typed(storage, _Storage, "storage")
        self._offset = typed(offset, int, "offset")
        self._size, self._stride = ([typed(number, int, "size") for number in typed(numbers, tuple, "size")] for numbers in (size, stride))

    def array(self):
        values = self._storage.values()
        last = self._offset + sum((size - 1) * stride for size, stride in zip(self._size, self._stride, strict=True))
        if min(self._offset, *self._size, *self._stride, 0) < 0 or (0 not in self._size and last >= len(values)):
            raise EOFError("a tensor goes beyond the end")
        strides = [stride * values.itemsize for stride in self._stride]
        return np.lib.stride_tricks.as_strided(values[self._offset:], self._size, strides, writeable=False)


def _parameter(tensor, *_):
    return typed(tensor, _Tensor, "tensor")


class _TensorMachine(PickleMachine):
    """Loads one pickle of a state_dict; find(key, size of a value) returns the bytes of a storage."""

    subject = "a state_dict"
    admitted = {
        ("collections", "OrderedDict"): dict,
        ("torch._utils", "_rebuild_tensor"): _Tensor,
        ("torch._utils", "_rebuild_tensor_v2"): _Tensor,
        ("torch._utils", "_rebuild_parameter"): _parameter,
        **{("torch", name): _StorageType(name) for name in DTYPES},
    }

    def __init__(self, file, size, find=None):
        super().__init__(file, size)
        self._find = find

    def find_persistent(self, key):
        if self._find is None:
            return super().find_persistent(key)
        tag, kind, key, _, count, *view = typed(key, tuple, "the key of a storage")
        if tag != "storage":
            raise RefusedError("Expected storages outside the pickle. Received: something else")
        kind, count = typed(kind, _StorageType, "the type of a storage"), typed(count, int, "the size of a storage")
        buffer = self._find(typed(key, str, "the key of a storage"), kind.dtype.itemsize)
        if view and view[0] is not None:
            _, start, count = typed(view[0], tuple, "the view of a storage")
            return _Storage(kind, buffer, typed(count, int, "the size of a view"), typed(start, int, "the start of a view"))
        return _Storage(kind, buffer, count)

    def set_state(self, target, state):
        if type(target) is not dict:  # a state_dict's state has the versions of its modules
            super().set_state(target, state)
