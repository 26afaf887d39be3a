"""Histograms of attention weights: what is counted, where uniform attention lies, how a run began, and what the command writes and refuses."""

import json
import sys
import types

import numpy as np
import pytest

from testing.number_corpus import NumberCorpus
from testing.optional_package import needed
from testing.text_folders import write_files
from testing.tiny_model import randomize, tiny_config, tiny_model, tiny_tokens
from data_utils import ByteVocabulary, CharVocabulary, prepare_corpus
from txl_tf import TransformerXLLM
from txl_tf.analysis import attention_histogram as module
from txl_tf.analysis.attention_histogram import attention_histogram, bin_edges, fresh_model, upper_bound
from txl_tf.analysis.attention_maps import attention_maps
from txl_tf.config import TrainConfig
from txl_tf.model_folder import save_model
from txl_tf.training import Training

TEXT = b"a rose is a rose is a rose, and what is it but a rose? " * 3
DEFAULTS = {"dataset": None, "split": "valid", "text_file": None, "max_segments": 2, "layers": None, "bins": 13, "scale": "log",
            "json_file": None, "plot_file": None}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with two models, relative/ and random/, of which nothing was trained but the weights drawn anew, and prepared text in data/."""
    folder = tmp_path_factory.mktemp("histogram")
    for kind in ("relative", "random_fixed"):
        model = TransformerXLLM(tiny_config(n_token=256, attention=kind))
        save_model(randomize(model), str(folder / kind), ByteVocabulary())
    write_files(folder / "data", {f"{split}.txt": TEXT for split in ("train", "valid", "test")})
    prepare_corpus("text", folder / "data", train_batch_size=2, eval_batch_size=2)
    return folder


@pytest.fixture
def command(folder, monkeypatch, capsys):
    """A function that runs the command with flags and returns the lines that it printed."""

    def run(*stray, **settings):
        values = {"model_dir": [str(folder / "relative")], "data_dir": str(folder / "data"), **DEFAULTS, **settings}
        monkeypatch.setattr("absl.flags.FLAGS", types.SimpleNamespace(**values))
        module.main(["attention_histogram", *stray])
        return capsys.readouterr().out.splitlines()

    return run


@pytest.mark.slow_but_first
@pytest.mark.parametrize("bins, scale, settings", [
    (13, "log", {}), (20, "linear", {"same_length": True}), (9, "log", {"memory_start": "zeros", "attention": "dense"}),
], ids=str)
def test_counts_are_those_of_the_maps(bins, scale, settings):
    model, edges = tiny_model(**settings), bin_edges(bins, scale)
    segments = [tiny_tokens(2, length, seed=seed) for seed, length in enumerate((4, 4, 3))]
    expected, memory = np.zeros((2, bins), int), model.initial_memory(2)
    for token_ids in segments:
        weights = attention_maps(model, token_ids, memory).numpy()
        for row, layer, head, query, key in np.ndindex(weights.shape):
            first = memory["hidden"].shape[2] - int(memory["length"][row])
            first = max(first, query) if settings.get("same_length") else first
            if first <= key <= query + memory["hidden"].shape[2]:
                expected[layer, np.searchsorted(edges[1:-1], weights[row, layer, head, query, key], side="right")] += 1
        _, memory = model.log_probs(token_ids, memory)
    np.testing.assert_array_equal(attention_histogram(model, segments, edges), expected)


def test_uniform_attention_lies_where_it_must():
    model = tiny_model(attention="random", max_length=16)
    for block in model.backbone.blocks:
        block.attention_layer.logits.assign(0 * block.attention_layer.logits)
    edges = bin_edges(40, "linear")
    counts = attention_histogram(model, [tiny_tokens(2, 4), tiny_tokens(2, 4)], edges)
    seen = [keys for keys in range(1, 9) for _ in range(keys)]  # query i has i + 1 keys, of weight 1 / (i + 1); the memory holds them all
    expected = 2 * 3 * np.histogram(np.float32(1) / np.float32(seen), edges)[0]  # 2 rows, 3 heads
    np.testing.assert_array_equal(counts, [expected, expected])


def test_edges():
    log = bin_edges(61)
    assert len(log) == 62 and log[0] == 0 and log[-1] == 1 and log.dtype == np.float32
    np.testing.assert_allclose(log[2:] / log[1:-1], 10 ** 0.1, 1e-4)
    np.testing.assert_allclose(bin_edges(4, "linear"), [0, 0.25, 0.5, 0.75, 1])
    assert upper_bound(np.array([5, 4, 1, 0]), bin_edges(4, "linear"), 0.5) == 0.25
    assert upper_bound(np.array([5, 4, 1, 0]), bin_edges(4, "linear"), 0.99) == 0.75
    for settings, received in (({"bins": 1}, "bins=1"), ({"bins": 9, "scale": "cubic"}, "scale=cubic")):
        with pytest.raises(ValueError, match=f"must be .* Received: {received}"):
            bin_edges(**settings)
    with pytest.raises(ValueError, match="at least one segment"):
        attention_histogram(tiny_model(), [], bin_edges(9))


def test_layers_are_every_other_one():
    assert [module._layers(None, count) for count in (1, 2, 5)] == [[1], [1], [1, 3, 5]] and module._layers(["2", "6"], 6) == [2, 6]


def test_a_run_begins_as_its_seed_has_it(tmp_path):
    settings = TrainConfig(model_dir=str(tmp_path), seed=7, train_steps=2, warmup_steps=0, do_eval=False)
    run = Training(tiny_config(n_token=256, attention="random_fixed"), settings, NumberCorpus())
    again = fresh_model(str(tmp_path)).get_weights()
    for was, now in zip(run.model.get_weights(), again, strict=True):
        np.testing.assert_array_equal(was, now)


@pytest.mark.slow
def test_the_command_counts_every_model_on_the_split(command, folder):
    path = folder / "counts.json"
    lines = command(model_dir=[str(folder / "relative"), str(folder / "random_fixed")], json_file=str(path), split="test")
    written = json.loads(path.read_text())
    assert {name: written[name] for name in ("split", "max_segments", "scale", "layers")} == {
        "split": "test", "max_segments": 2, "scale": "log", "layers": [1]}
    segments = [ids for ids, _ in prepare_corpus("text", folder / "data").dataset("test", 4).take(2)]
    for found, kind in zip(written["models"], ("relative", "random_fixed"), strict=True):
        assert (found["attention"], found["tgt_len"], found["mem_len"]) == (kind, 4, 6)
        state, model_of = ("start", fresh_model) if kind == "relative" else ("trained", TransformerXLLM.from_preset)
        counts = attention_histogram(model_of(str(folder / kind)), segments, np.float32(written["edges"]))
        assert found[state] == {"1": counts[0].tolist()}
        assert found["start"] != found["trained"]
    assert len(lines) == 4 and all("weights: 0.5 below " in line for line in lines)


def test_a_text_of_ones_own(command, folder):
    (folder / "own.txt").write_bytes(TEXT[:7])
    needed("matplotlib")
    command(data_dir=None, text_file=str(folder / "own.txt"), json_file=str(folder / "own.json"), layers=["2"],
            plot_file=str(folder / "own.png"))
    assert (folder / "own.png").is_file()
    found, = json.loads((folder / "own.json").read_text())["models"]
    ids = np.frombuffer(TEXT[:7], np.uint8)[None]
    model = TransformerXLLM.from_preset(str(folder / "relative"))
    expected = attention_histogram(model, [ids[:, :4], ids[:, 4:]], bin_edges(13))
    assert found["trained"] == {"2": expected[1].tolist()}


@pytest.mark.parametrize("scale", module.SCALES)
def test_the_picture(tmp_path, scale):
    needed("matplotlib")
    counts = np.random.default_rng(1).integers(1, 9, (2, 12))
    results = [{"model_dir": name, "start": counts, "trained": counts[::-1]} for name in ("one", "two")]
    module.plot(results, bin_edges(12, scale), [1, 2], scale, tmp_path / "weights.png")
    assert (tmp_path / "weights.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("settings, received", [
    ({"model_dir": ["nowhere"]}, "model_dir=nowhere"), ({"model_dir": []}, "none"), ({"data_dir": "nowhere"}, "data_dir=nowhere"),
    ({"data_dir": None}, "data_dir=None, text_file=None"), ({"text_file": "a.txt"}, "text_file=a.txt"),
    ({"data_dir": None, "text_file": "nowhere"}, "text_file=nowhere"), ({"layers": ["3"]}, "layers=3"), ({"layers": ["0"]}, "layers=0"),
    ({"layers": ["x"]}, "layers=x"), ({"max_segments": 0}, "max_segments=0"), ({"bins": 1}, "bins=1"),
    ({"bins": 10_001}, "bins=10001"), ({"json_file": "."}, "json_file=."), ({"json_file": "nowhere/a.json"}, "json_file=nowhere/a.json"),
    ({"plot_file": "nowhere/a.png"}, "plot_file=nowhere/a.png"),
], ids=str)
def test_bad_input(command, capsys, settings, received):
    with pytest.raises(SystemExit) as end:
        command(**settings)
    assert end.value.code.startswith("txl_tf.analysis.attention_histogram: ") and "\n" not in end.value.code
    assert "Received: " in end.value.code and received in end.value.code
    assert capsys.readouterr().out == ""


def test_a_picture_needs_matplotlib(command, folder, monkeypatch):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(SystemExit, match="plot_file needs matplotlib: .* Received: plot_file="):
        command(plot_file=str(folder / "no.png"))


def test_stray_arguments_empty_texts_and_other_symbols_are_refused(command, folder, tmp_path):
    with pytest.raises(SystemExit, match="Received: hello"):
        command("hello")
    (tmp_path / "empty.txt").write_bytes(b"")
    with pytest.raises(SystemExit, match="text_file must hold at least one token. Received: text_file=.*, 0 tokens"):
        command(data_dir=None, text_file=str(tmp_path / "empty.txt"))
    (tmp_path / "odd.txt").write_bytes(b"\xff")
    with pytest.raises(SystemExit, match="text_file must be a UTF-8 file .* Received: text_file="):
        command(data_dir=None, text_file=str(tmp_path / "odd.txt"))
    save_model(tiny_model(n_token=3), str(tmp_path), CharVocabulary("abc"))
    with pytest.raises(SystemExit, match="text_file must be in the symbols of the model's vocabulary .* Received: text_file="):
        command(model_dir=[str(tmp_path)], data_dir=None, text_file=str(folder / "data" / "train.txt"))
    with pytest.raises(SystemExit, match="of 3 symbols. Received: data_dir=.*, of 256 symbols"):
        command(model_dir=[str(tmp_path)])


def test_it_reads_no_arguments_when_imported():
    assert "plot_file" not in sys.modules["absl.flags"].FLAGS
