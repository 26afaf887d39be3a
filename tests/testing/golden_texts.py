"""The small texts that the original program encoded, and what it made of them."""

import json
import re
import shutil
from pathlib import Path

import numpy as np

GOLDEN = Path(__file__).parents[1] / "golden" / "data"
NAMES = {"enwik8": "enwik8_original", "text8": "text8_original", "ptb": "ptb", "wt103": "wt103", "lm1b": "lm1b_original"}


def copied(name, folder):
    """Copies the text of a golden dataset into a folder and returns the folder."""
    return Path(shutil.copytree(GOLDEN / name / "raw", folder, dirs_exist_ok=True))


def options(name):
    """Returns the arguments of prepare_corpus that the golden dataset was made with."""
    return dict(num_shuffle=2, train_files=read_json("lm1b/train_shards.json")) if name == "lm1b" else {}


def read_json(path):
    return json.loads((GOLDEN / path).read_text(encoding="utf-8"))


def golden_symbols(name):
    """Returns the symbols in the order of their ids, as a vocabulary here has them."""
    symbols = read_json(f"{name}/vocab.json")["idx2sym"]
    if name == "enwik8":
        return "".join(chr(int(symbol)) for symbol in symbols)
    return "".join(symbols).replace("_", " ") if name == "text8" else symbols


def golden_batches(name, split, rows, tgt_len, mode):
    """Returns the original's (inputs, labels) of a split, batch by batch; mode is "gpu" or "tpu_core2" (whole segments)."""
    arrays = np.load(GOLDEN / name / "tfrecords" / f"{split}.bsz-{rows}.tlen-{tgt_len}.{mode}.npz")
    batches = []
    for file in range(sum(re.fullmatch(r"file\d+/inputs", key) is not None for key in arrays)):
        batches += zip(arrays[f"file{file}/inputs"], arrays[f"file{file}/labels"], strict=True)
        if f"file{file}/inputs_last" in arrays:
            batches.append((arrays[f"file{file}/inputs_last"], arrays[f"file{file}/labels_last"]))
    return batches
