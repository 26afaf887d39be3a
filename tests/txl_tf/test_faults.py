"""What goes wrong around a program is said in one sentence; other faults are left as they are."""

import os
import sys

import pytest
import tensorflow as tf

from testing.full_disk import files_at_most
from txl_tf.faults import check_folder, computing, interrupted, one_sentence, say, writing

SIZES = {"train_batch_size": 4, "remat": False}


class Resolver:
    """What a strategy knows of a cluster of two workers and a chief, of which this is worker 0."""

    task_type, task_id = "worker", 0

    def cluster_spec(self):
        return tf.train.ClusterSpec({"chief": ["a:1"], "worker": ["b:2", "c:3"]})


class Strategy:
    """As much of a strategy as is asked when it fails."""

    def __init__(self, resolver=None):
        self.cluster_resolver = resolver


def ended(error, strategy=Strategy()):
    """Returns what becomes of an error of a strategy's work."""
    with pytest.raises(Exception) as end, computing(strategy, **SIZES):
        raise error
    return end.value


def test_a_folder_that_can_be_made_is_not_made(tmp_path):
    check_folder(str(tmp_path / "new" / "deep"))
    check_folder("gs://bucket/folder")
    assert list(tmp_path.iterdir()) == []


def test_an_address_that_nothing_opens_is_refused():
    with pytest.raises(ValueError, match="^model_dir must be a folder here or at an address that TensorFlow opens. Received: model_dir=no://a$"):
        check_folder("no://a")


def test_a_folder_below_a_file_is_refused(tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(ValueError, match="^output must be a folder that can be written, unlike .*file. Received: output=.*file/new$"):
        check_folder(str(tmp_path / "file" / "new"), "output")


@pytest.mark.parametrize("write", [
    lambda path: path.write_bytes(bytes(100)),
    lambda path: tf.io.gfile.GFile(str(path), "w").write("text") or (path.parent / "no" / "such").touch(),
    lambda path: tf.io.write_file(str(path), b"0" * 100),
], ids=["Python", "a folder that is gone", "TensorFlow"])
def test_what_can_not_be_written(tmp_path, write):
    with pytest.raises(OSError, match=r"^output must be a folder that can be written, with room .* \(.+\). Received: output=runs$") as end:
        with writing("runs", "output"), files_at_most(50):
            write(tmp_path / "file")
    assert "{{" not in str(end.value) and "[Op" not in str(end.value) and "\n" not in str(end.value)


def test_output_that_can_not_be_written(tmp_path, monkeypatch):
    with open(tmp_path / "output", "w", encoding="utf-8") as file, files_at_most(5):
        monkeypatch.setattr(sys, "stdout", file)
        say("a", end="b")
        with pytest.raises(OSError, match=r"^Standard output must be open, .* \(File too large\). Received: stdout=.*output$"):
            say("more than there is room for")
        say("what is lost")
    assert (tmp_path / "output").read_text() == "abmor"


def test_a_reader_that_has_gone_away(monkeypatch):
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w", encoding="utf-8") as file:
        monkeypatch.setattr(sys, "stdout", file)
        with pytest.raises(BrokenPipeError, match="Broken pipe"):
            say("hello")


def test_interrupted(capsys):
    with pytest.raises(SystemExit) as end:
        interrupted("script.py: interrupted")
    assert end.value.code == 130 and capsys.readouterr().err == "script.py: interrupted\n"


def test_too_little_memory():
    error = ended(tf.errors.ResourceExhaustedError(None, None, "OOM when allocating\nmore"))
    assert isinstance(error, MemoryError) and str(error).endswith("Received: train_batch_size=4, remat=False")
    assert all(name in str(error) for name in ("train_batch_size", "tgt_len", "mem_len", "batch_chunk", "remat"))


@pytest.mark.parametrize("message, lost", [
    ("from /job:worker/task:1: stopped sending heartbeats:\n/job:worker/replica:0/task:1", "worker 1 (c:3)"),
    ("while calling /job:chief/replica:0/task:0 from /job:worker/task:0", "chief 0 (a:1)"),
    ("Connection reset by peer", "another host"),
])
def test_a_lost_host_is_named(message, lost):
    error = ended(tf.errors.UnavailableError(None, None, message), Strategy(Resolver()))
    assert isinstance(error, ConnectionError) and str(error).endswith(f"Received: nothing more from {lost}")
    assert "the same command on all hosts goes on from the last checkpoint" in str(error)


def test_a_lost_host_whatever_the_kind_of_error():
    error = ended(tf.errors.InternalError(None, None, "Collective ops is aborted by: /job:worker/task:1"), Strategy(Resolver()))
    assert isinstance(error, ConnectionError)


@pytest.mark.parametrize("error, resolver", [
    (tf.errors.UnavailableError(None, None, "gone"), None), (tf.errors.InvalidArgumentError(None, None, "bad"), None),
    (tf.errors.InternalError(None, None, "bug"), Resolver()), (RuntimeError("bug"), Resolver())],
    ids=["one host", "several hosts, argument", "several hosts, internal", "several hosts, other"])
def test_other_faults_are_not_hidden(error, resolver):
    assert ended(error, Strategy(resolver)) is error


@pytest.mark.parametrize("raised, code, said", [
    (ValueError("x must be 1."), "script: x must be 1.", ""), (tf.errors.NotFoundError(None, None, "nothing there"), "script: nothing there", ""),
    (KeyboardInterrupt(), 130, "script: interrupted\n")], ids=["error", "error of TensorFlow", "interrupt"])
def test_a_command_ends_with_one_sentence(raised, code, said, capsys):
    with pytest.raises(SystemExit) as end, one_sentence("script", ValueError, tf.errors.OpError):
        raise raised
    assert end.value.code == code and capsys.readouterr().err == said


def test_another_error_of_a_command_is_not_hidden():
    with pytest.raises(ValueError, match="bug"), one_sentence("script", OSError):
        raise ValueError("bug")
