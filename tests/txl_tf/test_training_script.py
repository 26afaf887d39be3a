"""From the flags to the run: every end that the user can mend is one sentence. Whole runs are in test_train_gpu.py."""

import pytest
import tensorflow as tf
from absl import flags

import txl_tf.training_script
from testing.number_corpus import NumberCorpus
from txl_tf.flags import define_flags
from txl_tf.training_script import run_script


@pytest.fixture
def ended(tmp_path, monkeypatch):
    """A function that runs a script with flags and returns what it ends with; `opened` are the arguments of open_corpus."""
    known = set(flags.FLAGS)
    define_flags()
    monkeypatch.chdir(tmp_path)

    def end(*arguments, run=lambda: None, strategy_of=lambda config: tf.distribute.get_strategy(), open_corpus=None):
        class Run:
            def __init__(self, *_):
                self.run = run

        def opened(**settings):
            end.opened = settings
            return NumberCorpus()

        monkeypatch.setattr(txl_tf.training_script, "Training", Run)
        flags.FLAGS.unparse_flags()
        rest = flags.FLAGS(["script.py", *arguments])
        try:
            return run_script("script.py", strategy_of, open_corpus or opened, rest)
        except SystemExit as exit_:
            return exit_.code

    yield end
    flags.FLAGS.unparse_flags()
    for name in set(flags.FLAGS) - known:
        delattr(flags.FLAGS, name)


def raising(error):
    def raises(*_, **__):
        raise error

    return raises


def test_a_run_that_ends_well(ended):
    assert ended("--data_dir=mine", "--tgt_len=9", "--min_freq=3") is None
    assert (ended.opened["data_dir"], ended.opened["tgt_len"], ended.opened["num_hosts"], ended.opened["min_freq"]) == ("mine", 9, 1, 3)


@pytest.mark.parametrize("error, message", [
    (FloatingPointError("not finite"), "script.py: not finite"), (OSError("disk"), "script.py: disk"), (MemoryError("memory"), "script.py: memory"),
    (KeyboardInterrupt(), "script.py: interrupted; the same command goes on from the last checkpoint in runs/mine"), (SystemExit(143), 143),
], ids=str)
def test_how_a_run_may_end(ended, error, message):
    assert ended("--data_dir=mine", run=raising(error)) == message


@pytest.mark.parametrize("settings", [{"strategy_of": raising(ValueError("no device"))}, {"open_corpus": raising(OSError("no device"))}])
def test_what_is_found_before_the_work(ended, settings):
    assert ended("--data_dir=mine", **settings) == "script.py: no device"


@pytest.mark.parametrize("arguments, message", [
    (["mine"], "Arguments must be flags. Received: mine"),
    (["--num_hosts=2", "--train_batch_size=2"], "num_hosts must be that of the cluster, 1. Received: num_hosts=2"),
])
def test_what_the_flags_may_not_say(ended, arguments, message):
    assert ended("--data_dir=mine", *arguments) == f"script.py: {message}"


def test_a_folder_below_a_file(ended, tmp_path):
    (tmp_path / "file").write_text("text")
    message = f"model_dir must be a folder that can be written, unlike {tmp_path / 'file'}. Received: model_dir=file/run"
    assert ended("--data_dir=mine", "--model_dir=file/run", strategy_of=None) == f"script.py: {message}"


def test_other_faults_are_not_hidden(ended):
    with pytest.raises(RuntimeError):
        ended("--data_dir=mine", run=raising(RuntimeError("a fault of the program")))
