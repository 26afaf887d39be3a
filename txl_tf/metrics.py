"""Losses in the units people compare: bits per character for bytes and characters, perplexity for words."""

import math


def bits_per_character(nll):
    """Returns a mean negative log-likelihood in nats as bits."""
    return nll / math.log(2.0)


def perplexity(nll):
    """Returns e to a mean negative log-likelihood in nats; infinity where that is too large for a float."""
    return math.exp(nll) if nll < 700 else math.inf


def in_unit(nll, vocabulary_kind):
    """Returns (value, unit) of a mean negative log-likelihood: "bpc" for byte and char vocabularies, "ppl" for others."""
    if vocabulary_kind in ("byte", "char"):
        return bits_per_character(nll), "bpc"
    return perplexity(nll), "ppl"
