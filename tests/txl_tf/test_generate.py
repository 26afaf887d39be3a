"""The command that samples from a trained model."""

import sys
import types

import keras
import numpy as np
import pytest

import txl_tf.generate
from data_utils import ByteVocabulary, WordVocabulary
from txl_tf.config import ModelConfig
from txl_tf.inference.sampling import generate
from txl_tf.language_model import TransformerXLLM
from txl_tf.model_folder import save_model

DEFAULTS = {"prompt": None, "prompt_file": None, "max_new_tokens": 12, "top_k": 40, "temperature": 1.0, "seed": 3, "mem_len": None}


@pytest.fixture(scope="module")
def model():
    keras.utils.set_random_seed(1)
    return TransformerXLLM(ModelConfig(n_token=256, n_layer=1, d_model=16, n_head=2, d_inner=16, tgt_len=4, mem_len=6, init_std=0.5))


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A folder with a model, not trained, and its vocabulary."""
    folder = tmp_path_factory.mktemp("models") / "model"
    save_model(model, str(folder), ByteVocabulary())
    return folder


@pytest.fixture
def command(folder, monkeypatch, capsys):
    """A function that runs the command with flags and returns what it printed."""

    def run(*stray, **flags):
        values = types.SimpleNamespace(**{"model_dir": str(folder), **DEFAULTS, **flags})
        monkeypatch.setattr("absl.flags.FLAGS", values)
        txl_tf.generate.main(["generate", *stray])
        return capsys.readouterr().out

    return run


@pytest.fixture
def refusal(command, capsys):
    """A function that runs the command and returns the sentence with which it refuses."""

    def run(*stray, **flags):
        with pytest.raises(SystemExit) as end:
            command(*stray, **flags)
        assert capsys.readouterr().out == ""
        message = end.value.code
        assert message.startswith("txl_tf.generate: ") and "\n" not in message
        return message

    return run


def text_of(model, prompt, count, **settings):
    ids = generate(model, ByteVocabulary().encode(prompt), count, seed=3, **settings)
    return ids.astype(np.uint8).tobytes()


def test_the_prompt_and_what_the_model_goes_on_with(command, model):
    wanted = text_of(model, "def main", 12).decode(errors="replace")
    assert command(prompt="def main").startswith("def main")
    assert command(prompt="def main", temperature=0.0) == text_of(model, "def main", 12, temperature=0.0).decode(errors="replace") + "\n"
    assert command(prompt="def main") == command(prompt="def main")
    assert command(prompt="def main").replace("\ufffd", "") == wanted.replace("\ufffd", "") + "\n"


def test_the_flags_reach_the_sampler(command):
    texts = {command(prompt="def", **flags) for flags in ({}, {"seed": 4}, {"top_k": 1}, {"temperature": 0.2}, {"max_new_tokens": 5})}
    assert len(texts) == 5
    assert command(prompt="def main():", top_k=1, mem_len=1) != command(prompt="def main():", top_k=1, mem_len=20)


def test_a_prompt_from_a_file(command, tmp_path):
    (tmp_path / "prompt.txt").write_text("né\n", encoding="utf-8")
    assert command(prompt_file=str(tmp_path / "prompt.txt")) == command(prompt="né\n")


@pytest.mark.parametrize("ids, shown", [
    (b"a\xc3\xa9z", "aéz\n"), ("€😀".encode(), "€😀\n"), (b"a\xc3", "a\ufffd\n"), (b"\xff\xff\xff\xff\xffa", "\ufffd" * 5 + "a\n"), (b"", "\n"),
])
def test_a_character_is_printed_when_its_last_byte_has_come(ids, shown, capsys):
    txl_tf.generate._show(b"prompt", (np.array([token], np.int32) for token in ids), ByteVocabulary())
    assert capsys.readouterr().out == shown


def test_text_appears_as_it_is_sampled(capsys):
    def tokens():
        for index, token in enumerate(b"abc"):
            assert capsys.readouterr().out == ("abc"[index - 1] if index else "")
            yield np.array([token], np.int32)

    txl_tf.generate._show(b"", tokens(), ByteVocabulary())


def test_words_stay_apart_as_they_are_sampled(capsys):
    vocabulary = WordVocabulary(["<eos>", "on", "and", "the", "next"])
    ids = vocabulary.encode("on and on\n\nthe next and on\nthe")
    for prompt in (1, 3, 5, len(ids) - 1):
        txl_tf.generate._show(ids[:prompt], (np.array([token]) for token in ids[prompt:]), vocabulary)
        assert vocabulary.decode(ids[:prompt]) + capsys.readouterr().out == vocabulary.decode(ids) + "\n"


@pytest.mark.parametrize("flags, received", [
    ({}, "prompt=None, prompt_file=None"), ({"prompt": "a", "prompt_file": "b"}, "prompt=a, prompt_file=b"), ({"prompt": ""}, "prompt='', prompt_file=None"),
    ({"prompt": "a", "max_new_tokens": 0}, "max_new_tokens=0"), ({"prompt": "a", "top_k": -1}, "top_k=-1"),
    ({"prompt": "a", "temperature": -1.0}, "temperature=-1.0"), ({"prompt": "a", "temperature": float("nan")}, "temperature=nan"),
    ({"prompt": "a", "mem_len": -1}, "mem_len=-1"),
], ids=str)
def test_bad_input(refusal, flags, received):
    assert refusal(**flags).endswith(f"Received: {received}")


def test_a_stray_argument(refusal):
    assert refusal("hello", prompt="a").endswith("Received: hello")


def test_a_prompt_file_that_cannot_be_read(refusal, tmp_path):
    missing = str(tmp_path / "missing.txt")
    assert f"prompt_file={missing}" in refusal(prompt_file=missing)
    (tmp_path / "latin.txt").write_bytes(b"n\xe9")
    assert f"prompt_file={tmp_path / 'latin.txt'}" in refusal(prompt_file=str(tmp_path / "latin.txt"))
    (tmp_path / "empty.txt").write_bytes(b"")
    assert f"prompt_file={tmp_path / 'empty.txt'}" in refusal(prompt_file=str(tmp_path / "empty.txt"))


def test_a_folder_without_a_model(refusal, tmp_path):
    assert f"model_dir={tmp_path}" in refusal(prompt="a", model_dir=str(tmp_path))
    assert "model_dir=enwik8_base" in refusal(prompt="a", model_dir="enwik8_base")


def test_a_model_without_its_vocabulary(refusal, model, tmp_path):
    save_model(model, str(tmp_path))
    assert "vocabulary" in refusal(prompt="a", model_dir=str(tmp_path))


def test_weights_that_cannot_be_read(refusal, model, tmp_path):
    save_model(model, str(tmp_path), ByteVocabulary())
    (tmp_path / "model.weights.h5").write_bytes(b"no weights")
    assert str(tmp_path) in refusal(prompt="a", model_dir=str(tmp_path))


def test_it_reads_no_arguments_when_imported():
    assert "prompt_file" not in sys.modules["absl.flags"].FLAGS
