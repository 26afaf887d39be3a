"""Checkpoints of Hugging Face's Transformer-XL (transfo-xl-wt103 and others): its settings and names, both ways."""

import json
import os

import numpy as np

from data_utils.atomic_files import replacing, write_json
from txl_tf.checkpoints.entry import TRANSFORMER_XL, Entry, check_fixed
from txl_tf.checkpoints.huggingface_files import read_weights
from txl_tf.checkpoints.loading import load
from txl_tf.checkpoints.safetensors import write_safetensors
from txl_tf.config import ModelConfig
from txl_tf.heads.full_softmax import FullSoftmax

CONFIG = "config.json"
POSITIONS = "transformer.pos_emb.inv_freq"  # the frequencies of the sinusoids, no weight
SAME_NAMES = ("n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "div_val", "mem_len", "clamp_len", "same_length", "untie_r",
              "dropout", "dropatt", "init", "init_range", "init_std", "proj_init_std", "pre_lnorm")
NEEDED = (*SAME_NAMES[:11], "cutoffs")
FIXED = {"attn_type": 0, "sample_softmax": -1}  # the only values there are here


def load_huggingface(folder, allow_partial=False, config=None):
    """Returns a TransformerXLLM with the settings and weights of a folder that Hugging Face's save_pretrained wrote.

    Nothing in the files is run, and neither torch nor transformers is needed. The settings are those of that program:
    layer_norm_epsilon 1e-5, a memory of zeros before the first token, one key fewer with same_length.

    Args:
        folder: with config.json and model.safetensors, pytorch_model.bin in either layout of torch.save, or tf_model.h5, each as one
            file or as several with their index; values of 16 bits become 32.
        allow_partial: whether tensors that are missing, and keep their initial values, or are unknown are only logged.
        config: a ModelConfig instead of that of `huggingface_config`, which differs in what needs no other weights.

    Raises:
        ValueError: if a file is missing or damaged, a setting has no counterpart here, or a tensor is missing, unknown, or of
            another shape than config.json gives.

    Example:
        model = txl_tf.load_huggingface("transfo-xl-wt103")
    """
    config = huggingface_config(folder) if config is None else config
    arrays = read_weights(folder)
    stored = {name: array.shape for name, array in arrays.items() if name != POSITIONS}
    model = load(config, huggingface_entries, stored, arrays.get, "folder", folder, allow_partial, huggingface_copies)
    for copy, name in huggingface_copies(model).items():
        if copy in arrays and name in arrays and not np.array_equal(arrays[copy], arrays[name]):
            raise ValueError(f"{copy} must be the same as {name}, as config.json says. Received: folder={folder}")
    return model


def save_huggingface(model, folder):
    """Writes config.json and model.safetensors as Hugging Face's save_pretrained does; a model of theirs comes out bit by bit.

    Args:
        model: a TransformerXLLM. `txl_tf.inference.evaluation.evaluation_model` gives one with other settings, if need be.
        folder: made if missing.

    Raises:
        ValueError: if a setting has no counterpart there, before anything is written.
    """
    settings = _settings_there(model.config)
    entries, copies = huggingface_entries(model), huggingface_copies(model)
    arrays = {name: entry.value() for name, entry in entries.items()}
    arrays[POSITIONS] = (1 / 10_000 ** (np.arange(0, model.config.d_model, 2) / model.config.d_model)).astype(np.float32)
    arrays.update({copy: arrays[name] for copy, name in copies.items() if name.endswith("_bias")})  # else they would be drawn anew there
    os.makedirs(folder, exist_ok=True)
    with replacing(os.path.join(folder, "model.safetensors")) as partial:
        write_safetensors(partial, arrays)
    write_json(os.path.join(folder, CONFIG), settings)


def _settings_there(config):
    """Returns what config.json says of a ModelConfig. Raises ValueError if it can't."""
    fixed = {**TRANSFORMER_XL, "memory_start": "zeros"}
    fixed |= {"same_length_extra": False} if config.same_length else {}
    fixed |= {"proj_same_dim": True} if config.div_val > 1 else {}
    fixed |= {"d_embed": config.d_model} if not (config.tie_weight or config.cutoffs) else {}
    check_fixed(config, fixed, "Hugging Face's program")
    if config.d_model % 2:
        raise ValueError(f"d_model must be even, as Hugging Face's program has it. Received: d_model={config.d_model}")
    tied = [not config.cutoffs] + [config.proj_share_all_but_first] * len(config.cutoffs)
    return {
        "architectures": ["TransfoXLLMHeadModel"], "model_type": "transfo-xl", "torch_dtype": "float32", "adaptive": True, **FIXED,
        "vocab_size": config.n_token, "cutoffs": list(config.cutoffs), "tie_projs": tied, "tie_word_embeddings": config.tie_weight,
        "layer_norm_epsilon": config.layer_norm_epsilon, **{name: getattr(config, name) for name in SAME_NAMES}, "tgt_len": config.tgt_len}


def huggingface_config(folder, given=None):
    """Returns the ModelConfig that the config.json of a folder describes.

    Args:
        folder: with config.json.
        given: {name: value} of a ModelConfig's settings, for what it does not say.

    Raises:
        ValueError: if a setting has no counterpart here, or neither config.json nor given says one that is needed.
    """
    path = os.path.join(folder, CONFIG)
    try:
        with open(path, encoding="utf-8") as file:
            found = {**(given or {}), **json.load(file)}
        size = found.get("vocab_size", found.get("n_token"))
    except (OSError, ValueError, TypeError, RecursionError) as error:
        raise ValueError(f"folder must hold a {CONFIG} ({error}). Received: folder={folder}") from error
    missing = [name for name in NEEDED if name not in found] + ([] if size is not None else ["vocab_size"])
    if missing:
        raise ValueError(f"{CONFIG} must say {', '.join(missing)}, or it must be given. Received: folder={folder}")
    for name, kind in {"cutoffs": (list, tuple), "tie_projs": list}.items():
        if not isinstance(found.get(name, []), kind):
            raise ValueError(f"{name} must be a list. Received: {name}={found[name]!r}, folder={folder}")
    for name, value in FIXED.items():
        if found.get(name, value) != value:
            raise ValueError(f"{name} must be {value}, for nothing else is known here. Received: {name}={found[name]}, folder={folder}")
    tie_weight = found.get("tie_weight", True) and found.get("tie_word_embeddings", True)
    return ModelConfig(
        n_token=size, cutoffs=tuple(found["cutoffs"]), tie_weight=tie_weight, proj_share_all_but_first=_shared(found, folder),
        proj_same_dim=True, layer_norm_epsilon=found.get("layer_norm_epsilon", 1e-5), memory_start="zeros", same_length_extra=False,
        **{name: found[name] for name in SAME_NAMES if name in found}, **({"tgt_len": found["tgt_len"]} if "tgt_len" in found else {}))


def _shared(found, folder):
    """Returns whether all projections but the first are the embedding's; a softmax without clusters has one, the embedding's."""
    clusters = len(found["cutoffs"]) + 1
    default = [False] + [found.get("proj_share_all_but_first", True)] * (clusters - 1)
    tied = found.get("tie_projs", default)
    projected = found["div_val"] > 1 or found["d_embed"] != found["d_model"]
    alone = clusters == 1 and projected
    if not projected or (alone and tied[:1] == [True]):
        return clusters > 1 and all(tied[1:clusters])
    if alone or tied[:1] != [False] or len(set(tied[1:clusters])) > 1:
        raise ValueError(f"tie_projs must be {[True] if alone else '[false, then all true or all false]'}. "
                         f"Received: tie_projs={tied}, folder={folder}")
    return all(tied[1:clusters])


def huggingface_entries(model):
    """Returns {name in Hugging Face's state_dict: Entry} for all trainable variables of a TransformerXLLM."""
    entries = {**_embedding_entries(model.backbone.token_embedding), **_head_entries(model.head)}
    first = model.backbone.blocks[0].attention_layer
    if not model.config.untie_r:
        entries["transformer.r_w_bias"], entries["transformer.r_r_bias"] = Entry((first.content_bias,)), Entry((first.position_bias,))
    for index, block in enumerate(model.backbone.blocks):
        found = _block_entries(block, model.config.untie_r)
        entries.update({f"transformer.layers.{index}.{name}": entry for name, entry in found.items()})
    return entries


def _block_entries(block, untie_r):
    attention, feed_forward = block.attention_layer, block.feed_forward
    biases = {"dec_attn.r_w_bias": Entry((attention.content_bias,)), "dec_attn.r_r_bias": Entry((attention.position_bias,))}
    return {
        **(biases if untie_r else {}),
        "dec_attn.qkv_net.weight": Entry((attention.query_kernel, attention.key_kernel, attention.value_kernel), "columns", transposed=True),
        "dec_attn.r_net.weight": Entry((attention.position_kernel,), transposed=True),
        "dec_attn.o_net.weight": Entry((attention.output_kernel,), transposed=True),
        "dec_attn.layer_norm.weight": Entry((block.attention_norm.gamma,)),
        "dec_attn.layer_norm.bias": Entry((block.attention_norm.beta,)),
        "pos_ff.CoreNet.0.weight": Entry((feed_forward.inner.kernel,), transposed=True),
        "pos_ff.CoreNet.0.bias": Entry((feed_forward.inner.bias,)),
        "pos_ff.CoreNet.3.weight": Entry((feed_forward.outer.kernel,), transposed=True),
        "pos_ff.CoreNet.3.bias": Entry((feed_forward.outer.bias,)),
        "pos_ff.layer_norm.weight": Entry((block.feed_forward_norm.gamma,)),
        "pos_ff.layer_norm.bias": Entry((block.feed_forward_norm.beta,)),
    }


def _embedding_entries(embedding):
    tables = {f"transformer.word_emb.emb_layers.{index}.weight": Entry((table,)) for index, table in enumerate(embedding.tables)}
    return {**tables, **_projection_entries("transformer.word_emb.emb_projs", embedding.projections)}


def _projection_entries(scope, projections):
    return {f"{scope}.{index}": Entry((projection,), transposed=True) for index, projection in enumerate(projections)
            if projection is not None}


def _head_entries(head):
    if isinstance(head, FullSoftmax):
        biases, projections, tables, entries = [head.bias], [], [head.table], {}
    else:
        biases, projections, tables = head.biases, head.projections, head.tables
        entries = {"crit.cluster_weight": Entry((head.cluster_kernel,)), "crit.cluster_bias": Entry((head.cluster_bias,))}
    if getattr(head, "div_val", 1) == 1:  # one layer for all clusters
        entries["crit.out_layers.0.bias"] = Entry(tuple(biases), "rows")
    else:
        entries.update({f"crit.out_layers.{index}.bias": Entry((bias,)) for index, bias in enumerate(biases)})
    if head.token_embedding is None:
        entries.update({f"crit.out_layers.{index}.weight": Entry((table,)) for index, table in enumerate(tables) if table is not None})
    return {**entries, **_projection_entries("crit.out_projs", projections)}


def huggingface_copies(model):
    """Returns {name: name of the tensor that it is a copy of} for the tensors that Hugging Face may write twice or leave out."""
    config, embedding = model.config, model.backbone.token_embedding
    copies = {}
    if config.tie_weight:
        copies = {f"crit.out_layers.{index}.weight": f"transformer.word_emb.emb_layers.{index}.weight" for index in range(len(embedding.tables))}
    tied = model.head.tie_projections if config.cutoffs else (True,)
    for index, shared in enumerate(tied):
        source = index if config.div_val > 1 else 0
        if shared and embedding.projections[source] is not None:
            copies[f"crit.out_projs.{index}"] = f"transformer.word_emb.emb_projs.{source}"
    if not config.untie_r:
        copies.update({f"transformer.layers.{index}.dec_attn.{bias}": f"transformer.{bias}" for index in range(config.n_layer)
                       for bias in ("r_w_bias", "r_r_bias")})
    return copies
