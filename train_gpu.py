"""Trains, evaluates and samples a Transformer-XL: `python train_gpu.py`, with --help for all settings."""

import dataclasses
import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

from absl import app, logging

from data_utils import prepare_corpus
from txl_tf.flags import define_flags, read_configs
from txl_tf.presets import fit_to_vocabulary
from txl_tf.training import Training, check_folder


def main(argv):
    logging.set_verbosity(logging.WARNING)
    try:
        if len(argv) > 1:
            raise ValueError(f"Arguments must be flags. Received: {' '.join(argv[1:])}")
        model_config, train_config, data_config = read_configs()
        check_folder(train_config.model_dir)
        corpus = prepare_corpus(tgt_len=model_config.tgt_len, **dataclasses.asdict(data_config))
        run = Training(fit_to_vocabulary(model_config, corpus.n_token), train_config, corpus)
    except (ValueError, OSError) as error:
        sys.exit(f"train_gpu.py: {error}")
    try:
        run.run()
    except (FloatingPointError, OSError) as error:
        sys.exit(f"train_gpu.py: {error}")
    except KeyboardInterrupt:
        sys.exit(f"train_gpu.py: interrupted; the same command goes on from the last checkpoint in {train_config.model_dir}")


if __name__ == "__main__":
    define_flags()
    app.run(main)
