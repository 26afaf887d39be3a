"""fit carries the memory as a loop by hand does, on one device or two, and what it saves knows nothing of memory."""

import dataclasses
import json
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.fit_cases import CASES
from testing.forks import forks
from testing.number_corpus import NumberCorpus
from testing.replica_cases import ROWS
from testing.segments import STEPS, dataset, segments
from testing.tiny_model import tiny_config, tiny_model
from txl_tf.config import TrainConfig
from txl_tf.language_model import TransformerXLLM
from txl_tf.optimization import WarmupCosine, make_optimizer
from txl_tf.segment_trainer import SegmentTrainer
from txl_tf.training import Training

def trainer(optimizer=None, compiled=None, model=None, **settings):
    """Returns a compiled SegmentTrainer of a small model, the same for the same settings."""
    made = SegmentTrainer(model or tiny_model(**settings))
    made.compile(optimizer or keras.optimizers.SGD(0.5), **(compiled or {}))
    return made


def by_hand(model, pairs, memory, learning_rate=0.5, carried=True):
    """Returns the mean nll of each step of gradient descent, and the memory after them."""
    losses, start = [], memory
    for token_ids, labels in pairs:
        with tf.GradientTape() as tape:
            nll, memory = model.nll(token_ids, labels, memory if carried else start)
            loss = tf.reduce_mean(nll)
        for variable, gradient in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
            variable.assign_sub(learning_rate * gradient)
        losses.append(float(loss))
    return losses, memory


def step_losses(made, pairs, **settings):
    """Returns the loss of each step of a fit, and its history."""
    means = []
    callback = keras.callbacks.LambdaCallback(on_train_batch_end=lambda batch, logs: means.append(logs["loss"]))
    history = made.fit(dataset(pairs), callbacks=[callback], verbose=0, **settings).history
    tokens = np.cumsum([labels.size for _, labels in pairs])
    return np.diff(np.concatenate([[0.0], np.array(means) * tokens])) / np.diff(np.concatenate([[0], tokens])), history


class TestFit:
    @pytest.mark.slow
    def test_equals_a_loop_by_hand_that_carries_the_memory(self):
        made, model, pairs = trainer(), tiny_model(), segments(rest=2)
        found, history = step_losses(made, pairs)
        expected, memory = by_hand(model, pairs, model.initial_memory(3))
        forgetful, _ = by_hand(tiny_model(), pairs, model.initial_memory(3), carried=False)
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        assert abs(found[0] - forgetful[0]) < 1e-5 < 1e-3 < abs(found[1] - forgetful[1])
        tokens = [labels.size for _, labels in pairs]
        mean = np.average(expected, weights=tokens)
        np.testing.assert_allclose(history["loss"], [mean], rtol=1e-5)
        np.testing.assert_allclose(history["perplexity"], [math.exp(mean)], rtol=1e-5)
        np.testing.assert_allclose(history["bpc"], [mean / math.log(2)], rtol=1e-5)
        for name in memory:
            np.testing.assert_allclose(made.memory[name], memory[name], rtol=0, atol=1e-5)

    @pytest.mark.slow
    def test_validation_leaves_the_memory_of_training(self):
        with_validation, without = trainer(), trainer()
        found = with_validation.fit(dataset(segments()), validation_data=dataset(segments(2, 3, 7)), epochs=2, verbose=0).history
        expected = without.fit(dataset(segments()), epochs=2, verbose=0).history
        assert found["loss"] == expected["loss"]
        for name, value in without.memory.items():
            np.testing.assert_array_equal(with_validation.memory[name], value)
        assert found["val_loss"][-1] == with_validation.evaluate(dataset(segments(2, 3, 7)), verbose=0)[0]

    @pytest.mark.slow
    def test_an_epoch_begins_with_an_empty_memory(self):
        made, model, pairs = trainer(), tiny_model(), segments()
        history = made.fit(dataset(pairs), epochs=2, verbose=0).history
        first, second = (by_hand(model, pairs, model.initial_memory(3))[0] for _ in range(2))
        np.testing.assert_allclose(history["loss"], [np.mean(first), np.mean(second)], rtol=0, atol=1e-5)

    @pytest.mark.slow
    def test_with_steps_per_epoch_the_next_epoch_goes_on(self):
        made, model, pairs = trainer(), tiny_model(), segments(steps=6)
        history = made.fit(dataset(pairs), steps_per_epoch=3, epochs=2, verbose=0).history
        expected, _ = by_hand(model, pairs, model.initial_memory(3))
        np.testing.assert_allclose(history["loss"], np.reshape(expected, (2, 3)).mean(axis=1), rtol=0, atol=1e-5)
        again = made.fit(dataset(pairs), steps_per_epoch=3, verbose=0).history
        np.testing.assert_allclose(again["loss"], [np.mean(by_hand(model, pairs[:3], model.initial_memory(3))[0])], rtol=0, atol=1e-5)

    @pytest.mark.slow
    def test_weights_of_tokens(self):
        random, model = np.random.default_rng(0), tiny_model()
        pairs = [(*pair, random.random(pair[0].shape).astype(np.float32)) for pair in segments(steps=1)]
        loss = trainer().fit(dataset(pairs), verbose=0).history["loss"]
        nll, _ = model.nll(*pairs[0][:2], model.initial_memory(3))
        np.testing.assert_allclose(loss, [np.average(nll, weights=pairs[0][2])], rtol=1e-6)
        np.testing.assert_allclose(trainer().evaluate(dataset(pairs), verbose=0)[0], loss[0], rtol=1e-6)

    @pytest.mark.slow
    def test_a_batch_without_weight_changes_nothing(self):
        pairs = [(*pair, np.full(pair[0].shape, float(index != 1), np.float32)) for index, pair in enumerate(segments(steps=3))]
        made, model, memory = trainer(), tiny_model(), tiny_model().initial_memory(3)
        loss = made.fit(dataset(pairs), verbose=0).history["loss"][0]
        first, memory = by_hand(model, segments(steps=3)[:1], memory)
        _, memory = model.nll(*segments(steps=3)[1], memory)
        last, _ = by_hand(model, segments(steps=3)[2:], memory)
        assert loss == pytest.approx(np.mean([first, last]), abs=1e-5)

    @pytest.mark.slow
    @pytest.mark.parametrize("compiled", [{"jit_compile": True}, {"steps_per_execution": 3}, {"run_eagerly": True},
                                          {"jit_compile": True, "steps_per_execution": 2}])
    def test_in_every_way_of_execution(self, compiled):
        found, expected = (trainer(keras.optimizers.Adam(1e-2, global_clipnorm=0.2), settings).fit(
            dataset(segments(rest=2)), validation_data=dataset(segments(2)), epochs=2, verbose=0).history for settings in (compiled, {}))
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=2e-5)

    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("length, compiled", [(4, {}), (None, {}), (4, {"jit_compile": True})])
    def test_the_end_of_a_data_set_of_unknown_length_counts_for_nothing(self, length, compiled):
        def fitted(known):
            keras.utils.set_random_seed(4)
            made = trainer(keras.optimizers.Adam(1e-2), compiled, dropout=0.2, mem_len=40)
            data = dataset(segments(), known).map(lambda *pair: tuple(tf.ensure_shape(side, (3, length)) for side in pair))
            history = made.fit(data, validation_data=data, epochs=2, verbose=0).history
            return history, made.evaluate(data, verbose=0), made.memory["length"].tolist(), int(made.optimizer.iterations)

        found, expected = fitted(known=False), fitted(known=True)
        assert found == expected and found[2:] == ([4 * STEPS] * 3, 2 * STEPS)

    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("precision", ["mixed_bfloat16", "mixed_float16"])
    def test_mixed_precision(self, precision):
        made = trainer(keras.optimizers.Adam(2e-3), model=tiny_model(precision))
        found = made.fit(dataset(segments()), validation_data=dataset(segments()), epochs=2, verbose=0).history
        expected = trainer(keras.optimizers.Adam(2e-3)).fit(dataset(segments()), validation_data=dataset(segments()), epochs=2, verbose=0).history
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=0.01)
        assert made.memory["hidden"].dtype == precision.removeprefix("mixed_") and int(made.optimizer.iterations) == 2 * STEPS
        assert isinstance(made.optimizer, keras.optimizers.LossScaleOptimizer) == (precision == "mixed_float16")

    @pytest.mark.slow
    def test_an_overflow_in_float16_leaves_the_update_out(self):
        made = trainer(keras.optimizers.Adam(1e-2), model=tiny_model("mixed_float16"))
        made.optimizer.dynamic_scale.assign(2.0 ** 40)
        before = made.get_weights()
        loss = made.fit(dataset(segments(steps=2)), verbose=0).history["loss"][0]
        assert math.isfinite(loss) and float(made.optimizer.dynamic_scale) == 2.0 ** 38
        for old, new in zip(before, made.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)

    def test_frozen_layers_stay(self):
        model = tiny_model()
        model.backbone.trainable = False
        made = trainer(model=model)
        before = [variable.numpy() for variable in model.backbone.variables], [variable.numpy() for variable in model.head.trainable_variables]
        made.fit(dataset(segments()), verbose=0)
        assert all(np.array_equal(old, new) for old, new in zip(before[0], model.backbone.variables, strict=True))
        assert not all(np.array_equal(old, new) for old, new in zip(before[1], model.head.trainable_variables, strict=True))


@pytest.mark.slow
def test_the_same_history_as_the_scripts_training(tmp_path):
    """With dropout: the same seed draws the same masks."""
    corpus = NumberCorpus(n_token=11, rows=3, labels=19)
    model_config = tiny_config(dropout=0.2, dropatt=0.1)
    config = TrainConfig(train_steps=10, warmup_steps=3, learning_rate=1e-2, iterations=1, save_steps=100, eval_steps=5, eval_tgt_len=4,
                         eval_mem_len=6, model_dir=str(tmp_path / "run"), seed=5)
    Training(model_config, config, corpus).run()
    logged = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    keras.utils.set_random_seed(5)
    make_optimizer(config)
    made = SegmentTrainer(TransformerXLLM(model_config))
    made.compile(keras.optimizers.Adam(WarmupCosine(1e-2, 3, 10, config.min_lr_ratio), epsilon=1e-8, global_clipnorm=config.clip))
    history = made.fit(corpus.dataset("train", 4), validation_data=corpus.dataset("valid", 4), epochs=2, verbose=0).history
    losses = [entry["nll"] for entry in logged if "nll" in entry]
    epochs = [np.average(losses[start:start + 5], weights=[4, 4, 4, 4, 3]) for start in (0, 5)]
    np.testing.assert_allclose(history["loss"], epochs, rtol=0, atol=1e-5)
    np.testing.assert_allclose(history["val_loss"], [entry["valid"]["nll"] for entry in logged if "valid" in entry], rtol=0, atol=1e-5)


class TestEvaluate:
    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("eval_mem_len", [None, 0, 9])
    def test_is_the_mean_over_tokens_with_the_memory_carried(self, eval_mem_len):
        made, model, pairs = SegmentTrainer(tiny_model(), eval_mem_len), tiny_model(), segments(2, rest=1)
        other = trainer()
        made.compile()
        memory, total = model.initial_memory(2, eval_mem_len), 0.0
        for token_ids, labels in pairs:
            nll, memory = model.nll(token_ids, labels, memory)
            total += float(tf.reduce_sum(nll))
        mean = total / sum(labels.size for _, labels in pairs)
        for _ in range(2):  # each begins anew
            found = made.evaluate(dataset(pairs), verbose=0, return_dict=True)
            assert other.evaluate(dataset(pairs), mem_len=eval_mem_len, verbose=0, return_dict=True) == found
            np.testing.assert_allclose(found["loss"], mean, rtol=1e-5)
            assert found["perplexity"] == pytest.approx(math.exp(mean), rel=1e-5) and found["bpc"] == pytest.approx(mean / math.log(2), rel=1e-5)

    @pytest.mark.slow
    def test_predict_gives_the_log_probabilities_of_all_segments(self):
        made, model, pairs = trainer(), tiny_model(), segments(2, 3)
        memory, expected = model.initial_memory(2), []
        for token_ids, _ in pairs:
            log_probs, memory = model.log_probs(token_ids, memory)
            expected.append(log_probs)
        for data in (dataset(pairs), dataset(pairs).map(lambda token_ids, labels: token_ids)):
            np.testing.assert_allclose(SegmentTrainer(model).predict(data, verbose=0), np.concatenate(expected), rtol=0, atol=1e-5)
            np.testing.assert_allclose(made.predict(data, verbose=0), np.concatenate(expected), rtol=0, atol=1e-5)

    @pytest.mark.slow
    def test_before_and_after_other_numbers_of_rows(self):
        made = trainer()
        expected = {rows: made.evaluate(dataset(segments(rows)), verbose=0)[0] for rows in (3, 2, 5)}
        assert {rows: made.evaluate(dataset(segments(rows)), verbose=0)[0] for rows in (2, 5, 3)} == expected
        for rows in (3, 2):
            made.fit(dataset(segments(rows)), verbose=0)
            assert made.memory["hidden"].shape == (rows, 2, 6, 12)


@pytest.mark.slow
class TestCallbacks:
    @pytest.mark.parametrize("name", ["best.keras", "best.weights.h5"])
    def test_a_checkpoint_of_8_rows_serves_3(self, tmp_path, name):
        made = trainer(keras.optimizers.Adam(1e-2))
        checkpoint = keras.callbacks.ModelCheckpoint(tmp_path / name, save_weights_only=name.endswith(".h5"), monitor="val_bpc", mode="min", save_best_only=True)
        made.fit(dataset(segments(8)), validation_data=dataset(segments(8)), callbacks=checkpoint, verbose=0)
        expected = made.evaluate(dataset(segments(3)), verbose=0)
        if name.endswith(".keras"):
            copy = keras.saving.load_model(tmp_path / name)
            assert int(copy.optimizer.iterations) == STEPS and float(copy.optimizer.learning_rate) == pytest.approx(1e-2)
        else:
            copy = trainer(keras.optimizers.Adam(1e-2), model=tiny_model(seed=9))
            copy.load_weights(tmp_path / name)
        assert copy.evaluate(dataset(segments(3)), verbose=0) == expected
        assert copy.fit(dataset(segments(3)), verbose=0).history == made.fit(dataset(segments(3)), verbose=0).history

    def test_backup_and_restore(self, tmp_path):
        class Stopped(Exception):
            pass

        def stop(epoch, logs):
            if epoch == 1:
                raise Stopped

        def fit(model, *callbacks):
            made = trainer(keras.optimizers.Adam(1e-2), model=model)
            made.fit(dataset(segments()), epochs=4, verbose=0,
                     callbacks=[keras.callbacks.BackupAndRestore(tmp_path / callbacks[0]), *callbacks[1:]])
            return made

        whole = fit(tiny_model(), "whole")
        with pytest.raises(Stopped):
            fit(tiny_model(), "stopped", keras.callbacks.LambdaCallback(on_epoch_end=stop))
        resumed = fit(tiny_model(seed=5), "stopped")
        for expected, found in zip(whole.get_weights(), resumed.get_weights(), strict=True):
            np.testing.assert_array_equal(found, expected)

    def test_rates_stopping_and_summaries(self, tmp_path):
        made, rates = trainer(), []
        callbacks = [keras.callbacks.LearningRateScheduler(lambda epoch: 0.0 if epoch else 1e-3), keras.callbacks.TensorBoard(tmp_path / "logs"),
                     keras.callbacks.EarlyStopping("val_perplexity", mode="min", min_delta=1e-9, patience=2),
                     keras.callbacks.LambdaCallback(on_epoch_end=lambda epoch, logs: rates.append(float(made.optimizer.learning_rate)))]
        history = made.fit(dataset(segments()), validation_data=dataset(segments(2)), callbacks=callbacks, epochs=9, verbose=0).history
        assert rates[:2] == [pytest.approx(1e-3), 0.0] and len(history["val_perplexity"]) < 9
        assert list((tmp_path / "logs" / "validation").glob("events*"))


class TestSaved:
    @pytest.mark.slow
    def test_nothing_of_memory_is_in_a_file(self, tmp_path):
        made = trainer()
        made.fit(dataset(segments(8)), verbose=0)
        assert [id(variable) for variable in made.variables] == [id(variable) for variable in made.model.variables]
        made.save_weights(tmp_path / "a.weights.h5")
        before = (tmp_path / "a.weights.h5").stat().st_size
        other = trainer()
        other.fit(dataset(segments(2)), verbose=0)
        other.save_weights(tmp_path / "b.weights.h5")
        assert (tmp_path / "b.weights.h5").stat().st_size == before

    @pytest.mark.slow
    @pytest.mark.parametrize("settings", [{}, {"jit_compile": True, "steps_per_execution": 2}])
    def test_in_a_fresh_process(self, tmp_path, settings):
        made = SegmentTrainer(tiny_model(cutoffs=(4, 7), div_val=2, proj_share_all_but_first=True), eval_mem_len=9)
        made.compile(keras.optimizers.Adam(WarmupCosine(1e-2, 2, 9), global_clipnorm=0.25), **settings)
        made.fit(dataset(segments()), verbose=0)
        made.save(tmp_path / "trainer.keras")
        expected = made.evaluate(dataset(segments(2)), verbose=0)
        made.fit(dataset(segments()), verbose=0)
        (tmp_path / "program.py").write_text(
            "import json, keras, txl_tf\n"
            "from txl_tf.segment_trainer import SegmentTrainer\n"
            "from testing.segments import dataset, segments\n"
            "made = keras.saving.load_model('trainer.keras')\n"
            "evaluated = made.evaluate(dataset(segments(2)), verbose=0)\n"
            "made.fit(dataset(segments()), verbose=0)\n"
            "print(json.dumps([evaluated, made._settings, [float(v.numpy().sum()) for v in made.variables]]))\n")
        ended = forks().run(tmp_path / "program.py", cwd=tmp_path, env={"PYTHONPATH": ""})
        assert ended.returncode == 0, ended.stderr
        evaluated, kept, sums = json.loads(ended.stdout.splitlines()[-1])
        np.testing.assert_allclose(evaluated, expected, rtol=1e-6)
        assert {name: kept[name] for name in settings} == settings
        np.testing.assert_allclose(sums, [float(variable.numpy().sum()) for variable in made.variables], rtol=1e-4, atol=1e-5)

    def test_config(self):
        made = SegmentTrainer(tiny_model(), eval_mem_len=9, name="mine")
        copy = SegmentTrainer.from_config(json.loads(json.dumps(made.get_config())))
        assert copy.get_config() == made.get_config() and dataclasses.asdict(copy.model.config) == dataclasses.asdict(made.model.config)


@pytest.fixture(scope="module")
def on_devices(tmp_path_factory):
    """Returns {number of devices: what fit computed there}."""
    folder, found = tmp_path_factory.mktemp("fit"), {}
    for devices in (1, 2):
        ended = forks().run("tests/testing/fit_cases.py", folder / f"{devices}.npz", cwd=folder, devices=devices)
        assert ended.returncode == 0, ended.stderr
        found[devices] = dict(np.load(folder / f"{devices}.npz"))
        assert found[devices]["replicas"] == devices
    return found


@pytest.mark.slow
class TestDevices:
    def test_a_step_of_gradient_descent(self, on_devices):
        one, two = on_devices[1], on_devices[2]
        moved = np.linalg.norm(one["after"] - one["before"])
        np.testing.assert_allclose(moved, 0.3, rtol=1e-4)  # it was clipped
        np.testing.assert_allclose(two["after"], one["after"], rtol=0, atol=1e-6)
        np.testing.assert_allclose(two["loss"], one["loss"], rtol=1e-6)

    @pytest.mark.parametrize("case", CASES)
    def test_epochs(self, on_devices, case):
        one, two = on_devices[1], on_devices[2]
        tolerance = 0.02 if case == "float16" else 1e-4
        names = [name for name in one if name.startswith(f"{case}/") and name != f"{case}/weights"]
        assert len(names) == 10
        for name in names:
            np.testing.assert_allclose(two[name], one[name], rtol=tolerance, atol=tolerance)
        assert one[f"{case}/hidden"].shape == (ROWS, 1, 7, 12) and one[f"{case}/iterations"] == 10

    def test_what_devices_can_not_do(self, on_devices):
        assert on_devices[1]["refused"].size == 0
        assert on_devices[2]["refused"].tolist() == [
            "The rows of training must be a multiple of the devices. Received: 7 rows, 2 devices, 0 steps",
            "steps_per_execution must be 1 on several devices, where Keras can't take more. Received: steps_per_execution=2, 2 devices, 0 steps"]
