"""Sampling of text: the prompts are read once, then one token at a time is drawn and fed."""

import functools
import numbers
import secrets

import numpy as np
import tensorflow as tf

from txl_tf.inference.cache import check_keys, initial_cache, read, refitted, segment_length
from txl_tf.inference.per_model import per_model

ENDED = -1  # stands for the tokens of a row after its end
_MOST_AT_ONCE = 32  # tokens that one call samples; within a call the cache is written in place


def generate(model, prompt_ids, max_new_tokens, **settings):
    """Returns each prompt and the tokens sampled after it; the arguments are those of `sample_tokens`.

    Returns:
        (B, P + max_new_tokens) or, for a prompt (P,), (P + max_new_tokens,) int32; with prompts of several lengths or with
        stop_tokens a list of arrays, each with the stop token that ended it, if one did.
    """
    rows = prompt_rows(prompt_ids)
    sampled = np.stack(list(sample_tokens(model, prompt_ids, max_new_tokens, **settings)), axis=-1)  # (B, max_new_tokens)
    outputs = [np.concatenate([row, more[more != ENDED]]).astype(np.int32) for row, more in zip(rows, sampled, strict=True)]
    if is_one_prompt(prompt_ids):
        return outputs[0]
    return outputs if settings.get("stop_tokens") or len({len(row) for row in rows}) > 1 else np.stack(outputs)


def sample_tokens(model, prompt_ids, max_new_tokens, top_k=40, temperature=1.0, seed=None, mem_len=None, top_p=1.0,
                  repetition_penalty=1.0, stop_tokens=()):
    """Yields (B,) int32 sampled tokens, one time step after another, a few of them computed at once.

    What a row samples depends on its own prompt and seed alone, whatever else is in the batch.

    Args:
        model: a TransformerXLLM, whose weights must not change meanwhile.
        prompt_ids: (B, P) or (P,) integers, or B lists of integers of any lengths, each at least 1.
        max_new_tokens: tokens to sample at most.
        top_k: draw among the k likeliest tokens, renormalised; 0: among all; 1: take the likeliest.
        temperature: divides the log-probabilities before drawing; 0: take the likeliest.
        seed: integer, row i is drawn with seed + i; the same seed gives the same tokens. None: another at each call.
        mem_len: slots of the memory; None: the model's, or its segment's length where it was trained without memory. A model that
            knows places (config.window) takes none; where a text grows beyond them, it goes on with its last half read anew.
        top_p: of the k, draw among the likeliest whose probabilities reach this sum (Holtzman et al. 2019, arXiv 1904.09751).
        repetition_penalty: multiplies the log-probabilities of tokens that the row holds already (after Keskar et al. 2019,
            arXiv 1909.05858); 1: none.
        stop_tokens: tokens after which a row ends; what would follow is ENDED.

    Raises:
        ValueError: if an argument can't be used; the sentence names it and what was received.
    """
    rows = prompt_rows(prompt_ids)
    check_prompts(rows, model.config.n_token)
    _check(max_new_tokens, top_k, temperature, seed, mem_len, top_p, repetition_penalty, stop_tokens, model.config.n_token)
    seed = secrets.randbits(31) if seed is None else seed
    size = 1 if temperature == 0 else min(top_k or model.config.n_token, model.config.n_token)
    settings = {
        "temperature": tf.fill((len(rows),), float(temperature)), "top_p": tf.fill((len(rows),), float(top_p)),
        "seeds": tf.constant([_wrapped(seed + row) for row in range(len(rows))], tf.int64),
        "stop_tokens": tf.constant(list(stop_tokens), tf.int32)}
    if repetition_penalty != 1:
        settings["repetition_penalty"] = tf.constant(float(repetition_penalty))
    return _sampled(model, rows, max_new_tokens, size, settings, memory_length(model, mem_len))


def prompt_rows(prompt_ids):
    """Returns prompts (P,), (B, P) or of several lengths as a list of arrays."""
    return [np.asarray(prompt_ids)] if is_one_prompt(prompt_ids) else [np.asarray(row) for row in prompt_ids]


def is_one_prompt(prompt_ids):
    """Tells whether prompt_ids are one row (P,), or can't be rows at all, rather than several."""
    try:
        return len(prompt_ids) == 0 or np.ndim(prompt_ids[0]) == 0
    except TypeError:  # a scalar
        return True


def memory_length(model, mem_len):
    """Returns the slots of the memory: mem_len, else the model's, else its segment's length where it was trained without memory.

    A model that knows places has a slot for each, one that knows distances at most as many as it knows. Raises ValueError if it is to
    have another number.
    """
    config = model.config
    if config.window and mem_len not in (None, config.window):
        raise ValueError(f"mem_len must be unset for a model that knows the places of texts of {config.window} tokens. Received: "
                         f"mem_len={mem_len}")
    if mem_len is None:
        mem_len = config.window or config.mem_len or segment_length(config, 1)  # beside one token
    check_keys(config, mem_len, 1)
    return mem_len


def read_prompts(model, rows, mem_len):
    """Reads prompts of any lengths, which end together, and returns (hidden states (B, 1, D) of their last tokens, cache for single tokens)."""
    longest = max(map(len, rows))
    length = min(segment_length(model.config, mem_len), 1 << (longest - 1).bit_length())  # few lengths, so few programs
    count = -(-longest // length)
    token_ids = np.zeros((len(rows), count * length), np.int32)
    for ids, row in zip(token_ids, rows, strict=True):
        ids[len(ids) - len(row):] = row
    lengths = np.array([[min(max(len(row) - length * after, 0), length) for row in rows] for after in reversed(range(count))], np.int32)
    cache = _initial_cache(model, len(rows), mem_len, length)
    for segment, counted in zip(np.split(token_ids, count, axis=1), lengths, strict=True):
        hidden, cache = _read(model, tf.constant(segment), cache, tf.constant(counted))
    return hidden[:, -1:], _refitted(model, cache, mem_len, 1)


_initial_cache, _refitted = per_model(initial_cache), per_model(refitted)
_read = per_model(read, reduce_retracing=True)


def _sampled(model, rows, max_new_tokens, size, settings, mem_len):
    texts = _Texts(model, rows, mem_len)
    hidden, cache = texts.read_anew()
    state = {"ended": tf.zeros((len(rows),), tf.bool), "index": tf.constant(0)}
    if "repetition_penalty" in settings:
        state["seen"] = tf.constant(np.stack([np.isin(np.arange(model.config.n_token), row) for row in rows]))  # (B, V)
    token, state = _first(model, hidden, state, settings, size)
    texts.grow(token.numpy()[None])
    yield token.numpy()
    done, at_once = 1, 1
    while done < max_new_tokens and not tf.reduce_all(state["ended"]):
        if not texts.room():
            texts.shorten()
            _, cache = texts.read_anew()
        at_once = min(2 * at_once, _MOST_AT_ONCE, max_new_tokens - done, texts.room())
        tokens, token, cache, state = _more(model, token, cache, state, settings, size, tf.constant(at_once))
        texts.grow(tokens.numpy())
        done += at_once
        yield from tokens.numpy()


class _Texts:
    """What a model has read of each row, whose last token it has sampled, but not read.

    A model that knows places has read at most as many tokens; where a text grows beyond, its last half is read anew.
    """

    def __init__(self, model, rows, mem_len):
        self.model, self.mem_len, self.window = model, mem_len, model.config.window
        self.read = [list(row[-self.window:] if self.window else row) for row in rows]
        self.last = None

    def read_anew(self):
        """Returns (hidden states (B, 1, D) of the last tokens, cache for single tokens)."""
        return read_prompts(self.model, [np.array(tokens, np.int32) for tokens in self.read], self.mem_len)

    def grow(self, tokens):
        """Takes sampled tokens (X, B), of which all but the last are read."""
        tokens = np.maximum(tokens, 0)
        if self.window and self.last is not None:
            for row, more in zip(self.read, np.concatenate([self.last, tokens[:-1]]).T):
                row.extend(more.tolist())
        self.last = tokens[-1:]

    def room(self):
        """Returns how many tokens can be read before a text must be shortened."""
        return self.window - max(map(len, self.read)) if self.window else _MOST_AT_ONCE

    def shorten(self):
        """Keeps the last half of every text that is as long as can be."""
        self.read = [row[-(self.window // 2):] if len(row) == self.window else row for row in self.read]


@per_model(reduce_retracing=True)
def _first(model, hidden, state, settings, size):
    return _next_token(model, hidden, state, settings, size)


@per_model(reduce_retracing=True)
def _more(model, token, cache, state, settings, size, count):
    """Returns (tokens (count, B), the last of them, cache and state after)."""
    tokens = tf.TensorArray(tf.int32, count, element_shape=token.shape)
    for index in tf.range(count):
        hidden, cache = read(model, tf.maximum(token, 0)[:, None], cache)
        token, state = _next_token(model, hidden, state, settings, size)
        tokens = tokens.write(index, token)
    return tokens.stack(), token, cache, state


def _next_token(model, hidden, state, settings, size):
    """Returns (tokens (B,) drawn after hidden states (B, 1, D), state after)."""
    if "seen" in state:
        log_probs = model.head.log_probs(hidden)[:, 0]
        log_probs, ids = tf.math.top_k(tf.where(state["seen"], log_probs * settings["repetition_penalty"], log_probs), size)
    else:
        log_probs, ids = (best[:, 0] for best in model.head.top_k(hidden, size))  # (B, size)
    token = draw(log_probs, ids, settings["seeds"], state["index"], settings["temperature"], settings["top_p"])
    token = tf.where(state["ended"], ENDED, token)
    after = {"ended": state["ended"] | tf.reduce_any(token[:, None] == settings["stop_tokens"], axis=1), "index": state["index"] + 1}
    if "seen" in state:
        after["seen"] = state["seen"] | tf.one_hot(token, model.config.n_token, True, False)
    return token, after


def draw(log_probs, ids, seeds, index, temperature, top_p):
    """Returns (B,) int32 tokens drawn from candidates, by the largest of log-probability plus Gumbel noise.

    Args:
        log_probs: (B, k), best first; they need not sum to one.
        ids: (B, k) int32, the candidates' tokens.
        seeds: (B,) int64.
        index: () int32, the number of the draw.
        temperature: (B,), divides the log-probabilities; 0: the first is taken.
        top_p: (B,), the candidates are the first whose probabilities reach this sum.
    """
    if ids.shape[-1] == 1:
        return ids[:, 0]
    below_best = (log_probs - log_probs[:, :1]) / tf.maximum(temperature, 1e-30)[:, None]  # the best is 0, however low the temperature
    probabilities = tf.nn.softmax(below_best)
    before = tf.cumsum(probabilities, axis=1, exclusive=True)
    kept = (before < top_p[:, None]) | (top_p >= 1)[:, None]
    uniform = tf.map_fn(
        functools.partial(_uniform, tf.shape(ids)[1:], tf.cast(index, tf.int64)), seeds, fn_output_signature=tf.float32)
    noise = tf.where(temperature[:, None] > 0, -tf.math.log(-tf.math.log(uniform)), 0.0)
    return tf.gather(ids, tf.argmax(tf.where(kept, below_best + noise, -np.inf), axis=1), batch_dims=1)


def _uniform(shape, index, seed):
    return tf.random.stateless_uniform(shape, tf.stack([seed, index]), minval=np.finfo(np.float32).tiny)


def _wrapped(seed):
    """Returns an integer as one of 64 bits with sign."""
    return (seed + 2 ** 63) % 2 ** 64 - 2 ** 63


def check_prompts(rows, n_token):
    """Raises ValueError unless every prompt of a list is a row of tokens of a vocabulary, at least one."""
    for row in rows:
        if row.ndim != 1 or row.size < 1 or not np.issubdtype(row.dtype, np.integer):
            raise ValueError("prompt_ids must be integers of shape (B, P) or (P,), or lists of integers, at least one in each. Received: "
                             f"shape={row.shape}, dtype={row.dtype}")
        if row.min() < 0 or row.max() >= n_token:
            raise ValueError(f"prompt_ids must lie between 0 and {n_token - 1}. Received: {row.min()} .. {row.max()}")


def check_stop_tokens(stop_tokens, n_token):
    """Raises ValueError unless all are tokens of a vocabulary."""
    if any(not isinstance(token, numbers.Integral) or not 0 <= token < n_token for token in stop_tokens):
        raise ValueError(f"stop_tokens must be integers between 0 and {n_token - 1}. Received: stop_tokens={stop_tokens}")


def check_length(name, value, least=None):
    """Raises ValueError unless a value is an integer of 64 bits, and at least so large."""
    if not isinstance(value, numbers.Integral) or abs(value) >= 2 ** 63:
        raise ValueError(f"{name} must be an integer of 64 bits. Received: {name}={value}")
    if least is not None and value < least:
        raise ValueError(f"{name} must be at least {least}. Received: {name}={value}")


def _check(max_new_tokens, top_k, temperature, seed, mem_len, top_p, repetition_penalty, stop_tokens, n_token):
    for name, value, least in (("max_new_tokens", max_new_tokens, 1), ("top_k", top_k, 0),
                               ("mem_len", 0 if mem_len is None else mem_len, 0), ("seed", 0 if seed is None else seed, None)):
        check_length(name, value, least)
    if not temperature >= 0:
        raise ValueError(f"temperature must be at least 0. Received: temperature={temperature}")
    for name, value, most in (("top_p", top_p, 1), ("repetition_penalty", repetition_penalty, 1e30)):
        if not 0 < value <= most:
            raise ValueError(f"{name} must be above 0 and at most {most}. Received: {name}={value}")
    check_stop_tokens(stop_tokens, n_token)
