"""The safetensors format: the length of a JSON header in eight bytes, the header, the values of all tensors."""

import json
import math
import mmap
import os

import numpy as np
import tensorflow as tf

DTYPES = {"F64": np.float64, "F32": np.float32, "F16": np.float16, "BF16": tf.bfloat16.as_numpy_dtype, "I64": np.int64, "I32": np.int32}


def read_safetensors(path):
    """Returns {name: array} of a safetensors file; the arrays are read-only and lie in the file, of which nothing is copied.

    The format: https://huggingface.co/docs/safetensors.

    Raises:
        ValueError: if the file is damaged or holds tensors of another type than DTYPES.
    """
    try:
        with open(path, "rb") as file:
            content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        start = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:start].decode("utf-8"))
        values = memoryview(content)[start:]
        return {name: _tensor(values, **entry) for name, entry in header.items() if name != "__metadata__"}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"path must be an undamaged safetensors file ({type(error).__name__}: {error}). Received: path={path}") from error


def _tensor(values, dtype, shape, data_offsets):
    if dtype not in DTYPES:
        raise ValueError(f"its tensors must be of {', '.join(DTYPES)}, not {dtype}")
    dtype, (begin, end) = np.dtype(DTYPES[dtype]), data_offsets
    if not 0 <= begin <= end <= len(values) or end - begin != math.prod(shape) * dtype.itemsize:
        raise ValueError(f"a tensor of shape {shape} lies from {begin} to {end}")
    return np.frombuffer(values[begin:end], dtype).reshape(shape)


def write_safetensors(path, arrays):
    """Writes {name: float32 array} as a safetensors file."""
    header, end = {"__metadata__": {"format": "pt"}}, 0
    for name, array in arrays.items():
        begin, end = end, end + array.nbytes
        header[name] = {"dtype": "F32", "shape": list(array.shape), "data_offsets": [begin, end]}
    text = json.dumps(header, separators=(",", ":")).encode("utf-8")
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for array in arrays.values():
            file.write(np.ascontiguousarray(array, "<f4").tobytes())
        file.flush()
        os.fsync(file.fileno())
