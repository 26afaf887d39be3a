"""Beam search: the likeliest continuations of a prompt, several kept at a time, each with the memory of its own text."""

import numbers

import numpy as np
import tensorflow as tf

from txl_tf.inference.cache import read
from txl_tf.inference.per_model import per_model
from txl_tf.inference.sampling import (
    check_length, check_prompts, check_stop_tokens, is_one_prompt, memory_length, prompt_rows, read_prompts)


def beam_search(model, prompt_ids, max_new_tokens, num_beams=4, length_penalty=1.0, mem_len=None, stop_tokens=()):
    """Returns the best continuations of a prompt that were found, best first.

    A continuation ends with a stop token or after max_new_tokens. Its score is the sum of its tokens' log-probabilities, divided by
    its number of tokens to the power of length_penalty. The search ends as soon as no open continuation can still
    be better than the num_beams best that have ended.

    Args:
        model: a TransformerXLLM, whose weights must not change meanwhile.
        prompt_ids: (B, P) or (P,) integers, or B lists of integers of any lengths, each at least 1.
        max_new_tokens: tokens to add at most.
        num_beams: continuations that are kept at each step.
        length_penalty: 0 favours short continuations, larger values longer ones.
        mem_len: slots of the memory; None: the model's, or its segment's length where it was trained without memory.
        stop_tokens: tokens that end a continuation.

    Returns:
        At most num_beams pairs (prompt and continuation as int32 array, score), and of several prompts a list of such lists.

    Raises:
        ValueError: if an argument can't be used; the sentence names it and what was received.
    """
    rows = prompt_rows(prompt_ids)
    check_prompts(rows, model.config.n_token)
    check_stop_tokens(stop_tokens, model.config.n_token)
    for name, value, least in (("max_new_tokens", max_new_tokens, 1), ("num_beams", num_beams, 1), ("mem_len", mem_len or 0, 0)):
        check_length(name, value, least)
    if not isinstance(length_penalty, numbers.Real) or not abs(length_penalty) <= 20:
        raise ValueError(f"length_penalty must be a number from -20 to 20. Received: length_penalty={length_penalty}")
    longest = max(map(len, rows)) + max_new_tokens
    if model.config.window and longest > model.config.window:
        raise ValueError(f"A prompt and max_new_tokens must together be at most {model.config.window} tokens, whose places the model knows. "
                         f"Received: {longest}")
    searches = [_Search(row, max_new_tokens, num_beams, length_penalty, frozenset(stop_tokens)) for row in rows]
    _run(model, rows, searches, num_beams, min(num_beams + len(searches[0].stop_tokens), model.config.n_token),
         memory_length(model, mem_len))
    found = [search.best() for search in searches]
    return found[0] if is_one_prompt(prompt_ids) else found


class _Search:
    """The continuations of one prompt."""

    def __init__(self, prompt, max_new_tokens, num_beams, length_penalty, stop_tokens):
        self.prompt, self.max_new_tokens, self.num_beams = prompt, max_new_tokens, num_beams
        self.length_penalty, self.stop_tokens = length_penalty, stop_tokens
        self.open = [((), 0.0)]  # (tokens, sum of their log-probabilities), best first
        self.ended = []  # (tokens, score), best first

    def extend(self, log_probs, ids):
        """Takes the candidates (beams, k) of every open continuation, and returns the beams from which the new ones come."""
        candidates = sorted(((total + log_prob, beam, tokens + (int(token),))
                             for beam, (tokens, total) in enumerate(self.open)
                             for log_prob, token in zip(log_probs[beam].tolist(), ids[beam].tolist())),
                            key=lambda candidate: -candidate[0])
        self.open, parents = [], []
        for total, beam, tokens in candidates:
            if tokens[-1] in self.stop_tokens or len(tokens) == self.max_new_tokens:
                self.ended.append((tokens, self._score(total, len(tokens))))
            elif len(self.open) < self.num_beams:
                self.open.append((tokens, total))
                parents.append(beam)
        self.ended = sorted(self.ended, key=lambda end: -end[1])[:self.num_beams]
        if self._is_decided():
            self.open = []
        return parents

    def best(self):
        return [(np.concatenate([self.prompt, tokens]).astype(np.int32), score) for tokens, score in self.ended]

    def _score(self, total, length):
        return total / length ** self.length_penalty

    def _is_decided(self):
        """Whether no open continuation can still be better; more tokens never raise its sum."""
        if len(self.ended) < self.num_beams or not self.open:
            return not self.open
        tokens, total = self.open[0]
        return max(self._score(total, len(tokens) + 1), self._score(total, self.max_new_tokens)) <= self.ended[-1][1]


def _run(model, rows, searches, num_beams, size, mem_len):
    hidden, cache = read_prompts(model, rows, mem_len)
    log_probs, ids = (best.numpy() for best in _candidates(model, hidden, size))  # (B, k)
    parents = [search.extend(log_probs[[row]], ids[[row]]) for row, search in enumerate(searches)]
    places = [[row] * len(found) for row, found in enumerate(parents)]  # rows of the cache that the open continuations go on from
    while any(search.open for search in searches):
        sources, tokens = np.zeros((2, len(searches), num_beams), np.int32)  # rows without a continuation repeat some other
        for row, search in enumerate(searches):
            for beam, (source, (continuation, _)) in enumerate(zip(places[row], search.open)):
                sources[row, beam], tokens[row, beam] = source, continuation[-1]
        log_probs, ids, cache = _step(model, cache, tf.constant(sources.ravel()), tf.constant(tokens.ravel()), size)
        log_probs, ids = (best.numpy().reshape(len(searches), num_beams, -1) for best in (log_probs, ids))
        for row, search in enumerate(searches):
            if search.open:
                places[row] = [row * num_beams + beam for beam in search.extend(log_probs[row], ids[row])]


@per_model(reduce_retracing=True)
def _candidates(model, hidden, size):
    return tuple(best[:, 0] for best in model.head.top_k(hidden, size))


@per_model(reduce_retracing=True)
def _step(model, cache, sources, tokens, size):
    """Returns the candidates (rows, size) after tokens, each read with the memory of the row that it comes from, and the cache."""
    layers = tuple({name: tf.gather(ring, sources) for name, ring in layer.items()} for layer in cache["layers"])
    cache = {**cache, "layers": layers, "length": tf.gather(cache["length"], sources)}
    hidden, cache = read(model, tokens[:, None], cache)
    log_probs, ids = (best[:, 0] for best in model.head.top_k(hidden, size))
    return log_probs, ids, cache
