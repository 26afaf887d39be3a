"""Devices are chosen or refused by name; rows stay in order. What several devices compute is in test_train_step.py."""

import numpy as np
import pytest
import tensorflow as tf

from txl_tf.distribution import device_strategy, gathered, is_chief, number_of_hosts, replica_batches, replica_variables, scatter, tpu_strategy


class Resolver:
    """What a strategy knows of its cluster."""

    def __init__(self, cluster, task_type, task_id):
        self.cluster, self.task_type, self.task_id = cluster, task_type, task_id

    def cluster_spec(self):
        return tf.train.ClusterSpec(self.cluster)


class Strategy:
    """As much of a strategy as is asked about hosts."""

    def __init__(self, *task):
        self.cluster_resolver = Resolver(*task) if task else None


def test_one_device_needs_no_strategy():
    for count in (None, 1):
        strategy = device_strategy(count)
        assert strategy is tf.distribute.get_strategy() and strategy.num_replicas_in_sync == 1
    assert is_chief(strategy) and number_of_hosts(strategy) == 1


@pytest.mark.parametrize("count", [0, 2, 99])
def test_more_devices_than_there_are_are_refused(count):
    with pytest.raises(ValueError, match=f"^num_core_per_host must be from 1 to 1, the CPUs that are visible. Received: num_core_per_host={count}$"):
        device_strategy(count)


@pytest.mark.parametrize("text", ["no json", '{"cluster": {"worker": ["localhost:1"]}, "task": {"type": "worker", "index": 3}}'])
def test_a_cluster_that_is_none_is_refused(monkeypatch, text):
    monkeypatch.setenv("TF_CONFIG", text)
    monkeypatch.setattr(tf.config, "set_visible_devices", lambda *_: None)
    with pytest.raises(ValueError) as error:
        device_strategy()
    assert str(error.value).startswith("TF_CONFIG must") and str(error.value).endswith(f"Received: TF_CONFIG={text}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("cluster, task, chief, hosts", [
    ({"worker": ["a:1", "b:1"]}, ("worker", 0), True, 2),
    ({"worker": ["a:1", "b:1"]}, ("worker", 1), False, 2),
    ({"chief": ["a:1"], "worker": ["b:1", "c:1"]}, ("chief", 0), True, 3),
    ({"chief": ["a:1"], "worker": ["b:1", "c:1"]}, ("worker", 0), False, 3),
], ids=str)
def test_the_host_that_writes(cluster, task, chief, hosts):
    strategy = Strategy(cluster, *task)
    assert (is_chief(strategy), number_of_hosts(strategy)) == (chief, hosts)


def test_no_tpu_is_refused_by_what_was_looked_for(monkeypatch):
    class NoResolver:
        def __init__(self, **_):
            raise ValueError("Please provide a TPU Name to connect to.\nMore.")

    monkeypatch.setattr(tf.distribute.cluster_resolver, "TPUClusterResolver", NoResolver)
    with pytest.raises(ValueError) as error:
        tpu_strategy("mine", "here", "ours")
    message = str(error.value)
    assert "\n" not in message and "provide a TPU Name" in message and "Received: tpu=mine, tpu_zone=here, gcp_project=ours" in message


def test_batches_on_one_device_are_the_data():
    data = np.arange(24).reshape(3, 2, 4)

    def host_dataset(host):
        assert host == 0
        return tf.data.Dataset.from_tensor_slices((data, data + 1))

    found = list(replica_batches(tf.distribute.get_strategy(), host_dataset))
    assert len(found) == 3
    for (ids, labels), expected in zip(found, data):
        np.testing.assert_array_equal(ids, expected)
        np.testing.assert_array_equal(labels, expected + 1)


def test_rows_are_written_and_read():
    strategy = tf.distribute.get_strategy()
    variables = replica_variables({"a": tf.zeros((4, 2)), "b": tf.zeros((4,), tf.int32)})
    rows = {"a": np.arange(8, dtype=np.float32).reshape(4, 2), "b": np.arange(4, dtype=np.int32)}
    scatter(strategy, variables, rows)
    for name, values in gathered(strategy, variables).items():
        np.testing.assert_array_equal(values, rows[name])
