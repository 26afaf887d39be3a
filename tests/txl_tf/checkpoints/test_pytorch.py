"""The original PyTorch code's state_dict: its names, its clusters in reverse, its settings."""

import numpy as np
import pytest

from testing.tiny_model import tiny_model, tiny_tokens
from testing.torch_layouts import old_layout, pretend_torch, zip_layout
from txl_tf import ModelConfig
from txl_tf.checkpoints.huggingface import huggingface_copies, huggingface_entries
from txl_tf.checkpoints.pytorch import SETTINGS, load_pytorch_checkpoint, pytorch_settings

MODELS = {
    "one table": {}, "one table, narrow": {"d_embed": 6},
    "clusters": {"cutoffs": (3, 7, 9)}, "narrowing": {"cutoffs": (3, 7, 9), "div_val": 2, "proj_share_all_but_first": True},
    "narrowing, not shared": {"cutoffs": (3, 7, 9), "div_val": 2}, "clusters, narrow": {"cutoffs": (3, 7), "d_embed": 6, "proj_share_all_but_first": True},
}
UNTOLD = ("tgt_len", "mem_len")


def model_of(name):
    return tiny_model(**SETTINGS, **MODELS[name])


def state_dict(model):
    """Returns the tensors as that code names and orders them."""
    arrays = {name: entry.value() for name, entry in huggingface_entries(model).items()}
    arrays |= {name: arrays[source] for name, source in huggingface_copies(model).items() if not name.endswith("_bias")}
    arrays |= {name: arrays[name][::-1] for name in ("crit.cluster_weight", "crit.cluster_bias") if name in arrays}
    return {**{name.removeprefix("transformer."): array for name, array in arrays.items()}, "pos_emb.inv_freq": np.ones(3, np.float32)}


@pytest.fixture
def written(tmp_path, monkeypatch):
    """Returns a function that writes a state_dict in a layout of torch.save."""
    def write(arrays, layout=zip_layout):
        with monkeypatch.context() as patch:
            pretend_torch(patch)
            (tmp_path / "model.pt").write_bytes(layout(arrays))
        return str(tmp_path / "model.pt")
    return write


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name, layout", [*((name, zip_layout) for name in MODELS), ("one table", old_layout)])
def test_settings_and_weights(written, name, layout):
    model, path = model_of(name), written(state_dict(model_of(name)), layout)
    told = pytorch_settings(path)
    assert {key: getattr(model.config, key) for key in told} == told
    config = ModelConfig(**{**{key: getattr(model.config, key) for key in UNTOLD}, "cutoffs": model.config.cutoffs, **told})
    again, tokens = load_pytorch_checkpoint(path, config), tiny_tokens(2, 5)
    for ours, theirs in zip(model.get_weights(), again.get_weights(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    np.testing.assert_array_equal(again.log_probs(tokens, again.initial_memory(2))[0], model.log_probs(tokens, model.initial_memory(2))[0])


@pytest.mark.parametrize("left_out, message", [
    ("r_w_bias", "path must hold a state_dict of the original PyTorch code .*transformer.r_w_bias' is missing"),
    ("word_emb.emb_layers.0.weight", "path must hold a state_dict")])
def test_settings_of_another_file_are_refused(written, left_out, message):
    arrays = state_dict(model_of("one table"))
    del arrays[left_out]
    with pytest.raises(ValueError, match=message):
        pytorch_settings(written(arrays))


def test_missing_and_unknown_tensors_are_refused(written):
    model = model_of("clusters")
    arrays = {**state_dict(model), "extra": np.zeros(1, np.float32)}
    del arrays["r_r_bias"]
    with pytest.raises(ValueError, match=r"it lacks \['transformer.r_r_bias'\] and has besides \['transformer.extra'\]. Received: path="):
        load_pytorch_checkpoint(written(arrays), model.config)
