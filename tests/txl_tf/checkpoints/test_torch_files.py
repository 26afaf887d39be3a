"""Files of torch.save in both layouts give their tensors; whatever else a pickle in them wants is refused by name and not run."""

import pickle
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from testing.gadgets import COMMAND, GADGETS
from testing.torch_layouts import old_head, old_layout, pretend_torch, zip_layout, zipped
from txl_tf.checkpoints.torch_files import read_torch

LAYOUTS = {"zip": zip_layout, "old": old_layout}
HEADS = {"zip": zipped, "old": lambda pickled: old_head() + pickled + pickle.dumps([], 2)}
ARRAYS = {
    "matrix": np.arange(6, dtype=np.float32).reshape(2, 3), "scalar": np.float32(3).reshape(()), "half": np.array([1.5, -2], np.float16),
    "brain": np.array([0.5, 3], tf.bfloat16.as_numpy_dtype), "empty": np.zeros((0, 3), np.float32),
}
every_layout = pytest.mark.parametrize("layout", LAYOUTS)


def read(folder, content):
    path = folder / "pytorch_model.bin"
    path.write_bytes(content)
    return read_torch(path)


@every_layout
def test_tensors(tmp_path, monkeypatch, layout):
    pretend_torch(monkeypatch)
    found = read(tmp_path, LAYOUTS[layout](ARRAYS))
    assert list(found) == list(ARRAYS)
    for name, array in ARRAYS.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


@pytest.mark.parametrize("old", [False, True])
def test_what_torch_itself_writes(tmp_path, old):
    torch = pytest.importorskip("torch")
    tensors = {name: torch.from_numpy(np.array(array)) for name, array in ARRAYS.items() if name != "brain"}
    tensors["view"] = tensors["matrix"].T[1:]
    torch.save(tensors, tmp_path / "file", _use_new_zipfile_serialization=not old)
    for name, array in read_torch(tmp_path / "file").items():
        np.testing.assert_array_equal(array, tensors[name].numpy())


STORAGE = b"(X\x07\x00\x00\x00storagectorch\nFloatStorage\nX\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQ"
TENSOR = b"ctorch._utils\n_rebuild_tensor_v2\n"
MALICIOUS = {  # name: (a pickle, what the refusal must say)
    **GADGETS,
    "import": (b"cbuiltins\n__import__\n" + COMMAND + b"\x85R.", "name=builtins.__import__"),
    "getattr": (b"cbuiltins\ngetattr\nctorch\nFloatStorage\n" + COMMAND + b"\x86R.", "name=builtins.getattr"),
    "_reconstructor": (b"ccopyreg\n_reconstructor\n(csubprocess\nPopen\ncbuiltins\nobject\nNtR.", "name=copyreg._reconstructor"),
    "torch.hub.load": (b"ctorch.hub\nload\n" + COMMAND + b"\x85R.", "name=torch.hub.load"),
    "an alike name": (b"ctorch._utils\n_rebuild_tensor_v2.__globals__\n.", "name=torch._utils._rebuild_tensor_v2.__globals__"),
    "_import_dotted_name": (b"ctorch._utils\n_import_dotted_name\n" + COMMAND + b"\x85R.", "name=torch._utils._import_dotted_name"),
    "codecs": (b"c_codecs\nencode\n" + COMMAND + b"X\x03\x00\x00\x00zip\x86R.", "name=_codecs.encode"),
    "runpy": (b"crunpy\n_run_code\n" + COMMAND + b"\x85R.", "name=runpy._run_code"),
    "OBJ of an admitted name": (b"(" + TENSOR + b"o.", "opcode OBJ"),
    "NEWOBJ_EX": (b"\x80\x04ccollections\nOrderedDict\n)}\x92.", "opcode NEWOBJ_EX"),
    "BUILD of a class": (b"ctorch\nFloatStorage\n}X\x03\x00\x00\x00foo" + COMMAND + b"sb.", "type=_StorageType"),
    "BUILD of a function": (TENSOR + b"}b.", "Received: type=type"),
    "persistent id, no tuple": (COMMAND + b"Q.", "type=str"),
    "persistent id of another kind": (STORAGE.replace(b"storage", b"process") + b".", "Expected storages outside the pickle"),
    "persistent id, another class": (STORAGE.replace(b"ctorch\nFloatStorage", b"cos\nsystem") + b".", "name=os.system"),
    "persistent id, no class": (STORAGE.replace(b"ctorch\nFloatStorage\n", b"N") + b".", "type=NoneType"),
    "no state_dict": (b"]" + b".", "the state_dict to be a dict. Received: type=list"),
    "no tensor": (b"}X\x01\x00\x00\x00aK\x01s.", "a to be a _Tensor. Received: type=int"),
    "a tensor without a storage": (b"}X\x01\x00\x00\x00a" + TENSOR + b"(NK\x00))\x89}tRs.", "storage to be a _Storage. Received: type=NoneType"),
}  # fmt: skip


@every_layout
@pytest.mark.parametrize("name", MALICIOUS)
def test_nothing_in_a_file_is_run(tmp_path, monkeypatch, layout, name):
    monkeypatch.chdir(tmp_path)
    pickled, complaint = MALICIOUS[name]
    with pytest.raises(ValueError, match="^(?s:.*)path=.*pytorch_model.bin$") as caught:
        read(tmp_path, HEADS[layout](pickled))
    assert complaint in str(caught.value)
    assert not Path("marker").exists()


@pytest.mark.parametrize("name", ["os.system", "INST", "STACK_GLOBAL"])
def test_what_is_malicious_is_dangerous(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    pickle.loads(MALICIOUS[name][0])
    assert Path("marker").exists()


SHAPES = {  # (offset, size, stride) of a tensor over four values
    "an offset beyond the end": (4, (1,), (1,)), "a negative offset": (-1, (1,), (1,)), "too many rows": (0, (3, 2), (2, 1)),
    "a wide stride": (0, (2,), (4,)), "a negative stride": (3, (2,), (-1,)), "a negative size": (0, (-1,), (1,)),
    "another number of strides": (0, (2, 2), (1,)),
}


@every_layout
@pytest.mark.parametrize("shape", SHAPES)
def test_tensors_stay_in_their_storage(tmp_path, monkeypatch, layout, shape):
    pretend_torch(monkeypatch)
    monkeypatch.setattr("testing.torch_layouts._Pickled.__init__", _with_shape(SHAPES[shape]))
    content = LAYOUTS[layout]({"a": np.arange(4, dtype=np.float32)})
    with pytest.raises(ValueError, match="path must be an undamaged file of torch.save"):
        read(tmp_path, content)


def _with_shape(shape):
    def start(self, storage, *_):
        self.arguments = (storage, *shape, False, {})
    return start


@every_layout
def test_a_file_that_was_cut_off_is_refused(tmp_path, monkeypatch, layout):
    pretend_torch(monkeypatch)
    content = LAYOUTS[layout](ARRAYS)
    for size in range(0, len(content) - 1, max(1, len(content) // 60)):
        with pytest.raises(ValueError, match="path="):
            read(tmp_path, content[:size])
