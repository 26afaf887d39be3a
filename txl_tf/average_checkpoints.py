"""Averages the weights of a run's last checkpoints: `python -m txl_tf.average_checkpoints --model_dir=runs/mine --last=5 --output=averaged`."""

import os

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from txl_tf.config import ModelConfig
from txl_tf.faults import check_folder, one_sentence, say, writing
from txl_tf.flags import check_no_arguments
from txl_tf.language_model import TransformerXLLM
from txl_tf.model_folder import VOCABULARY, load_vocabulary, read_config, save_model
from txl_tf.run_state import checkpoint_paths, step_of, stored_weights, weights_of


def average_checkpoints(model_dir, last, output):
    """Writes the mean of the weights of a run's last checkpoints as a model folder, and returns their steps.

    Args:
        model_dir: folder of the run.
        last: how many of its checkpoints, the newest ones; None: all that are kept.
        output: folder for the model, its configuration and its vocabulary.

    Raises:
        ValueError: if there are not so many checkpoints, or one can't be read.
    """
    paths = checkpoint_paths(model_dir)
    count = len(paths) if last is None else last
    if not 1 <= count <= len(paths):
        raise ValueError(f"last must be from 1 to the number of checkpoints in model_dir, {len(paths)}; keep_checkpoints decides in training "
                         f"how many there are. Received: last={last}, model_dir={model_dir}")
    if os.path.realpath(output) == os.path.realpath(model_dir):
        raise ValueError(f"output must not be model_dir. Received: output={output}")
    check_folder(output, "output")
    model = TransformerXLLM(ModelConfig(**read_config(model_dir)["model"]))
    for variable, values in zip(weights_of(model), zip(*map(_read, paths[-count:]), strict=True), strict=True):
        variable.assign(np.mean(values, axis=0, dtype=np.float64).astype(values[0].dtype))
    has_vocabulary = tf.io.gfile.exists(os.path.join(model_dir, VOCABULARY))
    vocabulary = load_vocabulary(model_dir) if has_vocabulary else None
    with writing(output, "output"):
        save_model(model, output, vocabulary)
    return [step_of(path) for path in paths[-count:]]


def _read(path):
    """Returns the weights in a checkpoint."""
    try:
        return stored_weights(path)
    except (tf.errors.OpError, ValueError, IndexError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"Every checkpoint must be readable ({reason}). Received: {path}") from error


def main(argv):
    logging.set_verbosity(logging.WARNING)
    settings = flags.FLAGS
    with one_sentence("txl_tf.average_checkpoints", ValueError, OSError):
        check_no_arguments(argv)
        steps = average_checkpoints(settings.model_dir, settings.last, settings.output)
        say(f"the mean of the weights at steps {', '.join(f'{step:,}' for step in steps)} lies in {settings.output}")


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, "folder of a run", required=True)
    flags.DEFINE_integer("last", None, "how many of its checkpoints, the newest ones, are averaged; unset: all that are kept")
    flags.DEFINE_string("output", None, "folder to write the model to", required=True)
    app.run(main)
