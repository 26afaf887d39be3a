"""Makes a model folder of a published checkpoint: `python -m txl_tf.convert --from=tf1 --checkpoint=tf_wt103/model.ckpt-0 --preset=wt103_large ...`."""

import dataclasses
import os

import tensorflow as tf
from absl import app, flags, logging

from data_utils.datasets import DATASETS, STARTS
from data_utils.original_corpus import read_corpus_info
from data_utils.vocabulary import load_vocabulary
from data_utils.vocabulary_files import original_of, original_vocabulary, read_vocabulary_file
from txl_tf.checkpoints.huggingface import huggingface_config, load_huggingface
from txl_tf.checkpoints.pytorch import load_pytorch_checkpoint, pytorch_settings
from txl_tf.checkpoints.tf1 import load_tf1_checkpoint, tf1_settings
from txl_tf.config import ModelConfig
from txl_tf.faults import check_folder, one_sentence, say, writing
from txl_tf.flags import as_flags, check_no_arguments, define_model_flags, given_model_settings
from txl_tf.model_folder import save_model
from txl_tf.presets import preset

SOURCES = ("tf1", "huggingface", "pytorch")
VOCABULARIES = ("vocabulary.json", "vocab.pkl", "vocab.bin", "vocab.json")  # what a folder of Hugging Face's may hold


def convert(source, checkpoint, output, corpus=None, preset_name=None, settings=None, dataset=None, allow_partial=False,
            corpus_info_path=None):
    """Writes the model of a checkpoint, and its vocabulary where that is known, as a model folder, and returns its ModelConfig.

    Args:
        source: one of SOURCES.
        checkpoint: prefix or folder of a checkpoint of the original TensorFlow code, a folder of Hugging Face's, or a file with the
            state_dict of the original PyTorch code.
        output: the folder.
        corpus: file of the vocabulary: cache.pkl, vocab.pkl, vocab.bin, vocab.json, vocabulary.json or a list of words; ids stay the
            file's. None: the first of VOCABULARIES in a folder of Hugging Face's, or no vocabulary.
        preset_name: name of published settings, for what the checkpoint does not tell; None: settings tells it.
        settings: {name: value} of a ModelConfig that override the preset's.
        dataset: name in data_utils.datasets.DATASETS, which says how the vocabulary is used; None: the preset's, or what corpus says.
        allow_partial: whether variables that are missing or unknown are only logged.
        corpus_info_path: the original's corpus-info.json, for the cutoffs, the size of the vocabulary and dataset; None: the one
            beside corpus, if there is one.

    Raises:
        FileNotFoundError: if there is no corpus_info_path.
        ValueError: if the checkpoint, the corpus and the settings can't be used together, before anything is written.
    """
    for name, path in {"checkpoint": checkpoint, "output": output}.items():
        if not path:
            raise ValueError(f"{name} must be a path. Received: {name}={path!r}")
    check_folder(output, "output")
    chosen = preset(preset_name) if preset_name else {}
    info = _corpus_info(corpus_info_path, corpus)
    given = {**chosen.get("model", {}), **(settings or {})}
    given = _joined(given, {name: info[name] for name in ("n_token", "cutoffs") if info}, info.get("path"))
    config = {"tf1": _tf1_config, "huggingface": _huggingface_config, "pytorch": _pytorch_config}[source](checkpoint, given, preset_name)
    corpus = _vocabulary_beside(checkpoint) if corpus is None and source == "huggingface" else corpus
    vocabulary = None if corpus is None else _vocabulary(corpus, dataset or chosen.get("data", info).get("dataset"), config.n_token)
    if source == "huggingface":
        model = load_huggingface(checkpoint, allow_partial, config)
    else:
        model = {"tf1": load_tf1_checkpoint, "pytorch": load_pytorch_checkpoint}[source](checkpoint, config, allow_partial)
    with writing(output, "output"):
        save_model(model, output, vocabulary)
    return config


def _corpus_info(path, corpus):
    """Returns n_token, cutoffs, dataset and path of a corpus-info.json, or of that beside the corpus; {} if there is none."""
    if path is None and corpus is not None:
        beside = os.path.join(os.path.dirname(corpus), "corpus-info.json")
        path = beside if tf.io.gfile.exists(beside) else None
    if path is None:
        return {}
    found = read_corpus_info(path)
    size = found["vocab_size"]
    return {"n_token": size, "cutoffs": tuple(cutoff for cutoff in found["cutoffs"] if 0 < cutoff < size), "dataset": found["dataset"], "path": path}


def _joined(given, info, path):
    """Returns the settings that were given with those of a corpus-info.json. Raises ValueError where they contradict each other."""
    other = [name for name in info if given.get(name, info[name]) != info[name]]
    if other:
        raise ValueError(f"The settings must be those of corpus-info.json, which has {', '.join(f'{name}={info[name]}' for name in other)}. "
                         f"Received: {', '.join(f'{name}={given[name]}' for name in other)}, corpus_info_path={path}")
    return {**given, **info}


def _tf1_config(prefix, given, preset_name):
    _check_given("mem_len", given, preset_name)
    return _agreed(tf1_settings(prefix), {"memory_start": "zeros", **given}, "checkpoint", prefix)


def _pytorch_config(path, given, preset_name):
    told = pytorch_settings(path)
    for name in ("mem_len",) if "cutoffs" in told else ("mem_len", "cutoffs"):
        _check_given(name, given, preset_name)
    return _agreed(told, given, "checkpoint", path)


def _check_given(name, given, preset_name):
    if name not in given:
        raise ValueError(f"{name} must be given, or a preset that has it, for the checkpoint does not tell it. Received: preset={preset_name}")


def _huggingface_config(folder, given, _):
    told = dataclasses.asdict(huggingface_config(folder, given))
    free = ("dropout", "dropatt", "tgt_len", "mem_len", "same_length", "clamp_len")
    return _agreed({name: value for name, value in told.items() if name not in free},
                   {**{name: told[name] for name in free}, **given}, "checkpoint", folder)


def _agreed(told, given, name, source):
    """Returns the ModelConfig of what a checkpoint tells and what was given. Raises ValueError where they contradict each other."""
    other = [setting for setting in told if setting in given and given[setting] != told[setting]]
    if other:
        raise ValueError(f"The settings must be those of the checkpoint, which has {', '.join(f'{setting}={told[setting]}' for setting in other)}. "
                         f"Received: {', '.join(f'{setting}={given[setting]}' for setting in other)}, {name}={source}")
    return ModelConfig(**{**given, **told})


def _vocabulary_beside(folder):
    paths = [os.path.join(folder, name) for name in VOCABULARIES]
    return next((path for path in paths if os.path.isfile(path)), None)


def _vocabulary(path, dataset, n_token):
    """Returns the vocabulary of a file. Raises ValueError if it can't be read or has another size than the checkpoint."""
    try:
        vocabulary = _read(path, dataset)
    except (ValueError, OSError) as error:
        raise ValueError(f"corpus must be the file of a vocabulary ({error}). Received: corpus={path}") from error
    if vocabulary.n_token != n_token:
        raise ValueError(f"corpus must have as many symbols as the checkpoint, {n_token}. Received: corpus={path}, {vocabulary.n_token} symbols")
    return vocabulary


def _read(path, dataset):
    original = original_of(path)
    if original is None and path.endswith(".json"):
        return load_vocabulary(path)
    entry = DATASETS.get(dataset or getattr(original, "dataset", None))
    kind = "word" if entry is None else entry.vocabulary
    start = dict(STARTS[kind]) if entry is None else entry.start_of(kind)
    if entry is None and original is not None:
        start.pop("unknown", None)  # the file tells whether there is one
    return read_vocabulary_file(path, kind, start) if original is None else original_vocabulary(original, kind, start)


def main(argv):
    logging.set_verbosity(logging.WARNING)
    given = flags.FLAGS
    with one_sentence("txl_tf.convert", ValueError, OSError, MemoryError, tf.errors.OpError):
        check_no_arguments(argv)
        config = convert(given["from"].value, given.checkpoint, given.output, given.corpus, given.preset, given_model_settings(),
                         given.dataset, given.allow_partial, given.corpus_info_path)
        say(f"a model of {config.n_layer} layers and {config.n_token:,} tokens lies in {given.output}")
        say(f"its settings, for a run that begins with it (--warm_start_path={given.output}): {as_flags(config)}")


if __name__ == "__main__":
    flags.DEFINE_enum("from", None, SOURCES, "the program that wrote the checkpoint", required=True)
    flags.DEFINE_string("checkpoint", None, "prefix or folder of the checkpoint (tf1), the folder (huggingface), or the file (pytorch)", required=True)
    flags.DEFINE_string("corpus", None, "its vocabulary: cache.pkl, vocab.pkl, vocab.bin, vocab.json, vocabulary.json or a list of words; unset: "
                        "what lies in a folder of Hugging Face's, or none")
    flags.DEFINE_string("corpus_info_path", None, "the original's corpus-info.json, which tells the cutoffs; unset: the one beside --corpus, if any")
    flags.DEFINE_string("dataset", None, "the dataset it was trained on; unset: the preset's, or what the corpus says")
    flags.DEFINE_string("output", None, "folder to write the model to", required=True)
    flags.DEFINE_bool("allow_partial", False, "list the variables that are missing, and keep their initial values, or unknown, and go on")
    define_model_flags()
    app.run(main)
