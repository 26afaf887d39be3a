"""The corpus that a training script names: raw text, a prepared folder, or what the original code prepared."""

import os

import tensorflow as tf

from data_utils.corpus import MANIFEST, Corpus, read_manifest
from data_utils.corpus_writer import RECORDS, settled_manifest
from data_utils.datasets import dataset_entry
from data_utils.original_corpus import OriginalCorpus
from data_utils.prepare import VOCABULARY_OPTIONS, prepare_corpus

_RECORD_INFO = "record_info-*.json"
_NOT_OF_THE_RECORDS = {"train_batch_size", "eval_batch_size", "num_procs"}


def open_corpus(dataset, data_dir, tgt_len, *, num_hosts=1, record_info_dir=None, corpus_info_path=None, **wishes):
    """Opens the corpus of a folder, after preparing what is missing of it.

    Args:
        dataset: name of the dataset; None: the one that the folder was prepared for, otherwise text.
        data_dir: a folder of raw text, a prepared one or the folder of its records, or the folder of the original code's
            records. All but the first may be at any address that tf.io.gfile opens.
        tgt_len: tokens of a training segment.
        num_hosts: hosts that train together.
        record_info_dir: folder of the record_info files that the original code wrote with its records.
        corpus_info_path: its corpus-info.json.
        wishes: other arguments of `data_utils.prepare.prepare_corpus`.

    Returns:
        A `Corpus` or an `OriginalCorpus`.

    Raises:
        ValueError, OSError: one sentence that names the flag or file.
    """
    prepared, manifest = _prepared_folder(data_dir)
    info_dir = record_info_dir or data_dir
    has_originals = tf.io.gfile.isdir(info_dir) and bool(tf.io.gfile.glob(os.path.join(info_dir, _RECORD_INFO)))
    if has_originals and prepared and record_info_dir is None:
        raise ValueError("Expected --record_info_dir where --data_dir holds records of the original code besides others. "
                         f"Received: data_dir={data_dir}")
    if has_originals:
        return _original(info_dir, data_dir, corpus_info_path, dataset, num_hosts, wishes)
    if record_info_dir is not None and (prepared is None or _prepared_folder(record_info_dir)[0] is None):
        raise FileNotFoundError(f"Expected {_RECORD_INFO} in --record_info_dir, or corpus.json of a prepared folder. "
                                f"Received: record_info_dir={record_info_dir}")
    folder = data_dir if prepared is None else prepared
    if dataset is None:
        dataset = "text" if prepared is None else manifest["dataset"]
    same = prepared is not None and dataset == manifest["dataset"]
    if same and ("://" in folder or not _has_text(dataset, folder, manifest, wishes)):
        return _as_it_is(folder, manifest, num_hosts, wishes)
    return prepare_corpus(dataset, folder, tgt_len=tgt_len, num_hosts=num_hosts, **wishes)


def _prepared_folder(data_dir):
    """Returns the prepared folder that data_dir is, or whose records it holds, and its manifest; otherwise (None, None)."""
    data_dir = str(data_dir).rstrip("/") or "/"
    above, name = os.path.split(data_dir)
    folders = [data_dir, above] if name == RECORDS else [data_dir]
    for folder in folders:
        exists = "://" in folder and tf.io.gfile.exists(os.path.join(folder, MANIFEST))
        manifest = read_manifest(folder) if exists else settled_manifest(folder)
        if manifest is not None:
            return folder, manifest
    return None, None


def _has_text(dataset, folder, manifest, wishes):
    """Tells whether the text that a folder was prepared from is still there."""
    named = {name: value for name, value in wishes.items() if name in dataset_entry(dataset).options and value is not None}
    try:
        return bool(dataset_entry(dataset).texts(folder, **(named or manifest["chosen"]["sources"])))
    except OSError:
        return False


def _as_it_is(folder, manifest, num_hosts, wishes):
    """Opens a prepared folder that can't be prepared again, if it is as wished for."""
    corpus = Corpus(folder)
    rows = _rows(wishes)
    there = {"num_hosts": corpus.num_hosts, **dict(zip(VOCABULARY_OPTIONS, manifest["chosen"]["vocabulary"], strict=True)),
             **manifest["chosen"]["sources"], **manifest["splits"]["train"]["made_from"]["order"],
             **{f"rows of {split}": corpus.rows(split) for split in corpus.splits}}
    wished = {"num_hosts": num_hosts, **{f"rows of {split}": rows[split] for split in corpus.splits},
              **{name: value for name, value in wishes.items() if name not in _NOT_OF_THE_RECORDS}}
    other = [name for name, value in wished.items() if value is not None and value != there.get(name)]
    if other:
        raise ValueError(f"Expected what {MANIFEST} says in a --data_dir that can't be prepared again, without its text here: "
                         f"{', '.join(f'{name}={there.get(name)}' for name in other)}. "
                         f"Received: data_dir={folder}, {', '.join(f'{name}={wished[name]}' for name in other)}")
    return corpus


def _rows(wishes):
    evaluated = wishes.get("eval_batch_size")
    return {"train": wishes.get("train_batch_size"), "valid": evaluated, "test": evaluated}


def _original(info_dir, data_dir, corpus_info_path, dataset, num_hosts, wishes):
    if num_hosts != 1:
        raise ValueError("Expected one host for records of the original code; records for several are prepared with "
                         f"data_utils.prepare --num_hosts. Received: num_hosts={num_hosts}")
    corpus = OriginalCorpus(info_dir, data_dir, corpus_info_path, _rows(wishes), wishes.get("vocab_file"))
    for name, wished, there in (("dataset", dataset, corpus.name), ("vocabulary", wishes.get("vocabulary"), corpus.vocabulary.kind)):
        if wished not in (None, there, f"{there}_original"):
            raise ValueError(f"Expected --{name}={there}, as the original code's records have it. Received: {name}={wished}")
    return corpus
