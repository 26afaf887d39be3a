"""From the flags to the run: every end that the user can mend is one sentence. Whole runs are in test_train_gpu.py."""

import dataclasses

import pytest
import tensorflow as tf
from absl import flags

import txl_tf.training_script
from testing.number_corpus import NumberCorpus
from txl_tf.config import ModelConfig
from txl_tf.flags import define_flags
from txl_tf.model_folder import write_config
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
    (KeyboardInterrupt(), 130), (SystemExit(143), 143),
], ids=str)
def test_how_a_run_may_end(ended, error, message):
    assert ended("--data_dir=mine", run=raising(error)) == message


@pytest.mark.parametrize("settings", [{"strategy_of": raising(ValueError("no device"))}, {"open_corpus": raising(OSError("no device"))}])
def test_what_is_found_before_the_work(ended, settings):
    assert ended("--data_dir=mine", **settings) == "script.py: no device"


def test_an_interrupt_before_the_work(ended, capsys):
    assert ended("--data_dir=mine", open_corpus=raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "script.py: interrupted\n"


def test_an_address_that_nothing_opens(ended):
    error = tf.errors.UnimplementedError(None, None, "File system scheme 'no' not implemented (file: 'no://a')")
    assert ended("--data_dir=no://a", open_corpus=raising(error)) == (
        "script.py: Files and folders must lie where TensorFlow can open them. Received: "
        "File system scheme 'no' not implemented (file: 'no://a')")


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


def test_an_interrupted_run_says_how_it_goes_on(ended, capsys):
    assert ended("--data_dir=mine", run=raising(KeyboardInterrupt())) == 130
    assert capsys.readouterr().err == "script.py: interrupted; the same command goes on from the last checkpoint in runs/mine\n"


@pytest.mark.parametrize("arguments, message", [
    (["--n_layer=3"], "which has n_layer=4. Received: n_layer=3"),
    (["--d_model=8", "--cutoffs=3,5", "--memory_start=zeros"],
     "which has d_model=192, cutoffs=(), memory_start=empty. Received: d_model=8, cutoffs=(3, 5), memory_start=zeros"),
    (["--n_layer=4", "--dropout=0.5", "--init_std=1", "--tgt_len=7", "--eval_tgt_len=9", "--clamp_len=5"], None),
], ids=str)
def test_what_is_scored_must_be_the_model_of_the_run(ended, tmp_path, arguments, message):
    write_config(str(tmp_path), {"model": dataclasses.asdict(ModelConfig(n_token=256))})
    sentence = message and f"script.py: What is scored must be the model of the run in {tmp_path}, {message}"
    for without_training in ("--do_train=False", "--do_eval_only"):
        assert ended("--data_dir=mine", f"--model_dir={tmp_path}", without_training, *arguments) == sentence


def test_where_there_is_no_run_there_is_nothing_to_score(ended, tmp_path):
    assert "must hold a model's config.json" in ended("--data_dir=mine", f"--model_dir={tmp_path}/none", "--do_train=False")


def test_other_faults_are_not_hidden(ended):
    with pytest.raises(RuntimeError):
        ended("--data_dir=mine", run=raising(RuntimeError("a fault of the program")))


def test_what_this_machine_can_not_hold_is_refused_before_the_data(ended):
    refused = ended("--data_dir=mine", "--n_layer=100000000", open_corpus=raising(AssertionError))
    assert refused.startswith("script.py: Weights, Adam's moments and memory, at least ") and "Received: n_layer=100000000, " in refused
