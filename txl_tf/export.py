"""Exports a trained model for TensorFlow Serving: `python -m txl_tf.export --model_dir=runs/mine --export_dir=served/mine`."""

import os

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from txl_tf.faults import check_folder, one_sentence
from txl_tf.flags import check_no_arguments
from txl_tf.model_folder import load_model_and_vocabulary, read_config
from txl_tf.run_folder import RunFolder
from txl_tf.saved_model import CARD, export_saved_model
from txl_tf.stored_weights import WEIGHTS


def main(argv):
    logging.set_verbosity(logging.ERROR)
    settings = flags.FLAGS
    with one_sentence("txl_tf.export", ValueError, OSError, tf.errors.OpError):
        check_no_arguments(argv)
        check_folder(settings.export_dir, "export_dir")
        model, vocabulary = load_model_and_vocabulary(settings.model_dir)
        measured_on = None if settings.text_file is None else _rows(vocabulary, settings.text_file)
        path = export_saved_model(model, vocabulary, settings.export_dir, settings.weights, settings.mem_len, measured_on,
                                  _facts(settings.model_dir))
    print(f"The export lies in {path}; {CARD} there says what it holds and how it is called. To serve it:\n"
          f"  tensorflow_model_server --rest_api_port=8501 --model_name={os.path.basename(os.path.abspath(settings.export_dir))} "
          f"--model_base_path={settings.export_dir if '://' in settings.export_dir else os.path.abspath(settings.export_dir)}")


def _rows(vocabulary, path):
    """Returns the first tokens of a text, at most 32,768, as (8, N)."""
    with open(path, "rb") as file:
        ids = np.asarray(vocabulary.encode(file.read(1 << 20).decode("utf-8", errors="ignore")), np.int32)[:1 << 15]
    if len(ids) < 16:
        raise ValueError(f"text_file must hold at least 16 tokens. Received: text_file={path}, {len(ids)} tokens")
    return ids[:len(ids) // 8 * 8].reshape(8, -1)


def _facts(folder):
    """Returns what is known of the training of a model in a folder."""
    config, results = read_config(folder), RunFolder(folder).results()
    train = config.get("train", {})
    facts = {name: train[name] for name in ("learning_rate", "clip", "seed", "precision") if name in train}
    scores = {f"{split} split": ", ".join(f"{name} {value:,.5g}" for name, value in score.items() if isinstance(value, (int, float)))
              for split, score in results.items() if isinstance(score, dict) and "nll" in score}
    steps = {"updates": results.get("step", train.get("train_steps"))} if results or train else {}
    return {**steps, **facts, **scores}


if __name__ == "__main__":
    flags.DEFINE_string("model_dir", None, "folder of a run or a saved model", required=True)
    flags.DEFINE_string("export_dir", None, "folder whose sub-folders 1, 2, ... are the versions; one is added", required=True)
    flags.DEFINE_enum("weights", WEIGHTS[0], WEIGHTS, "how the weights are stored")
    flags.DEFINE_integer("mem_len", None, "slots of the memory; unset: the model's")
    flags.DEFINE_string("text_file", None, "text on which smaller weights are measured; unset: what the model itself writes")
    app.run(main)
