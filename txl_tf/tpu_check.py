"""Compiles a model's steps for TPUs, without one: `python -m txl_tf.tpu_check --preset=enwik8_large --topology=v3:2x2`."""

import dataclasses
import functools
import importlib.util
import os
from typing import NamedTuple

if __name__ == "__main__":  # else TensorFlow computes sinusoids and every layer's mask beforehand: literals of MiB
    os.environ["TF_XLA_FLAGS"] = f"{os.environ.get('TF_XLA_FLAGS', '')} --tf_xla_disable_constant_folding=true".strip()

from absl import app, flags, logging

from txl_tf.analysis.flops import cached_flops, training_flops
from txl_tf.analysis.tpu_compiler import compile_program
from txl_tf.analysis.tpu_program import evaluation_config, evaluation_program, train_program
from txl_tf.faults import one_sentence
from txl_tf.flags import check_no_arguments, define_flags, read_configs
from txl_tf.presets import PRESETS, VOCABULARIES, fit_to_vocabulary

GIB = 2 ** 30


class _Chip(NamedTuple):
    """What a core can do at the most. On v4 and v5p it is a chip, whose two cores work as one."""

    teraflops: float  # a second, in bfloat16 products
    bandwidth: float  # of its HBM, GB/s


# The pages v3, v4, v5e, v5p and v6e of cloud.google.com/tpu/docs; v2: the table of jax/_src/pallas/mosaic/tpu_info.py in jax 0.10.2.
# A chip of v2 or v3 is two cores, so that its figures are halved. For v5e and v6e the pages said 800 and 1600 GB/s at other times.
CHIPS = {"v2": _Chip(23, 358), "v3": _Chip(61.5, 450), "v4": _Chip(275, 1200), "v5e": _Chip(197, 819), "v5p": _Chip(459, 2765),
         "v6e": _Chip(918, 1640)}
TRAINED_ON = {"enwik8_large": 32, "text8_large": 32, "wt103_large": 64, "lm1b_large": 512,  # cores, in the paper
              **{name: 16 for name, settings in PRESETS.items() if settings["model"].get("absolute_positions")}}  # in the Synthesizer's
EVALUATED_ON = 8  # cores, in the original's scripts for TPUs


def main(argv):
    logging.set_verbosity(logging.ERROR)
    with one_sentence("txl_tf.tpu_check", ValueError, OSError):
        check_no_arguments(argv)
        check()


def check():
    """Compiles the steps that the flags ask for, for each topology, and prints what they need."""
    settings = flags.FLAGS
    missing = [package for package in ("jax", "libtpu") if importlib.util.find_spec(package) is None]
    if missing:
        raise ValueError(f"jax and libtpu must be installed: pip install -e '.[tpu-check]'. Received: no {' and no '.join(missing)}")
    chips = {topology: _chip(topology) for topology in _topologies(settings.topology)}
    model_config, train_config, data_config = read_configs()
    if not settings["precision"].present:
        train_config = dataclasses.replace(train_config, precision="mixed_bfloat16")
    model_config = fit_to_vocabulary(model_config, _vocabulary_size(settings.n_token, data_config))
    rows = _rows_per_core(settings.batch_per_core, settings.preset, train_config, data_config)
    steps = [_Step("training", model_config, train_config, rows)] if train_config.do_train else []
    if train_config.evaluated_splits:
        steps.append(_Step("evaluation", model_config, train_config, max(1, (data_config.eval_batch_size or 1) // EVALUATED_ON)))
    for topology, chip in chips.items():
        print(f"{settings.preset or 'model'} on a core of {topology}: {train_config.precision}, "
              f"{steps[0].program(steps[0].rows).parameters:,} parameters, vocabulary {model_config.n_token:,}", flush=True)
        for step in steps:
            answer = step.compiled(step.rows, topology, settings.machine_code)
            print(step.report(answer, chip), flush=True)
            if settings.search and step.name == "training":
                print(_search(step, topology, answer, train_config.batch_chunk), flush=True)


class _Step:
    """A training or evaluation step of a model, compiled for some numbers of rows."""

    def __init__(self, name, model_config, train_config, rows):
        self.name, self.rows = name, rows
        training = name == "training"
        self.config = model_config if training else evaluation_config(model_config, train_config)
        make = train_program if training else evaluation_program
        self.program = functools.lru_cache(lambda rows: make(model_config, train_config, rows))
        self.remat = train_config.remat

    def compiled(self, rows, topology, machine_code=False):
        program = self.program(rows)
        return compile_program(program.text, program.donated, topology, machine_code, least=program.state_bytes)

    def flops(self):
        """Returns the operations of the step; None where they can't be counted."""
        sizes = self.config, self.rows, self.config.tgt_len, self.config.mem_len
        return training_flops(*sizes, self.remat) if self.name == "training" else cached_flops(*sizes)

    def report(self, answer, chip):
        """Returns what is printed of a step that was compiled for self.rows."""
        program, flops, tokens = self.program(self.rows), self.flops(), self.rows * self.config.tgt_len
        arithmetic, traffic = flops / chip.teraflops / 1e12, program.moved_bytes / chip.bandwidth / 1e9
        seconds, limit = max((arithmetic, "peak arithmetic"), (traffic, "HBM bandwidth"))
        code = "" if answer["code"] is None else f", besides {answer['code'] / 2 ** 20:,.0f} MiB of machine code"
        return (f"{self.name} step, {self.rows} x {self.config.tgt_len} tokens, memory {self.config.mem_len}\n"
                f"  {fit(answer)}; weights, optimizer and memory are {program.state_bytes / GIB:.2f} GiB of it{code}\n"
                f"  {flops / 1e9:,.1f} GFLOP, counted from the configuration\n"
                f"  bound: at least {seconds * 1e3:,.2f} ms, at most {tokens / seconds:,.0f} tokens/s by {limit}; no estimate, a "
                "limit of one core's program without collectives")


def fit(answer):
    """Returns whether a compiled program fits, and by how much."""
    left = (answer["available"] - answer["needed"]) / GIB
    at_least = "at least " if answer["at_least"] else ""  # it was not compiled, for its weights alone are too much
    verdict = f"fits, {left:.2f} GiB are left" if left >= 0 else f"does not fit, lacks {at_least}{-left:.2f} GiB"
    return (f"{verdict}: needs {at_least}{answer['needed'] / GIB:.2f} of the {answer['available'] / GIB:.2f} GiB of HBM that a program "
            "may have")


def largest_batch(compiled, rows, answer):
    """Returns (the largest number of rows that fits, what it needs as compile_program says); (0, that of one row) if none does.

    Args:
        compiled: function from a number of rows to what compile_program says.
        rows: a number that was tried.
        answer: what was said of it.
    """
    answers = {rows: answer}
    while True:
        low = max((rows for rows, answer in answers.items() if answer["needed"] <= answer["available"]), default=0)
        high = min((rows for rows, answer in answers.items() if answer["needed"] > answer["available"]), default=None)
        if high == low + 1:
            return low, answers[low or high]
        rows = _next_guess(answers, low, high)
        answers[rows] = compiled(rows)


def _next_guess(answers, low, high):
    """Returns the rows to try, between low and high: on the line through what is known, or in the middle."""
    known = sorted(answers, key=lambda rows: abs(answers[rows]["needed"] - answers[rows]["available"]))[:2]
    guess = 2 * low if high is None else (low + high) // 2
    if len(known) == 2 and len(answers) < 8:
        near, far = known
        slope = (answers[near]["needed"] - answers[far]["needed"]) / (near - far)
        if slope > 0:
            guess = near + int((answers[near]["available"] - answers[near]["needed"]) // slope)
    return max(low + 1, min(guess, 4 * low if high is None else high - 1))


def _search(step, topology, answer, unit):
    """Returns what is printed of the largest batch, a multiple of unit rows."""
    rows, found = largest_batch(lambda units: step.compiled(units * unit, topology), step.rows // unit, answer)
    if rows == 0:
        return f"  largest batch per core: none, for {unit} x {step.config.tgt_len} tokens {fit(found)}"
    return f"  largest batch per core: {rows * unit}, which {fit(found)}"


def _topologies(names):
    if not names:
        raise ValueError(f"topology must be given: one or more, comma-separated, such as v3:2x2 or v4:2x2x1, of {', '.join(CHIPS)}. "
                         "Received: topology=")
    return names


def _chip(topology):
    generation, _, shape = topology.partition(":")
    if generation not in CHIPS or not shape:
        raise ValueError(f"topology must be GENERATION:SHAPE, such as v3:2x2 or v4:2x2x1, with a generation among {', '.join(CHIPS)}. "
                         f"Received: topology={topology}")
    return CHIPS[generation]


def _vocabulary_size(given, data_config):
    size = (data_config.vocab_size or VOCABULARIES.get(data_config.dataset, 256)) if given is None else given
    if size < 1:
        raise ValueError(f"n_token must be at least 1. Received: n_token={size}")
    return size


def _rows_per_core(given, preset, train_config, data_config):
    """Returns the rows of a training step on one core: those given, or the paper's, or the fewest there can be."""
    unit = train_config.batch_chunk
    if given is None:
        share = (data_config.train_batch_size or 0) // TRAINED_ON[preset] if preset in TRAINED_ON else 1
        return max(1, share // unit) * unit
    if given < 1 or given % unit:
        raise ValueError(f"batch_per_core must be a multiple of batch_chunk, at least 1. Received: batch_per_core={given}, "
                         f"batch_chunk={unit}")
    return given


def _define_flags():
    define_flags()
    flags.DEFINE_list("topology", [], f"TPUs to compile for, such as v3:2x2 or v4:2x2x1: {', '.join(CHIPS)}")
    flags.DEFINE_integer("batch_per_core", None, "rows of a training step on one core; unset: the paper's, else batch_chunk")
    flags.DEFINE_integer("n_token", None, "vocabulary size; unset: the paper's for its data sets, 256 for others")
    flags.DEFINE_bool("search", False, "find the largest batch per core that fits; compiles the training step several times")
    flags.DEFINE_bool("machine_code", False, "compile to the end, several times slower: the size of the machine code is told too")


if __name__ == "__main__":
    _define_flags()
    app.run(main)
