"""Published checkpoints become model folders, with the original programs' numbers, on which every command works."""

import json
import pickle
import shutil
from pathlib import Path

import numpy as np
import pytest

from testing.forks import forks
from testing.tiny_model import tiny_model, tiny_tokens
from testing.torch_layouts import pretend_torch, zip_layout
from txl_tf.checkpoints.huggingface import huggingface_entries
from txl_tf.checkpoints.pytorch import SETTINGS
from txl_tf.checkpoints.safetensors import read_safetensors, write_safetensors
from txl_tf.convert import convert
from txl_tf.model_folder import load_model, load_vocabulary

GOLDEN = Path(__file__).parents[1] / "golden"
TF1 = sorted(path.name for path in (GOLDEN / "tf1").iterdir() if (path / "segments.npz").exists())
EVALUATED = GOLDEN / "tf1" / "15_eval_text8_valid"
HUB = GOLDEN / "data" / "hub_style"
UNTOLD = ("mem_len", "same_length", "clamp_len", "tgt_len")
ROWS = 3


def untold(name):
    """Returns what the shapes of a golden checkpoint of the original do not tell."""
    settings = json.loads((GOLDEN / "tf1" / name / "config.json").read_text())
    return {**{key: settings[key] for key in UNTOLD}, **({"memory_start": "empty"} if settings["mems_none"] else {})}


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name", TF1)
def test_every_checkpoint_of_the_original_gives_its_numbers(name, tmp_path):
    convert("tf1", str(GOLDEN / "tf1" / name / "model.ckpt"), str(tmp_path / "new"), settings=untold(name))
    model, arrays = load_model(tmp_path / "new"), np.load(GOLDEN / "tf1" / name / "segments.npz")
    memory = model.initial_memory(ROWS)
    for index in range(4):
        inputs, targets, nll = (arrays[f"seg{index}/{key}"].T for key in ("inputs", "targets", "nll"))
        if model.config.memory_start == "empty":
            memory = model.initial_memory(ROWS, mem_len=inputs.shape[1])
        found, memory = model.nll(inputs, targets, memory)
        np.testing.assert_allclose(found, nll, rtol=0, atol=3e-5)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("vocabulary, given", [("vocab.pkl", False), ("vocab.json", False), ("words.bin", True)])
def test_a_folder_of_hugging_face(vocabulary, given, tmp_path):
    source, arrays = tmp_path / "theirs", np.load(GOLDEN / "hf" / "1_div4_tied" / "segments.npz")
    shutil.copytree(GOLDEN / "hf" / "1_div4_tied", source)
    symbols = [f"word{number}" for number in range(119)] + ["<eos>"]
    content = {"idx2sym": symbols, "special": ["<eos>"], "lower_case": False, "eos_idx": 119}
    (source / vocabulary).write_bytes(json.dumps(content).encode() if vocabulary.endswith("json") else pickle.dumps(content))
    corpus = str(source / vocabulary) if given else None
    convert("huggingface", str(source), str(tmp_path / "new"), corpus=corpus, settings={"clamp_len": 7, "mem_len": 10})
    model = load_model(tmp_path / "new")
    log_probs, _ = model.log_probs(arrays["seg0/input_ids"], model.initial_memory(ROWS))
    np.testing.assert_allclose(log_probs, arrays["seg0/prediction_scores"], rtol=0, atol=3e-5)
    vocabulary = load_vocabulary(tmp_path / "new")
    assert list(vocabulary.encode("word3 word118\n")) == [3, 118, 119]


def test_a_part_of_a_checkpoint_is_taken_where_that_is_allowed(tmp_path, caplog):
    shutil.copytree(GOLDEN / "hf" / "1_div4_tied", tmp_path / "theirs")
    arrays = dict(read_safetensors(GOLDEN / "hf" / "1_div4_tied" / "model.safetensors"))
    bias = arrays.pop("crit.cluster_bias")
    write_safetensors(tmp_path / "theirs" / "model.safetensors", {**arrays, "extra": bias})
    with pytest.raises(ValueError, match=r"it lacks \['crit.cluster_bias'\] and has besides \['extra'\]. Received: folder="):
        convert("huggingface", str(tmp_path / "theirs"), str(tmp_path / "new"))
    assert not (tmp_path / "new").exists()
    convert("huggingface", str(tmp_path / "theirs"), str(tmp_path / "new"), allow_partial=True)
    assert "lacks ['crit.cluster_bias'] and has besides ['extra']" in caplog.text
    head = load_model(tmp_path / "new").head
    np.testing.assert_array_equal(head.cluster_kernel, arrays["crit.cluster_weight"])
    assert not np.any(head.cluster_bias)


def test_a_state_dict_of_the_original_pytorch_code(tmp_path, monkeypatch):
    model = tiny_model(**SETTINGS, cutoffs=(3, 7))
    arrays = {name.removeprefix("transformer."): entry.value() for name, entry in huggingface_entries(model).items()}
    arrays |= {name: arrays[name][::-1] for name in ("crit.cluster_weight", "crit.cluster_bias")}
    with monkeypatch.context() as patch:
        pretend_torch(patch)
        (tmp_path / "model.pt").write_bytes(zip_layout(arrays))
    with pytest.raises(ValueError, match="cutoffs must be given, or a preset that has it, .*Received: preset=None"):
        convert("pytorch", str(tmp_path / "model.pt"), str(tmp_path / "new"), settings={"mem_len": 6})
    info = {"vocab_size": model.config.n_token, "cutoffs": [0, 3, 7, model.config.n_token], "dataset": "wt103"}
    (tmp_path / "corpus-info.json").write_text(json.dumps(info))
    convert("pytorch", str(tmp_path / "model.pt"), str(tmp_path / "new"), settings={"mem_len": 6}, corpus_info_path=str(tmp_path / "corpus-info.json"))
    tokens, again = tiny_tokens(2, 5), load_model(tmp_path / "new")
    np.testing.assert_array_equal(again.log_probs(tokens, again.initial_memory(2))[0], model.log_probs(tokens, model.initial_memory(2))[0])


NAME = "04_wt103_large_style"
INFO = str(EVALUATED / "text8" / "corpus-info.json")


@pytest.mark.parametrize("changes, message", [
    ({"settings": {}}, "mem_len must be given, or a preset that has it, for the checkpoint does not tell it. Received: preset=None"),
    ({"settings": {"mem_len": 8, "n_head": 2, "cutoffs": (1, 2)}},
     r"which has n_head=\d+, cutoffs=\(.*\). Received: n_head=2, cutoffs=\(1, 2\), checkpoint="),
    ({"preset_name": "wt103_large"}, "The settings must be those of the checkpoint, which has .*n_layer=2.* Received: .*n_layer=18.*, checkpoint="),
    ({"corpus_info_path": INFO}, r"which has n_token=\d+, cutoffs=\(.*\). Received: n_token=25, cutoffs=\(\), checkpoint="),
    ({"corpus_info_path": INFO, "settings": {"cutoffs": (3,)}},
     r"must be those of corpus-info.json, which has cutoffs=\(\). Received: cutoffs=\(3,\), corpus_info_path="),
    ({"corpus_info_path": "nowhere"}, "Expected corpus-info.json .*Received: corpus_info_path=nowhere"),
    ({"corpus_info_path": __file__}, "Expected JSON with vocab_size, cutoffs and dataset. Received: corpus_info_path="),
    ({"preset_name": "wt103"}, "preset must be one of .*Received: preset=wt103"),
    ({"corpus": str(HUB / "vocab.pkl")}, r"corpus must have as many symbols as the checkpoint, \d+. Received: corpus=.*vocab.pkl, \d+ symbols"),
    ({"corpus": "nowhere.pkl"}, "corpus must be the file of a vocabulary .*Received: corpus=nowhere.pkl"),
    ({"corpus": str(GOLDEN / "data" / "hf_built" / "vocab.pkl")}, "corpus must be the file of a vocabulary .*name=re._compile"),
    ({"checkpoint": "nowhere"}, "prefix must be the path of a TensorFlow checkpoint. Received: prefix=nowhere"),
    ({"output": ""}, "output must be a path. Received: output=''"), ({"checkpoint": ""}, "checkpoint must be a path. Received: checkpoint=''"),
    ({"settings": {"mem_len": 8, "pre_lnorm": True, "layer_norm_epsilon": 1e-5}},
     r"which has pre_lnorm=False, layer_norm_epsilon=1e-12. Received: pre_lnorm=True, layer_norm_epsilon=1e-05, checkpoint="),
    ({"output": __file__}, "output must be a folder that can be written"),
])
def test_what_does_not_belong_together_is_refused_before_anything_is_written(changes, message, tmp_path):
    arguments = dict(source="tf1", checkpoint=str(GOLDEN / "tf1" / NAME / "model.ckpt"), output=str(tmp_path / "new"), settings=untold(NAME))
    if "preset_name" in changes:
        arguments["settings"] = None
    with pytest.raises((ValueError, OSError), match=message):
        convert(**{**arguments, **changes})
    assert not (tmp_path / "new").exists()


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A folder with the original's corpus and, in new, the converted model of a checkpoint that it scored."""
    place = tmp_path_factory.mktemp("place")
    shutil.copytree(EVALUATED / "text8", place / "text8")
    symbols = json.loads((GOLDEN / "data" / "text8" / "vocab.json").read_text())["idx2sym"]
    (place / "text8" / "cache.pkl").write_bytes(pickle.dumps({"idx2sym": symbols}, 2))
    ended = forks().run("-m", "txl_tf.convert", "--from=tf1", f"--checkpoint={EVALUATED / 'model.ckpt'}", "--corpus=text8/cache.pkl",
                        "--dataset=text8", "--mem_len=20", "--clamp_len=12", "--same_length", "--tgt_len=8", "--output=new", cwd=place)
    first, settings = (ended.stdout.splitlines() + ["", ""])[:2]
    assert (ended.returncode, first) == (0, "a model of 2 layers and 25 tokens lies in new"), ended.stderr
    (place / "flags.txt").write_text(settings.removeprefix("its settings, for a run that begins with it (--warm_start_path=new): "))
    return place


@pytest.mark.slow
def test_the_training_script_scores_it_as_the_original_did(place):
    ended = forks().run("train_gpu.py", "--do_eval_only", "--model_dir=new", "--data_dir=text8/tfrecords", "--eval_split=valid",
                        "--corpus_info_path=text8/corpus-info.json", "--eval_batch_size=4", "--tgt_len=8", "--mem_len=20", cwd=place)
    assert ended.returncode == 0, ended.stderr
    found = json.loads((place / "new" / "results.json").read_text())["valid"]
    assert found["nll"] == pytest.approx(json.loads((EVALUATED / "config.json").read_text())["avg_loss"], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("command", [
    ("txl_tf.generate", "--prompt=the ", "--max_new_tokens=5"), ("txl_tf.score", "text.txt"), ("txl_tf.export", "--export_dir=served")])
def test_the_commands_take_it(place, command):
    (place / "text.txt").write_text("the king of the sea " * 20)
    ended = forks().run("-m", command[0], "--model_dir=new", *command[1:], cwd=place)
    assert ended.returncode == 0 and ended.stdout, ended.stderr


@pytest.mark.slow
def test_training_goes_on_from_it(place):
    (place / "mine").mkdir()
    for split in ("train", "valid", "test"):
        (place / "mine" / f"{split}.txt").write_text("the king of the sea is here " * 40)
    ended = forks().run("train_gpu.py", "--warm_start_path=new", "--data_dir=mine", "--vocab_file=new/vocabulary.json", "--vocabulary=char",
                        "--model_dir=tuned", *(place / "flags.txt").read_text().split(), "--train_steps=2", "--warmup_steps=1",
                        "--train_batch_size=2", "--eval_batch_size=2", "--eval_tgt_len=8", cwd=place)
    assert ended.returncode == 0, ended.stderr
    assert json.loads((place / "tuned" / "config.json").read_text())["model"] == json.loads((place / "new" / "config.json").read_text())["model"]


def test_the_command_says_what_is_wrong_in_one_line(place):
    ended = forks().run("-m", "txl_tf.convert", "--from=tf1", f"--checkpoint={EVALUATED / 'model.ckpt'}", "--output=other", cwd=place)
    assert ended.returncode == 1 and ended.stderr.startswith("txl_tf.convert: mem_len must be given") and ended.stderr.count("\n") == 1
    assert not (place / "other").exists()
