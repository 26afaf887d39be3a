"""The text that a trained model is measured on."""

from data_utils.opening import open_corpus


def open_corpus_of(vocabulary, dataset, data_dir, tgt_len):
    """Returns the corpus of a folder, as `data_utils.opening.open_corpus` does.

    Raises:
        ValueError: if its vocabulary is not that of the model.
    """
    corpus = open_corpus(dataset, data_dir, tgt_len)
    if corpus.vocabulary.sha256() != vocabulary.sha256():
        raise ValueError(f"data_dir must have the vocabulary of the model, of {vocabulary.n_token} symbols. Received: "
                         f"data_dir={data_dir}, of {corpus.n_token} symbols")
    return corpus
