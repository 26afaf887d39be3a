"""Converts a synthetic full-size checkpoint with the original's names, and scores a segment: time and peak memory of each step.

    python benchmarks/convert.py --preset=wt103_large
"""

import argparse
import os
import pickle
import subprocess
import sys
import tempfile
import time


def write(preset, folder):
    """Writes model.ckpt-0 with random values and, for words, a vocabulary."""
    import txl_tf
    from txl_tf.presets import VOCABULARIES

    n_token = VOCABULARIES[preset.split("_")[0]]
    model = txl_tf.TransformerXLLM(txl_tf.preset_config(preset, n_token, memory_start="zeros"))
    txl_tf.save_tf1_checkpoint(model, os.path.join(folder, "model.ckpt-0"))
    if n_token > 256:
        with open(os.path.join(folder, "cache.pkl"), "wb") as file:
            pickle.dump({"idx2sym": ["<eos>", "<unk>", "<S>", "<UNK>"] + [f"word{number}" for number in range(n_token - 4)]}, file, 2)
    print(f"{model.count_params():,} parameters")


def score(preset, folder):
    """Scores one segment of the evaluation's length, with a memory of zeros."""
    import numpy as np

    import txl_tf

    model = txl_tf.TransformerXLLM.from_preset(os.path.join(folder, "new"))
    tokens = np.random.default_rng(0).integers(0, model.config.n_token, (1, 129))
    nll, _ = model.nll(tokens[:, :-1], tokens[:, 1:], model.initial_memory(1))
    print(f"{np.mean(nll):.3f} nats a token, of random weights")


STEPS = {"write": write, "score": score}


def conversion(preset, folder):
    """Returns the command that converts what `write` wrote."""
    corpus = os.path.join(folder, "cache.pkl")
    return ["-m", "txl_tf.convert", "--from=tf1", f"--checkpoint={os.path.join(folder, 'model.ckpt-0')}", f"--preset={preset}",
            f"--output={os.path.join(folder, 'new')}", *([f"--corpus={corpus}"] if os.path.exists(corpus) else [])]


def measured(name, arguments):
    """Runs Python with some arguments in a process of its own, and prints its time and its peak of resident memory."""
    start = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments])
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{name} has failed")
    print(f"{name}: {time.perf_counter() - start:.1f} s, peak {usage.ru_maxrss / 2 ** 20:.2f} GiB", flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--preset", default="wt103_large")
    parser.add_argument("--step", choices=STEPS)
    parser.add_argument("--folder")
    arguments = parser.parse_args()
    if arguments.step is not None:
        STEPS[arguments.step](arguments.preset, arguments.folder)
        return
    with tempfile.TemporaryDirectory() as folder:
        itself = [__file__, f"--preset={arguments.preset}", f"--folder={folder}"]
        measured("importing the library", ["-c", "import txl_tf"])
        measured("write", [*itself, "--step=write"])
        measured("convert", conversion(arguments.preset, folder))
        measured("score a segment", [*itself, "--step=score"])


if __name__ == "__main__":
    main()
