"""HDF5 files: values as they are, from their place in the file; what is damaged or lies elsewhere is refused."""

import h5py
import numpy as np
import pytest

from txl_tf.checkpoints.hdf5 import read_hdf5

ARRAYS = {"a/b:0": np.arange(6, dtype=np.float32).reshape(2, 3), "c": np.float16([1, 2]), "d/e/f": np.arange(3), "g/scalar": np.float32(4)}


def write(path, **settings):
    with h5py.File(path, "w") as file:
        for name, array in ARRAYS.items():
            file.create_dataset(name, data=array, **settings if np.ndim(array) else {})
    return path


@pytest.mark.parametrize("settings", [{}, {"compression": "gzip"}])
def test_values(tmp_path, settings):
    found = read_hdf5(write(tmp_path / "m.h5", **settings))
    assert found.keys() == ARRAYS.keys()
    for name, array in ARRAYS.items():
        np.testing.assert_array_equal(found[name], array)
        assert settings or isinstance(found[name], np.memmap)


@pytest.mark.parametrize("kind", ["external", "virtual", "link", "text"])
def test_nothing_of_another_file_is_read(tmp_path, kind):
    (tmp_path / "secret").write_bytes(bytes(range(40)))
    write(tmp_path / "other.h5")
    with h5py.File(write(tmp_path / "m.h5"), "a") as file:
        if kind == "external":
            file.create_dataset("x", (10,), np.float32, external=[(str(tmp_path / "secret"), 0, 40)])
        elif kind == "virtual":
            layout = h5py.VirtualLayout((2,), np.float16)
            layout[:] = h5py.VirtualSource(str(tmp_path / "other.h5"), "c", (2,))
            file.create_virtual_dataset("x", layout)
        elif kind == "link":
            file["x"] = h5py.ExternalLink(str(tmp_path / "other.h5"), "c")
        else:
            file["x"] = "text"
    if kind == "link":
        assert read_hdf5(tmp_path / "m.h5").keys() == ARRAYS.keys()
        return
    with pytest.raises(ValueError, match=r"path must be an undamaged HDF5 file \(ValueError: x holds no numbers in this file\). Received: path="):
        read_hdf5(tmp_path / "m.h5")


def test_a_damaged_file_is_refused(tmp_path):
    content = write(tmp_path / "m.h5").read_bytes()
    for size in range(0, len(content) - 1, len(content) // 20):
        (tmp_path / "cut.h5").write_bytes(content[:size])
        with pytest.raises(ValueError, match="path must be an undamaged HDF5 file .*Received: path="):
            read_hdf5(tmp_path / "cut.h5")
