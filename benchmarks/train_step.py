"""Speed of the training step, beside the Hugging Face classes in PyTorch and TensorFlow and the machine's own matrix product.

  python benchmarks/train_step.py --peers=PEERS/bin/python   # PEERS: an environment with transformers 4.35.2, torch, tf-keras
  python benchmarks/train_step.py                            # this library and the matrix product alone
  python benchmarks/train_step.py --quick                    # a small model, in seconds
A step is forward, backward, clipping and Adam on 4 x 128 tokens, with memory carried along: 4 layers, d_model 512, 8 heads,
d_inner 2048, V = 1,000 with cutoffs [400, 700] and div_val 1, mem_len 128, no dropout. The TensorFlow class of Hugging Face needs
div_val above 1, so it has a pair of its own with div_val 2. Each contender is a process that waits for its turn; times are medians
of turns taken one after the other, so that all see the same machine. Where there is a GPU, each uses it. "Half of the cores" is what
TF_NUM_INTRAOP_THREADS sets: operations are not spread over all cores, so that two of them run side by side.
"""

import os
import sys

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

from benchmarks.contender import Contender, medians, parsed, product, serve

ROWS, LENGTH = 4, 128
SIZES = dict(n_layer=4, d_model=512, d_embed=512, n_head=8, d_head=64, d_inner=2048, mem_len=LENGTH)
QUICK = dict(n_layer=2, d_model=64, d_embed=64, n_head=2, d_head=32, d_inner=128, mem_len=LENGTH)
VOCABULARY, CUTOFFS = 1_000, (400, 700)
RATE, CLIP = 2.5e-4, 0.25


def batch(step):
    """Returns the tokens (B, T) of a step, int array."""
    import numpy as np

    return np.random.default_rng(step).integers(0, VOCABULARY, (ROWS, LENGTH))


def ours(sizes, precision, div_val, compiled, threads=0):
    """Returns a function that makes a step of this library; threads: of an operation, 0: all."""
    import keras
    import tensorflow as tf

    from txl_tf.config import ModelConfig, TrainConfig
    from txl_tf.language_model import TransformerXLLM
    from txl_tf.optimization import make_optimizer
    from txl_tf.train_step import TrainStep

    tf.config.threading.set_intra_op_parallelism_threads(threads)
    keras.utils.set_random_seed(1)
    config = ModelConfig(n_token=VOCABULARY, cutoffs=CUTOFFS, div_val=div_val, untie_r=True, tgt_len=LENGTH, **sizes)
    train = TrainConfig(learning_rate=RATE, warmup_steps=0, train_steps=10_000, clip=CLIP, precision=precision, jit_compile=compiled)
    optimizer, model = make_optimizer(train), TransformerXLLM(config, dtype=precision)
    optimizer.build(model.trainable_variables)
    step = TrainStep(model, optimizer, tf.distribute.get_strategy(), train, ROWS)
    pairs = [(batch(number), batch(number)) for number in range(50)]
    data = tf.data.Dataset.from_tensor_slices(tuple(map(list, zip(*pairs)))).map(
        lambda *pair: tuple(tf.ensure_shape(tf.cast(side, tf.int32), (ROWS, LENGTH)) for side in pair))
    iterator = iter(data.repeat())
    return lambda steps: float(step.run(iterator, tf.constant(steps))["nll"])


def hugging_face(sizes, div_val):
    """Returns the configuration of the Hugging Face classes."""
    from transformers import TransfoXLConfig

    return TransfoXLConfig(
        vocab_size=VOCABULARY, cutoffs=list(CUTOFFS), div_val=div_val, clamp_len=-1, same_length=False, dropout=0.0, dropatt=0.0,
        untie_r=True, proj_share_all_but_first=False, pre_lnorm=False, adaptive=True, **sizes)


def torch_peer(sizes, precision, div_val, _):
    import contextlib

    import torch
    from transformers import TransfoXLLMHeadModel

    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = TransfoXLLMHeadModel(hugging_face(sizes, div_val)).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), RATE)
    arithmetic = torch.autocast(device, torch.bfloat16) if precision == "mixed_bfloat16" else contextlib.nullcontext()
    pairs = [torch.tensor(batch(number), device=device) for number in range(50)]
    state = {"step": 0, "mems": None}

    def run(steps):
        for _ in range(steps):
            tokens = pairs[state["step"] % 50]
            with arithmetic:
                output = model(tokens, mems=state["mems"], labels=tokens)
            loss = output.losses.mean()
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
            optimizer.step()
            state.update(step=state["step"] + 1, mems=output.mems)
        return float(loss)

    return run


def tf_peer(sizes, precision, div_val, compiled):
    import tensorflow as tf
    from transformers import TFTransfoXLLMHeadModel

    tf.random.set_seed(1)
    model = TFTransfoXLLMHeadModel(hugging_face(sizes, div_val))
    optimizer = tf.keras.optimizers.Adam(RATE)
    pairs = [tf.constant(batch(number), tf.int32) for number in range(50)]
    state = {"step": 0, "mems": model(pairs[0]).mems}

    @tf.function(jit_compile=compiled)
    def update(tokens, mems):
        with tf.GradientTape() as tape:
            output = model(tokens, mems=mems, labels=tokens, training=True)
            loss = tf.add_n(model.losses)  # where its softmax puts the mean over the tokens
        gradients, _ = tf.clip_by_global_norm(tape.gradient(loss, model.trainable_variables), CLIP)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss, output.mems

    def run(steps):
        for _ in range(steps):
            loss, state["mems"] = update(pairs[state["step"] % 50], state["mems"])
            state["step"] += 1
        return float(loss)

    return run


def multiplications(sizes, div_val):
    """Returns the floating-point operations of a step: two a multiply-add, three times the forward pass."""
    tokens, keys, width = ROWS * LENGTH, LENGTH + sizes["mem_len"], sizes["d_model"]
    heads = sizes["n_head"] * sizes["d_head"]
    projections = tokens * width * heads * 2 + ROWS * keys * width * heads * 2 + keys * width * heads
    attention = 3 * ROWS * LENGTH * keys * heads
    feed_forward = 2 * tokens * width * sizes["d_inner"]
    bounds = (0, *CUTOFFS, VOCABULARY)
    share = [(right - left) / VOCABULARY for left, right in zip(bounds, bounds[1:])]  # tokens are drawn evenly
    widths = [sizes["d_embed"] // div_val ** index for index in range(len(share))]
    softmax = tokens * (CUTOFFS[0] + len(CUTOFFS)) * widths[0] + sum(
        tokens * share[i] * (bounds[i + 1] - bounds[i]) * widths[i] for i in range(1, len(share)))
    return 2 * 3 * (sizes["n_layer"] * (projections + attention + feed_forward) + softmax)


CONTENDERS = {"ours": ours, "torch": torch_peer, "tensorflow": tf_peer, "product": product}


def compare(sizes, peers, rounds, steps):
    """Prints the tokens a second of every contender, and ratios."""
    cases = {"matrix product": (sys.executable, "product")}
    for precision in ("float32", "mixed_bfloat16"):
        cases[f"this, {precision}"] = (sys.executable, "ours", sizes, precision, 1, False)
        cases[f"this, {precision}, XLA"] = (sys.executable, "ours", sizes, precision, 1, True)
    half = max(1, (os.cpu_count() or 1) // 2)
    cases["this, mixed_bfloat16, half of the cores an operation"] = (sys.executable, "ours", sizes, "mixed_bfloat16", 1, False, half)
    if peers:
        for precision in ("float32", "mixed_bfloat16"):
            cases[f"Hugging Face PyTorch, {precision}"] = (peers, "torch", sizes, precision, 1, False)
        cases["this, float32, div_val 2"] = (sys.executable, "ours", sizes, "float32", 2, False)
        cases["Hugging Face TensorFlow, float32, div_val 2"] = (peers, "tensorflow", sizes, "float32", 2, False)
    seconds = medians({name: Contender(__file__, *case) for name, case in cases.items()}, rounds, dict.fromkeys(cases, steps))
    rate = 2 * 2048 ** 3 / seconds.pop("matrix product")
    print(f"matrix product of 2,048 rows in float32: {rate / 1e9:.0f} GFLOP/s\n")
    print("| | ms a step | tokens/s | of the matrix product's rate |\n|---|---|---|---|")
    for name, value in seconds.items():
        operations = multiplications(sizes, 2 if "div_val 2" in name else 1)
        print(f"| {name} | {value * 1e3:.1f} | {ROWS * LENGTH / value:,.0f} | {operations / value / rate:.0%} |")
    if peers:
        float32, bfloat16 = (min(value for name, value in seconds.items() if name.startswith(f"this, {precision}") and "div_val" not in name)
                             for precision in ("float32", "mixed_bfloat16"))
        print(f"\nfloat32: {seconds['Hugging Face PyTorch, float32'] / float32:.2f}x the PyTorch class; "
              f"mixed_bfloat16: {seconds['Hugging Face PyTorch, mixed_bfloat16'] / bfloat16:.2f}x; beside "
              f"PyTorch's float32: {seconds['Hugging Face PyTorch, float32'] / bfloat16:.2f}x")
        pair = seconds["Hugging Face TensorFlow, float32, div_val 2"] / seconds["this, float32, div_val 2"]
        print(f"float32 with div_val 2: {pair:.2f}x the TensorFlow class")


def main():
    arguments = parsed(__doc__)
    if arguments.serve:
        return serve(CONTENDERS, *arguments.serve)
    compare(QUICK if arguments.quick else SIZES, arguments.peers, 3 if arguments.quick else 7, 2 if arguments.quick else 5)


if __name__ == "__main__":
    main()
