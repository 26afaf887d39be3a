"""safetensors files are read and written, and damaged ones refused."""

import json

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.checkpoints.safetensors import read_safetensors, write_safetensors

ARRAYS = {"b": np.arange(6, dtype=np.float32).reshape(2, 3), "a": np.float32(7).reshape(()), "none": np.zeros((0, 2), np.float32)}


def file_of(path, header, values=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + values)
    return path


def test_what_is_written_is_read(tmp_path):
    write_safetensors(tmp_path / "file", ARRAYS)
    found = read_safetensors(tmp_path / "file")
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert found[name].shape == array.shape and not found[name].flags.writeable
        np.testing.assert_array_equal(found[name], array)
    assert json.loads((tmp_path / "file").read_bytes()[8:].split(b"}}")[0] + b"}}")["__metadata__"] == {"format": "pt"}


@pytest.mark.parametrize("name, dtype", [("BF16", tf.bfloat16.as_numpy_dtype), ("F16", np.float16), ("F64", np.float64), ("I64", np.int64)])
def test_other_types(tmp_path, name, dtype):
    array = np.array([1, -2, 3]).astype(dtype)
    path = file_of(tmp_path / "file", {"a": {"dtype": name, "shape": [3], "data_offsets": [0, array.nbytes]}}, array.tobytes())
    np.testing.assert_array_equal(read_safetensors(path)["a"], array)


@pytest.mark.parametrize("header", [
    b"", b"no json", b"[]", b"[" * 10_000, {"a": 5}, {"a": {"dtype": "F32", "shape": [1]}},
    *({"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4], **change}} for change in (
        {"dtype": "F8"}, {"shape": [2]}, {"shape": [-1, -1]}, {"shape": ["1"]}, {"data_offsets": [4, 8]}, {"data_offsets": [-4, 0]},
        {"data_offsets": [0]}, {"extra": 1})),
], ids=lambda header: str(header)[:40])
def test_a_damaged_file_is_refused(tmp_path, header):
    with pytest.raises(ValueError, match="path must be an undamaged safetensors file .* Received: path="):
        read_safetensors(file_of(tmp_path / "file", header, b"1234"))


@pytest.mark.parametrize("content", [b"", b"\x10", b"\xff" * 8])
def test_a_short_file_is_refused(tmp_path, content):
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match="path must be an undamaged safetensors file"):
        read_safetensors(tmp_path / "file")
