"""One update: the same on 1, 2 and 4 devices, in parts, compiled, with its activations computed again, and in float16."""

import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.forks import forks
from testing.replica_cases import LENGTH, ROWS, STEPS, Case, batches
from txl_tf.config import TrainConfig
from txl_tf.optimization import for_summed_gradients, make_optimizer
from txl_tf.train_step import TrainStep, loss_and_gradients, update

DEVICES = (1, 2, 4)
SEVERAL_WAYS = (1, 2)  # the devices on which the variants ran


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """What 1, 2 and 4 devices computed: number of devices -> {name: array}."""
    folder = tmp_path_factory.mktemp("found")
    running = {count: forks().start("tests/testing/replica_cases.py", folder / f"{count}.npz", cwd=folder, devices=count)
               for count in DEVICES}
    for fork in running.values():
        assert fork.wait().returncode == 0, fork.stderr
    return {count: dict(np.load(folder / f"{count}.npz")) for count in DEVICES}


@pytest.fixture(scope="module")
def one_device():
    return tf.distribute.get_strategy()


@pytest.mark.slow
class TestDevices:
    def test_there_were_as_many(self, found):
        assert [int(found[count]["replicas"]) for count in DEVICES] == list(DEVICES)

    def test_one_step_of_gradient_descent(self, found):
        moved = np.linalg.norm(found[1]["sgd"] - found[1]["before"])
        assert found[1]["sgd_gradient_norm"][0] > 1.0 and moved == pytest.approx(0.3, rel=1e-4)  # clipped
        for count in DEVICES:
            np.testing.assert_allclose(found[count]["sgd"], found[1]["sgd"], rtol=0, atol=1e-6)

    def test_what_is_reported(self, found):
        for name in ("nll", "gradient_norm", "tokens", "learning_rate", "bad_step"):
            for count in DEVICES:
                np.testing.assert_allclose(found[count][f"sgd_{name}"], found[1][f"sgd_{name}"], rtol=1e-5)
        assert found[4]["sgd_tokens"] == ROWS * LENGTH and found[4]["sgd_bad_step"] == 0

    def test_twenty_steps_of_adam(self, found):
        assert found[1]["adam_tokens"].sum() == STEPS * ROWS * LENGTH and found[1]["adam_nll"][14] < 0.9 * found[1]["adam_nll"][0]
        for count in DEVICES:
            for name in ("nll", "gradient_norm", "learning_rate"):
                np.testing.assert_allclose(found[count][f"adam_{name}"], found[1][f"adam_{name}"], rtol=1e-4, atol=1e-6)
            np.testing.assert_allclose(*(found[each]["adam_nll"] / found[each]["adam_tokens"] for each in (count, 1)), rtol=0, atol=1e-4)

    def test_every_replica_has_the_memory_of_its_rows(self, found):
        for count in DEVICES:
            assert found[count]["memory_parts"].shape[:2] == (count, ROWS // count)
            np.testing.assert_allclose(np.concatenate(found[count]["memory_parts"]), found[1]["memory_parts"][0], rtol=0, atol=1e-5)
            np.testing.assert_allclose(found[count]["adam_memory_hidden"], found[1]["adam_memory_hidden"], rtol=0, atol=1e-3)
            np.testing.assert_array_equal(found[count]["adam_memory_length"], np.full(ROWS, 7))

    def test_rows_go_to_the_replicas_and_back(self, found):
        for count in DEVICES:
            for name in ("hidden", "length"):
                np.testing.assert_array_equal(found[count][f"scattered_{name}"], found[count][f"rows_{name}"])

    def test_evaluation(self, found):
        for count in DEVICES:
            np.testing.assert_allclose(found[count]["evaluated"], found[1]["evaluated"], rtol=1e-4)
        assert found[1]["evaluated"][1] == 4 * ROWS * LENGTH

    def test_in_parts_compiled_and_recomputed(self, found):
        for count in SEVERAL_WAYS:
            np.testing.assert_allclose(found[count]["compiled_parts"], found[1]["sgd"], rtol=0, atol=1e-6)
            np.testing.assert_allclose(found[count]["compiled_parts_nll"], found[1]["sgd_nll"], rtol=1e-5)
            np.testing.assert_allclose(found[count]["compiled_parts_memory"], found[1]["memory_parts"][0], rtol=0, atol=1e-5)

    def test_recomputed_with_dropout(self, found):
        for count in SEVERAL_WAYS:
            np.testing.assert_allclose(found[count]["remat"], found[count]["dropping"], rtol=1e-6)
        assert abs(found[2]["dropping"] - found[1]["dropping"]).min() > 1e-3  # replicas drop each its own

    def test_each_share_clipped(self, found, one_device):
        """By hand: the gradient of each replica's share, clipped, then added."""
        case = Case(one_device, for_summed_gradients(keras.optimizers.SGD(1.0)))
        tokens, count = batches()[0], ROWS * LENGTH
        for devices in SEVERAL_WAYS:
            total, norms = 0.0, []
            for rows in np.split(tokens, devices):
                _, gradients, _ = loss_and_gradients(case.model, tf.constant(rows[:, :-1]), tf.constant(rows[:, 1:]),
                                                     case.model.initial_memory(len(rows)), 1.0 / count)
                flat = np.concatenate([gradient.numpy().ravel() for gradient in gradients])
                norms.append(np.linalg.norm(flat))
                total = total + flat * min(1.0, 0.3 / norms[-1])
            np.testing.assert_allclose(found[devices]["replica"], case.weights() - total, rtol=0, atol=2e-6)
            assert found[devices]["replica_norm"][0] == pytest.approx(np.mean(norms), rel=1e-5)
        assert abs(found[2]["replica"] - found[1]["replica"]).max() > 1e-3


class TestParts:
    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("parts", [2, 4])
    @pytest.mark.parametrize("memory_start", ["empty", "zeros"])
    def test_gradients_and_memory_rows(self, one_device, parts, memory_start):
        case = Case(one_device)
        rows = [tf.constant(batches()[0][:, :-1]), tf.constant(batches()[0][:, 1:])]
        memory = {"hidden": tf.random.stateless_normal((ROWS, 1, 7, 12), (1, 2)), "length": tf.range(ROWS)}
        whole, cut = (tf.function(loss_and_gradients)(case.model, *rows, memory, None, count) for count in (1, parts))
        np.testing.assert_allclose(cut[0], whole[0], rtol=1e-6)
        for ours, theirs in zip(cut[1], whole[1], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
        for name in memory:
            np.testing.assert_allclose(cut[2][name], whole[2][name], rtol=1e-6, atol=1e-6)

    @pytest.mark.parametrize("rows, batch_chunk", [(7, 2), (4, 3)])
    def test_rows_that_do_not_divide_are_refused(self, one_device, rows, batch_chunk):
        model, config = Case(one_device).model, TrainConfig(batch_chunk=batch_chunk)
        with pytest.raises(ValueError, match=f"multiple of the devices times batch_chunk. Received: train_batch_size={rows}, 1 devices, "
                                             f"batch_chunk={batch_chunk}"):
            TrainStep(model, make_optimizer(config), one_device, config, rows)


class TestFloat16:
    @pytest.mark.slow
    def test_in_range_it_trains_as_float32(self, one_device):
        case, other = Case(one_device, precision="mixed_float16"), Case(one_device)
        found, expected = (each.outcomes(*[1] * STEPS) for each in (case, other))
        np.testing.assert_allclose(found["nll"], expected["nll"], rtol=0.02)
        np.testing.assert_allclose(found["gradient_norm"][:5], expected["gradient_norm"][:5], rtol=0.05)
        assert not found["bad_step"].any()
        assert [int(variable) for variable in case.step.loss_scale.values()] == [2 ** 15, STEPS]
        assert int(case.optimizer.iterations) == STEPS

    def test_an_overflow_halves_the_scale_and_leaves_the_update_out(self, one_device):
        case = Case(one_device, precision="mixed_float16")
        case.step.loss_scale["scale"].assign(2.0 ** 40)
        before = [variable.numpy() for variable in (*case.model.variables, *case.optimizer.variables)]
        outcome = case.outcomes(3)
        assert not np.isfinite(outcome["gradient_norm"][0]) and np.isfinite(outcome["nll"][0]) and outcome["bad_step"][0] == 0
        for variable, value in zip((*case.model.variables, *case.optimizer.variables), before, strict=True):
            np.testing.assert_array_equal(variable, value)
        assert [float(variable) for variable in case.step.loss_scale.values()] == [2.0 ** 37, 0]

    def test_the_scale_grows_after_many_steps(self, one_device):
        case = Case(one_device, precision="mixed_float16")
        case.step.loss_scale["good_steps"].assign(1_998)
        scales = []
        for _ in range(3):
            case.outcomes(1)
            scales.append([float(variable) for variable in case.step.loss_scale.values()])
        assert scales == [[2.0 ** 15, 1_999], [2.0 ** 16, 0], [2.0 ** 16, 1]]

    def test_a_loss_that_is_not_finite_is_bad_whatever_the_scale(self, one_device):
        case = Case(one_device, precision="mixed_float16")
        variable = case.model.trainable_variables[0]
        variable.assign(tf.fill(variable.shape, np.nan))
        assert case.outcomes(3)["bad_step"] == 1

    def test_an_overflow_at_the_lowest_scale_is_bad(self, one_device):
        case = Case(one_device, precision="mixed_float16")
        case.step.loss_scale["scale"].assign(1.0)
        gradients = case.step._replica_gradients
        case.step._replica_gradients = lambda *batch: (lambda loss, norm, *rest: (loss, norm * np.inf, *rest))(*gradients(*batch))
        assert case.outcomes(2)["bad_step"] == 1 and float(case.step.loss_scale["scale"]) == 1.0


class TestRun:
    def test_the_first_update_that_is_bad_is_named(self, one_device):
        case = Case(one_device)
        case.outcomes(2)
        case.model.trainable_variables[0].assign(tf.fill(case.model.trainable_variables[0].shape, np.inf))
        assert case.outcomes(3)["bad_step"] == 1
        assert Case(one_device).outcomes(4)["bad_step"] == 0

    def test_one_trace_serves_every_number_of_steps_and_every_pass(self, one_device):
        case = Case(one_device)
        for count in (1, 3, 2):
            case.outcomes(count)
        case.iterator = Case(one_device).iterator
        case.outcomes(2)
        assert case.step.run.experimental_get_tracing_count() == 1

    @pytest.mark.slow
    def test_many_updates_a_call_are_those_one_by_one(self, one_device):
        together, apart = Case(one_device).outcomes(5), Case(one_device).outcomes(*[1] * 5)
        assert together["nll"][0] == pytest.approx(apart["nll"].sum(), rel=1e-6)
        assert [together[name][0] for name in ("gradient_norm", "learning_rate")] == [apart[name][4] for name in ("gradient_norm", "learning_rate")]

    def test_the_memory_starts_anew_when_told_so(self, one_device):
        case = Case(one_device)
        case.outcomes(1)
        assert case.step.memory.variables["length"].numpy().tolist() == [LENGTH] * ROWS
        case.step.memory.reset()
        assert case.step.memory.variables["length"].numpy().tolist() == [0] * ROWS

    def test_update_is_the_step_on_one_device(self, one_device):
        case, other = Case(one_device, clip=0.3), Case(one_device)
        outcome = case.outcomes(1)
        loss, norm, memory = update(other.model, other.optimizer, 0.3, batches()[0][:, :-1], batches()[0][:, 1:], other.model.initial_memory(ROWS))
        assert float(loss) * ROWS * LENGTH == pytest.approx(outcome["nll"][0], rel=1e-5)
        assert float(norm) == pytest.approx(outcome["gradient_norm"][0], rel=1e-5)
        np.testing.assert_allclose(case.weights(), other.weights(), rtol=0, atol=1e-6)
        np.testing.assert_allclose(case.step.memory.variables["hidden"], memory["hidden"], rtol=0, atol=1e-5)


@pytest.mark.slow
def test_recomputing_takes_less_memory(tmp_path):
    """Temporary memory of the compiled step, as XLA reports it."""
    megabytes = {}
    for remat in ("0", "1"):
        (tmp_path / remat).mkdir()
        ended = forks().run("tests/testing/compiled_step.py", remat, cwd=tmp_path, env={"XLA_FLAGS": f"--xla_dump_to={tmp_path / remat}"})
        assert ended.returncode == 0, ended.stderr
        report = max((tmp_path / remat).glob("*memory-usage-report*"), key=lambda path: path.stat().st_size).read_text()
        megabytes[remat] = float(re.search(r"([\d.]+)MiB, preallocated-temp", report)[1])
    assert megabytes["1"] < 0.6 * megabytes["0"], megabytes


def test_the_same_seed_gives_the_same_losses(one_device):
    first, second = (Case(one_device, dropout=0.3).outcomes(*[1] * 5)["nll"] for _ in range(2))
    np.testing.assert_array_equal(first, second)
    keras.utils.set_random_seed(1)
