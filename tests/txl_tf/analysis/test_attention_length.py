"""The sweep over attention lengths: what it scores, which length it names, what it prints and refuses."""

import json
import sys
import types

import pytest

from testing.number_corpus import NumberCorpus
from testing.text_folders import write_files
from testing.tiny_model import tiny_model
from data_utils import ByteVocabulary, CharVocabulary, open_corpus, prepare_corpus
from txl_tf.analysis import attention_length
from txl_tf.analysis.attention_length import best_of, sweep
from txl_tf.inference.evaluation import evaluate, evaluation_model
from txl_tf.model_folder import save_model

TEXT = b"a rose is a rose is a rose, and what is it but a rose? " * 3
DEFAULTS = {"dataset": None, "split": "valid", "mem_len": ["0", "3", "9"], "tgt_len": 30, "clamp_len": None, "same_length": None,
            "json_file": None}


@pytest.fixture(scope="module")
def model():
    return tiny_model(n_token=256)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A folder with a model, not trained, in model/ and prepared text in data/."""
    folder = tmp_path_factory.mktemp("sweep")
    save_model(model, str(folder / "model"), ByteVocabulary())
    write_files(folder / "data", {f"{split}.txt": TEXT for split in ("train", "valid", "test")})
    prepare_corpus("text", folder / "data", train_batch_size=2, eval_batch_size=2)
    return folder


@pytest.fixture
def command(folder, monkeypatch, capsys):
    """A function that runs the command with flags and returns the lines that it printed."""

    def run(*stray, **settings):
        values = {"model_dir": str(folder / "model"), "data_dir": str(folder / "data"), **DEFAULTS, **settings}
        monkeypatch.setattr("absl.flags.FLAGS", types.SimpleNamespace(**values))
        attention_length.main(["attention_length", *stray])
        return capsys.readouterr().out.splitlines()

    return run


@pytest.fixture
def losses(monkeypatch):
    """A dict mem_len -> nll for an evaluation that only looks it up."""
    found = {}
    monkeypatch.setattr(attention_length, "evaluate", lambda model, segments, mem_len: (found[mem_len], 100))
    return found


@pytest.mark.slow
def test_a_sweep_is_an_evaluation_for_each_length(model):
    corpus, read = NumberCorpus(), []

    def segments_of():
        read.append(corpus.dataset("valid", 7))
        return read[-1]

    scores = list(sweep(model, segments_of, (6, 0, 3, 6), "word"))
    assert [score["mem_len"] for score in scores] == [0, 3, 6] and len(read) == 3
    for score in scores:
        assert (score["nll"], score["tokens"]) == pytest.approx(evaluate(model, corpus.dataset("valid", 7), score["mem_len"]), rel=1e-6)
        assert score["ppl"] == pytest.approx(2.718281828 ** score["nll"], rel=1e-6)


@pytest.mark.parametrize("kind, values, unit, best, mem_len", [
    ("word", {64: 3.2, 128: 3.1, 256: 3.0, 512: 3.05}, "ppl", 20.09, 256),
    ("word", {64: 3.2, 128: 3.001, 256: 3.0, 512: 3.0}, "ppl", 20.09, 256),
    ("word", {64: 3.2, 128: 3.0001, 256: 3.0}, "ppl", 20.09, 128),
    ("byte", {64: 0.7, 128: 0.6934, 256: 0.6931}, "bpc", 1.0, 128),
    ("byte", {64: 0.7, 128: 0.6940, 256: 0.6931}, "bpc", 1.0, 256),
])
def test_the_shortest_length_that_reaches_the_best_as_printed(losses, kind, values, unit, best, mem_len):
    losses.update(values)
    assert best_of(list(sweep(None, list, values, kind))) == (unit, best, mem_len)


def test_the_table(command, losses):
    losses.update({0: 1.0, 3: 0.6934, 1000: 0.6931})
    assert [line.split() for line in command(mem_len=["1000", "3", "0"])[:-1]] == [
        ["Attn", "Len", "sees", "nll", "bpc"], ["0", "0", "to", "29", "1.0000", "1.443"], ["3", "3", "to", "32", "0.6934", "1.000"],
        ["1,000", "1,000", "to", "1,029", "0.6931", "1.000"], ["BPC", "best", "1.000"], ["Attn", "Len", "3"]]
    assert command(mem_len=["3"], same_length=True)[1].split() == ["3", "3", "0.6934", "1.000"]


@pytest.mark.slow
def test_the_command_scores_the_split_of_a_prepared_folder(command, folder, model):
    before = {path: path.stat().st_mtime_ns for path in (folder / "data").rglob("*") if path.is_file() and path.name != ".lock"}
    path = folder / "scores.json"
    command(json_file=str(path), clamp_len=2, mem_len=["2", "5"], split="test")
    written = json.loads(path.read_text())
    segments = open_corpus(None, str(folder / "data"), 30).dataset("test", 30)
    clamped = evaluation_model(model, clamp_len=2)
    for score in written["scores"]:
        nll, tokens = evaluate(clamped, segments, score["mem_len"])
        assert (score["nll"], score["tokens"]) == (pytest.approx(nll, rel=1e-5), tokens)
    assert {name: written[name] for name in ("split", "tgt_len", "clamp_len", "same_length", "unit")} == {
        "split": "test", "tgt_len": 30, "clamp_len": 2, "same_length": False, "unit": "bpc"}
    assert (written["unit"], written["best"], written["attn_len"]) == best_of(written["scores"])
    assert {path: path.stat().st_mtime_ns for path in before} == before


@pytest.mark.parametrize("settings, received", [
    ({"mem_len": ["64", "x"]}, "mem_len=x"), ({"mem_len": ["-1"]}, "mem_len=-1"), ({"mem_len": []}, "none"), ({"tgt_len": 0}, "tgt_len=0"),
    ({"json_file": "nowhere/scores.json"}, "json_file=nowhere/scores.json"),
    ({"model_dir": "nowhere"}, "model_dir=nowhere"), ({"data_dir": "nowhere"}, "data_dir=nowhere"),
], ids=str)
def test_bad_input(command, capsys, settings, received):
    with pytest.raises(SystemExit) as end:
        command(**settings)
    assert end.value.code.startswith("txl_tf.analysis.attention_length: ") and "\n" not in end.value.code
    assert f"Received: {received.partition('=')[0]}" in end.value.code and received in end.value.code
    assert capsys.readouterr().out == ""


def test_it_may_be_interrupted(command, capsys, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(attention_length, "evaluate", interrupted)
    with pytest.raises(SystemExit) as end:
        command()
    assert end.value.code == 130 and capsys.readouterr().err == "txl_tf.analysis.attention_length: interrupted\n"


def test_a_stray_argument_and_another_vocabulary_are_refused(command, model, tmp_path):
    with pytest.raises(SystemExit, match="Received: hello"):
        command("hello")
    save_model(model, str(tmp_path), CharVocabulary("abc"))
    with pytest.raises(SystemExit, match="of 3 symbols. Received: data_dir=.*, of 256 symbols"):
        command(model_dir=str(tmp_path))


def test_it_reads_no_arguments_when_imported():
    assert "json_file" not in sys.modules["absl.flags"].FLAGS
