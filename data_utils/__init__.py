"""Data preparation: raw text -> vocabulary -> ids -> TFRecords of contiguous rows -> (token_ids, labels) batches.

    from data_utils import prepare_corpus

    corpus = prepare_corpus("stdlib", "data/stdlib", train_batch_size=16, eval_batch_size=8, tgt_len=128)
    for token_ids, labels in corpus.dataset("train", tgt_len=128):
        ...
"""

import importlib

_HOMES = {
    "ByteVocabulary": "byte_vocabulary",
    "CharVocabulary": "char_vocabulary",
    "Corpus": "corpus",
    "DATASETS": "datasets",
    "SubwordVocabulary": "subword_vocabulary",
    "VOCABULARIES": "vocabulary",
    "WordVocabulary": "word_vocabulary",
    "OriginalCorpus": "original_corpus",
    "load_vocabulary": "vocabulary",
    "open_corpus": "opening",
    "prepare_corpus": "prepare",
    "random_lengths": "input_pipeline",
}

__all__ = sorted(_HOMES)


def __getattr__(name):
    """Imports a public name on first use, so that `python -m data_utils.prepare` runs one copy of prepare."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
