"""Synthesizers beside attention by content: every variant trained on the default corpus, with the same batches for the same steps.

  python benchmarks/synthesizer.py              # all variants with a memory, about 20 minutes on two CPU cores
  python benchmarks/synthesizer.py --mem_len=0  # the paper's form: no memory, logits for the places of a text
  python benchmarks/synthesizer.py --variants=random,relative --heads=2,4,8,16,32   # the paper's study of the number of heads
  python benchmarks/synthesizer.py --quick      # small models and few steps: whether it runs
Sizes, batches and learning rate are those of `python train_gpu.py`; only the steps are fewer. Models take turns of some steps, so that
all see the same machine, and the time of a step is the median of the turns but the first. The valid split is scored with the segments
and the memory of training, for a Synthesizer has logits for no more keys. A variant is a name of --attention, dense_query (the official
code's form of dense) or a mixture such as random+dot_product. Absolute positions allow no memory: with a memory, absolute is trained
without one, and its queries see half as many keys. With --mem_len=0 every token has the sinusoid of its place added, as in the paper,
but for relative and shaw; dot_product is absolute then. The models lie in --output_dir, a folder each, for
`python -m txl_tf.analysis.attention_histogram --data_dir=data/stdlib --model_dir=...`.
"""

import argparse
import os
import statistics
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

import keras
import tensorflow as tf

from data_utils import prepare_corpus
from data_utils.atomic_files import write_json
from txl_tf.config import ModelConfig, TrainConfig
from txl_tf.distribution import replica_batches
from txl_tf.faults import check_folder, writing
from txl_tf.flags import integers
from txl_tf.inference.evaluation import evaluate
from txl_tf.language_model import TransformerXLLM
from txl_tf.metrics import bits_per_character
from txl_tf.model_folder import save_model
from txl_tf.optimization import make_optimizer
from txl_tf.train_step import TrainStep

BASE = "dot_product"  # whose speed the others are compared with
VARIANTS = (BASE, "absolute", "relative", "shaw", "dense", "dense_query", "random", "random_fixed", "factorized_dense", "factorized_random",
            "random+dot_product", "dense+dot_product", "random+dense")
OWN_POSITIONS = {"relative", "shaw"}
QUICK = {"n_layer": 1, "d_model": 32, "n_head": 2, "d_inner": 64}
BYTES = 256  # the corpus has no other tokens


class Run:
    """A model that is trained turn by turn.

    Attributes:
        seconds, bpc: of a step and of a token, one number a turn.
    """

    def __init__(self, name, config, train_config, corpus):
        keras.utils.set_random_seed(train_config.seed)
        self.name, self.config, self.corpus = name, config, corpus
        self.seconds, self.bpc = [], []
        strategy, self.model = tf.distribute.get_strategy(), TransformerXLLM(config)
        optimizer = make_optimizer(train_config)
        optimizer.build(self.model.trainable_variables)
        self.step = TrainStep(self.model, optimizer, strategy, train_config, corpus.rows("train"))
        self.batches = iter(replica_batches(strategy, lambda host: corpus.dataset("train", config.tgt_len, host=host)))

    def turn(self, steps):
        begin = time.perf_counter()
        outcome = {name: value.numpy() for name, value in self.step.run(self.batches, tf.constant(steps)).items()}
        self.seconds.append((time.perf_counter() - begin) / steps)
        self.bpc.append(bits_per_character(float(outcome["nll"]) / int(outcome["tokens"])))

    def result(self, max_segments):
        config, rows = self.config, self.corpus.rows("train")
        nll, _ = evaluate(self.model, self.corpus.dataset("valid", config.tgt_len), max_segments=max_segments)
        step = statistics.median(self.seconds[1:])  # the first made the program
        return {"variant": self.name, "n_head": config.n_head, "mem_len": config.mem_len,
                "parameters": sum(weight.value.shape.num_elements() for weight in self.model.trainable_weights),
                "seconds_a_step": step, "tokens_a_second": rows * config.tgt_len / step, "valid_bpc": bits_per_character(nll),
                "training_bpc": self.bpc}


def config_of(variant, mem_len, **settings):
    """Returns the ModelConfig of a variant. Raises ValueError if there is none."""
    kinds = variant.split("+")
    if len(kinds) > 1:
        settings.update(attention="mixture", mixture_of=tuple(kinds))
    elif variant == "dense_query":
        settings.update(attention="dense", dense_form="query")
    else:
        settings.update(attention=variant)
    if mem_len == 0 and not OWN_POSITIONS & set(kinds):
        settings.update(absolute_positions=True)
    return ModelConfig(n_token=BYTES, mem_len=0 if "absolute" in kinds else mem_len, **settings)


def configs(arguments):
    """Returns {(variant, heads or None): ModelConfig}."""
    sizes = QUICK if arguments.quick else {}
    variants = arguments.variants or [name for name in VARIANTS if arguments.mem_len or name != "absolute"]
    counts = integers("heads", arguments.heads.split(",")) if arguments.heads else [None]
    return {(name, count): config_of(name, arguments.mem_len, **{**sizes, **({"n_head": count} if count is not None else {})})
            for name in variants for count in counts}


def train(runs, steps, turn):
    """Trains all runs, some steps at a time, and says how far they are."""
    for done in range(0, steps, turn):
        for run in runs:
            run.turn(min(turn, steps - done))
        print(f"{min(done + turn, steps):,} of {steps:,} steps", file=sys.stderr, flush=True)


def table(results):
    """Returns the results as a table in Markdown, rated by the model that has dot products and as many heads, if there is one."""
    base = {result["n_head"]: result["tokens_a_second"] for result in results if result["variant"] == BASE}
    several = len({result["n_head"] for result in results}) > 1
    lines = [f"| variant |{' heads |' * several} memory | parameters | ms a step | tokens/s |{f' of {BASE} |' * bool(base)} valid bpc |",
             "|---" * (6 + several + bool(base)) + "|"]
    for result in results:
        speed, heads = result["tokens_a_second"], f" {result['n_head']} |" * several
        ratio = f" {speed / base[result['n_head']]:.2f} |" if base else ""
        lines.append(f"| `{result['variant']}` |{heads} {result['mem_len']} | {result['parameters']:,} | {result['seconds_a_step'] * 1e3:.1f} | "
                     f"{speed:,.0f} |{ratio} {result['valid_bpc']:.3f} |")
    return "\n".join(lines)


def plot(results, turn, path):
    """Draws bpc over the steps, and the valid bpc over the speed or, of several numbers of heads, over these."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(12, 5), layout="constrained")
    over_steps, compared = figure.subplots(1, 2)
    counts = sorted({result["n_head"] for result in results})
    by_heads = len(counts) > 1
    for number, result in enumerate(results):
        label = f"{result['variant']}, {result['n_head']} heads" if by_heads else result["variant"]
        style = {"color": f"C{number % 10}", "linestyle": "-" if number < 10 else "--", "label": label}
        over_steps.plot([turn * (index + 1) for index in range(len(result["training_bpc"]))], result["training_bpc"], **style)
        if not by_heads:
            compared.plot(result["tokens_a_second"], result["valid_bpc"], "o", color=style["color"])
            compared.annotate(result["variant"], (result["tokens_a_second"], result["valid_bpc"]), xytext=(4, 4),
                              textcoords="offset points", fontsize="small")
    for variant in dict.fromkeys(result["variant"] for result in results) if by_heads else ():
        points = [(result["n_head"], result["valid_bpc"]) for result in results if result["variant"] == variant]
        compared.plot(*zip(*points), "o-", label=variant)
    over_steps.set(xlabel="steps", ylabel=f"training bpc, means of {turn} steps")
    over_steps.legend(fontsize="small")
    compared.set(xlabel="heads" if by_heads else "tokens a second", ylabel="valid bpc")
    if by_heads:
        compared.set_xscale("log", base=2)
        compared.set_xticks(counts, [str(count) for count in counts])
        compared.legend()
    figure.savefig(path)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--variants", type=lambda text: text.split(","), help="which, separated by commas; default: all")
    parser.add_argument("--heads", help="numbers of heads, separated by commas; default: the model's")
    parser.add_argument("--mem_len", type=int, default=ModelConfig.mem_len, help="slots of the memory, 0 for the paper's form")
    parser.add_argument("--steps", type=int, help="updates of each model; default: 600")
    parser.add_argument("--data_dir", default="data/stdlib", help="where the corpus stdlib is, or will be")
    parser.add_argument("--output_dir", help="folder of the models, results.json and results.png; default: runs/synthesizer, "
                        "with _positions for --mem_len=0 and _heads for --heads")
    parser.add_argument("--quick", action="store_true", help="small models, few steps and a part of the valid split")
    return parser.parse_args()


def main():
    tf.get_logger().setLevel("ERROR")  # every model is a program of its own, of which TensorFlow would warn
    arguments = parsed()
    steps = (6 if arguments.quick else 600) if arguments.steps is None else arguments.steps
    turn = min(2 if arguments.quick else 25, steps // 2)
    folder = arguments.output_dir or os.path.join("runs", "synthesizer" + "_positions" * (not arguments.mem_len) + "_heads" * bool(arguments.heads))
    try:
        chosen = configs(arguments)
        check_folder(folder, "output_dir")
        corpus = prepare_corpus("stdlib", arguments.data_dir)
        if not 2 <= steps <= corpus.n_segments("train", ModelConfig.tgt_len):
            raise ValueError(f"steps must be from 2 to {corpus.n_segments('train', ModelConfig.tgt_len)}, a pass over the data. "
                             f"Received: steps={steps}")
        with writing(folder, "output_dir"):
            os.makedirs(folder, exist_ok=True)
    except (ValueError, OSError) as error:
        sys.exit(f"benchmarks/synthesizer.py: {error}")
    train_config = TrainConfig(train_steps=steps, warmup_steps=min(TrainConfig.warmup_steps, steps // 6))
    runs = {label: Run(label[0], config, train_config, corpus) for label, config in chosen.items()}
    train(runs.values(), steps, turn)
    results = []
    for (name, heads), run in runs.items():
        save_model(run.model, os.path.join(folder, f"{name}_{heads}_heads" if heads is not None else name), corpus.vocabulary)
        results.append(run.result(max_segments=8 if arguments.quick else None))
        print(f"{len(results)} of {len(runs)} models scored", file=sys.stderr, flush=True)
    write_json(os.path.join(folder, "results.json"), {"steps": steps, "tokens_a_step": corpus.rows("train") * ModelConfig.tgt_len,
                                                      "steps_a_turn": turn, "results": results})
    print(table(results))
    try:
        plot(results, turn, os.path.join(folder, "results.png"))
    except ImportError:
        print("No picture was drawn, for which matplotlib is needed: pip install 'txl-tf[plots]'.", file=sys.stderr)


if __name__ == "__main__":
    main()
