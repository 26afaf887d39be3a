"""Checkpoints of the original TensorFlow 1 code: which of its variables is which of ours, both ways."""

import os
import re

import numpy as np
import tensorflow as tf

from txl_tf.checkpoints.entry import TRANSFORMER_XL, Entry, check_fixed
from txl_tf.checkpoints.loading import load
from txl_tf.heads.full_softmax import FullSoftmax

SETTINGS = dict(attention="relative", tie_weight=True, pre_lnorm=False, layer_norm_epsilon=1e-12, same_length_extra=True)  # that code's
TRAINING_STATE = ("/Adam", "/Adam_1", "beta1_power", "beta2_power", "global_step")


def tf1_entries(model):
    """Returns {name in the original: Entry} for all trainable variables of a TransformerXLLM."""
    blocks = model.backbone.blocks
    attentions = [block.attention_layer for block in blocks]
    owners = attentions if model.config.untie_r else attentions[:1]
    axis = "layers" if model.config.untie_r else None
    entries = {
        "transformer/r_w_bias": Entry(tuple(layer.content_bias for layer in owners), axis),
        "transformer/r_r_bias": Entry(tuple(layer.position_bias for layer in owners), axis),
        **_embedding_entries(model.backbone.token_embedding),
        **_head_entries(model.head),
    }
    for index, block in enumerate(blocks):
        entries.update({f"transformer/layer_{index}/{name}": entry for name, entry in _block_entries(block).items()})
    return entries


def _block_entries(block):
    attention, feed_forward = block.attention_layer, block.feed_forward
    return {
        "rel_attn/qkv/kernel": Entry((attention.query_kernel, attention.key_kernel, attention.value_kernel), "columns"),
        "rel_attn/r/kernel": Entry((attention.position_kernel,)),
        "rel_attn/o/kernel": Entry((attention.output_kernel,)),
        "rel_attn/LayerNorm/gamma": Entry((block.attention_norm.gamma,)),
        "rel_attn/LayerNorm/beta": Entry((block.attention_norm.beta,)),
        "ff/layer_1/kernel": Entry((feed_forward.inner.kernel,)),
        "ff/layer_1/bias": Entry((feed_forward.inner.bias,)),
        "ff/layer_2/kernel": Entry((feed_forward.outer.kernel,)),
        "ff/layer_2/bias": Entry((feed_forward.outer.bias,)),
        "ff/LayerNorm/gamma": Entry((block.feed_forward_norm.gamma,)),
        "ff/LayerNorm/beta": Entry((block.feed_forward_norm.beta,)),
    }


def _embedding_entries(embedding):
    entries = {}
    for index, (table, projection) in enumerate(zip(embedding.tables, embedding.projections)):
        scope = "transformer/adaptive_embed" + (f"/cutoff_{index}" if len(embedding.tables) > 1 else "")
        entries[f"{scope}/lookup_table"] = Entry((table,))
        if projection is not None:
            entries[f"{scope}/proj_W"] = Entry((projection,))
    return entries


def _head_entries(head):
    scope = "transformer/adaptive_softmax"
    if head.token_embedding is None:
        raise ValueError("tie_weight must be True, as it always is in the original. Received: tie_weight=False")
    if isinstance(head, FullSoftmax):
        return {f"{scope}/bias": Entry((head.bias,))}
    entries = {f"{scope}/cutoff_0/cluster_W": Entry((head.cluster_kernel,)),
               f"{scope}/cutoff_0/cluster_b": Entry((head.cluster_bias,))}
    for index, (bias, projection) in enumerate(zip(head.biases, head.projections)):
        entries[f"{scope}/cutoff_{index}/b"] = Entry((bias,))
        if projection is not None:
            entries[f"{scope}/cutoff_{index}/proj"] = Entry((projection,))
    return entries


def load_tf1_checkpoint(prefix, config, allow_partial=False):
    """Returns a TransformerXLLM with the weights of a checkpoint of the original TensorFlow code; Adam's state is passed over.

    Args:
        prefix: path of the checkpoint without its suffix, such as ".../model.ckpt-0", or its folder, or a file of it.
        config: the ModelConfig it was made with; layer_norm_epsilon is 1e-12 and memory_start "zeros" in that code.
        allow_partial: whether variables that are missing, and keep their initial values, or are unknown are only logged.

    Raises:
        ValueError: if no checkpoint is there, or a variable is missing, unknown, or of another shape than config gives.
    """
    reader, stored = _opened(prefix)

    def value_of(name):
        try:
            return reader.get_tensor(name)
        except (IndexError, tf.errors.OpError) as error:
            raise ValueError(f"prefix must be an undamaged checkpoint, with all its files ({getattr(error, 'message', None) or error}). "
                             f"Received: prefix={prefix}") from error

    return load(config, tf1_entries, stored, value_of, "prefix", prefix, allow_partial)


def _opened(prefix):
    """Returns a reader of a checkpoint, and {name: shape} without what only training needs."""
    try:
        reader = tf.train.load_checkpoint(_found(str(prefix)))
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(f"prefix must be the path of a TensorFlow checkpoint. Received: prefix={prefix}") from error
    return reader, {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()
                    if not name.endswith(TRAINING_STATE)}


def _found(path):
    """Returns the prefix of the checkpoint that a prefix, one of its files, its folder or the file named checkpoint stands for."""
    folder = os.path.dirname(path) if os.path.basename(path) == "checkpoint" else path
    if not tf.io.gfile.isdir(folder):
        return re.sub(r"\.(index|meta|data-\d+-of-\d+)$", "", path)
    found = tf.io.gfile.glob(os.path.join(folder, "*.index"))
    return tf.train.latest_checkpoint(folder) or (found[0].removesuffix(".index") if len(found) == 1 else folder)


def tf1_settings(prefix):
    """Returns {name: value} of the settings of a ModelConfig that the shapes in a checkpoint of the original code tell, and SETTINGS.

    They do not tell tgt_len, mem_len, clamp_len, same_length and the rates of dropout.

    Raises:
        ValueError: if no checkpoint of that code is there.
    """
    _, stored = _opened(prefix)
    try:
        return _told(stored)
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(f"prefix must be a checkpoint of the original code, whose shapes tell the model's ({type(error).__name__}: {error}). "
                         f"Received: prefix={prefix}") from error


def _told(stored):
    tables = _numbered(stored, "transformer/adaptive_embed", "lookup_table")
    biases = _numbered(stored, "transformer/adaptive_softmax", "b") or [stored["transformer/adaptive_softmax/bias"]]
    d_model, d_inner = stored["transformer/layer_0/ff/layer_1/kernel"]
    *layers, n_head, d_head = stored["transformer/r_w_bias"]
    d_embed, cutoffs = tables[0][1], tuple(int(end) for end in np.cumsum([size for size, in biases])[:-1])
    told = dict(SETTINGS, n_token=sum(rows for rows, _ in tables), d_model=d_model, d_inner=d_inner, n_head=n_head, d_head=d_head, d_embed=d_embed,
                n_layer=sum(name.endswith("/ff/layer_1/kernel") for name in stored), untie_r=bool(layers), cutoffs=cutoffs)
    if cutoffs:
        told["div_val"] = d_embed // tables[1][1] if len(tables) > 1 else 1
        if len(tables) > 1 and d_embed == d_model:
            told["proj_same_dim"] = "transformer/adaptive_embed/cutoff_0/proj_W" in stored
        if len(tables) > 1 or d_embed != d_model:
            told["proj_share_all_but_first"] = "transformer/adaptive_softmax/cutoff_1/proj" not in stored
    return told


def _numbered(stored, scope, name):
    """Returns the shapes of a scope's variables of one name, cluster by cluster."""
    found = [stored[f"{scope}/{name}"]] if f"{scope}/{name}" in stored else []
    while f"{scope}/cutoff_{len(found)}/{name}" in stored:
        found.append(stored[f"{scope}/cutoff_{len(found)}/{name}"])
    return found


def save_tf1_checkpoint(model, prefix):
    """Writes a checkpoint that the original TensorFlow code scores with --eval_ckpt_path; its own comes out bit by bit.

    Args:
        model: a TransformerXLLM. `txl_tf.inference.evaluation.evaluation_model` gives one with other settings, if need be.
        prefix: path of the checkpoint without its suffix, such as ".../model.ckpt-0"; its folder is made if missing.

    Raises:
        ValueError: if a setting has no counterpart there, before anything is written.
    """
    free = () if model.config.same_length else ("same_length_extra",)
    fixed = {name: value for name, value in SETTINGS.items() if name not in free}
    check_fixed(model.config, {**TRANSFORMER_XL, "memory_start": "zeros", **fixed}, "the original program")
    entries = tf1_entries(model)
    tf.io.gfile.makedirs(os.path.dirname(os.path.abspath(prefix)) if "://" not in str(prefix) else os.path.dirname(str(prefix)))
    tf.raw_ops.SaveV2(prefix=str(prefix), tensor_names=list(entries), shape_and_slices=[""] * len(entries),
                      tensors=[tf.convert_to_tensor(entry.value()) for entry in entries.values()])
