"""Checkpoints of the original TensorFlow 1 code: which of its variables is which of ours, both ways."""

import dataclasses

import numpy as np
import tensorflow as tf

from txl_tf.heads.full_softmax import FullSoftmax
from txl_tf.language_model import TransformerXLLM

TRAINING_STATE = ("/Adam", "/Adam_1", "beta1_power", "beta2_power", "global_step")


@dataclasses.dataclass(frozen=True)
class Entry:
    """One variable of the original: the variables it is here, and how they lie in it.

    Args:
        variables: our variables, one or several.
        axis: None where it is one variable as it stands; "columns" where ours are joined along the last axis; "layers"
            where they are stacked along a new first axis.
    """

    variables: tuple
    axis: str | None = None

    def join(self, arrays):
        """Returns the original's array of arrays shaped as our variables."""
        if self.axis == "columns":
            return np.concatenate(arrays, axis=-1)
        return np.stack(arrays) if self.axis == "layers" else arrays[0]

    def split(self, array):
        """Returns arrays shaped as our variables from the original's array."""
        if self.axis == "columns":
            return np.split(array, len(self.variables), axis=-1)
        return list(array) if self.axis == "layers" else [array]

    @property
    def shape(self):
        """The original's shape."""
        first = tuple(self.variables[0].shape)
        if self.axis == "columns":
            return (*first[:-1], first[-1] * len(self.variables))
        return (len(self.variables), *first) if self.axis == "layers" else first


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


def load_tf1_checkpoint(prefix, config):
    """Returns a TransformerXLLM with the weights of a checkpoint of the original TensorFlow code.

    Args:
        prefix: path of the checkpoint without its suffix, such as ".../model.ckpt-0", or its folder.
        config: the ModelConfig it was made with; layer_norm_epsilon is 1e-12 and memory_start "zeros" in that code.

    Raises:
        ValueError: if no checkpoint is there, or a variable is missing, unknown, or of another shape than config gives.
    """
    try:
        reader = tf.train.load_checkpoint(str(prefix))
    except (ValueError, tf.errors.OpError) as error:
        raise ValueError(f"prefix must be the path of a TensorFlow checkpoint. Received: prefix={prefix}") from error
    stored = {name: tuple(shape) for name, shape in reader.get_variable_to_shape_map().items()
              if not name.endswith(TRAINING_STATE)}
    model = TransformerXLLM(config)
    entries = tf1_entries(model)
    _check_names(stored, {name: entry.shape for name, entry in entries.items()}, prefix)
    for name, entry in entries.items():
        for variable, array in zip(entry.variables, entry.split(reader.get_tensor(name))):
            variable.assign(array)
    return model


def _check_names(stored, expected, prefix):
    missing, unknown = sorted(expected.keys() - stored.keys()), sorted(stored.keys() - expected.keys())
    if missing or unknown:
        raise ValueError(f"The checkpoint and config must have the same variables; it lacks {missing or 'none'} and has besides "
                         f"{unknown or 'none'}. Received: prefix={prefix}")
    for name, shape in expected.items():
        if stored[name] != shape:
            raise ValueError(f"{name} must have the shape {shape} that config gives. Received: shape={stored[name]}, prefix={prefix}")
