"""The original TensorFlow code's numbers, one after another: losses, hidden states, memories, gradients, and its checkpoints."""

import functools
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import tiny_model
from txl_tf import ModelConfig, TransformerXLLM
from txl_tf.attention.relative import sinusoid
from txl_tf.checkpoints.tf1 import load_tf1_checkpoint, save_tf1_checkpoint, tf1_entries, tf1_settings
from txl_tf.memory import visible_keys

GOLDEN = Path(__file__).parents[2] / "golden" / "tf1"
CONFIGS = [
    "01_char_tied",
    "02_char_untie_r",
    "03_cutoffs_div1",
    "04_wt103_large_style",
    "05_lm1b_large_style",
    "06_same_length_clamp",
    "06b_same_length_mem_lt_tgt",
    "07_mem_len0",
    "07b_mem_len0_same_length",
    "07c_mems_none",
    "08_dembed_ne_dmodel",
    "08c_dembed_ne_dmodel_cutoffs_noshare",
    "09_tgt_gt_mem",
    "12_wt103_base_style",
]
SETTINGS = ("n_token n_layer d_model d_embed n_head d_head d_inner tgt_len mem_len same_length clamp_len untie_r cutoffs div_val "
            "proj_share_all_but_first proj_same_dim").split()
SEGMENTS, SEGMENTS_WITH_GRADIENTS, ROWS = 4, 2, 3

every_config = pytest.mark.parametrize("name", CONFIGS)


def settings_of(name):
    """Returns the original's settings of a golden folder."""
    return json.loads((GOLDEN / name / "config.json").read_text())


def config_of(name, **overrides):
    """Returns the ModelConfig of a golden folder."""
    settings = settings_of(name)
    start = "empty" if settings["mems_none"] else "zeros"
    return ModelConfig(**{**{key: settings[key] for key in SETTINGS}, "memory_start": start, **overrides})


def load(name, **overrides):
    """Returns the model of a golden folder."""
    return load_tf1_checkpoint(GOLDEN / name / "model.ckpt", config_of(name, **overrides))


@functools.lru_cache(maxsize=None)
def replay(name):
    """Returns for each segment of a golden folder what the model makes of it, and what the original made, both batch first."""
    model, arrays = load(name), np.load(GOLDEN / name / "segments.npz")
    memory, segments = model.initial_memory(ROWS), []
    for index in range(SEGMENTS):
        golden = {key: batch_first(key, arrays[f"seg{index}/{key}"]) for key in
                  ("inputs", "targets", "loss", "nll", "new_mems", "emb", "hidden", "attn_mask", "pos_emb")}
        if settings_of(name)["mems_none"]:
            memory = model.initial_memory(ROWS, mem_len=golden["inputs"].shape[1])
        ours, after = read(model, golden["inputs"], golden["targets"], memory)
        segments.append((ours, golden))
        memory = after
    return segments


def batch_first(key, array):
    """Returns one of the original's time-major arrays batch first."""
    axes = {"new_mems": (2, 0, 1, 3), "emb": (1, 0, 2), "hidden": (1, 0, 2), "inputs": (1, 0), "targets": (1, 0), "nll": (1, 0)}
    return array.transpose(axes[key]) if key in axes else array


def read(model, token_ids, labels, memory):
    """Returns what the model makes of a segment, and the memory after it."""
    with tf.GradientTape() as tape:
        nll, after = model.nll(token_ids, labels, memory)
        loss = tf.reduce_mean(nll)
    gradients = tape.gradient(loss, model.trainable_variables)
    by_variable = {id(variable): tf.convert_to_tensor(gradient).numpy()
                   for variable, gradient in zip(model.trainable_variables, gradients)}
    hidden, _ = model.backbone((tf.constant(token_ids), memory))
    mem_len, query_len = memory["hidden"].shape[2], token_ids.shape[1]
    return {
        "nll": nll, "loss": loss, "hidden": hidden, "new_mems": after["hidden"], "emb": model.backbone.token_embedding(token_ids),
        "visible": visible_keys(query_len, mem_len, memory["length"], model.config.same_length),
        "pos_emb": sinusoid(mem_len + query_len, model.config.d_model, model.config.clamp_len),
        "gradients": {name: entry.join([by_variable[id(variable)] for variable in entry.variables])
                      for name, entry in tf1_entries(model).items()},
    }, after


def assert_segments_equal(name, key, tolerance):
    """Fails unless an array of every segment equals the original's."""
    for ours, golden in replay(name):
        assert ours[key].shape == golden[key].shape
        np.testing.assert_allclose(ours[key], golden[key], rtol=0, atol=tolerance)


@pytest.mark.slow_but_first
@every_config
def test_loss_and_nll(name):
    assert_segments_equal(name, "loss", 1e-5)
    assert_segments_equal(name, "nll", 3e-5)


@every_config
def test_embedding_and_hidden_states(name):
    assert_segments_equal(name, "emb", 1e-5)
    assert_segments_equal(name, "hidden", 2e-5)


@every_config
def test_memories(name):
    assert_segments_equal(name, "new_mems", 2e-5)


@every_config
def test_mask_and_positions(name):
    for ours, golden in replay(name):
        key_len = golden["attn_mask"].shape[1]  # less than ours where the original has no memory and ours is empty
        visible = ours["visible"].numpy()
        assert not visible[:, :, :visible.shape[2] - key_len].any()
        for row in visible:
            np.testing.assert_array_equal(row[:, -key_len:], golden["attn_mask"] == 0)
        np.testing.assert_allclose(ours["pos_emb"][-key_len:], golden["pos_emb"][:, 0], atol=1e-5)


@every_config
def test_gradients(name):
    arrays = np.load(GOLDEN / name / "grads.npz")
    names = {key.split("/", 1)[1] for key in arrays if "global_norm" not in key}
    for index, (ours, _) in enumerate(replay(name)[:SEGMENTS_WITH_GRADIENTS]):
        assert ours["gradients"].keys() == names
        for variable, gradient in ours["gradients"].items():
            np.testing.assert_allclose(gradient, arrays[f"seg{index}/{variable}"], 1e-4, 5e-6, err_msg=variable)


@pytest.mark.slow_but_first
@every_config
def test_parameter_count(name):
    assert load(name).count_params() == settings_of(name)["n_params"]


@pytest.mark.parametrize("settings", [{}, {"untie_r": True, "d_embed": 7}])
def test_entries_name_every_variable_once_and_join_what_they_split(settings):
    model = tiny_model(**settings)
    entries = tf1_entries(model)
    named = [id(variable) for entry in entries.values() for variable in entry.variables]
    assert sorted(named) == sorted(id(variable) for variable in model.trainable_variables)
    for entry in entries.values():
        original = np.random.default_rng(0).normal(size=entry.shape)
        parts = entry.split(original)
        assert [part.shape for part in parts] == [tuple(variable.shape) for variable in entry.variables]
        np.testing.assert_array_equal(entry.join(parts), original)


@pytest.mark.slow_but_first
@every_config
def test_the_shapes_tell_the_settings(name):
    told = tf1_settings(GOLDEN / name / "model.ckpt")
    assert {key: getattr(config_of(name), key) for key in told} == told
    config = ModelConfig(**told)
    assert {name: entry.shape for name, entry in tf1_entries(TransformerXLLM(config)).items()} == {
        name: entry.shape for name, entry in tf1_entries(load(name)).items()}


def test_shapes_that_tell_nothing(rewritten):
    with pytest.raises(ValueError, match="prefix must be a checkpoint of the original code, .*r_w_bias.*Received: prefix="):
        tf1_settings(rewritten({"transformer/r_w_bias": None}))


@pytest.mark.slow_but_first
@every_config
def test_what_was_loaded_comes_out_bit_by_bit(name, tmp_path):
    prefix = str(tmp_path / "new" / "model.ckpt-0")
    save_tf1_checkpoint(load(name, memory_start="zeros"), prefix)
    written, golden = (tf.train.load_checkpoint(path) for path in (prefix, str(GOLDEN / name / "model.ckpt")))
    assert written.get_variable_to_shape_map() == golden.get_variable_to_shape_map()
    for variable in golden.get_variable_to_shape_map():
        np.testing.assert_array_equal(written.get_tensor(variable).view(np.int32), golden.get_tensor(variable).view(np.int32))


@pytest.mark.parametrize("settings, message", [
    ({}, "The model must have memory_start=zeros, layer_norm_epsilon=1e-12, .*Received: memory_start=empty, layer_norm_epsilon=1e-05"),
    ({"same_length": True, "same_length_extra": False}, "same_length_extra=True"), ({"tie_weight": False}, "The model must have tie_weight=True, as the original program has. Received: tie_weight=False"),
])
def test_what_has_no_counterpart_there_is_not_written(settings, message, tmp_path):
    theirs = {"memory_start": "zeros"} if settings else {"layer_norm_epsilon": 1e-5}
    with pytest.raises(ValueError, match=message):
        save_tf1_checkpoint(tiny_model(**theirs, **settings), tmp_path / "new" / "model.ckpt")
    assert not (tmp_path / "new").exists()


@pytest.fixture
def rewritten(tmp_path):
    """Returns a function that writes the first golden checkpoint with some variables replaced, None: left out."""
    def write(changes):
        reader = tf.train.load_checkpoint(str(GOLDEN / CONFIGS[0] / "model.ckpt"))
        arrays = {name: reader.get_tensor(name) for name in reader.get_variable_to_shape_map()}
        arrays = {name: array for name, array in {**arrays, **changes}.items() if array is not None}
        prefix = str(tmp_path / "changed.ckpt")
        tf.raw_ops.SaveV2(prefix=prefix, tensor_names=list(arrays), shape_and_slices=[""] * len(arrays),
                          tensors=[tf.convert_to_tensor(array) for array in arrays.values()])
        return prefix
    return write


BIAS = "transformer/adaptive_softmax/bias"


def test_training_state_in_the_checkpoint_is_passed_over(rewritten):
    prefix = rewritten({f"{BIAS}/Adam": np.ones(27, np.float32), f"{BIAS}/Adam_1": np.ones(27, np.float32),
                        "beta1_power": np.float32(0.9), "beta2_power": np.float32(0.999), "global_step": np.int64(7)})
    for weight, expected in zip(load_tf1_checkpoint(prefix, config_of(CONFIGS[0])).weights, load(CONFIGS[0]).weights):
        np.testing.assert_array_equal(weight, expected)


@pytest.fixture
def copied(tmp_path):
    """A folder with the files of the first golden checkpoint."""
    for file in (GOLDEN / CONFIGS[0]).glob("model.ckpt.*"):
        shutil.copy(file, tmp_path)
    return tmp_path


@pytest.mark.parametrize("state", [None, "model.ckpt", "/somewhere/else/model.ckpt-7"])
@pytest.mark.parametrize("file", ["", "checkpoint", "model.ckpt.index", "model.ckpt.data-00000-of-00001"])
def test_a_folder_or_a_file_of_it_will_do(copied, file, state):
    if state is not None:
        (copied / "checkpoint").write_text(f'model_checkpoint_path: "{state}"\n')
    assert tf1_settings(copied / file) == tf1_settings(GOLDEN / CONFIGS[0] / "model.ckpt")


@pytest.mark.parametrize("damage", [lambda data: data[:5000], lambda data: b"\x55" * len(data), lambda data: None])
def test_damaged_values_are_refused(copied, damage):
    path = copied / "model.ckpt.data-00000-of-00001"
    content = damage(path.read_bytes())
    path.unlink() if content is None else path.write_bytes(content)
    with pytest.raises(ValueError, match=r"prefix must be an undamaged checkpoint, with all its files \(.+\). Received: prefix=.*model.ckpt$"):
        load_tf1_checkpoint(copied / "model.ckpt", config_of(CONFIGS[0]))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("changes, message", [
    ({BIAS: None}, rf"it lacks \['{BIAS}'\] and has besides none. Received: prefix=.*changed.ckpt"),
    ({"transformer/extra": np.zeros(2, np.float32)}, r"it lacks none and has besides \['transformer/extra'\]"),
    ({BIAS: np.zeros(26, np.float32)}, rf"{BIAS} must have the shape \(27,\) that config gives. Received: shape=\(26,\)"),
])
def test_another_checkpoint_is_refused(rewritten, changes, message):
    with pytest.raises(ValueError, match=message):
        load_tf1_checkpoint(rewritten(changes), config_of(CONFIGS[0]))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("overrides, message", [
    ({"n_layer": 4}, "it lacks .*transformer/layer_3/"),
    ({"n_layer": 2}, "has besides .*transformer/layer_2/"),
    ({"d_inner": 33}, r"must have the shape \(.*33.*\) that config gives. Received: shape=\(.*32.*\)"),
])
def test_another_config_is_refused(overrides, message):
    with pytest.raises(ValueError, match=message):
        load(CONFIGS[0], **overrides)


@pytest.mark.parametrize("content", [None, b"", b"not a checkpoint"])
def test_no_checkpoint_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "model.ckpt.index").write_bytes(content)
    with pytest.raises(ValueError, match="prefix must be the path of a TensorFlow checkpoint. Received: prefix=.*model.ckpt"):
        load_tf1_checkpoint(tmp_path / "model.ckpt", config_of(CONFIGS[0]))
