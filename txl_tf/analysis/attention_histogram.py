"""How large attention weights are, by layer, at the start and trained: `python -m txl_tf.analysis.attention_histogram --model_dir=a,b`."""

import itertools

import keras
import numpy as np
import tensorflow as tf
from absl import app, flags, logging

from data_utils.atomic_files import write_json
from data_utils.vocabulary_base import utf8
from txl_tf.analysis.attention_maps import attention_maps
from txl_tf.analysis.model_corpus import open_corpus_of
from txl_tf.config import SPLITS, ModelConfig, TrainConfig
from txl_tf.faults import one_sentence, say
from txl_tf.flags import check_folder_of, check_no_arguments, check_plot_file, integers
from txl_tf.inference.scoring import check_sizes
from txl_tf.language_model import TransformerXLLM
from txl_tf.model_folder import load_model_and_vocabulary, read_config

SCALES = ("log", "linear")
SMALLEST = 1e-6  # lower bound of the second bin of the log scale
STATES = ("start", "trained")
MOST_BINS = 10_000
_TITLE = 36  # letters that a column of the picture has room for
_SHARES = (0.5, 0.9, 0.99)  # of the weights, whose upper bounds are printed


def bin_edges(bins, scale="log"):
    """Returns float32 (bins + 1,) rising from 0 to 1, evenly or, with scale "log", by one factor from SMALLEST on."""
    if not 2 <= bins <= MOST_BINS:
        raise ValueError(f"bins must be from 2 to {MOST_BINS:,}. Received: bins={bins}")
    if scale not in SCALES:
        raise ValueError(f"scale must be one of {', '.join(SCALES)}. Received: scale={scale}")
    edges = np.linspace(0, 1, bins + 1) if scale == "linear" else np.concatenate([[0], np.geomspace(SMALLEST, 1, bins)])
    return edges.astype(np.float32)


def attention_histogram(model, segments, edges):
    """Returns how many attention weights fall into each bin while a model reads a text (Tay et al. 2020, figures 2 and 3).

    The weights of all heads and queries count, over the keys that the query may see: those of hidden keys are always zero.

    Args:
        model: a TransformerXLLM.
        segments: token_ids (B, T), where each row continues that of the segment before; the memory is the model's.
        edges: bounds of the bins, rising from 0 to 1; a bin holds its lower bound, the last one its upper, too.

    Returns:
        (L, bins) int64.

    Raises:
        ValueError: if there is no segment.

    Example:
        counts = attention_histogram(model, [token_ids], bin_edges(60))
    """
    counts, memory = None, None
    for token_ids in segments:
        memory = model.initial_memory(token_ids.shape[0]) if memory is None else memory
        token_ids, weights = tf.cast(token_ids, tf.int32), attention_maps(model, token_ids, memory).numpy()  # (B, L, N, T, S)
        visible = model.backbone.get_layer("visible_keys")(token_ids, memory).numpy()  # (B, T, S)
        found = np.stack([_counts(weights[:, layer], visible, edges) for layer in range(weights.shape[1])])
        counts = found if counts is None else counts + found
        _, memory = model.backbone((token_ids, memory))
    if counts is None:
        raise ValueError("segments must hold at least one segment. Received: none")
    return counts


def _counts(weights, visible, edges):
    """Returns the counts (bins,) of the weights (B, N, T, S) of a layer."""
    seen = weights[np.broadcast_to(visible[:, None], weights.shape)]
    return np.histogram(np.minimum(seen, 1), edges)[0]  # rounding may have put one above


def fresh_model(folder):
    """Returns the model of a folder as its training began: with new weights from the seed of the run, or the default one."""
    config = read_config(folder)
    keras.utils.set_random_seed(config.get("train", {}).get("seed", TrainConfig.seed))
    return TransformerXLLM(ModelConfig(**config["model"]))


def upper_bound(counts, edges, share):
    """Returns the least edge below which that share of the counted weights lies."""
    return float(edges[1 + np.searchsorted(np.cumsum(counts), share * counts.sum())])


def plot(results, edges, layers, scale, path):
    """Writes a picture: a column for each model, a row for each layer, the start beside the trained model.

    Args:
        results: [{"model_dir", "start": (L, bins), "trained": (L, bins)}].
        edges, scale: of the bins.
        layers: numbers of layers, from 1 on.
        path: the file.

    Raises:
        ImportError: if matplotlib is not installed.
        OSError: if the file can't be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(3.4 * len(results) + 0.6, 2.2 * len(layers) + 0.6), layout="constrained")
    panels = figure.subplots(len(layers), len(results), sharex=True, sharey="row", squeeze=False)
    for (row, layer), (column, result) in itertools.product(enumerate(layers), enumerate(results)):
        axes = panels[row, column]
        for state, filled in zip(STATES, (True, False)):
            counts = result[state][layer - 1]
            axes.stairs(counts / counts.sum(), edges, fill=filled, label=state, **({"color": "0.8"} if filled else {}))
        axes.set(xscale=scale, xlim=(edges[1] if scale == "log" else 0, 1), **({} if scale == "log" else {"yscale": "log"}))
        axes.set_title(result["model_dir"][-_TITLE:] if row == 0 else "", fontsize="medium")
        axes.set_ylabel(f"layer {layer}: share of weights" if column == 0 else "")
        axes.set_xlabel("attention weight" if row == len(layers) - 1 else "")
    panels[0, 0].legend()
    figure.savefig(path)


def main(argv):
    logging.set_verbosity(logging.WARNING)
    settings = flags.FLAGS
    with one_sentence("txl_tf.analysis.attention_histogram", ValueError, OSError):
        check_no_arguments(argv)
        _check(settings)
        edges, text = bin_edges(settings.bins, settings.scale), _text(settings.text_file)
        models = [(folder, *_opened(folder, settings, text)) for folder in settings.model_dir]
        layers = _layers(settings.layers, min(model.config.n_layer for _, model, _ in models))
        results = [_result(folder, model, segments, edges, layers) for folder, model, segments in models]
        if settings.json_file:
            write_json(settings.json_file, {**_chosen(settings), "edges": edges.tolist(), "layers": layers,
                                            "models": [_as_json(result, layers) for result in results]})
        if settings.plot_file:
            plot(results, edges, layers, settings.scale, settings.plot_file)


def _check(settings):
    if not settings.model_dir:
        raise ValueError("model_dir must be at least one folder. Received: none")
    if (settings.data_dir is None) == (settings.text_file is None):
        raise ValueError("One of data_dir and text_file must be given. Received: "
                         f"data_dir={settings.data_dir}, text_file={settings.text_file}")
    check_sizes(max_segments=settings.max_segments)
    check_folder_of("json_file", settings.json_file)
    check_plot_file(settings.plot_file)


def _text(path):
    """Returns the text of a file; None is no text."""
    if path is None:
        return None
    try:
        with open(path, "rb") as file:
            return utf8(file.read())
    except (ValueError, OSError) as error:
        raise ValueError(f"text_file must be a UTF-8 file that can be read ({error}). Received: text_file={path}") from error


def _opened(folder, settings, text):
    """Returns the trained model of a folder and the segments that it reads: token_ids (B, T)."""
    model, vocabulary = load_model_and_vocabulary(folder)
    tgt_len, count = model.config.tgt_len, settings.max_segments
    if text is None:
        corpus = open_corpus_of(vocabulary, settings.dataset, settings.data_dir, tgt_len)
        return model, [token_ids for token_ids, _ in corpus.dataset(settings.split, tgt_len).take(count)]
    try:
        ids = np.asarray(vocabulary.encode(text), np.int32)[None, :count * tgt_len]
    except ValueError as error:
        raise ValueError(f"text_file must be in the symbols of the model's vocabulary ({error}). Received: "
                         f"text_file={settings.text_file}") from error
    if not ids.size:
        raise ValueError(f"text_file must hold at least one token. Received: text_file={settings.text_file}, 0 tokens")
    return model, [ids[:, start:start + tgt_len] for start in range(0, ids.shape[1], tgt_len)]


def _layers(texts, n_layer):
    """Returns the layers to show, counted from 1: those that a flag names, or every other one of n_layer."""
    layers = list(integers("layers", texts)) if texts else list(range(1, n_layer + 1, 2))
    if not all(1 <= layer <= n_layer for layer in layers):
        raise ValueError(f"layers must be from 1 to {n_layer}. Received: layers={','.join(texts)}")
    return layers


def _result(folder, model, segments, edges, layers):
    """Returns the counts of a model, and prints them in short, below a head if it is the first."""
    result = {"model_dir": folder, "config": model.config}
    for state, counted in zip(STATES, (fresh_model(folder), model)):
        result[state] = attention_histogram(counted, segments, edges)
        for layer in layers:
            counts = result[state][layer - 1]
            bounds = "  ".join(f"{share:g} below {upper_bound(counts, edges, share):.2g}" for share in _SHARES)
            say(f"{folder}  layer {layer}  {state:7}  {counts.sum():,} weights: {bounds}")
    return result


def _chosen(settings):
    """Returns what was read, for JSON."""
    names = ("text_file",) if settings.text_file else ("data_dir", "split")
    return {name: getattr(settings, name) for name in (*names, "max_segments", "scale")}


def _as_json(result, layers):
    config = result["config"]
    described = {name: getattr(config, name) for name in ("attention", "mixture_of", "n_head", "tgt_len", "mem_len")}
    return {"model_dir": result["model_dir"], **described,
            **{state: {layer: result[state][layer - 1].tolist() for layer in layers} for state in STATES}}


if __name__ == "__main__":
    flags.DEFINE_list("model_dir", None, "folders of runs or saved models, separated by commas", required=True)
    flags.DEFINE_string("data_dir", None, "folder of the prepared data")
    flags.DEFINE_string("dataset", None, "name of the dataset; unset: what the folder was prepared for")
    flags.DEFINE_enum("split", "valid", SPLITS, "the split to read")
    flags.DEFINE_string("text_file", None, "a text to read instead of data_dir")
    flags.DEFINE_integer("max_segments", 8, "segments that are read at most, each as long as in training, with the memory of training")
    flags.DEFINE_list("layers", None, "layers to show, counted from 1; unset: 1, 3, 5, ...")
    flags.DEFINE_integer("bins", 61, "bins from 0 to 1; the default: ten for each power of ten, and one for what is below 1e-6")
    flags.DEFINE_enum("scale", "log", SCALES, "whether bins are even in the logarithm of the weight or in the weight")
    flags.DEFINE_string("json_file", None, "file to write the counts to as JSON")
    flags.DEFINE_string("plot_file", None, "picture to write, such as weights.png (needs matplotlib)")
    app.run(main)
