"""Time and memory of the adaptive softmax, beside the original's masked algorithm and a full softmax.

  python benchmarks/adaptive_softmax.py            # ratios, the cost table, the TPU compiler if jax and libtpu are there
  python benchmarks/adaptive_softmax.py --quick    # a small vocabulary, in seconds
Every figure is of one forward and backward pass with the gradients of the hidden states and all weights. Times are medians
of interleaved steps: by the clock, and of the processor, which others on the machine disturb less. Peak memory is that of a
process of its own: how far its resident memory rises in its first step, gradients and compilation included.
"""

import argparse
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

VARIANTS = ("chunked", "chunked+xla", "nll+xla", "masked")  # nll: the mean of head.nll, which computes the logits twice
FULL_VARIANTS = ("full", "full-chunked+xla")


def make_case(variant, vocabulary, cutoffs, shape, width, dtype):
    """Returns (step, inputs): a tf.function to (loss, gradients), and labels by Zipf's law with their hidden states."""
    import keras
    import numpy as np
    import tensorflow as tf

    from txl_tf.heads.adaptive_softmax import AdaptiveSoftmax
    from txl_tf.heads.full_softmax import FullSoftmax
    from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding

    keras.utils.set_random_seed(1)
    name, _, compiled = variant.partition("+")
    policy = {"float32": "float32", "bfloat16": "mixed_bfloat16"}[dtype]
    div_val = 1 if name.startswith("full") else 4
    embedding = AdaptiveEmbedding(vocabulary, width, cutoffs=cutoffs, div_val=div_val, dtype=policy)
    if name.startswith("full"):
        head = FullSoftmax(vocabulary, embedding, dtype=policy)
    else:
        ties = [False] + [True] * len(cutoffs)
        head = AdaptiveSoftmax(vocabulary, cutoffs, div_val, embedding, ties, dtype=policy)
    head.build((None, None, width))
    weights = [weight.value for weight in head.trainable_weights]
    losses = {"chunked": head.loss, "full-chunked": head.loss, "nll": lambda *args: tf.reduce_mean(head.nll(*args)),
              "masked": lambda *args: masked_loss(head, *args), "full": lambda *args: whole_loss(head, *args)}

    @tf.function(jit_compile=bool(compiled))
    def step(hidden, labels):
        with tf.GradientTape() as tape:
            tape.watch(hidden)
            loss = losses[name](hidden, labels)
        gradients = tape.gradient(loss, [hidden, *weights])
        return loss, [tf.convert_to_tensor(gradient) for gradient in gradients if gradient is not None]

    rng = np.random.default_rng(1)
    share = 1.0 / np.arange(1, vocabulary + 1)
    labels = tf.constant(rng.choice(vocabulary, shape, p=share / share.sum()), tf.int32)
    hidden = tf.cast(tf.constant(rng.standard_normal((*shape, width)), tf.float32), embedding.compute_dtype)
    return step, (hidden, labels)


def masked_loss(head, hidden, labels):
    """Returns the mean nll as the original computes it: every cluster picks its tokens out by a mask (not for XLA)."""
    import tensorflow as tf

    tables = [tf.cast(table, hidden.dtype) for table in head.token_embedding.tables]
    ties = zip(head.tie_projections, head.projections, head.token_embedding.projections)
    projections = [tf.cast(theirs if tied else own, hidden.dtype) for tied, own, theirs in ties]
    biases = [tf.convert_to_tensor(bias) for bias in head.biases]
    tables[0] = tf.concat([tables[0], tf.cast(head.cluster_kernel, hidden.dtype)], axis=0)
    biases[0] = tf.concat([biases[0], head.cluster_bias], axis=0)
    hidden = tf.reshape(hidden, (-1, hidden.shape[-1]))
    labels = tf.reshape(labels, (-1,))

    def log_softmax(rows, index):
        features = tf.matmul(rows, projections[index], transpose_b=True)
        logits = tf.cast(tf.matmul(features, tables[index], transpose_b=True), tf.float32)
        return tf.nn.log_softmax(logits + biases[index])

    head_log_probs = log_softmax(hidden, 0)
    nll = tf.zeros(tf.shape(labels), tf.float32)
    for index, (left, right) in enumerate(head.bounds):
        mask = (labels >= left) & (labels < right)
        local = tf.boolean_mask(labels, mask) - left
        of_head = tf.boolean_mask(head_log_probs, mask)
        if index == 0:
            log_probs = tf.gather(of_head, local, batch_dims=1)
        else:
            of_tail = log_softmax(tf.boolean_mask(hidden, mask), index)
            log_probs = of_head[:, head.cutoffs[0] + index - 1] + tf.gather(of_tail, local, batch_dims=1)
        nll += tf.scatter_nd(tf.where(mask), -log_probs, tf.shape(labels, out_type=tf.int64))
    return tf.reduce_mean(nll)


def whole_loss(head, hidden, labels):
    """Returns the mean nll of a full softmax from all its logits at once."""
    import tensorflow as tf

    table = tf.cast(head.token_embedding.tables[0], hidden.dtype)
    logits = tf.cast(tf.matmul(hidden, tf.broadcast_to(table, table.shape), transpose_b=True), tf.float32) + head.bias
    return tf.reduce_mean(tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits))


def resident(field):
    """Returns a memory field of this process (VmRSS now, VmHWM at its highest) in MiB."""
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) / 1024 for line in status if line.startswith(field))


def measure(case):
    """Returns {variant: {"loss", "clock", "processor", "mib"}}; mib, the growth, is right for the first variant only."""
    import tensorflow as tf

    variants, repeats = case.pop("variants"), case.pop("repeats")
    made = {variant: make_case(variant, **case) for variant in variants}
    tf.matmul(tf.ones((64, 64)), tf.ones((64, 64)))
    before = resident("VmRSS")
    result, times = {}, {variant: [] for variant in variants}
    for variant, (step, inputs) in made.items():
        loss, gradients = step(*inputs)
        result[variant] = {"loss": float(loss), "mib": resident("VmHWM") - before}
        del gradients
    for _ in range(repeats):
        for variant, (step, inputs) in made.items():
            clock, processor = time.perf_counter(), time.process_time()
            loss, gradients = step(*inputs)
            float(loss), float(tf.reshape(gradients[-1], (-1,))[0])
            times[variant].append((time.perf_counter() - clock, time.process_time() - processor))
            del gradients
    for variant in variants:
        clocks, processors = zip(*times[variant])
        result[variant].update(clock=statistics.median(clocks), processor=statistics.median(processors))
    return result


def in_subprocess(**case):
    """Returns measure(case) of a fresh process."""
    run = subprocess.run([sys.executable, __file__, "--case", json.dumps(case)], stdout=subprocess.PIPE, check=True, text=True)
    return json.loads(run.stdout.splitlines()[-1])


def compare(sizes, repeats):
    """Prints time and memory of every variant, and their ratios to the masked version's."""
    print("tokens    arithmetic  variant             ms (clock, processor)   masked's / this (clock, processor)   "
          "peak MiB   this / masked's peak")
    for shape in ((4, 128), (16, 256)):
        for dtype in ("float32", "bfloat16"):
            found = in_subprocess(variants=VARIANTS, shape=shape, dtype=dtype, repeats=repeats, **sizes)
            for variant in VARIANTS:
                alone = in_subprocess(variants=[variant], shape=shape, dtype=dtype, repeats=1, **sizes)
                found[variant]["mib"] = alone[variant]["mib"]
            for variant in FULL_VARIANTS if dtype == "float32" else ():
                found.update(in_subprocess(variants=[variant], shape=shape, dtype=dtype, repeats=1, **sizes))
            masked = found["masked"]
            for variant, row in found.items():
                print(f"{shape[0]:2} x {shape[1]}  {dtype:10}  {variant:16} {row['clock'] * 1e3:7.0f} {row['processor'] * 1e3:7.0f}"
                      f"{masked['clock'] / row['clock']:15.2f} {masked['processor'] / row['processor']:7.2f}"
                      f"{row['mib']:20.0f} {row['mib'] / masked['mib']:12.2f}", flush=True)


def cost_table(sizes, repeats):
    """Prints the cost of the chunked loss over the number of tokens and over the vocabulary, as a Markdown table."""
    print("\n| tokens | vocabulary | ms (clock) | peak MiB | of which gradients | masked: peak MiB |\n" + "| --- " * 6 + "|")
    vocabulary, width = sizes["vocabulary"], sizes["width"]
    cases = [(rows, vocabulary) for rows in (2, 8, 16, 32)] + [(16, vocabulary // 5), (16, vocabulary * 3)]
    for rows, size in cases:
        bounds = [0, *(cut for cut in sizes["cutoffs"] if cut < size), size]
        case = dict(vocabulary=size, cutoffs=bounds[1:-1], shape=(rows, 256), width=width, dtype="float32")
        row = in_subprocess(variants=["chunked+xla"], repeats=repeats, **case)["chunked+xla"]
        masked = in_subprocess(variants=["masked"], repeats=1, **case)["masked"]
        floats = sum((right - left) * (width // 4 ** index) for index, (left, right) in enumerate(zip(bounds, bounds[1:])))
        print(f"| {rows * 256:,} | {size:,} | {row['clock'] * 1e3:.0f} | {row['mib']:.0f} | {floats / 2 ** 18:.0f} | "
              f"{masked['mib']:.0f} |", flush=True)


def compile_for_tpu(sizes, topology="v4:2x2x1"):
    """Prints the memory that the chunked step takes on a TPU, by the TPU's own compiler; no TPU is needed."""
    os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    import tensorflow as tf
    from jax._src import compiler
    from jax._src.interpreters import mlir
    from jax._src.lib import xla_client
    from jax.experimental import topologies
    from jaxlib.mlir import ir

    device = topologies.get_topology_desc(platform="tpu", topology_name=topology).devices[0]
    options = compiler.get_compile_options(num_replicas=1, num_partitions=1)
    for dtype in ("float32", "bfloat16"):
        step, inputs = make_case("chunked+xla", shape=(16, 256), dtype=dtype, **sizes)
        specs = [tf.TensorSpec(tensor.shape, tensor.dtype) for tensor in inputs]  # the program must not know the labels
        text = step.experimental_get_compiler_ir(*specs)(stage="stablehlo", platform_name="CPU")
        start = time.perf_counter()
        with mlir.make_ir_context():
            module = ir.Module.parse(text)
            without_copies(module.operation)
            memory = device.client.compile(module, xla_client.DeviceList((device,)), options).get_compiled_memory_stats()
        print(f"TPU {topology}, 16 x 256, {dtype}: compiled in {time.perf_counter() - start:.1f} s, "
              f"{memory.temp_size_in_bytes / 2 ** 20:.0f} MiB temporary, {memory.output_size_in_bytes / 2 ** 20:.0f} MiB of "
              f"gradients, {memory.argument_size_in_bytes / 2 ** 20:.0f} MiB of arguments", flush=True)


def without_copies(operation):
    """Takes mhlo.copy, which the TPU compiler's front end refuses, out of a module."""
    for block in (block for region in operation.regions for block in region.blocks):
        for inner in list(block.operations):
            without_copies(inner.operation)
            if inner.operation.name == "mhlo.copy":
                inner.operation.results[0].replace_all_uses_with(inner.operation.operands[0])
                inner.operation.erase()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a small vocabulary, to see that all runs")
    parser.add_argument("--tpu", action="store_true", help="only compile for a TPU")
    parser.add_argument("--case", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.case:
        print(json.dumps(measure(json.loads(args.case))))
        return
    sizes = dict(vocabulary=267_735, cutoffs=[20_000, 40_000, 200_000], width=512)
    if args.quick:
        sizes = dict(vocabulary=8_000, cutoffs=[500, 1_000, 4_000], width=64)
    if not args.tpu:
        compare(sizes, repeats=5)
        cost_table(sizes, repeats=3)
    if importlib.util.find_spec("jax") and importlib.util.find_spec("libtpu"):
        compile_for_tpu(sizes)
    else:
        print("TPU: not compiled, pip install jax libtpu first")


if __name__ == "__main__":
    main()
