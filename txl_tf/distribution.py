"""The devices that a run trains on, as a tf.distribute strategy, and rows of the data that stay with their replica."""

import functools
import os
import socket
import urllib.parse

import tensorflow as tf

from txl_tf.cluster import Cluster


def device_strategy(num_core_per_host=None, num_hosts=1):
    """Returns the strategy for this host's GPUs, or its CPUs where there is no GPU; over several hosts where TF_CONFIG names them.

    Args:
        num_core_per_host: how many of them; None: all that are visible.
        num_hosts: how many hosts there must be, if more than 1.

    Raises:
        ValueError: if there are not so many, or TF_CONFIG does not say what it must.
        ConnectionError: if other hosts do not come.
    """
    cluster = Cluster(os.environ["TF_CONFIG"]) if os.environ.get("TF_CONFIG") else None
    check_num_hosts(num_hosts, len(cluster.hosts) if cluster else 1)
    found = tf.config.list_physical_devices if cluster else tf.config.list_logical_devices  # no device may be in use before
    kind = "GPU" if found("GPU") else "CPU"
    devices = found(kind)
    count = len(devices) if num_core_per_host is None else num_core_per_host
    if not 1 <= count <= len(devices):
        raise ValueError(f"num_core_per_host must be from 1 to {len(devices)}, the {kind}s that are visible. "
                         f"Received: num_core_per_host={num_core_per_host}")
    if cluster:
        tf.config.set_visible_devices(devices[:count], kind)
        cluster.await_hosts()
        return _multi_worker_strategy()
    return tf.distribute.get_strategy() if count == 1 else tf.distribute.MirroredStrategy([device.name for device in devices[:count]])


def check_num_hosts(num_hosts, found):
    """Raises ValueError unless there are as many hosts as the setting says; 1, its default, is any number."""
    if num_hosts not in (1, found):
        raise ValueError(f"num_hosts must be that of the cluster, {found}. Received: num_hosts={num_hosts}")


def _multi_worker_strategy():
    try:
        return tf.distribute.MultiWorkerMirroredStrategy()
    except (ValueError, RuntimeError, tf.errors.OpError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"The hosts of TF_CONFIG must connect to each other ({reason}). Received: TF_CONFIG={os.environ['TF_CONFIG']}") from error


def tpu_strategy(tpu=None, tpu_zone=None, gcp_project=None):
    """Returns the strategy for a TPU: that of this virtual machine, a named one, or a pod.

    Args:
        tpu: its name or address; None: what the environment says, "local" on a TPU virtual machine.
        tpu_zone, gcp_project: where it is; None: as this machine.

    Raises:
        ValueError: if there is no such TPU.
    """
    try:
        resolver = tf.distribute.cluster_resolver.TPUClusterResolver(tpu=tpu, zone=tpu_zone, project=gcp_project)
        _knock(resolver.master())
        tf.config.experimental_connect_to_cluster(resolver)
        tf.tpu.experimental.initialize_tpu_system(resolver)
        return tf.distribute.TPUStrategy(resolver)
    except (ValueError, TypeError, OSError, tf.errors.OpError) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise ValueError(f"A TPU must be reachable: --tpu, or TPU_NAME in the environment, or tpu=local on its virtual machine "
                         f"({reason}). Received: tpu={tpu}, tpu_zone={tpu_zone}, gcp_project={gcp_project}") from error


def _knock(address):
    """Raises OSError if nothing answers at a grpc:// address, where TensorFlow would wait for ever."""
    if address.startswith("grpc://"):
        place = urllib.parse.urlsplit(address)
        socket.create_connection((place.hostname, place.port), timeout=30).close()


def is_on_cpu():
    """Tells whether this program works on CPUs alone."""
    return not tf.config.list_logical_devices("GPU") and not tf.config.list_logical_devices("TPU")


def number_of_hosts(strategy):
    """Returns how many hosts train together, each with a program or, for a TPU pod, with an input pipeline of its own."""
    if isinstance(strategy, tf.distribute.TPUStrategy):
        return strategy.extended.num_hosts
    if strategy.cluster_resolver is None:
        return 1
    cluster = strategy.cluster_resolver.cluster_spec().as_dict()
    return sum(len(cluster.get(job, ())) for job in ("chief", "worker"))


def is_chief(strategy):
    """Tells whether this program is the one of all hosts that writes and reports."""
    resolver = strategy.cluster_resolver
    if isinstance(strategy, tf.distribute.TPUStrategy) or resolver is None or not resolver.task_type:
        return True
    return resolver.task_type == "chief" or (resolver.task_id == 0 and "chief" not in resolver.cluster_spec().as_dict())


def replica_batches(strategy, host_dataset):
    """Returns a distributed dataset whose rows stay with their replica, replica r with the r-th part of the rows of all hosts.

    Args:
        strategy: the strategy.
        host_dataset: function of the host's number to its dataset of (token_ids, labels), (rows of the host, T).

    Raises:
        ValueError: if the rows of a host are no multiple of its replicas.
    """
    def parts(context):
        count = context.num_replicas_in_sync // context.num_input_pipelines
        dataset = host_dataset(context.input_pipeline_id)
        rows, length = dataset.element_spec[0].shape
        if rows % count:
            raise ValueError(f"The rows of a batch must be a multiple of the devices, for each to get as many. Received: "
                             f"{rows * context.num_input_pipelines} rows, {context.num_replicas_in_sync} devices")
        if count == 1:
            return dataset

        def cut(*pair):
            pair = tuple(tf.reshape(tensor, (count, rows // count, length or tf.shape(tensor)[1])) for tensor in pair)
            return tf.data.Dataset.from_tensor_slices(pair)

        return dataset.flat_map(cut).prefetch(2 * count)

    return strategy.distribute_datasets_from_function(parts)


def gathered(strategy, variables):
    """Returns the rows that all replicas hold in per-replica variables, in order, as numpy arrays: name -> (B, ...)."""
    values = _read(strategy, variables)
    if number_of_hosts(strategy) > 1:
        return {name: strategy.gather(value, axis=0).numpy() for name, value in values.items()}
    return {name: tf.concat(strategy.experimental_local_results(value), axis=0).numpy() for name, value in values.items()}


def scatter(strategy, variables, rows):
    """Gives every replica's variables its part of the rows of all: name -> (B, ...)."""
    def part(context):
        count, number = context.num_replicas_in_sync, context.replica_id_in_sync_group
        return {name: tf.convert_to_tensor(value[len(value) // count * number:len(value) // count * (number + 1)])
                for name, value in rows.items()}

    @tf.function
    def assign(values):
        strategy.run(lambda own: [variables[name].assign(own[name]) for name in variables], args=(values,))

    assign(strategy.experimental_distribute_values_from_function(part))


def replica_variables(values):
    """Returns variables, made under a strategy's scope, of which every replica has its own: name -> variable."""
    return {name: tf.Variable(value, trainable=False, synchronization=tf.VariableSynchronization.ON_READ,
                              aggregation=tf.VariableAggregation.NONE, name=f"memory_{name}") for name, value in values.items()}


def sum_over_replicas(values):
    """Returns the sum of a structure of tensors over all replicas; within strategy.run."""
    context = tf.distribute.get_replica_context()
    return values if context.num_replicas_in_sync == 1 else context.all_reduce(tf.distribute.ReduceOp.SUM, values)


def compiled_on_each_replica(function):
    """Returns a function compiled by XLA, for use within strategy.run: a program for each replica, which has variables of its own."""
    programs = {}

    def call(*arguments):
        replica = tf.distribute.get_replica_context().replica_id_in_sync_group
        number = replica if isinstance(replica, int) else int(tf.get_static_value(replica))
        if number not in programs:
            programs[number] = tf.function(function, jit_compile=True, reduce_retracing=True)
        return programs[number](*arguments)

    return call


def _read(strategy, variables):
    def values():
        return {name: tf.identity(variable) for name, variable in variables.items()}

    return tf.function(functools.partial(strategy.run, values), autograph=False)()  # of a def's programs TensorFlow would warn together
