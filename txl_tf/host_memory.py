"""Whether a run can fit into the memory of this machine at all, told from its settings before anything is made."""

import os

from txl_tf.distribution import is_on_cpu
from txl_tf.parameter_count import parameter_count

GIB = 2 ** 30
_BYTES = {"float32": 4, "mixed_bfloat16": 2, "mixed_float16": 2}  # of a number in the memory, by precision


def check_host_memory(model_config, train_config, rows=1, eval_rows=1):
    """Raises ValueError if a run on CPUs needs more memory than the machine has; of GPUs and TPUs nothing is known beforehand.

    Args:
        model_config: a ModelConfig.
        train_config: a TrainConfig.
        rows: of a training batch on this machine, 0 without training.
        eval_rows: of an evaluation batch on this machine.
    """
    available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    needed = least_bytes(model_config, train_config, rows, eval_rows)
    if needed > available and is_on_cpu():
        sizes = {name: getattr(model_config, name) for name in ("n_layer", "d_model", "d_embed", "n_head", "d_head", "d_inner", "mem_len")}
        received = {**sizes, "eval_mem_len": train_config.eval_mem_len, "rows": rows, "eval_rows": eval_rows}
        raise ValueError(f"Weights, Adam's moments and memory, at least {needed / GIB:,.1f} GiB, must fit into this machine's "
                         f"{available / GIB:,.1f} GiB. Received: {', '.join(f'{name}={value}' for name, value in received.items())}")


def least_bytes(model_config, train_config, rows, eval_rows):
    """Returns what is held while training and evaluating, activations and gradients left out.

    These are weights and their two moments in float32, the hidden states of the training memory, and what evaluation
    keeps of its memory in their place, values at the least.
    """
    _, eval_mem_len = model_config.evaluation_lengths(train_config.eval_tgt_len, train_config.eval_mem_len)
    kept = rows * model_config.mem_len * model_config.memory_width
    if train_config.evaluated_splits:
        kept += eval_rows * eval_mem_len * model_config.n_head * model_config.d_head
    return 3 * 4 * parameter_count(model_config) + _BYTES[train_config.precision] * model_config.n_layer * kept
