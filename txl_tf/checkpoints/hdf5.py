"""The arrays of an HDF5 file, such as Hugging Face's tf_model.h5."""

import h5py
import numpy as np

_DAMAGE = (OSError, ValueError, KeyError, TypeError, RuntimeError, AttributeError)  # what h5py raises on broken bytes


def read_hdf5(path):
    """Returns {path within the file: array} of an HDF5 file; the arrays are read-only and, where they lie there in one piece, in the file.

    Raises:
        ValueError: if the file is damaged, its values lie in other files, or are no numbers.
    """
    arrays = {}

    def visit(name, item):
        if isinstance(item, h5py.Dataset):
            arrays[name] = _array(path, name, item)

    try:
        with h5py.File(path, "r") as file:
            file.visititems(visit)  # follows no link to another file
    except _DAMAGE as error:
        raise ValueError(f"path must be an undamaged HDF5 file ({type(error).__name__}: {error}). Received: path={path}") from error
    return arrays


def _array(path, name, dataset):
    if dataset.external or dataset.is_virtual or dataset.dtype.kind not in "fi":
        raise ValueError(f"{name} holds no numbers in this file")
    place = dataset.id.get_offset()  # None where they lie in pieces, or are compressed
    return dataset[()] if place is None else np.memmap(path, dataset.dtype, "r", place, dataset.shape)
