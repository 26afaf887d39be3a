"""The command: what it writes, says and refuses."""

import numpy as np
import pytest
import tensorflow as tf

from data_utils.vocabulary import ByteVocabulary
from testing.forks import forks
from testing.tiny_model import tiny_model
from txl_tf.model_folder import save_model
from txl_tf.saved_model import CARD


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Returns a folder with a model in `trained`, and a text."""
    folder = tmp_path_factory.mktemp("export")
    save_model(tiny_model(n_token=256), folder / "trained", ByteVocabulary())
    (folder / "text").write_bytes("é".encode() * 2_001)
    (folder / "short").write_text("a")
    (folder / "file").touch()
    return folder


def export(folder, *arguments):
    return forks().run("-m", "txl_tf.export", *arguments, cwd=folder)


@pytest.mark.slow
def test_a_version_with_its_card(folder):
    arguments = [["--export_dir=served/mine"],
                 [f"--export_dir=file://{folder}/served/mine", "--weights=bfloat16", "--text_file=text", "--mem_len=3"]]
    for version, (address, *more) in enumerate(arguments, 1):
        ended = export(folder, "--model_dir=trained", address, *more)
        assert ended.returncode == 0, ended.stderr
        shown = address.removeprefix("--export_dir=") if ":" in address else f"{folder}/served/mine"  # an address stays one
        assert f"served/mine/{version}" in ended.stdout and f"--model_name=mine --model_base_path={shown}\n" in ended.stdout
    card = (folder / "served" / "mine" / "2" / CARD).read_text()
    assert "stored as: bfloat16" in card and "on 3,992 tokens of given text" in card and "| out | `memory` | float32 | (B, 2, 3, 12) |" in card
    loaded = tf.saved_model.load(str(folder / "served" / "mine" / "1")).signatures["score_text"](text=tf.constant(["ab"]))
    model = tiny_model(n_token=256)
    expected = model.log_probs(np.array([[97]]), model.initial_memory(1))[0][0, 0, 98]
    np.testing.assert_allclose(loaded["log_prob"], [expected], rtol=1e-5)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("arguments, message", [
    (["--model_dir=none"], "model_dir must hold a trained model and its vocabulary"),
    (["--model_dir=trained", "--export_dir=file"], "export_dir must be a folder that can be written, unlike"),
    (["--model_dir=trained", "--text_file=short"], "text_file must hold at least 16 tokens. Received: text_file=short, 1 tokens"),
    (["--model_dir=trained", "--text_file=none"], "No such file"),
    (["--model_dir=trained", "--mem_len=-2"], "mem_len must be at least 0. Received: mem_len=-2"),
    (["--model_dir=trained", "more"], "more"),
])
def test_refused(folder, arguments, message):
    before = sorted(folder.rglob("*"))
    ended = export(folder, *(["--export_dir=refused"] if "--export_dir=file" not in arguments else []), *arguments)
    assert ended.returncode == 1 and message in ended.stderr and "Traceback" not in ended.stderr
    assert sorted(folder.rglob("*")) == before
