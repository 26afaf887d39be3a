"""Trains, evaluates and samples a Transformer-XL on GPUs or CPUs, one or many: `python train_gpu.py`, with --help for all settings."""

import os

from data_utils.interrupts import end_at_interrupt

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if __name__ == "__main__":
    end_at_interrupt("train_gpu.py")

from absl import app, flags

from data_utils import open_corpus
from txl_tf.distribution import device_strategy
from txl_tf import flags as settings
from txl_tf.training_script import run_script


def strategy_of(train_config):
    """Returns the strategy for the GPUs or CPUs of a TrainConfig."""
    if train_config.use_tpu or train_config.tpu or train_config.master:
        raise ValueError("TPUs are for train_tpu.py. Received: "
                         f"use_tpu={train_config.use_tpu}, tpu={train_config.tpu}, master={train_config.master}")
    return device_strategy(train_config.num_core_per_host, train_config.num_hosts)


def main(argv):
    run_script("train_gpu.py", strategy_of, open_corpus, argv)


if __name__ == "__main__":
    settings.define_flags()
    flags.adopt_module_key_flags(settings)  # so that --help lists them
    app.run(main)
