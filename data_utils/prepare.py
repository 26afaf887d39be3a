"""A dataset -> the vocabulary, TFRecords and manifest in a folder, made anew only where something has changed."""

import inspect
import logging
import os
import sys
from pathlib import Path

from data_utils.interrupts import end_at_interrupt

if __name__ == "__main__":
    end_at_interrupt("data_utils.prepare")
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from absl import app, flags

from data_utils.corpus_writer import CorpusWriter, settled_manifest
from data_utils.dataset_texts import SPLITS, obtain
from data_utils.datasets import DATASETS, dataset_entry
from data_utils.vocabulary import VOCABULARIES
from data_utils.vocabulary_recipe import VocabularyRecipe

_ORDER = ("num_passes", "num_shuffle", "shuffle_shards", "shuffle_seed")  # of the train split
VOCABULARY_OPTIONS = ("vocabulary", "vocab_file", "vocab_size", "min_freq", "lower_case")
_LOST = 0.01  # share of an evaluation split's tokens from which on a loss is worth a warning


def prepare_corpus(dataset, data_dir, train_batch_size=None, eval_batch_size=None, tgt_len=1, *, valid_batch_size=None,
                   test_batch_size=None, num_hosts=1, num_passes=None, num_shuffle=None, shuffle_shards=None,
                   shuffle_seed=None, num_procs=2, vocabulary=None, vocab_file=None, vocab_size=None, min_freq=None,
                   lower_case=None, **sources):
    """Writes the TFRecords, vocabulary.json and corpus.json of a dataset into data_dir and opens them.

    Text that is missing is downloaded where that is possible. Files are used again when corpus.json says that they were
    made from the same text and vocabulary with the same settings and they are still what was written; all others are
    made anew, and nothing is replaced before all of it can be made.

    Args:
        dataset: a name in `data_utils.datasets.DATASETS`, or tfds:NAME for any text of tensorflow-datasets.
        data_dir: the local folder to write to, which also holds the text of most datasets.
        train_batch_size: rows of a batch of the train split; None: as they were prepared, 32 the first time.
        eval_batch_size: rows of a batch of the valid and test splits; None: as they were prepared, 16 the first time.
        tgt_len: tokens of a segment. The files serve every length; it is asked for because the train split must hold
            one whole segment.
        valid_batch_size, test_batch_size: rows of one of these splits, where they are others than eval_batch_size.
        num_hosts: files a stream is written to, each with an equal share of the rows.
        num_passes: passes over the train split, each of which begins at another place when there are several.
        num_shuffle: how many times each shard of One Billion Word is shuffled and written; no other dataset is shuffled.
        shuffle_shards: whether these shards come in random order; else they are sorted, or in the order of train_files.
        shuffle_seed: seed of passes and shuffles. These four, if None: as it was prepared; 1, 4, False, 123456 the first time.
        num_procs: threads that take text apart.
        vocabulary: kind, a key of `VOCABULARIES`; None: that of the dataset. Where this and the next four are all None, and
            the folder was prepared for the same dataset, they are as they were then; so are the sources.
        vocab_file: a vocabulary that exists, see `data_utils.vocabulary_files`.
        vocab_size: ids of a vocabulary that is made: at most, for words and characters; exactly, for subwords.
        min_freq: how often a word or character must occur to be in the vocabulary.
        lower_case: whether words are lower-cased; None: as the dataset has it.
        sources: train_files, valid_files, test_files or tfds_splits, see `data_utils.dataset_texts`.

    Returns:
        A `data_utils.corpus.Corpus`.

    Raises:
        ValueError, OSError: one sentence that names the flag or file.

    Example:
        corpus = prepare_corpus("text", "data/mine", train_batch_size=16, eval_batch_size=8, tgt_len=128)
    """
    _check_positive(train_batch_size=train_batch_size, eval_batch_size=eval_batch_size, valid_batch_size=valid_batch_size,
                    test_batch_size=test_batch_size, tgt_len=tgt_len, num_hosts=num_hosts, num_passes=num_passes,
                    num_shuffle=num_shuffle, num_procs=num_procs, vocab_size=vocab_size, min_freq=min_freq)
    entry = dataset_entry(dataset)
    _check_data_dir(data_dir)
    chosen = {"vocabulary": [vocabulary, vocab_file, vocab_size, min_freq, lower_case],
              "sources": {name: value for name, value in sources.items() if value is not None}}
    chosen = _or_as_before(chosen, dataset, data_dir)
    recipe, sources = VocabularyRecipe.of(entry, data_dir, *chosen["vocabulary"]), chosen["sources"]
    _check_sources(entry, dataset, data_dir, sources)
    _check_order(entry, dataset, num_shuffle, shuffle_shards, shuffle_seed)
    _obtain(entry, data_dir, recipe, chosen)
    texts = entry.texts(data_dir, **sources)
    rows = {"train": train_batch_size, "valid": valid_batch_size or eval_batch_size, "test": test_batch_size or eval_batch_size}
    order = {"num_passes": num_passes, "num_shuffle": num_shuffle, "shuffle_shards": shuffle_shards, "shuffle_seed": shuffle_seed}
    corpus = CorpusWriter(
        dataset, data_dir, texts, recipe, rows, num_hosts, order, entry.lines_shuffled, tgt_len, num_procs, chosen).corpus()
    _warn(corpus)
    return corpus


def _or_as_before(chosen, dataset, data_dir):
    """Returns what was chosen of vocabulary and sources; where nothing was, what data_dir was prepared with."""
    before = settled_manifest(data_dir)
    if before is None or before["dataset"] != dataset:
        return chosen
    return {name: value if any(item is not None for item in value) else before["chosen"][name] for name, value in chosen.items()}


def _check_positive(**sizes):
    for name, value in sizes.items():
        if value is not None and value < 1:
            raise ValueError(f"Expected --{name} of at least 1. Received: {name}={value}")


def _check_sources(entry, dataset, data_dir, sources):
    for name, value in sources.items():
        if name not in entry.options:
            takes = f"takes {', '.join(entry.options)}" if entry.options else "takes none"
            raise ValueError(f"Expected --{name} with a dataset that takes it; {dataset} {takes}. Received: {name}={value!r}")
    if entry.text_in_data_dir and len(sources) < len(SPLITS) and not Path(data_dir).exists():
        raise FileNotFoundError(f"Expected --data_dir to exist and hold the text. Received: data_dir={data_dir}")


def _check_order(entry, dataset, num_shuffle, shuffle_shards, shuffle_seed):
    if not entry.lines_shuffled and (num_shuffle is not None or shuffle_shards):
        raise ValueError(f"Expected --num_shuffle and --shuffle_shards with lm1b alone, whose sentences are independent. Received: "
                         f"dataset={dataset}, num_shuffle={num_shuffle}, shuffle_shards={shuffle_shards}")
    if shuffle_seed is not None and not 0 <= shuffle_seed < 1 << 32:
        raise ValueError(f"Expected --shuffle_seed from 0 to 2**32 - 1. Received: shuffle_seed={shuffle_seed}")


def _obtain(entry, data_dir, recipe, chosen):
    """Downloads what the dataset needs and the user has not named."""
    if entry.archives:
        own_vocabulary = ["vocabulary"] if chosen["vocabulary"][1] is not None or recipe.file is None else []
        obtain(entry.archives, data_dir, [*(name.removesuffix("_files") for name in chosen["sources"]), *own_vocabulary])


def _check_data_dir(data_dir):
    if not data_dir:
        raise ValueError(f"Expected --data_dir to name a folder. Received: data_dir={data_dir!r}")
    if "://" in str(data_dir):
        raise ValueError("Expected --data_dir to be a local folder, which can be copied elsewhere when it is finished. "
                         f"Received: data_dir={data_dir}")
    nearest = Path(data_dir).absolute()
    while not nearest.exists():
        nearest = nearest.parent
    if not nearest.is_dir():
        raise NotADirectoryError(
            f"Expected --data_dir to be a folder, but {nearest} is a file. Received: data_dir={data_dir}"
        )
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise PermissionError(f"Expected --data_dir to be writable, unlike {nearest}. Received: data_dir={data_dir}")


def _warn(corpus):
    """Warns of what an evaluation of the corpus does not see as it stands in the text."""
    for split in corpus.splits:
        tokens, unknown = corpus.n_tokens(split), corpus.n_unknown(split)
        lost = tokens - corpus.n_labels(split)
        if split != "train" and lost > _LOST * tokens:
            logging.warning("%d of the %d tokens of the %s split are not scored, %.1f %%: each of the %d rows has one that "
                            "nothing predicts, and rows have equal length; fewer rows lose less.",
                            lost, tokens, split, 100 * lost / tokens, corpus.rows(split))
        if unknown:
            logging.warning("%d of the %d tokens of the %s split are not in the vocabulary and become its unknown symbol.",
                            unknown, tokens, split)


def _define_flags():
    defaults = {name: parameter.default for name, parameter in inspect.signature(prepare_corpus).parameters.items()}
    flags.DEFINE_string("dataset", "stdlib", f"One of {', '.join(sorted(DATASETS))}, or tfds:NAME.")
    flags.DEFINE_string("data_dir", None, "Folder to write to, and the folder of the text.", required=True)
    for split in SPLITS:
        rows = 32 if split == "train" else 16
        flags.DEFINE_integer(f"per_host_{split}_bsz", None, f"Rows of a batch of the {split} split on one host; unset or 0: as "
                             f"they were prepared, the first time {rows} over all hosts.")
        flags.DEFINE_string(f"{split}_files", None, f"Files of the {split} split elsewhere than in data_dir: paths or patterns, "
                            "also .gz and gs://, separated by commas, in this order.")
    flags.DEFINE_integer("tgt_len", 64, "Tokens of a segment, which a row must have; the files serve every length.")
    flags.DEFINE_integer("num_hosts", defaults["num_hosts"], "Hosts that will train, each with files of its own.")
    order = "Of no effect where only other splits have a per_host_*_bsz. Unset: as it was prepared, the first time"
    flags.DEFINE_integer("num_passes", None, f"Passes over the train split, from random places if several. {order} 1.")
    flags.DEFINE_integer("num_shuffle", None, f"Shuffles of each shard of lm1b. {order} 4.")
    flags.DEFINE_bool("shuffle_shards", None, f"Whether the shards of lm1b come in random order. {order} false.")
    flags.DEFINE_integer("shuffle_seed", None, f"Seed of passes and shuffles. {order} 123456.")
    flags.DEFINE_integer("num_procs", defaults["num_procs"], "Threads that take text apart; the result is the same.")
    flags.DEFINE_enum("vocabulary", None, sorted(VOCABULARIES), "Kind of the vocabulary; unset: that of the dataset.")
    flags.DEFINE_string("vocab_file", None, "A vocabulary that exists: a list of words, a SentencePiece .model, vocabulary.json, "
                        "or cache.pkl, vocab.pkl or vocab.bin of the original code or of Hugging Face.")
    flags.DEFINE_integer("vocab_size", None, "Ids of a vocabulary that is made: at most (words, characters), exactly (subwords).")
    flags.DEFINE_integer("min_freq", None, "How often a word or character must occur to be in the vocabulary.")
    flags.DEFINE_bool("lower_case", None, "Whether words are lower-cased; unset: as the dataset has it.")
    flags.DEFINE_string("tfds_splits", None, "The three splits of tfds:NAME, such as train[:90%],train[90%:95%],train[95%:].")
    flags.DEFINE_bool("use_tpu", None, "The original code's; changes nothing, for the files serve TPUs and GPUs alike.")
    flags.DEFINE_integer("num_core_per_host", None, "Devices of a host, which per_host_*_bsz must be a multiple of.")
    flags.DEFINE_alias("num_host", "num_hosts")


def _arguments():
    """Returns the arguments of `prepare_corpus` that the flags give."""
    values = flags.FLAGS.flag_values_dict()
    parameters = inspect.signature(prepare_corpus).parameters
    arguments = {name: values[name] for name in [*parameters, "train_files", "valid_files", "test_files", "tfds_splits"]
                 if name in values}
    rows = {split: values[f"per_host_{split}_bsz"] or None for split in SPLITS}  # 0 is the original's way to leave a split out
    if rows["train"] is None and any(rows.values()):
        arguments.update(dict.fromkeys(_ORDER))  # as in the original code, which makes the splits that have rows alone
    for split in SPLITS:
        _check_rows(f"per_host_{split}_bsz", rows[split], values["num_core_per_host"])
        arguments[f"{split}_batch_size"] = None if rows[split] is None else rows[split] * values["num_hosts"]
    return arguments


def _check_rows(name, rows, cores):
    _check_positive(**{name: rows}, num_core_per_host=cores)
    if rows is not None and cores is not None and rows % cores:
        raise ValueError(f"Expected --{name} to be a multiple of --num_core_per_host. "
                         f"Received: {name}={rows}, num_core_per_host={cores}")


def _main(argv):
    try:
        if len(argv) > 1:
            raise ValueError(f"Expected flags alone. Received: {' '.join(argv[1:])}")
        corpus = prepare_corpus(**_arguments())
    except (ValueError, OSError) as error:
        sys.exit(f"data_utils.prepare: {error}")
    except KeyboardInterrupt:
        print("data_utils.prepare: interrupted; the same command begins anew", file=sys.stderr)
        sys.exit(130)
    for split in corpus.splits:
        tokens, rows, labels = corpus.n_tokens(split), corpus.rows(split), corpus.n_labels(split)
        print(f"{split}: {tokens:,} tokens in {rows} rows, {labels:,} of them predicted, {corpus.n_left_out(split):,} left out "
              f"so that rows have one length")
    print(f"vocabulary: {corpus.vocabulary.kind}, {corpus.n_token:,} ids; {corpus.data_dir} is prepared")


if __name__ == "__main__":
    _define_flags()
    app.run(_main)
