"""Full disks and killed runs: one sentence, nothing half-written, and the next run is right."""

import errno
import os
import shutil
import signal

import pytest
from testing.prepare_command import PrepareCommand

import data_utils.corpus_writer
from data_utils.corpus import Corpus
from data_utils.prepare import prepare_corpus

TEXT = "a b c d e f g h\n" * 600
FLAGS = ["--dataset=text", "--vocabulary=word", "--per_host_train_bsz=2", "--per_host_valid_bsz=2", "--per_host_test_bsz=2", "--tgt_len=5"]


@pytest.fixture(scope="module")
def command():
    """Runs commands."""
    with PrepareCommand() as command:
        yield command


@pytest.fixture
def folder(tmp_path):
    """A folder that was prepared from another text."""
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text("x y\n" * 40)
    prepare_corpus("text", tmp_path, 3, 2, vocabulary="word")
    for split in ("train", "valid", "test"):
        (tmp_path / f"{split}.txt").write_text(TEXT)
    return tmp_path


def content(folder):
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """What a folder that nothing happened to holds."""
    folder = tmp_path_factory.mktemp("right")
    for split in ("train", "valid", "test"):
        (folder / f"{split}.txt").write_text(TEXT)
    prepare_corpus("text", folder, 2, 2, vocabulary="word")
    return content(folder)


KILLED = {  # what is called when the process is killed, and the how many-th time
    "texts are encoded": ("data_utils.corpus_writer", "encode_splits", 1),
    "raw ids are read": ("data_utils.corpus_writer", "_ordered", 1),
    "the first records": ("data_utils.records", "_serialized", 1),
    "within records": ("data_utils.records", "_serialized", 5),
    "a file is written": ("data_utils.records", "sha256_of_file", 1),
    "a file takes its place": ("os", "replace", 2),
    "raw ids are removed": ("shutil", "rmtree", 2),
    "the vocabulary is saved": ("os", "replace", 4),
    "the manifest is written": ("data_utils.corpus_writer", "write_json", 1),
    "the manifest takes its place": ("os", "replace", 5),
    "old files are removed": ("data_utils.corpus_writer.CorpusWriter", "_remove_replaced", 1),
}
QUICK = {"within records", "a file takes its place", "the manifest takes its place", "old files are removed"}  # by default


@pytest.mark.slow_but_first
@pytest.mark.parametrize("module, name, time", [
    pytest.param(*point, id=name, marks=[] if name in QUICK else pytest.mark.slow) for name, point in KILLED.items()])
def test_a_killed_run_is_made_good_by_the_next(folder, right, command, module, name, time):
    kill = f"""
import itertools, os, pkgutil, signal, data_utils.corpus_writer
owner = pkgutil.resolve_name({module!r})
function, count = getattr(owner, {name!r}), itertools.count(1)
def killing(*arguments, **named):
    if next(count) == {time}:
        os.kill(os.getpid(), signal.SIGKILL)
    return function(*arguments, **named)
setattr(owner, {name!r}, killing)
"""
    before = content(folder)
    returncode, _, errors = command.run(*FLAGS, f"--data_dir={folder}", before=kill)
    assert returncode == -signal.SIGKILL, errors
    if (folder / "corpus.json").exists():  # either as it was before, or all done
        Corpus(folder).check()
        assert content(folder)["corpus.json"] in (before["corpus.json"], right["corpus.json"])
    assert command.run(*FLAGS, f"--data_dir={folder}")[0] == 0
    assert content(folder) == right
    assert not list(folder.rglob("*.partial"))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("limit", [3_000, 12_000])  # raw ids have 21,600 bytes, a record file some 5,500 more than that
def test_a_full_disk(folder, right, command, limit):
    full = f"""
import resource, signal
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))
"""
    before = content(folder)
    returncode, output, errors = command.run(*FLAGS, f"--data_dir={folder}", before=full)
    assert (returncode, output) == (1, "")
    assert errors.splitlines()[-1].startswith(f"data_utils.prepare: Expected to be able to read and write {folder} (File too large)")
    assert "Traceback" not in errors
    assert content(folder) == before
    assert not list(folder.rglob("*.partial"))
    assert command.run(*FLAGS, f"--data_dir={folder}")[0] == 0
    assert content(folder) == right


def test_a_disk_that_is_full_of_records(folder, right, command):
    full = """
import resource, signal, data_utils.corpus_writer as writer
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
write_records = writer.write_records
def limited(*arguments):
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, resource.RLIM_INFINITY))
    return write_records(*arguments)
writer.write_records = limited
"""
    returncode, _, errors = command.run(*FLAGS, f"--data_dir={folder}", before=full)
    assert returncode == 1
    assert errors.splitlines()[-1].startswith("data_utils.prepare: Expected to be able to write ")
    assert "Traceback" not in errors
    assert not list(folder.rglob("*.partial")) and not (folder / "corpus.json").exists()
    assert command.run(*FLAGS, f"--data_dir={folder}")[0] == 0
    assert content(folder) == right


@pytest.mark.parametrize("name", ["encode_splits", "write_records", "write_json"])
def test_errors_of_the_operating_system_are_one_sentence(folder, right, monkeypatch, name):
    error = errno.ENOSPC

    def fails(*arguments, **named):
        raise OSError(error, os.strerror(error))

    with monkeypatch.context() as patch, pytest.raises(OSError) as caught:
        patch.setattr(data_utils.corpus_writer, name, fails)
        prepare_corpus("text", folder, 2, 2, vocabulary="word")
    assert str(caught.value) == (f"Expected to be able to read and write {folder} ({os.strerror(error)}). Received: data_dir={folder}")
    assert not list(folder.rglob("*.partial"))
    prepare_corpus("text", folder, 2, 2, vocabulary="word")
    assert content(folder) == right


def test_a_failed_run_removes_raw_ids_whatever_happens(folder, monkeypatch):
    monkeypatch.setattr(data_utils.corpus_writer, "write_records", lambda *arguments: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare_corpus("text", folder, 2, 2, vocabulary="word")
    assert not (folder / "tokens.partial").exists()
    shutil.rmtree(folder)
