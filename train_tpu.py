"""Trains, evaluates and samples a Transformer-XL on a TPU, one or a pod: `python train_tpu.py --tpu=local`, with --help for all settings."""

import os

from data_utils.interrupts import end_at_interrupt

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if __name__ == "__main__":
    end_at_interrupt("train_tpu.py")

from absl import app, flags

from data_utils import open_corpus
from txl_tf.distribution import tpu_strategy
from txl_tf import flags as settings
from txl_tf.training_script import run_script


def strategy_of(train_config):
    """Returns the strategy for the TPU of a TrainConfig."""
    if train_config.use_tpu is False:
        raise ValueError("GPUs and CPUs are for train_gpu.py. Received: use_tpu=False")
    if train_config.precision == "mixed_float16":
        raise ValueError("precision must be float32 or mixed_bfloat16 on a TPU. Received: precision=mixed_float16")
    return tpu_strategy(train_config.tpu or train_config.master, train_config.tpu_zone, train_config.gcp_project)


def main(argv):
    run_script("train_tpu.py", strategy_of, open_corpus, argv)


if __name__ == "__main__":
    settings.define_flags()
    flags.adopt_module_key_flags(settings)  # so that --help lists them
    app.run(main)
