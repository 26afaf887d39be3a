"""Speed of evaluation with memory beside a model without (Dai et al. 2019, Table 9): `python -m txl_tf.analysis.evaluation_speed`."""

import dataclasses
import statistics
import time
from typing import NamedTuple

import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from txl_tf.analysis.flops import cached_flops, forward_flops
from txl_tf.faults import one_sentence
from txl_tf.flags import check_no_arguments, check_plot_file, define_flags, integers, read_configs
from txl_tf.inference.evaluation import evaluate
from txl_tf.inference.per_model import per_model
from txl_tf.language_model import TransformerXLLM
from txl_tf.presets import fit_to_vocabulary

SEGMENTS = 16  # that are evaluated for one measurement


class _Speed(NamedTuple):
    """What evaluation costs at an attention length, in seconds for each token that is scored."""

    attention_length: int
    vanilla: float  # the window moves one token, and all of it is computed again
    cached: float  # segments with a memory of attention_length slots, kept as projected keys and values
    vanilla_flops: float  # floating-point operations a second of the former
    cached_flops: float  # of the latter, counted without what the cache saves

    @property
    def ratio(self):
        return self.vanilla / self.cached


def evaluation_speed(model, attention_length, tgt_len=128, repeats=3):
    """Measures a model at an attention length, one row at a time, and returns a _Speed of medians.

    The baseline is the model itself without memory over a window of attention_length tokens, of which only the last is scored:
    the same matrix products, in the same precision. With memory every token sees at least attention_length tokens.

    Args:
        model: a TransformerXLLM.
        attention_length: tokens that each token sees.
        tgt_len: tokens T of a segment, for the evaluation with memory.
        repeats: measurements, of which the median is taken.

    Raises:
        ValueError: if a number is below 1.
    """
    for name, value in (("attention_length", attention_length), ("tgt_len", tgt_len), ("repeats", repeats)):
        if value < 1:
            raise ValueError(f"{name} must be at least 1. Received: {name}={value}")
    ids = np.random.default_rng(1).integers(0, model.config.n_token, (1, max(attention_length, SEGMENTS * tgt_len) + 1)).astype(np.int32)
    segments = [(tf.constant(ids[:, start:start + tgt_len]), tf.constant(ids[:, start + 1:start + tgt_len + 1]))
                for start in range(0, SEGMENTS * tgt_len, tgt_len)]
    window = tf.constant(ids[:, :attention_length])
    vanilla, cached = [], []
    for _ in range(repeats + 1):
        vanilla.append(_seconds(lambda: _last_token(model, window).numpy()))
        cached.append(_seconds(lambda: evaluate(model, segments, mem_len=attention_length)) / (SEGMENTS * tgt_len))
    vanilla, cached = statistics.median(vanilla[1:]), statistics.median(cached[1:])  # the first ones made the programs
    return _Speed(attention_length, vanilla, cached, _vanilla_flops(model.config, attention_length) / vanilla,
                 cached_flops(model.config, 1, tgt_len, attention_length) / tgt_len / cached)


@per_model(reduce_retracing=True)
def _last_token(model, token_ids):
    """Returns the log-probabilities after the last of token_ids (B, T), all computed anew."""
    hidden, _ = model.backbone((token_ids, model.initial_memory(token_ids.shape[0], mem_len=0)))
    return model.head.log_probs(hidden[:, -1:])


def _seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _vanilla_flops(config, length):
    flops = forward_flops(config, 1, length, 0)
    return sum(flops.values()) - flops["head"] * (1 - 1 / length)


def table_head():
    """Returns the first two lines of a table of measurements in Markdown."""
    return ("| attention length | vanilla, s a token | with memory, ms a token | ratio | vanilla, GFLOP/s | with memory, GFLOP/s |\n"
            "|---|---|---|---|---|---|")


def table_row(speed):
    """Returns the line of a measurement."""
    return (f"| {speed.attention_length:,} | {speed.vanilla:.3f} | {speed.cached * 1e3:.3f} | {speed.ratio:,.0f} | "
            f"{speed.vanilla_flops / 1e9:.0f} | {speed.cached_flops / 1e9:.0f} |")


def plot(speeds, path):
    """Writes a picture of the ratios over the attention lengths, beside their arithmetic bound, the attention length itself.

    Raises:
        ImportError: if matplotlib is not installed.
        OSError: if the file can't be written.
    """
    from matplotlib.figure import Figure

    axes = (figure := Figure(figsize=(6, 4))).add_subplot()
    lengths = [speed.attention_length for speed in speeds]
    axes.plot(lengths, [speed.ratio for speed in speeds], "o-", label="measured")
    axes.plot(lengths, lengths, ":", label="fewer operations: the attention length")
    axes.set(xlabel="attention length, tokens", ylabel="times as fast as a moving window", ylim=(0, None))
    axes.legend()
    figure.savefig(path, bbox_inches="tight")


def main(argv):
    logging.set_verbosity(logging.WARNING)
    settings, speeds = flags.FLAGS, []
    with one_sentence("txl_tf.analysis.evaluation_speed", ValueError, OSError):
        check_no_arguments(argv)
        lengths = integers("attention_length", settings.attention_length)
        if not lengths or min(lengths) < 1:
            raise ValueError(f"attention_length must be integers of at least 1, separated by commas. Received: attention_length={lengths}")
        check_plot_file(settings.plot_file)
        model_config, train_config, _ = read_configs()
        config = dataclasses.replace(fit_to_vocabulary(model_config, settings.n_token), dropout=0.0, dropatt=0.0)
        model = TransformerXLLM(config, dtype=train_config.precision)
        for length in lengths:
            speeds.append(evaluation_speed(model, length, settings.tgt_len))
            print(*[table_head()] * (len(speeds) == 1), table_row(speeds[-1]), sep="\n", flush=True)
        if settings.plot_file:
            plot(speeds, settings.plot_file)


if __name__ == "__main__":
    define_flags()
    flags.DEFINE_list("attention_length", ["800", "1800", "2800", "3800"], "attention lengths to measure; the default: the paper's")
    flags.DEFINE_integer("n_token", 256, "vocabulary size")
    flags.DEFINE_string("plot_file", None, "picture to write, such as speed.png (needs matplotlib)")
    app.run(main)
