"""Latency and throughput of an export's `step` and `generate`, beside the same calls of the Python model.

  python benchmarks/serving.py           # about 5 minutes on one core
  python benchmarks/serving.py --quick   # a small model, mostly the time to export it
2 layers, d_model 1024, 16 heads, d_inner 4096, V = 1,000, mem_len 128; 1, 8 and 32 rows; weights in float32, bfloat16 and int8. `step`
reads one token of each row with all slots of the memory in use; in Python that is `txl_tf.inference.cache.read`. `generate` reads 32
tokens and samples 32 (--quick: 8 and 8) with top_k 40. The exports are loaded and called in this process, so what a network and its
messages cost is not in the figures. All contenders take turns, one call at a time; times are medians.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

SIZES = dict(n_layer=2, d_model=1024, d_embed=1024, n_head=16, d_head=64, d_inner=4096, mem_len=128)
QUICK = dict(n_layer=2, d_model=64, d_embed=64, n_head=2, d_head=32, d_inner=128, mem_len=32)
VOCABULARY = 1_000
ROWS = (1, 8, 32)
PRECISIONS = {"float32": None, "bfloat16": "mixed_bfloat16"}
WEIGHTS = ("float32", "bfloat16", "int8")


def ids(rows, count):
    """Returns tokens (rows, count), int32 array."""
    import numpy as np

    return np.random.default_rng(1).integers(0, VOCABULARY, (rows, count)).astype(np.int32)


def models(sizes):
    """Returns {precision: Python model}, all with the same weights."""
    import keras
    import tensorflow as tf

    from txl_tf.config import ModelConfig
    from txl_tf.language_model import TransformerXLLM

    tf.get_logger().setLevel("ERROR")
    keras.utils.set_random_seed(1)
    config = ModelConfig(n_token=VOCABULARY, untie_r=True, tgt_len=32, **sizes)
    made = {name: TransformerXLLM(config, dtype=precision) for name, precision in PRECISIONS.items()}
    for model in made.values():
        model.set_weights(made["float32"].get_weights())
    return made


def exports(model, folder):
    """Returns {weights: (loaded export, its bytes)}."""
    import tensorflow as tf

    from txl_tf.saved_model import export_saved_model

    paths = {weights: export_saved_model(model, None, os.path.join(folder, weights), weights, measured_on=ids(8, 33))
             for weights in WEIGHTS}
    sizes = {weights: sum(os.path.getsize(os.path.join(parent, name)) for parent, _, names in os.walk(path) for name in names)
             for weights, path in paths.items()}
    return {weights: (tf.saved_model.load(path), sizes[weights]) for weights, path in paths.items()}


def served_step(loaded, rows, mem_len):
    """Returns a function that calls an export's `step`."""
    import tensorflow as tf

    state = dict(loaded.signatures["prefill"](token_ids=tf.constant(ids(rows, mem_len)), length=tf.fill((rows,), mem_len)))
    token_id = tf.constant(ids(rows, 1)[:, 0])

    def run():
        answer = loaded.signatures["step"](token_id=token_id, **{name: value for name, value in state.items() if name != "log_probs"})
        state.update(answer)
        return answer["log_probs"].numpy()

    return run


def python_step(model, rows, mem_len):
    """Returns a function that reads a token of each row with the Python model."""
    import tensorflow as tf

    from txl_tf.inference.cache import read
    from txl_tf.inference.sampling import read_prompts

    @tf.function
    def step(token_ids, cache):
        hidden, cache = read(model, token_ids, cache)
        return model.head.log_probs(hidden)[:, 0], cache

    _, cache = read_prompts(model, list(ids(rows, mem_len)), mem_len)
    state, token_ids = {"cache": cache}, tf.constant(ids(rows, 1))

    def run():
        log_probs, state["cache"] = step(token_ids, state["cache"])
        return log_probs.numpy()

    return run


def served_generate(loaded, rows, length):
    """Returns a function that calls an export's `generate`."""
    import tensorflow as tf

    settings = {"max_new_tokens": tf.fill((rows,), length), "temperature": tf.ones((rows,)), "top_k": tf.fill((rows,), 40),
                "top_p": tf.ones((rows,)), "seed": tf.range(rows, dtype=tf.int64), "stop_token": tf.fill((rows,), -1)}
    token_ids = tf.constant(ids(rows, length))
    return lambda: loaded.signatures["generate"](token_ids=token_ids, length=tf.fill((rows,), length), **settings)["token_ids"].numpy()


def python_generate(model, rows, length):
    """Returns a function that samples with the Python model."""
    token_ids = ids(rows, length)
    return lambda: model.generate(token_ids, length, top_k=40, seed=0)[:, length:]


def medians(contenders, rounds):
    """Returns name -> median of the seconds a call, of functions that take turns; the first two calls of each don't count."""
    seconds = {name: [] for name in contenders}
    for _ in range(rounds + 2):
        for name, run in contenders.items():
            begin = time.perf_counter()
            run()
            seconds[name].append(time.perf_counter() - begin)
    return {name: statistics.median(values[2:]) for name, values in seconds.items()}


def compare(title, made, served, tokens, rounds):
    """Prints the times of a call of all contenders at every number of rows.

    Args:
        title: what is called.
        made, served: weights -> function from the rows to a function without arguments, of the Python models and the exports.
        tokens: that a call gives each row.
        rounds: turns of each.
    """
    print(f"\n{title}\n\n| rows | | ms a call | tokens a second | time of Python's, float32 |\n|---|---|---|---|---|")
    for rows in ROWS:
        contenders = {f"{place}, {weights}": function(rows) for place, functions in (("Python", made), ("export", served))
                      for weights, function in functions.items()}
        seconds = medians(contenders, rounds)
        for name, value in seconds.items():
            ratio = value / seconds["Python, float32"]
            print(f"| {rows} | {name} | {value * 1e3:.1f} | {rows * tokens / value:,.0f} | {ratio:.2f} |", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small model and few calls")
    quick = parser.parse_args().quick
    sizes, length, rounds = (QUICK, 8, 3) if quick else (SIZES, 32, 7)
    made = models(sizes)
    with tempfile.TemporaryDirectory() as folder:
        served = exports(made["float32"], folder)
    print("| weights | MB of the export |\n|---|---|")
    for weights, (_, size) in served.items():
        print(f"| {weights} | {size / 1e6:.1f} |")
    for title, python, export, argument, tokens in (("step", python_step, served_step, sizes["mem_len"], 1),
                                                    ("generate", python_generate, served_generate, length, length)):
        compare(title, {name: lambda rows, model=model: python(model, rows, argument) for name, model in made.items()},
                {name: lambda rows, loaded=loaded: export(loaded, rows, argument) for name, (loaded, _) in served.items()}, tokens, rounds)


if __name__ == "__main__":
    main()
