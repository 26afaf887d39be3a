"""The original PyTorch code's state_dict: Hugging Face's names without a prefix, and its clusters in the reverse order."""

import numpy as np

from txl_tf.checkpoints.huggingface import POSITIONS, huggingface_copies, huggingface_entries
from txl_tf.checkpoints.loading import load
from txl_tf.checkpoints.torch_files import read_torch

SETTINGS = dict(untie_r=False, memory_start="empty", layer_norm_epsilon=1e-5, same_length_extra=False, proj_same_dim=True)  # that code's
_REVERSED = ("crit.cluster_weight", "crit.cluster_bias")  # its last row is that of the first tail cluster


def load_pytorch_checkpoint(path, config, allow_partial=False):
    """Returns a TransformerXLLM with the weights of a state_dict of the original PyTorch code.

    That code saves whole models, which name its classes and are refused; of one of them, its own program makes such a file with
    `torch.save(model.state_dict(), path)`.

    Args:
        path: a file of torch.save in either layout; neither torch nor that code is needed, and nothing in it is run.
        config: the ModelConfig it was made with, which has SETTINGS.
        allow_partial: whether tensors that are missing, and keep their initial values, or are unknown are only logged.

    Raises:
        ValueError: if the file holds no state_dict, or a tensor is missing, unknown, or of another shape than config gives.
    """
    arrays = _read(path)
    stored = {name: array.shape for name, array in arrays.items()}
    return load(config, huggingface_entries, stored, arrays.get, "path", path, allow_partial, huggingface_copies)


def pytorch_settings(path):
    """Returns {name: value} of the settings of a ModelConfig that the tensors of a state_dict tell, and that code's own.

    They do not tell tgt_len, mem_len, clamp_len, same_length and the rates of dropout, nor cutoffs with div_val 1.

    Raises:
        ValueError: if the file holds no state_dict of that code.
    """
    try:
        return _told(_read(path))
    except (KeyError, IndexError) as error:
        raise ValueError(f"path must hold a state_dict of the original PyTorch code ({error} is missing). Received: path={path}") from error


def _read(path):
    """Returns the arrays under Hugging Face's names, in Hugging Face's order."""
    arrays = {name if name.startswith("crit.") else f"transformer.{name}": array for name, array in read_torch(path).items()}
    arrays.pop(POSITIONS, None)
    return {name: array[::-1] if name in _REVERSED else array for name, array in arrays.items()}


def _told(arrays):
    tables, biases, projections, theirs = ([arrays[f"{scope}.{index}{end}"] for index in range(4 * len(arrays)) if f"{scope}.{index}{end}" in arrays]
                                           for scope, end in (("transformer.word_emb.emb_layers", ".weight"), ("crit.out_layers", ".bias"),
                                                              ("crit.out_projs", ""), ("transformer.word_emb.emb_projs", "")))
    d_inner, d_model = arrays["transformer.layers.0.pos_ff.CoreNet.0.weight"].shape
    n_head, d_head = arrays["transformer.r_w_bias"].shape
    told = dict(SETTINGS, n_token=sum(len(table) for table in tables), d_model=d_model, d_embed=tables[0].shape[1], d_inner=d_inner, n_head=n_head,
                d_head=d_head, n_layer=sum(name.endswith(".pos_ff.CoreNet.0.weight") for name in arrays))
    if len(tables) > 1:
        told |= {"div_val": tables[0].shape[1] // tables[1].shape[1],
                 "cutoffs": tuple(int(end) for end in np.cumsum([len(bias) for bias in biases])[:-1])}
    if "crit.cluster_weight" not in arrays:
        told["cutoffs"] = ()
    elif projections:
        sources = theirs if len(tables) > 1 else theirs * len(projections)
        told["proj_share_all_but_first"] = all(np.array_equal(*pair) for pair in list(zip(projections, sources))[1:])
    return told
