"""What the training scripts share: from the flags to the run, every error that the user can mend as one sentence."""

import dataclasses
import sys

import tensorflow as tf
from absl import logging

from txl_tf.distribution import check_num_hosts, number_of_hosts
from txl_tf.faults import check_folder, interrupted
from txl_tf.flags import check_no_arguments, given_model_settings, read_configs
from txl_tf.host_memory import check_host_memory
from txl_tf.presets import fit_to_vocabulary
from txl_tf.run_folder import RunFolder
from txl_tf.training import Training
from txl_tf.warm_start import check_weights_exist

_CLOSED = (tf.errors.UnimplementedError, tf.errors.PermissionDeniedError, tf.errors.UnauthenticatedError)  # of addresses such as gs://


def run_script(name, strategy_of, open_corpus, argv):
    """Runs what the flags ask for, and ends the process with a sentence where that can't be.

    Args:
        name: of the script, for messages.
        strategy_of: function of a TrainConfig to a tf.distribute strategy.
        open_corpus: `data_utils.opening.open_corpus`, which this package does not import.
        argv: what was left of the command line after the flags.
    """
    logging.set_verbosity(logging.WARNING)
    tf.get_logger().setLevel("ERROR")  # it would warn of how TensorFlow itself is called
    try:
        check_no_arguments(argv)
        model_config, train_config, data_config = read_configs()
        check_folder(train_config.model_dir)
        for setting in ("warm_start_path", "eval_ckpt_path"):
            if getattr(train_config, setting) is not None:
                check_weights_exist(getattr(train_config, setting), setting)
        if not train_config.do_train and train_config.eval_ckpt_path is None:
            RunFolder(train_config.model_dir).check_model(given_model_settings())
        strategy = strategy_of(train_config)
        hosts = number_of_hosts(strategy)
        check_num_hosts(train_config.num_hosts, hosts)
        smallest = dataclasses.replace(model_config, n_token=1, cutoffs=())  # before the vocabulary is known
        check_host_memory(smallest, train_config, int(train_config.do_train))
        corpus = open_corpus(tgt_len=model_config.tgt_len, num_hosts=hosts, **dataclasses.asdict(data_config))
        run = Training(fit_to_vocabulary(model_config, corpus.n_token), train_config, corpus, strategy)
    except (ValueError, MemoryError, OSError) as error:
        sys.exit(f"{name}: {error}")
    except _CLOSED as error:
        sys.exit(f"{name}: Files and folders must lie where TensorFlow can open them. Received: {error.message}")
    except KeyboardInterrupt:
        interrupted(f"{name}: interrupted")
    try:
        run.run()
    except (FloatingPointError, MemoryError, OSError) as error:
        sys.exit(f"{name}: {error}")
    except KeyboardInterrupt:
        interrupted(f"{name}: interrupted; the same command goes on from the last checkpoint in {train_config.model_dir}")
