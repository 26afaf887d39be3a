"""The mean of a run's last checkpoints as a model folder."""

import numpy as np
import pytest
import tensorflow as tf

from data_utils.vocabulary import ByteVocabulary
from testing.forks import forks
from testing.full_disk import files_at_most
from testing.tiny_model import tiny_model
from txl_tf.average_checkpoints import average_checkpoints
from txl_tf.model_folder import VOCABULARY, load_model, load_vocabulary, save_model
from txl_tf.run_state import weights_of


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The folder of a run with four checkpoints of models whose weights are other than each other's."""
    folder = tmp_path_factory.mktemp("runs") / "mine"
    save_model(tiny_model(n_token=256), folder, ByteVocabulary())
    for seed, step in enumerate((5, 90, 100, 1000)):
        model = tiny_model(seed=seed, n_token=256, dropout=0.1)
        tf.train.Checkpoint(model=weights_of(model), step=tf.Variable(step)).write(str(folder / "checkpoints" / f"step-{step}"))
    return folder


@pytest.mark.slow_but_first
@pytest.mark.parametrize("last, seeds", [(1, [3]), (3, [1, 2, 3]), (4, [0, 1, 2, 3]), (None, [0, 1, 2, 3])])
def test_the_mean_of_the_last(run, tmp_path, last, seeds):
    steps = average_checkpoints(str(run), last, str(tmp_path / "new" / "averaged"))
    assert steps == [5, 90, 100, 1000][-(last or 4):]
    averaged = load_model(tmp_path / "new" / "averaged")
    models = [tiny_model(seed=seed, n_token=256) for seed in seeds]
    for variable, *values in zip(averaged.weights, *(model.weights for model in models), strict=True):
        np.testing.assert_array_equal(variable, np.mean([value.numpy() for value in values], 0, np.float64).astype(np.float32))
    assert load_vocabulary(tmp_path / "new" / "averaged").n_token == 256


@pytest.mark.slow
def test_the_command(run, tmp_path):
    ended = forks().run("-m", "txl_tf.average_checkpoints", f"--model_dir={run}", "--last=2", "--output=averaged", cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout == "the mean of the weights at steps 100, 1,000 lies in averaged\n"
    assert {path.name for path in (tmp_path / "averaged").iterdir()} == {"config.json", "model.weights.h5", VOCABULARY}
    ended = forks().run("-m", "txl_tf.average_checkpoints", f"--model_dir={run}", "--last=9", "--output=averaged", cwd=tmp_path)
    assert ended.returncode == 1 and "Received: last=9" in ended.stderr and "Traceback" not in ended.stderr


@pytest.mark.parametrize("last", [0, -1, 5])
def test_as_many_as_there_are(run, tmp_path, last):
    with pytest.raises(ValueError, match=f"last must be from 1 to the number of checkpoints in model_dir, 4;.*Received: last={last}, model_dir="):
        average_checkpoints(str(run), last, str(tmp_path / "averaged"))


def test_where_it_may_not_be_written(run, tmp_path):
    (tmp_path / "file").write_text("text")
    with pytest.raises(ValueError, match="output must not be model_dir. Received: output="):
        average_checkpoints(str(run), 2, f"{run}/")
    with pytest.raises(ValueError, match="^output must be a folder that can be written"):
        average_checkpoints(str(run), 2, str(tmp_path / "file"))


def test_a_full_disk_leaves_the_model_that_was_there(run, tmp_path):
    save_model(tiny_model(n_token=300), tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(OSError, match="^output must be a folder that can be written, with room .* Received: output="), files_at_most(1_000):
        average_checkpoints(str(run), 2, str(tmp_path))
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_damaged_checkpoint_is_named(run, tmp_path):
    copy = tmp_path / "run"
    tf.io.gfile.makedirs(str(copy / "checkpoints"))
    for path in (run / "config.json", *(run / "checkpoints").iterdir()):
        tf.io.gfile.copy(str(path), str(copy / path.relative_to(run)))
    (copy / "checkpoints" / "step-100.data-00000-of-00001").write_bytes(b"short")
    with pytest.raises(ValueError, match=r"Every checkpoint must be readable \(.*Received: .*step-100$"):
        average_checkpoints(str(copy), 2, str(tmp_path / "averaged"))
