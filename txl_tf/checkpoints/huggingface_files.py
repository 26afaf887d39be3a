"""The files of weights in a folder of Hugging Face's: one file or several, in each of its formats."""

import json
import os

from txl_tf.checkpoints.hdf5 import read_hdf5
from txl_tf.checkpoints.safetensors import read_safetensors
from txl_tf.checkpoints.torch_files import read_torch

FILES = {"model.safetensors": read_safetensors, "pytorch_model.bin": read_torch, "tf_model.h5": read_hdf5}  # the first that is there is read
_SCOPES = ("transformer", "crit")  # how the names of variables begin, after those of the TensorFlow model and of groups in a file
_WEIGHTS = {"kernel": "weight", "embeddings": "weight", "gamma": "weight", "beta": "bias"}
_TRANSPOSED = {"kernel", "emb_projs", "out_projs"}
INDEX = ".index.json"  # ends the name of a file that says which tensor is in which of several files


def read_weights(folder):
    """Returns {name: array} of all tensors in a folder, under the names of its PyTorch code; they are read-only and lie in the files.

    Raises:
        ValueError: if there is no file of weights, or one is missing or damaged.
    """
    for name, read in FILES.items():
        if os.path.isfile(os.path.join(folder, name)):
            return _renamed(read(os.path.join(folder, name)))
        if os.path.isfile(os.path.join(folder, name + INDEX)):
            return _renamed(_read_shards(folder, name + INDEX, read))
    raise ValueError(f"folder must hold {' or '.join(FILES)}, or such an {INDEX[1:]}. Received: folder={folder}")


def _read_shards(folder, index, read):
    arrays = {}
    for name in _shards(folder, index):
        if not os.path.isfile(os.path.join(folder, name)):
            raise ValueError(f"folder must hold all files that {index} names. Received: {name} missing, folder={folder}")
        arrays.update(read(os.path.join(folder, name)))
    return arrays


def _shards(folder, index):
    """Returns the names of the files that an index names, all of which lie beside it."""
    try:
        with open(os.path.join(folder, index), encoding="utf-8") as file:
            names = sorted(set(json.load(file)["weight_map"].values()))
        if not names or any(os.path.basename(name) != name for name in names):
            raise ValueError("files beside it are expected")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"{index} must name the file of every tensor ({type(error).__name__}: {error}). Received: folder={folder}") from error
    return names


def _renamed(arrays):
    """Returns arrays that TensorFlow classes named, such as ".../layers_._0/dec_attn/qkv_net/kernel:0", as PyTorch's; others remain."""
    renamed = {}
    for name, array in arrays.items():
        parts = name.split("/")
        start = max((place for place, part in enumerate(parts) if part in _SCOPES), default=0)
        *scopes, last = "/".join(parts[start:]).removesuffix(":0").replace("_._", "/").split("/")
        transposed = scopes and not _TRANSPOSED.isdisjoint([*scopes, last])
        renamed[".".join([*scopes, _WEIGHTS.get(last, last)])] = array.T if transposed else array
    return renamed
