"""Time and memory of data preparation, beside a plain Python loop per line, and the tokens that the input pipeline feeds.

  python benchmarks/data.py            # 100 MB of words, 100 MB of bytes, 3 runs of each
  python benchmarks/data.py --quick    # 5 MB, one run, in seconds
Each run is a process of its own; the time is that of the preparation, from raw text to finished TFRecords, without the
start of Python and TensorFlow, and the peak is the most memory that the process had, TensorFlow's included. The loop does
the same: it counts the symbols of every line, numbers them by count, looks every symbol up, and writes the rows as Examples.
"""

import argparse
import collections
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

ROWS, TGT_LEN = 60, 150


def write_text(folder, size):
    """Writes train.txt of about `size` bytes of words by Zipf's law, some of them not ASCII, and a tenth for valid and test."""
    import numpy as np

    rng = np.random.default_rng(1)
    letters = np.array(list("etaoinshrdlucmfwypvbgkjqxzé–"))
    words = np.array(["".join(letters[rng.zipf(1.5, rng.integers(1, 12)) % len(letters)]) for _ in range(200_000)])
    share = 1.0 / np.arange(1, len(words) + 1)
    for split, part in (("train", size), ("valid", size // 10), ("test", size // 10)):
        with open(folder / f"{split}.txt", "w", encoding="utf-8") as file:
            while file.tell() < part:
                lengths = rng.integers(0, 60, 5_000)
                drawn = iter(words[rng.choice(len(words), lengths.sum(), p=share / share.sum())].tolist())
                file.writelines(" ".join(next(drawn) for _ in range(length)) + "\n" for length in lengths)


def prepare(kind, folder):
    """Prepares a folder as a user would."""
    from data_utils import prepare_corpus

    prepare_corpus("text", folder, ROWS, ROWS, TGT_LEN, vocabulary=kind, vocab_size=8_000 if kind == "subword" else None)


def loop(kind, folder):
    """Prepares a folder line by line."""
    import numpy as np
    import tensorflow as tf

    def symbols(line):
        return line.split() + ["<eos>"] if kind == "word" else line

    def lines(split):
        return open(folder / f"{split}.txt", **({"encoding": "utf-8"} if kind == "word" else {"mode": "rb"}))

    counter = collections.Counter()
    with lines("train") as file:
        for line in file:
            counter.update(symbols(line))
    ids = {symbol: number for number, (symbol, _) in enumerate(counter.most_common())}
    for split in ("train", "valid", "test"):
        with lines(split) as file:
            encoded = [np.array([ids.get(symbol, 0) for symbol in symbols(line)], np.int64) for line in file]
        stream = np.concatenate(encoded)
        rows = stream[:len(stream) // ROWS * ROWS].reshape(ROWS, -1)
        with tf.io.TFRecordWriter(str(folder / f"{split}.tfrecord")) as writer:
            for start in range(0, rows.shape[1] - 1, TGT_LEN):
                for row in rows:
                    feature = tf.train.Feature(int64_list=tf.train.Int64List(value=row[start:start + TGT_LEN + 1].tolist()))
                    example = tf.train.Example(features=tf.train.Features(feature={"token_ids": feature}))
                    writer.write(example.SerializeToString())


def read(kind, folder):
    """Returns the tokens a second that the train split of a prepared folder feeds."""
    from data_utils import Corpus

    corpus = Corpus(folder)
    begin = time.perf_counter()
    for _ in corpus.dataset("train", TGT_LEN, drop_remainder=True):
        pass
    return corpus.n_labels("train", TGT_LEN, drop_remainder=True) / (time.perf_counter() - begin)


def measure(job, kind, folder):
    """Runs a job in this process and prints its seconds, its peak memory in MiB and what it returns, as JSON."""
    import tensorflow as tf

    import data_utils.prepare  # noqa: F401 - the time of imports is not measured

    tf.constant(0)
    begin = time.perf_counter()
    result = {"prepare": prepare, "loop": loop, "read": read}[job](kind, folder)
    seconds = time.perf_counter() - begin
    print(json.dumps([seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024, result]))


def run(job, kind, source):
    """Returns what `measure` prints in a new process, on a folder with new links to the text."""
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        for split in ("train", "valid", "test"):
            os.link(source / f"{split}.txt", Path(folder, f"{split}.txt"))
        if job == "read":
            prepare(kind, Path(folder))
        command = [sys.executable, __file__, f"--job={job}", f"--kind={kind}", f"--folder={folder}"]
        return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="5 MB and one run")
    parser.add_argument("--kinds", default="word,byte,char,subword", help="vocabularies to measure")
    parser.add_argument("--job", help=argparse.SUPPRESS)
    parser.add_argument("--kind", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.job:
        return measure(arguments.job, arguments.kind, arguments.folder)
    runs, size = (1, 5_000_000) if arguments.quick else (3, 100_000_000)
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "text")
        source.mkdir()
        write_text(source, size)
        total = sum(path.stat().st_size for path in source.iterdir())
        print("| vocabulary | MB/s | seconds | peak MiB | loop, seconds | loop, peak MiB | times as fast | pipeline, M tokens/s |")
        print("|---|---|---|---|---|---|---|---|")
        for kind in arguments.kinds.split(","):
            ours, plain = [], []
            for _ in range(runs):  # in turn, so that both see the same machine
                ours.append(run("prepare", kind, source))
                if kind in ("word", "byte"):
                    plain.append(run("loop", kind, source))
            seconds, peak, _ = map(statistics.median, zip(*[(*figures[:2], 0) for figures in ours]))
            rate = statistics.median(run("read", kind, source)[2] for _ in range(runs)) / 1e6
            beside = "- | - | -"
            if plain:
                loop_seconds = statistics.median(figures[0] for figures in plain)
                ratio = statistics.median(b[0] / a[0] for a, b in zip(ours, plain))
                beside = f"{loop_seconds:.1f} | {max(figures[1] for figures in plain):,.0f} | {ratio:.1f}"
            print(f"| {kind} | {total / seconds / 1e6:.0f} | {seconds:.2f} | {peak:,.0f} | {beside} | {rate:.1f} |", flush=True)


if __name__ == "__main__":
    main()
