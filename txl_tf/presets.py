"""Named settings: what the paper's authors published, with their training and evaluation settings."""

import dataclasses
import logging

from txl_tf.config import ModelConfig

UNKNOWN_VOCABULARY = 2 ** 31  # stands for the size of a vocabulary that is not made yet

_ENWIK8_BASE = {
    "model": dict(n_layer=12, d_model=512, d_embed=512, n_head=8, d_head=64, d_inner=2048, dropout=0.1, dropatt=0.0, tgt_len=512,
                  mem_len=512),
    "train": dict(learning_rate=2.5e-4, warmup_steps=0, train_steps=400_000, min_lr_ratio=0.004, eval_tgt_len=80,
                  eval_mem_len=2100, eval_clamp_len=820, eval_same_length=True),
    "data": dict(train_batch_size=24, eval_batch_size=10),
}
_ENWIK8_LARGE = {
    "model": dict(n_layer=24, d_model=1024, d_embed=1024, n_head=8, d_head=128, d_inner=3072, dropout=0.15, dropatt=0.15,
                  tgt_len=768, mem_len=768, proj_init_std=0.02),
    "train": dict(learning_rate=2.5e-4, warmup_steps=4_000, train_steps=400_000, min_lr_ratio=0.01, eval_tgt_len=128,
                  eval_mem_len=3800, eval_clamp_len=1000, eval_same_length=True),
    "data": dict(train_batch_size=64, eval_batch_size=16),
}

PRESETS = {
    "enwik8_base": _ENWIK8_BASE,
    "enwik8_large": _ENWIK8_LARGE,
    "text8_base": _ENWIK8_BASE,
    "text8_large": _ENWIK8_LARGE,
}


def preset(name):
    """Returns the settings of a preset: {"model": ..., "train": ..., "data": ...}.

    Raises:
        ValueError: if there is no preset of that name; the sentence lists those there are.
    """
    if name not in PRESETS:
        raise ValueError(f"preset must be one of {', '.join(PRESETS)}. Received: preset={name}")
    return PRESETS[name]


def preset_config(name, n_token, **overrides):
    """Returns the ModelConfig of a preset for a vocabulary of n_token, with any setting overridden."""
    return fit_to_vocabulary(ModelConfig(n_token=UNKNOWN_VOCABULARY, **{**preset(name)["model"], **overrides}), n_token)


def fit_to_vocabulary(config, n_token):
    """Returns a ModelConfig for a vocabulary of n_token; cutoffs beyond the vocabulary are left out with a notice."""
    kept = tuple(cutoff for cutoff in config.cutoffs if cutoff < n_token)
    if kept != config.cutoffs:
        logging.warning("cutoffs=%s exceed the vocabulary of %d tokens; cutoffs=%s are used.", config.cutoffs, n_token, kept)
    return dataclasses.replace(config, n_token=n_token, cutoffs=kept)
