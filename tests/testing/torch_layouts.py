"""The two layouts of torch.save, written without torch."""

import io
import pickle
import struct
import sys
import types
import zipfile

import numpy as np

MAGIC, PROTOCOL, SYSTEM = 0x1950A86A20F9469CFC6C, 1001, {"protocol_version": 1001, "little_endian": True}
STORAGES = {"float32": "FloatStorage", "float64": "DoubleStorage", "float16": "HalfStorage", "bfloat16": "BFloat16Storage"}


class _Storage:
    def __init__(self, key, array):
        self.key, self.array = key, array


class _Pickled:
    """A tensor that is pickled as torch's are."""

    def __init__(self, storage, offset, size, stride):
        self.arguments = (storage, offset, size, stride, False, {})

    def __reduce__(self):
        return sys.modules["torch._utils"]._rebuild_tensor_v2, self.arguments


class _Pickler(pickle.Pickler):
    view = False

    def persistent_id(self, value):
        if not isinstance(value, _Storage):
            return None
        kind = getattr(sys.modules["torch"], STORAGES[value.array.dtype.name])
        key = ("storage", kind, value.key, "cpu", value.array.size)
        return key if not self.view else (*key, None)


def pretend_torch(monkeypatch):
    """Makes what a state_dict names importable, as pickle demands of it."""
    torch, inner = types.ModuleType("torch"), types.ModuleType("torch._utils")
    for name in STORAGES.values():
        setattr(torch, name, type(name, (), {"__module__": "torch", "__qualname__": name}))

    def _rebuild_tensor_v2(*arguments):
        raise AssertionError("must not be called")

    _rebuild_tensor_v2.__module__, _rebuild_tensor_v2.__qualname__ = "torch._utils", "_rebuild_tensor_v2"
    inner._rebuild_tensor_v2 = _rebuild_tensor_v2
    monkeypatch.setitem(sys.modules, "torch", torch)
    monkeypatch.setitem(sys.modules, "torch._utils", inner)


def zip_layout(arrays):
    """Returns the bytes of a file of torch.save since 2020."""
    pickled, storages = _pickled(arrays, view=False)
    return zipped(pickled, storages)


def zipped(pickled, storages=()):
    """Returns the bytes of a zip file with a pickle and the values of storages."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/byteorder", "little")
        for storage in storages:
            archive.writestr(f"archive/data/{storage.key}", storage.array.tobytes())
    return file.getvalue()


def old_layout(arrays):
    """Returns the bytes of a file of torch.save before 2020."""
    pickled, storages = _pickled(arrays, view=True)
    values = b"".join(struct.pack("<q", storage.array.size) + storage.array.tobytes() for storage in storages)
    return old_head() + pickled + pickle.dumps([storage.key for storage in storages], 2) + values


def old_head():
    """Returns the bytes before the pickle of the older layout."""
    return b"".join(pickle.dumps(part, 2) for part in (MAGIC, PROTOCOL, SYSTEM))


def _pickled(arrays, view):
    storages, tensors = [], {}
    for name, array in arrays.items():
        storages.append(_Storage(str(len(storages)), np.ascontiguousarray(array).reshape(-1)))
        strides = tuple(stride // array.itemsize for stride in np.ascontiguousarray(array).strides)
        tensors[name] = _Pickled(storages[-1], 0, array.shape, strides if array.ndim else ())
    file = io.BytesIO()
    pickler = _Pickler(file, 2)
    pickler.view = view
    pickler.dump(tensors)
    return file.getvalue(), storages
