"""The command that goes on from prompts."""

import copy
import functools
import json
import sys

import keras
import numpy as np
import pytest
from absl import flags

import txl_tf.generate
from data_utils import ByteVocabulary, WordVocabulary
from data_utils.detokenize import detokenize
from testing.full_disk import files_at_most
from testing.tiny_model import tiny_model
from txl_tf.config import ModelConfig
from txl_tf.inference.beam_search import beam_search
from txl_tf.inference.sampling import generate
from txl_tf.language_model import TransformerXLLM
from txl_tf.model_folder import load_model_and_vocabulary, save_model

WORDS = WordVocabulary(["<eos>", "<unk>", "the", "fox", "'s", "did", "n't", "@-@", "(", ")", ",", "="], unknown="<unk>")


def made(n_token):
    """Returns a model that is not trained."""
    keras.utils.set_random_seed(1)
    return TransformerXLLM(ModelConfig(n_token=n_token, n_layer=1, d_model=16, n_head=2, d_inner=16, tgt_len=4, mem_len=6, init_std=0.5))


@pytest.fixture(scope="module")
def model():
    return made(256)


@pytest.fixture(scope="module")
def word_model():
    return made(WORDS.n_token)


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory):
    """A folder with a model and its vocabulary, bytes."""
    folder = tmp_path_factory.mktemp("models") / "model"
    save_model(model, str(folder), ByteVocabulary())
    return folder


@pytest.fixture(scope="module")
def word_folder(word_model, tmp_path_factory):
    """A folder with a model of words."""
    folder = tmp_path_factory.mktemp("models") / "word_model"
    save_model(word_model, str(folder), WORDS)
    return folder


@pytest.fixture(scope="module")
def defined():
    """The command's flags, which other tests must not find."""
    before = set(flags.FLAGS)
    txl_tf.generate.define_flags()
    defined = copy.deepcopy(flags.FLAGS)
    for name in set(flags.FLAGS) - before:
        delattr(flags.FLAGS, name)
    return defined


@pytest.fixture(scope="module")
def loaded():
    """load_model_and_vocabulary, which makes a model, and traces what it does, once for all tests."""
    return functools.cache(load_model_and_vocabulary)


@pytest.fixture
def command(folder, defined, loaded, monkeypatch, capsys):
    """A function that runs the command with flags and returns what it printed; what went to stderr is its `error`."""
    monkeypatch.setattr(txl_tf.generate, "load_model_and_vocabulary", loaded)

    def run(*stray, **settings):
        settings = {"model_dir": str(folder), "max_new_tokens": 12, "seed": 3, **settings}
        values = copy.deepcopy(defined)
        monkeypatch.setattr(flags, "FLAGS", values)
        txl_tf.generate.main(values(["generate", *arguments(settings), *stray]))
        captured = capsys.readouterr()
        run.error = captured.err
        return captured.out

    return run


@pytest.fixture
def objects(command):
    """A function that runs the command with flags and --json and returns what it printed, read."""
    return lambda **settings: [json.loads(line) for line in command(json=True, **settings).splitlines()]


@pytest.fixture
def refusal(command, capsys):
    """A function that runs the command and returns the sentence with which it refuses."""

    def run(*stray, **settings):
        with pytest.raises(SystemExit) as end:
            command(*stray, **settings)
        assert capsys.readouterr().out == ""
        message = end.value.code
        assert message.startswith("txl_tf.generate: ") and "\n" not in message
        return message

    return run


def arguments(settings):
    """Returns flags as they are written; None: not at all."""
    for name, value in settings.items():
        if isinstance(value, bool):
            yield f"--{'' if value else 'no'}{name}"
        else:
            yield from (f"--{name}={one}" for one in (value if isinstance(value, list) else [value]) if one is not None)


def text_of(model, prompt, count, **settings):
    """Returns prompt and continuation as the library samples them."""
    return ByteVocabulary().decode(generate(model, ByteVocabulary().encode(prompt), count, **{"seed": 3, **settings}))


@pytest.mark.slow
def test_the_prompt_and_what_the_model_goes_on_with(command, model):
    assert command(prompt="def main") == text_of(model, "def main", 12) + "\n"
    assert command.error == ""
    assert command(prompt="def main", temperature=0.0) == text_of(model, "def main", 12, temperature=0.0) + "\n"
    assert command(prompt="def main") == command(prompt="def main")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [
    {"seed": 4}, {"top_k": 1}, {"top_k": 0}, {"temperature": 0.2}, {"top_p": 0.1}, {"repetition_penalty": 5.0}, {"mem_len": 2}], ids=str)
def test_the_flags_reach_the_sampler(command, model, settings):
    assert command(prompt="def main", max_new_tokens=20, **settings) == text_of(model, "def main", 20, **settings) + "\n"


def test_a_prompt_from_a_file(command, tmp_path):
    (tmp_path / "prompt.txt").write_text("né\n", encoding="utf-8")
    assert command(prompt_file=str(tmp_path / "prompt.txt")) == command(prompt="né\n")


def test_text_appears_as_it_is_sampled(command, monkeypatch, capsys):
    def sampled(*args, **settings):
        for index, token in enumerate(b"abc"):
            assert capsys.readouterr().out == ("def" if index == 0 else "abc"[index - 1])
            yield np.array([token], np.int32)

    monkeypatch.setattr(txl_tf.generate, "sample_tokens", sampled)
    assert command(prompt="def") == "c\n"


def test_a_seed_is_chosen_and_told(command, objects):
    text = command(prompt="def main", seed=None)
    chosen = command.error.strip().removeprefix("--seed=")
    assert command(prompt="def main", seed=int(chosen)) == text and command.error == ""
    made, = objects(prompt="def main", seed=None)
    assert command.error == ""
    assert command(prompt="def main", seed=made["seed"]) == f"def main{made['text']}\n"


def test_a_batch_is_what_its_rows_are_alone(objects, command):
    prompts = ["def main(self):", "a", "né"]
    found = objects(prompt=prompts, num_samples=2)
    assert [one["prompt"] for one in found] == [prompt for prompt in prompts for _ in range(2)]
    assert [one["seed"] for one in found] == [3, 4, 5, 6, 7, 8]
    for one in found:
        assert set(one) == {"prompt", "text", "tokens", "seed"} and len(one["tokens"]) == 12
        assert objects(prompt=one["prompt"], seed=one["seed"]) == [one]
        assert command(prompt=one["prompt"], seed=one["seed"]) == f"{one['prompt']}{one['text']}\n"


def test_a_heading_says_which_continuation_follows(objects, command):
    prompts = ["def main(self):", "a", "né"]
    found = objects(prompt=prompts, num_samples=2)
    assert command(prompt=prompts, num_samples=2) == "".join(
        f"--- prompt {index // 2 + 1} of 3, sample {index % 2 + 1} of 2, seed {one['seed']} ---\n{one['prompt']}{one['text']}\n"
        for index, one in enumerate(found))


def test_a_stop_text_over_the_borders_of_tokens(objects, command):
    whole = objects(prompt="def main", max_new_tokens=40)[0]
    for start, length in ((0, 3), (5, 4), (9, 1), (20, 7)):
        stop = whole["text"][start:start + length]
        text = whole["text"][:whole["text"].find(stop)]
        found, = objects(prompt="def main", max_new_tokens=40, stop=["no such text", stop])
        assert found["text"] == text
        assert whole["tokens"][:len(found["tokens"])] == found["tokens"] and len(found["tokens"]) < 40
        assert command(prompt="def main", max_new_tokens=40, stop=stop) == f"def main{text}\n"


def test_every_row_of_a_batch_ends_at_its_own_stop_text(objects):
    alone = [objects(prompt=prompt, seed=seed)[0] for prompt, seed in (("def main(self):", 3), ("a", 4), ("né", 5))]
    stops = [alone[0]["text"][7:9], alone[2]["text"][2:4]]
    found = objects(prompt=["def main(self):", "a", "né"], stop=stops)
    for one, row in zip(alone, found, strict=True):
        assert row == objects(prompt=one["prompt"], seed=one["seed"], stop=stops)[0]
        assert one["text"].startswith(row["text"])
    assert len(found[0]["text"]) < len(alone[0]["text"]) and len(found[2]["text"]) < len(alone[2]["text"])


@pytest.mark.slow
def test_a_stop_token_ends_a_row(objects, command, word_folder):
    whole, = objects(prompt="the fox", model_dir=str(word_folder), detokenize=False)
    token = whole["tokens"][4]
    place = whole["tokens"].index(token)
    settings = {"prompt": "the fox", "model_dir": str(word_folder), "detokenize": False, "stop_token": [WORDS.symbols[token]]}
    found, = objects(**settings)
    assert found["tokens"] == whole["tokens"][:place + 1]
    ids = [*WORDS.encode("the fox"), *whole["tokens"][:place]]
    assert found["prompt"] + found["text"] == WORDS.decode(ids)
    assert command(**settings) == WORDS.decode(ids) + "\n"
    assert objects(**{**settings, "prompt": ["the fox", "fox"]})[0] == found


def test_words_are_detokenized_unless_it_is_refused(objects, command, word_folder):
    settings = {"prompt": "the fox 's", "model_dir": str(word_folder), "max_new_tokens": 40}
    plain, = objects(detokenize=False, **settings)
    text = plain["prompt"] + plain["text"]
    assert text == WORDS.decode([*WORDS.encode("the fox 's"), *plain["tokens"]])
    assert command(**settings) == command(detokenize=True, **settings) == detokenize(text) + "\n"
    assert command(detokenize=False, **settings) == text + "\n"
    assert objects(**settings) == [{**plain, "text": detokenize(text).removeprefix("the fox's")}]


def test_a_prompt_may_be_written_as_people_do(command, word_folder):
    settings = {"model_dir": str(word_folder), "max_new_tokens": 3}
    assert command(prompt="the fox's (fox)", tokenize=True, **settings) == command(prompt="the fox 's ( fox )", **settings)


def test_bytes_are_detokenized_if_asked_for(command):
    text = command(prompt="def ( main", max_new_tokens=40)
    assert command(prompt="def ( main", max_new_tokens=40, detokenize=True).startswith("def (main")
    assert text.startswith("def ( main")


def test_beam_search(objects, command, word_model, word_folder):
    prompts, ids = ["the fox", "fox did n't ,"], [WORDS.encode("the fox"), WORDS.encode("fox did n't ,")]
    settings = {"prompt": prompts, "model_dir": str(word_folder), "seed": None, "num_beams": 3, "stop_token": "<eos>",
                "length_penalty": 0.5}
    wanted = beam_search(word_model, ids, 12, 3, length_penalty=0.5, stop_tokens=[0])
    found = objects(**settings)
    assert [one["prompt"] for one in found] == ["the fox"] * 3 + ["fox did n't ,"] * 3
    lines = []
    for index, (one, (tokens, score)) in enumerate(zip(found, [*wanted[0], *wanted[1]], strict=True)):
        row = index // 3
        assert one["tokens"] == tokens[len(ids[row]):].tolist() and one["score"] == pytest.approx(score, rel=1e-5)
        shown = detokenize(WORDS.decode(tokens[:-1] if tokens[-1] == 0 else tokens))
        assert detokenize(one["prompt"]) + one["text"] == shown
        lines += [f"--- prompt {row + 1} of 2, beam {index % 3 + 1} of 3, score {one['score']:.3f} ---\n{shown}\n"]
    assert command(**settings) == "".join(lines)
    assert command.error == ""


@pytest.mark.parametrize("settings, received", [
    ({}, "prompt=None, prompt_file=None"), ({"prompt": "a", "prompt_file": "b"}, "prompt=['a'], prompt_file=b"),
    ({"prompt": ""}, "prompt=[''], prompt_file=None"), ({"prompt": ["a", ""]}, "prompt=['a', ''], prompt_file=None"),
    ({"prompt": "a", "num_samples": 0}, "num_samples=0"), ({"prompt": "a", "num_beams": -1}, "num_beams=-1"),
    ({"prompt": "a", "num_beams": 2}, "num_beams=2, seed=3"),
    ({"prompt": "a", "num_beams": 2, "temperature": 0.0}, "num_beams=2, temperature=0.0"),
    ({"prompt": "a", "num_beams": 2, "top_k": 0}, "num_beams=2, top_k=0"),
    ({"prompt": "a", "num_beams": 2, "top_p": 0.5}, "num_beams=2, top_p=0.5"),
    ({"prompt": "a", "num_beams": 2, "seed": None, "num_samples": 1}, "num_beams=2, num_samples=1"),
    ({"prompt": "a", "num_beams": 2, "seed": None, "stop": "b"}, "num_beams=2, stop=['b']"),
    ({"prompt": "a", "num_beams": 2, "repetition_penalty": 1.0}, "num_beams=2, repetition_penalty=1.0"),
    ({"prompt": "a", "length_penalty": 1.0}, "length_penalty=1.0, num_beams=0"),
    ({"prompt": "a", "num_samples": 2, "temperature": 0.0}, "num_samples=2, temperature=0.0"),
    ({"prompt": "a", "num_samples": 2, "top_k": 1}, "num_samples=2, top_k=1"), ({"prompt": "a", "stop": ["b", ""]}, "stop=['b', '']"),
], ids=str)
def test_what_is_refused_before_a_model_is_looked_for(refusal, settings, received):
    assert refusal(model_dir="nowhere", **settings).endswith(f"Received: {received}")


@pytest.mark.parametrize("settings, received", [
    ({"max_new_tokens": 0}, "max_new_tokens=0"), ({"top_k": -1}, "top_k=-1"), ({"temperature": -1.0}, "temperature=-1.0"),
    ({"temperature": float("nan")}, "temperature=nan"), ({"mem_len": -1}, "mem_len=-1"), ({"top_p": 1.5}, "top_p=1.5"),
    ({"repetition_penalty": 0.0}, "repetition_penalty=0.0"),
    ({"stop_token": "ab"}, "stop_token='ab'"), ({"stop_token": "é"}, "stop_token='é'"),
], ids=str)
def test_bad_input(refusal, settings, received):
    assert refusal(prompt="a", **settings).endswith(f"Received: {received}")


def test_a_word_that_is_no_stop_token_and_a_prompt_without_words(refusal, word_folder):
    assert refusal(prompt="the", stop_token="dog", model_dir=str(word_folder)).endswith("Received: stop_token='dog'")
    assert refusal(prompt=["the", "  "], model_dir=str(word_folder)).endswith("Received: prompt='  '")


def test_words_that_are_not_known_are_named(command, word_folder):
    command(prompt=["the dog 's <unk> fox", "a fox and a dog"], model_dir=str(word_folder))
    assert command.error == "not in the vocabulary, so read as <unk>: dog a and\n"
    command(prompt=" ".join(f"w{number}" for number in range(1_200)), model_dir=str(word_folder), json=True)
    assert command.error == f"not in the vocabulary, so read as <unk>: {' '.join(f'w{number}' for number in range(10))} and 1,190 more\n"
    command(prompt="the fox", model_dir=str(word_folder))
    assert command.error == ""


def test_it_may_be_interrupted_and_its_output_full(refusal, command, tmp_path, monkeypatch, capsys):
    with open(tmp_path / "output", "w", encoding="utf-8") as file, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", file)
        with files_at_most(10):
            message = refusal(prompt="def main")
    assert message.startswith("txl_tf.generate: Standard output must be open, with room") and message.endswith("output")
    for where in ("load_model_and_vocabulary", "say"):
        with monkeypatch.context() as patch, pytest.raises(SystemExit) as end:
            patch.setattr(txl_tf.generate, where, interrupt)
            if where == "say":
                command(prompt="def main")
            else:
                txl_tf.generate.main(flags.FLAGS(["generate", "--model_dir=nowhere", "--prompt=a"]))
        assert end.value.code == 130 and capsys.readouterr().err == "txl_tf.generate: interrupted\n"


def interrupt(*_, **__):
    raise KeyboardInterrupt


def test_a_stray_argument(refusal):
    assert refusal("hello", prompt="a").endswith("Received: hello")


def test_a_prompt_file_that_cannot_be_read(refusal, tmp_path):
    missing = str(tmp_path / "missing.txt")
    assert f"prompt_file={missing}" in refusal(prompt_file=missing)
    (tmp_path / "latin.txt").write_bytes(b"n\xe9")
    assert f"prompt_file={tmp_path / 'latin.txt'}" in refusal(prompt_file=str(tmp_path / "latin.txt"))
    (tmp_path / "empty.txt").write_bytes(b"")
    assert f"prompt_file={tmp_path / 'empty.txt'}" in refusal(prompt_file=str(tmp_path / "empty.txt"))


def test_a_memory_of_more_distances_than_the_model_knows(refusal, tmp_path):
    save_model(tiny_model(n_token=256, attention="dense", max_length=10), str(tmp_path), ByteVocabulary())
    assert refusal(prompt="a", model_dir=str(tmp_path), mem_len=10).endswith("max_length=10. Received: mem_len=10, tgt_len=1")


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
