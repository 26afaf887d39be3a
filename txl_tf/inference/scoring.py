"""The log-probability of every token of texts; texts of different lengths are read side by side."""

import numbers

import numpy as np
import tensorflow as tf

from txl_tf.inference.cache import initial_cache, read
from txl_tf.inference.per_model import per_model

_AT_ONCE = 64  # segments that one call scores; within a call the cache is written in place


def score(model, documents, mem_len=None, tgt_len=None, batch_size=16):
    """Returns the log-probability of every token of each document, given the tokens before it in that document.

    Each document is read from an empty memory (the model's memory_start), in segments that hand it on. Its first token has
    nothing before it and gets no score: n tokens give n-1 scores, and 0 or 1 token none. The documents that share a batch do
    not change each other's scores. The weights must not change meanwhile.

    Args:
        model: a TransformerXLLM.
        documents: sequences (n,) of integer token ids, of any lengths.
        mem_len: slots of the memory; None: the model's.
        tgt_len: tokens of a segment; None: the model's.
        batch_size: documents that are read side by side at most; those of like length come together.

    Returns:
        A list with a float32 array for each document: (max(n-1, 0),) in nats and text order.

    Raises:
        ValueError: if a document holds other than integers from 0 to V-1, a size can't be used, or the model has not learned so many
            places or distances.
    """
    documents = [np.asarray(document if len(document) else np.zeros(0, np.int32)) for document in documents]
    mem_len = model.config.mem_len if mem_len is None else mem_len
    tgt_len = model.config.tgt_len if tgt_len is None else tgt_len
    check_sizes(mem_len=mem_len, tgt_len=tgt_len, batch_size=batch_size)
    model.config.evaluation_lengths(tgt_len, mem_len)  # or an error
    for index, document in enumerate(documents):
        _check_document(document, index, model.config.n_token)
    longest_first = sorted(range(len(documents)), key=lambda index: -len(documents[index]))
    scores = [None] * len(documents)
    for start in range(0, len(documents), batch_size):
        indices = longest_first[start:start + batch_size]
        for index, found in zip(indices, _batch_scores(model, [documents[index] for index in indices], mem_len, tgt_len), strict=True):
            scores[index] = found
    return scores


def check_sizes(**sizes):
    """Raises ValueError unless all are integers of at least 1, mem_len of at least 0; None stands for a default."""
    for name, size in sizes.items():
        least = 0 if name == "mem_len" else 1
        if size is not None and not (isinstance(size, numbers.Integral) and size >= least):
            raise ValueError(f"{name} must be an integer of at least {least}. Received: {name}={size}")


def _check_document(document, index, n_token):
    if document.ndim != 1 or not np.issubdtype(document.dtype, np.integer):
        raise ValueError(f"documents must be integers of shape (n,). Received: documents[{index}] of shape={document.shape}, "
                         f"dtype={document.dtype}")
    if document.size and not 0 <= document.min() <= document.max() < n_token:
        raise ValueError(f"documents must hold ids from 0 to {n_token - 1}. Received: documents[{index}] with "
                         f"{document.min()} .. {document.max()}")


def _batch_scores(model, documents, mem_len, tgt_len):
    """Returns the scores of documents that make one batch. They are padded behind their ends, where nothing that counts looks."""
    rows, length = len(documents), max(len(document) for document in documents) - 1
    if length < 1:
        return [np.zeros(0, np.float32) for _ in documents]
    tgt_len = min(tgt_len, 1 << (length - 1).bit_length())  # powers of two, so that short texts need few programs
    segments = -(-length // tgt_len)
    if model.config.memory_start == "empty":
        mem_len = min(mem_len, segments * tgt_len)  # nothing is further back
    tokens = np.zeros((rows, segments * tgt_len + 1), np.int32)
    for row, document in zip(tokens, documents, strict=True):
        row[:len(document)] = document
    token_ids, labels = (side.reshape(rows, segments, tgt_len).swapaxes(0, 1) for side in (tokens[:, :-1], tokens[:, 1:]))
    cache, found = initial_cache(model, rows, mem_len, tgt_len), []
    for start in range(0, segments, _AT_ONCE):
        stop = start + _AT_ONCE
        nll, cache = _nll(model, tf.constant(token_ids[start:stop]), tf.constant(labels[start:stop]), cache)
        found.append(nll.numpy())
    scores = -np.concatenate(found).swapaxes(0, 1).reshape(rows, -1)
    return [row[:max(len(document) - 1, 0)].copy() for row, document in zip(scores, documents, strict=True)]


@per_model(reduce_retracing=True)
def _nll(model, token_ids, labels, cache):
    """Returns the negative log-likelihoods of K segments (K, B, T), read one after the other, and the cache after them."""
    nll = tf.TensorArray(tf.float32, tf.shape(token_ids)[0])
    for index in tf.range(tf.shape(token_ids)[0]):
        hidden, cache = read(model, token_ids[index], cache)
        nll = nll.write(index, model.head.nll(hidden, labels[index]))
    return nll.stack(), cache
