"""Files of weights of Hugging Face's: the same tensors in every format, in one file or several."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from testing.torch_layouts import old_layout, pretend_torch, zip_layout
from txl_tf.checkpoints.huggingface_files import FILES, INDEX, read_weights
from txl_tf.checkpoints.safetensors import read_safetensors, write_safetensors

GOLDEN = Path(__file__).parents[2] / "golden" / "hf" / "1_div4_tied"
ARRAYS = {f"transformer.{name}": np.full((2, 3), place, np.float32) for place, name in enumerate("abcde")}


def write_shards(folder, name="model.safetensors", write=write_safetensors):
    """Writes ARRAYS as two files and their index."""
    shards = {f"part-{number}": names for number, names in enumerate((list(ARRAYS)[:2], list(ARRAYS)[2:]))}
    for shard, names in shards.items():
        write(folder / shard, {name: ARRAYS[name] for name in names})
    index = {"metadata": {}, "weight_map": {name: shard for shard, names in shards.items() for name in names}}
    (folder / f"{name}{INDEX}").write_text(json.dumps(index))


def same(found, expected):
    assert found.keys() == expected.keys()
    for name in found:
        np.testing.assert_array_equal(found[name], expected[name])


@pytest.mark.parametrize("name", FILES)
def test_every_format_holds_the_same(name, tmp_path):
    expected = read_safetensors(GOLDEN / "model.safetensors")
    shutil.copy(GOLDEN / name, tmp_path)
    found = read_weights(tmp_path)
    assert set(expected) - set(found) <= {"transformer.pos_emb.inv_freq"}
    same({tensor: found[tensor] for tensor in expected if tensor in found}, {tensor: expected[tensor] for tensor in found if tensor in expected})
    assert all(tensor.startswith(("crit.out_layers", "crit.out_projs")) for tensor in set(found) - set(expected))


def test_several_files(tmp_path):
    write_shards(tmp_path)
    same(read_weights(tmp_path), ARRAYS)


@pytest.mark.parametrize("layout", [zip_layout, old_layout])
def test_several_files_of_torch(layout, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        pretend_torch(patch)
        write_shards(tmp_path, "pytorch_model.bin", lambda path, arrays: path.write_bytes(layout(arrays)))
    same(read_weights(tmp_path), ARRAYS)


def test_names_of_tensorflow_in_another_format(tmp_path):
    matrix = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_safetensors(tmp_path / "model.safetensors", {"transformer/layers_._1/dec_attn/qkv_net/kernel:0": matrix, "crit/out_layers_._0_._bias:0": matrix[0]})
    same(read_weights(tmp_path), {"transformer.layers.1.dec_attn.qkv_net.weight": matrix.T, "crit.out_layers.0.bias": matrix[0]})


@pytest.mark.parametrize("index, message", [
    ({"weight_map": {"a": "../part-0"}}, "must name the file of every tensor .*files beside it.*Received: folder="),
    ({"weight_map": {}}, "must name the file of every tensor"), ({"weight_map": [1]}, "must name the file"), ([], "must name the file"),
    ({"weight_map": {"a": "part-9"}}, "folder must hold all files that model.safetensors.index.json names. Received: part-9 missing, folder="),
    ({"weight_map": {"a": 3}}, "must name the file"),
])
def test_a_wrong_index_is_refused(index, message, tmp_path):
    write_shards(tmp_path)
    (tmp_path / f"model.safetensors{INDEX}").write_text(json.dumps(index))
    with pytest.raises(ValueError, match=message):
        read_weights(tmp_path)


def test_a_folder_without_weights_is_refused(tmp_path):
    with pytest.raises(ValueError, match="folder must hold model.safetensors or pytorch_model.bin or tf_model.h5, or .*Received: folder="):
        read_weights(tmp_path)
