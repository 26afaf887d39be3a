"""Speed of evaluation and generation with long memories, beside the Hugging Face classes in PyTorch and TensorFlow.

  python benchmarks/inference.py --peers=PEERS/bin/python   # PEERS: an environment with transformers 4.35.2, torch, tf-keras
  python benchmarks/inference.py                            # this library alone
  python benchmarks/inference.py --quick                    # a small model, in a minute
2 layers, d_model 1024, 16 heads, d_inner 4096, V = 1,000, one row, mem_len 1600 and 3800. Evaluation: segments of 128 tokens, this
library's with all that a call of `evaluate` begins with. Generation: one token at a time, beside the time that this machine takes to
read the weights and the cache once. The TensorFlow class of Hugging Face needs div_val above 1, so it has cutoffs [400, 700] and
div_val 2, which makes it a little smaller. Then the moving window of the paper's Table 9 at the longest memory, and the time
and memory of a token late in a long text. Each contender is a process that waits for its turn; times are medians of turns taken one after the other.
"""

import os
import subprocess
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.contender import Contender, medians, parsed, product, serve

LENGTH = 128
SIZES = dict(n_layer=2, d_model=1024, d_embed=1024, n_head=16, d_head=64, d_inner=4096)
QUICK = dict(n_layer=2, d_model=64, d_embed=64, n_head=2, d_head=32, d_inner=128)
VOCABULARY = 1_000
MEMORIES, QUICK_MEMORIES = (1600, 3800), (64, 200)
LATE = (10, 1_000, 10_000)  # tokens after which the time of a token is measured


def ids(count):
    """Returns tokens (1, count), int32 array."""
    import numpy as np

    return np.random.default_rng(1).integers(0, VOCABULARY, (1, count)).astype(np.int32)


def our_model(sizes, mem_len, precision):
    from txl_tf.config import ModelConfig
    from txl_tf.language_model import TransformerXLLM

    return TransformerXLLM(ModelConfig(n_token=VOCABULARY, untie_r=True, tgt_len=LENGTH, mem_len=mem_len, **sizes), dtype=precision)


def our_evaluation(sizes, mem_len, precision):
    """Returns a function that scores some segments."""
    import tensorflow as tf

    from txl_tf.inference.evaluation import evaluate

    model = our_model(sizes, mem_len, precision)

    def run(steps):
        text = ids(steps * LENGTH + 1)
        evaluate(model, [(tf.constant(text[:, start:start + LENGTH]), tf.constant(text[:, start + 1:start + LENGTH + 1]))
                         for start in range(0, steps * LENGTH, LENGTH)])

    return run


def our_generation(sizes, mem_len, precision):
    """Returns a function that samples some tokens, with all slots of the memory in use."""
    from txl_tf.inference.sampling import sample_tokens

    tokens = sample_tokens(our_model(sizes, mem_len, precision), ids(mem_len), 10 ** 9, seed=1)
    for _ in range(65):  # until as many as ever are computed at once
        next(tokens)
    return lambda steps: [next(tokens) for _ in range(steps)]


def hugging_face(sizes, mem_len, div_val):
    """Returns the configuration of the Hugging Face classes."""
    from transformers import TransfoXLConfig

    return TransfoXLConfig(
        vocab_size=VOCABULARY, cutoffs=[400, 700] if div_val > 1 else [], div_val=div_val, clamp_len=-1, same_length=False,
        dropout=0.0, dropatt=0.0, untie_r=True, proj_share_all_but_first=False, adaptive=True, mem_len=mem_len, **sizes)


def torch_peer(sizes, mem_len, precision, length):
    import torch
    from transformers import TransfoXLLMHeadModel

    dtype = torch.bfloat16 if precision == "mixed_bfloat16" else torch.float32
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = TransfoXLLMHeadModel(hugging_face(sizes, mem_len, 1)).eval().to(device, dtype)
    tokens, state = torch.tensor(ids(length), dtype=torch.long, device=device), {"mems": None}

    def run(steps):
        with torch.inference_mode():
            for _ in range(steps):
                output = model(tokens, mems=state["mems"], labels=tokens if length > 1 else None)
                state["mems"] = output.mems
        return float((output.losses if length > 1 else output.prediction_scores).sum())

    return run


def tf_peer(sizes, mem_len, precision, length):
    import tensorflow as tf
    from transformers import TFTransfoXLLMHeadModel

    model = TFTransfoXLLMHeadModel(hugging_face(sizes, mem_len, 2))
    tokens = tf.constant(ids(length))
    state = {"mems": model(tokens).mems}

    @tf.function
    def forward(mems):
        output = model(tokens, mems=mems, labels=tokens if length > 1 else None)
        return tf.reduce_sum(output.prediction_scores), output.mems

    def run(steps):
        for _ in range(steps):
            result, state["mems"] = forward(state["mems"])
        return float(result)

    return run


def reading(count, *_):
    """Returns a function that reads so many float32 numbers."""
    import tensorflow as tf

    numbers = tf.random.normal((count // 1024, 1024))
    add = tf.function(lambda: tf.reduce_sum(numbers))
    return lambda steps: [float(add()) for _ in range(steps)]


CONTENDERS = {"evaluation": our_evaluation, "generation": our_generation, "torch": torch_peer, "tensorflow": tf_peer,
              "product": product, "reading": reading}


def numbers_a_token(sizes, mem_len):
    """Returns how many numbers a token needs: the weights but the embedding's table, and keys, values and positions of the memory."""
    width, heads = sizes["d_model"], sizes["n_head"] * sizes["d_head"]
    layer = 4 * width * heads + 2 * width * sizes["d_inner"] + 3 * mem_len * heads
    return sizes["n_layer"] * layer + VOCABULARY * width


def compare(sizes, mem_len, peers, rounds):
    """Prints the times of all contenders at one length of the memory."""
    evaluation, generation = {}, {"reading weights and cache once": (sys.executable, "reading", numbers_a_token(sizes, mem_len))}
    for precision in ("float32", "mixed_bfloat16"):
        evaluation[f"this, {precision}"] = (sys.executable, "evaluation", sizes, mem_len, precision)
        generation[f"this, {precision}"] = (sys.executable, "generation", sizes, mem_len, precision)
        for cases, length in ((evaluation, LENGTH), (generation, 1)) if peers else ():
            cases[f"Hugging Face PyTorch, {precision}"] = (peers, "torch", sizes, mem_len, precision, length)
            if precision == "float32":
                cases["Hugging Face TensorFlow, float32"] = (peers, "tensorflow", sizes, mem_len, precision, length)
    for title, cases, unit in (("evaluation", evaluation, "segment of 128 tokens"), ("generation", generation, "token")):
        seconds = medians({name: Contender(__file__, *case) for name, case in cases.items()}, rounds,
                          {name: 64 if name.startswith("this") else 4 for name in cases})
        print(f"\n{title}, mem_len {mem_len}\n\n| | ms a {unit} | of this, float32 |\n|---|---|---|")
        for name, value in seconds.items():
            print(f"| {name} | {value * 1e3:.1f} | {value / seconds['this, float32']:.2f} |", flush=True)


def window(sizes, mem_len):
    """Prints the line of the paper's Table 9."""
    flags = {**sizes, "n_token": VOCABULARY, "tgt_len": LENGTH, "attention_length": mem_len, "untie_r": True}
    command = [sys.executable, "-m", "txl_tf.analysis.evaluation_speed", *(f"--{name}={value}" for name, value in flags.items())]
    root = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    output = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True).stdout
    print(f"\na moving window, all computed again\n\n{output}", flush=True)


def late(sizes, mem_len, late_tokens):
    """Prints the time of a token and the resident memory late in a long text."""
    import statistics
    import time

    from txl_tf.inference.sampling import sample_tokens

    tokens = sample_tokens(our_model(sizes, mem_len, "float32"), ids(8), 10 ** 9, seed=1)
    print(f"\na long text, mem_len {mem_len}\n\n| after tokens | ms a token | resident MiB |\n|---|---|---|")
    done, around = 0, 32
    for target in late_tokens:
        while done < target:
            next(tokens)
            done += 1
        times = []
        for _ in range(7):
            begin = time.perf_counter()
            for _ in range(around):
                next(tokens)
            times.append((time.perf_counter() - begin) / around)
        done += 7 * around
        with open("/proc/self/statm", encoding="ascii") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2 ** 20
        print(f"| {target:,} | {statistics.median(times) * 1e3:.2f} | {resident:,.0f} |", flush=True)


def main():
    arguments = parsed(__doc__)
    if arguments.serve:
        return serve(CONTENDERS, *arguments.serve)
    sizes, memories = (QUICK, QUICK_MEMORIES) if arguments.quick else (SIZES, MEMORIES)
    rate = 2 * 2048 ** 3 / medians({"product": Contender(__file__, sys.executable, "product")}, 3, {"product": 5})["product"]
    print(f"matrix product of 2,048 rows in float32: {rate / 1e9:.0f} GFLOP/s")
    for mem_len in memories:
        compare(sizes, mem_len, arguments.peers, 1 if arguments.quick else 5)
    late(sizes, memories[0], (10, 100, 300) if arguments.quick else LATE)
    window(sizes, memories[-1])


if __name__ == "__main__":
    main()
