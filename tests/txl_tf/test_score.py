"""The command that scores texts: what it counts and divides, documents, lines and streams, and what it refuses."""

import io
import json
import math
import sys
import types

import keras
import numpy as np
import pytest

import txl_tf.score
from data_utils import ByteVocabulary, CharVocabulary, WordVocabulary
from testing.full_disk import files_at_most
from txl_tf.config import ModelConfig
from txl_tf.inference.evaluation import evaluation_model
from txl_tf.inference.scoring import score
from txl_tf.language_model import TransformerXLLM
from txl_tf.model_folder import save_model

DEFAULTS = {"lines": False, "tokenize": False, "stream": False, "json": False, "tokens": False, "batch_size": 16, "tgt_len": 5,
            "mem_len": None, "clamp_len": None, "same_length": None}
TEXTS = {"a.txt": "né à la\nmer", "b.txt": "x", "c.txt": "", "d.txt": "one\r\n\ntwo lines\u2028more\n"}
WORDS = WordVocabulary(["<eos>", "<unk>", "on", "and"], unknown="<unk>")


def model_of(n_token):
    keras.utils.set_random_seed(1)
    return TransformerXLLM(ModelConfig(n_token=n_token, n_layer=1, d_model=16, n_head=2, d_inner=16, tgt_len=4, mem_len=2, init_std=0.5))


@pytest.fixture(scope="module")
def model():
    return model_of(256)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A folder with a model, not trained, of bytes, one of words, and texts."""
    folder = tmp_path_factory.mktemp("models")
    save_model(model, str(folder / "bytes"), ByteVocabulary())
    save_model(model_of(4), str(folder / "words"), WORDS)
    for name, text in TEXTS.items():
        (folder / name).write_bytes(text.encode())
    return folder


@pytest.fixture
def command(folder, monkeypatch, capsys):
    """A function that runs the command on files of the folder and returns what it printed; as JSON, the objects."""

    def run(*names, **settings):
        values = {"model_dir": str(folder / "bytes"), **DEFAULTS, **settings}
        monkeypatch.chdir(folder)
        monkeypatch.setattr("absl.flags.FLAGS", types.SimpleNamespace(**values))
        txl_tf.score.main(["score", *names])
        printed = capsys.readouterr().out
        return [json.loads(line) for line in printed.splitlines()] if values["json"] else printed

    return run


@pytest.fixture
def refusal(command, capsys):
    """A function that runs the command and returns the sentence with which it refuses."""

    def run(*names, **settings):
        with pytest.raises(SystemExit) as end:
            command(*names, **settings)
        assert capsys.readouterr().out == ""
        message = end.value.code
        assert message.startswith("txl_tf.score: ") and "\n" not in message
        return message

    return run


def scores_of(model, *texts, mem_len=8):
    return score(model, [np.frombuffer(text.encode(), np.uint8) for text in texts], mem_len, tgt_len=5)


@pytest.mark.slow
def test_the_numbers_of_a_document_by_hand(command, model):
    found, = command("a.txt", json=True)
    total = scores_of(model, TEXTS["a.txt"])[0].astype(np.float64).sum()
    assert (found["document"], found["tokens"], found["unknown"], found["bytes"], found["characters"]) == ("a.txt", 12, 0, 12, 10)
    wanted = {"log_prob": total, "nll": -total / 12, "perplexity": math.exp(-total / 12), "bits_per_token": -total / 12 / math.log(2),
              "bits_per_character": -total / 10 / math.log(2), "bits_per_byte": -total / 12 / math.log(2)}
    assert {name: found[name] for name in wanted} == pytest.approx(wanted, rel=1e-4)


def test_tokens_and_their_log_probabilities_in_text_order(command, model):
    for found, text in zip(command(*TEXTS, json=True, tokens=True), TEXTS.values(), strict=True):
        assert bytes(found["token_ids"]) == text.encode()
        assert [len(found["token_log_probs"]), found["tokens"]] == [len(text.encode()), max(len(text.encode()) - 1, 0)]
        assert found["token_log_probs"][:1] == [None] * bool(text)
        np.testing.assert_allclose(found["token_log_probs"][1:], scores_of(model, text)[0], rtol=1e-4)
    assert found["token_strings"][:5] == ["o", "n", "e", "\r", "\n"]


def test_the_total_is_over_all_tokens(command):
    found = command(*TEXTS, json=True)
    rows = {line.split()[0]: line.split()[1:] for line in command(*TEXTS).splitlines()[1:-1]}
    assert list(rows) == [*TEXTS, "total"]
    tokens, total = sum(part["tokens"] for part in found), sum(part["log_prob"] for part in found)
    assert rows["total"][:3] == [str(tokens), f"{total:.2f}", f"{-total / tokens:.4f}"]
    assert rows["total"][-1] == f"{-total / sum(part['bytes'] for part in found) / math.log(2):.4f}"
    assert rows["b.txt"] == rows["c.txt"] == ["0", "0.00", "-", "-", "-", "-", "-"]


def test_one_document_needs_no_total(command):
    table = command("a.txt").splitlines()
    assert table[0].split() == ["tokens", "log", "prob", "nll", "ppl", "bits/token", "bpc", "bits/byte"]
    assert len(table) == 3 and table[2].startswith("log prob and nll are in nats, with memory 8 and segments of 5.")


def test_every_line_is_a_document_with_its_end(command, model):
    found = command("d.txt", "a.txt", "c.txt", lines=True, json=True)
    assert [part["document"] for part in found] == ["d.txt:1", "d.txt:2", "d.txt:3", "a.txt:1", "a.txt:2", "c.txt:1"]
    assert [part["bytes"] for part in found] == [4, 0, 16, 9, 2, 0]
    assert found[2]["log_prob"] == pytest.approx(scores_of(model, "two lines\u2028more\n")[0].sum(), rel=1e-4)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("names, lines", [(list(TEXTS), False), (["c.txt", "b.txt", "a.txt", "d.txt"], False), (["d.txt", "a.txt"], True)])
def test_a_stream_is_one_long_document(command, model, names, lines):
    found = command(*names, stream=True, lines=lines, json=True, tokens=True)
    whole = "".join(TEXTS[name] for name in names)
    log_probs = sum((part["token_log_probs"] for part in found), [])
    assert log_probs[0] is None and bytes(sum((part["token_ids"] for part in found), [])) == whole.encode()
    np.testing.assert_allclose(log_probs[1:], scores_of(model, whole)[0], rtol=1e-4)
    assert sum(part["bytes"] for part in found) == sum(part["tokens"] for part in found) == len(whole.encode()) - 1
    assert "first token of the stream" in command(*names, stream=True)


def test_the_settings_reach_the_model(command, model):
    text = TEXTS["d.txt"]
    other = evaluation_model(model, clamp_len=2, same_length=True)
    for settings, wanted in (({"mem_len": 3}, scores_of(model, text, mem_len=3)),
                             ({"clamp_len": 2, "same_length": True, "mem_len": 3}, scores_of(other, text, mem_len=3))):
        assert command("d.txt", json=True, **settings)[0]["log_prob"] == pytest.approx(wanted[0].sum(), rel=1e-4)
        assert abs(wanted[0].sum() - scores_of(model, text)[0].sum()) > 1e-2, "this text can't tell"


def test_unknown_words_are_counted_and_text_keeps_its_length(command, folder):
    (folder / "words.txt").write_text("  onwards  and \u00e9on\non\n", encoding="utf-8")
    words = {"model_dir": str(folder / "words")}
    found, = command("words.txt", json=True, tokens=True, **words)
    assert found["token_strings"] == ["<unk>", "and", "<unk>", "\n", "on", "\n"]
    assert (found["tokens"], found["unknown"], found["characters"], found["bytes"]) == (5, 1, 22 - 7, 23 - 7)
    table = command("words.txt", **words).splitlines()
    assert table[0].split()[:2] == ["tokens", "unknown"] and table[1].split()[:3] == ["words.txt", "5", "1"]


def test_texts_may_be_read_as_wikitext_is_written(command, folder):
    (folder / "people.txt").write_text("\u201con and,on\u201d", encoding="utf-8")
    words = {"model_dir": str(folder / "words"), "json": True, "tokens": True}
    assert command("people.txt", **words)[0]["token_strings"] == ["<unk>", "<unk>"]
    found, = command("people.txt", tokenize=True, **words)
    assert found["token_strings"] == ["<unk>", "on", "and", "<unk>", "on", "<unk>"]
    assert (found["tokens"], found["characters"], found["bytes"]) == (5, 10, 12)


@pytest.mark.parametrize("vocabulary, text, size", [
    (ByteVocabulary(), "\u20acx", 1), (CharVocabulary("\u20acx"), "\u20acx", 3), (CharVocabulary("?x", unknown="?"), "\u20acx", 3),
    (CharVocabulary("\u00e2\u0082\u00ac", unit="byte"), "\u20ac", 1), (WORDS, "\n", 1), (WORDS, "and", 3), (WORDS, "beyond on", 6),
    (WordVocabulary(["<S>", "on"], line_start="<S>", line_end="<S>"), "on\n", 0),
])
def test_the_bytes_that_the_first_token_stands_for(vocabulary, text, size):
    assert txl_tf.score._bytes_of_first(txl_tf.score._Document("", text, text, vocabulary.encode(text)), vocabulary) == size


def test_standard_input(command, monkeypatch):
    monkeypatch.setattr(sys, "stdin", types.SimpleNamespace(buffer=io.BytesIO(TEXTS["a.txt"].encode())))
    found, = command("-", json=True)
    assert found == {**command("a.txt", json=True)[0], "document": "-"}


@pytest.mark.parametrize("names, settings, received", [
    ([], {}, "none"), (["missing.txt"], {}, "FILE=missing.txt"), (["."], {}, "FILE=."), (["a.txt", "latin.txt"], {}, "FILE=latin.txt"),
    (["a.txt"], {"tokens": True}, "tokens=True, json=False"), (["a.txt"], {"tgt_len": 0}, "tgt_len=0"),
    (["a.txt"], {"mem_len": -1}, "mem_len=-1"), (["a.txt"], {"clamp_len": -5}, "clamp_len=-5"), (["a.txt"], {"batch_size": 0}, "batch_size=0"),
    (["a.txt"], {"model_dir": "nowhere"}, "model_dir=nowhere"), (["a.txt"], {"model_dir": "enwik8_base"}, "model_dir=enwik8_base"),
], ids=str)
def test_bad_input(refusal, folder, names, settings, received):
    (folder / "latin.txt").write_bytes(b"n\xe9")
    assert refusal(*names, **settings).endswith(f"Received: {received}")


def test_a_symbol_that_the_vocabulary_lacks(refusal, tmp_path):
    save_model(model_of(2), str(tmp_path), CharVocabulary("ab"))
    (tmp_path / "text.txt").write_text("ab\nac\n")
    message = refusal(str(tmp_path / "text.txt"), lines=True, model_dir=str(tmp_path))
    assert "'\\n'" in message and message.endswith(f"Received: FILE={tmp_path / 'text.txt'}:1")


def test_it_may_be_interrupted_and_its_output_full(command, tmp_path, monkeypatch, capsys):
    with open(tmp_path / "output", "w", encoding="utf-8") as file, monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
        patch.setattr(sys, "stdout", file)
        with files_at_most(20):
            command("a.txt")
    assert end.value.code.startswith("txl_tf.score: Standard output must be open, with room") and end.value.code.endswith("output")
    for where in ("_scores", "_print_table"):
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
            patch.setattr(txl_tf.score, where, interrupt)
            command("a.txt")
        assert end.value.code == 130 and capsys.readouterr().err == "txl_tf.score: interrupted\n"


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_it_reads_no_arguments_when_imported():
    assert "stream" not in sys.modules["absl.flags"].FLAGS
