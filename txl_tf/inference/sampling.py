"""Sampling of text: the prompt is read once, then one token at a time is drawn and fed."""

import numbers
import secrets

import numpy as np
import tensorflow as tf


def generate(model, prompt_ids, max_new_tokens, top_k=40, temperature=1.0, seed=None, mem_len=None):
    """Returns the prompt and the tokens sampled after it.

    Args:
        model: a TransformerXLLM.
        prompt_ids: (B, P) or (P,) integers, P at least 1.
        max_new_tokens: tokens to sample.
        top_k: draw among the k likeliest tokens, renormalised; 0: among all; 1: take the likeliest.
        temperature: divides the log-probabilities before drawing; 0: take the likeliest.
        seed: integer; the same seed gives the same tokens. None: another at each call.
        mem_len: slots of the memory; None: the model's, or its segment's length where it was trained without memory.

    Returns:
        (B, P + max_new_tokens) or (P + max_new_tokens,) int32, as the prompt's rank.

    Raises:
        ValueError: if an argument can't be used; the sentence names it and what was received.
    """
    prompt = np.asarray(prompt_ids)
    tokens = list(sample_tokens(model, prompt, max_new_tokens, top_k, temperature, seed, mem_len))
    sampled = np.stack(tokens, axis=-1)  # (B, max_new_tokens)
    return np.concatenate([prompt, sampled if prompt.ndim == 2 else sampled[0]], axis=-1).astype(np.int32)


def sample_tokens(model, prompt_ids, max_new_tokens, top_k=40, temperature=1.0, seed=None, mem_len=None):
    """Yields (B,) int32 sampled tokens, one time step after another; the arguments are those of `generate`."""
    prompt = np.asarray(prompt_ids)
    prompt = prompt[None] if prompt.ndim == 1 else prompt
    _check(prompt, model.config.n_token, max_new_tokens, top_k, temperature, seed, mem_len)
    seed = secrets.randbits(31) if seed is None else seed
    if mem_len is None:
        mem_len = model.config.mem_len or model.config.tgt_len
    return _sample(model, tf.constant(prompt, tf.int32), max_new_tokens, top_k, temperature, seed, mem_len)


def _sample(model, prompt, max_new_tokens, top_k, temperature, seed, mem_len):
    size = 1 if temperature == 0 else min(top_k or model.config.n_token, model.config.n_token)
    memory = model.initial_memory(prompt.shape[0], mem_len)
    for start in range(0, prompt.shape[1], model.config.tgt_len):
        log_probs, ids, memory = _read(model, prompt[:, start:start + model.config.tgt_len], memory, size)
    for index in range(max_new_tokens):
        tokens = draw(log_probs, ids, temperature, tf.constant((seed, index), tf.int64))
        yield tokens.numpy()
        if index + 1 < max_new_tokens:
            log_probs, ids, memory = _read(model, tokens[:, None], memory, size)


@tf.function(reduce_retracing=True)
def _read(model, token_ids, memory, size):
    """Returns the log-probabilities and ids, both (B, size), of the likeliest next tokens, best first, and the memory."""
    hidden, memory = model.backbone((token_ids, memory))
    log_probs, ids = model.head.top_k(hidden[:, -1:], size)
    return log_probs[:, 0], ids[:, 0], memory


def draw(log_probs, ids, temperature, seed):
    """Returns (B,) int32 tokens drawn from candidates.

    Args:
        log_probs: (B, k), best first; they need not sum to one.
        ids: (B, k) int32, the candidates' tokens.
        temperature: divides the log-probabilities; 0: take the first.
        seed: (2,) integers.
    """
    if temperature == 0 or ids.shape[-1] == 1:
        return ids[:, 0]
    below_best = (log_probs - log_probs[:, :1]) / max(temperature, 1e-30)  # the best is 0, however low the temperature
    choice = tf.random.stateless_categorical(below_best, 1, seed, dtype=tf.int32)
    return tf.gather(ids, choice, batch_dims=1)[:, 0]


def _check(prompt, n_token, max_new_tokens, top_k, temperature, seed, mem_len):
    if prompt.ndim != 2 or prompt.size < 1 or not np.issubdtype(prompt.dtype, np.integer):
        raise ValueError("prompt_ids must be integers of shape (B, P) or (P,), at least one. Received: "
                         f"shape={prompt.shape}, dtype={prompt.dtype}")
    if prompt.min() < 0 or prompt.max() >= n_token:
        raise ValueError(f"prompt_ids must lie between 0 and {n_token - 1}. Received: {prompt.min()} .. {prompt.max()}")
    for name, value in (("max_new_tokens", max_new_tokens), ("top_k", top_k), ("seed", seed), ("mem_len", mem_len)):
        optional = name in ("seed", "mem_len")
        if not (isinstance(value, numbers.Integral) or (optional and value is None)) or abs(value or 0) >= 2 ** 63:
            raise ValueError(f"{name} must be an integer of 64 bits. Received: {name}={value}")
    for name, value, least in (("max_new_tokens", max_new_tokens, 1), ("top_k", top_k, 0), ("temperature", temperature, 0),
                               ("mem_len", 0 if mem_len is None else mem_len, 0)):
        if not value >= least:
            raise ValueError(f"{name} must be at least {least}. Received: {name}={value}")
