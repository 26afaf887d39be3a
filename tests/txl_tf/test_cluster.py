"""A cluster is read as TF_CONFIG describes it; hosts wait for each other, and say for whom."""

import json
import socket
import threading

import pytest

import txl_tf.cluster
from txl_tf.cluster import Cluster


def free_ports(count):
    sockets = [socket.create_server(("localhost", 0)) for _ in range(count)]
    ports = [server.getsockname()[1] for server in sockets]
    for server in sockets:
        server.close()
    return ports


def cluster_on(ports, index):
    hosts = [f"localhost:{port}" for port in ports]
    return Cluster(json.dumps({"cluster": {"worker": hosts}, "task": {"type": "worker", "index": index}}))


def test_hosts_are_those_of_chief_and_workers():
    cluster = Cluster('{"cluster": {"worker": ["b:2", "[::1]:3"], "chief": ["a:1"]}, "task": {"type": "worker", "index": 1}}')
    assert cluster.hosts == {"chief 0": ("a", 1), "worker 0": ("b", 2), "worker 1": ("::1", 3)}
    assert cluster.own == "worker 1"


WORKERS = '"cluster": {"worker": ["a:1", "b:2"]}'


@pytest.mark.parametrize("text, reason", [
    ("no json", "Expecting value: line 1 column 1 (char 0)"),
    ("[]", "list indices must be integers or slices, not str"),
    ("{}", "no 'cluster'"),
    ('{"cluster": {}}', "no 'task'"),
    ('{"cluster": {}, "task": {}}', "cluster must be of workers, and a chief if need be, not empty"),
    ('{"cluster": {"ps": ["a:1"], "worker": ["b:2"]}, "task": {}}', "cluster must be of workers, and a chief if need be, not ps, worker"),
    ('{"cluster": {"chief": ["a:1", "b:2"]}, "task": {}}', "cluster must be of workers, and a chief if need be, not chief"),
    ('{"cluster": {"worker": ["a"]}, "task": {}}', "an address must be HOST:PORT, not a"),
    ('{"cluster": {"worker": ["a:0"]}, "task": {}}', "an address must be HOST:PORT, not a:0"),
    ('{"cluster": {"worker": ["a:65536"]}, "task": {}}', "an address must be HOST:PORT, not a:65536"),
    ('{"cluster": {"worker": ["a:1", "a:1"]}, "task": {}}', "every host must have an address of its own"),
    (f'{{{WORKERS}, "task": {{}}}}', "no 'type'"),
    (f'{{{WORKERS}, "task": {{"type": "worker", "index": 2}}}}', "task must be one of worker 0, worker 1, not worker 2"),
    (f'{{{WORKERS}, "task": {{"type": "chief", "index": 0}}}}', "task must be one of worker 0, worker 1, not chief 0"),
])
def test_what_is_no_cluster_is_refused(text, reason):
    with pytest.raises(ValueError) as error:
        Cluster(text)
    assert str(error.value).startswith('TF_CONFIG must be as {"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": ')
    assert str(error.value).endswith(f"({reason}). Received: TF_CONFIG={text}")


def test_one_host_waits_for_none(capsys):
    cluster_on(free_ports(1), 0).await_hosts()
    assert capsys.readouterr().out == ""


def test_hosts_that_come_one_after_the_other_find_each_other(capsys):
    ports, servers = free_ports(3), []

    def host(index):
        cluster_on(ports, index).await_hosts(30)
        servers.append(socket.create_server(("", ports[index])))  # as TensorFlow does

    hosts = [threading.Thread(target=host, args=(index,)) for index in range(3)]
    for thread in hosts:
        thread.start()
        thread.join(timeout=0.7)  # the next one comes later
    for thread in hosts:
        thread.join(timeout=20)
    assert len(servers) == 3
    for server in servers:
        server.close()
    said = capsys.readouterr().out
    assert f"worker 0 (localhost:{ports[0]}) waits for worker 1 (localhost:{ports[1]}): Connection refused, worker 2 " in said
    assert said.count(" waits for ") == 2 and said.count("all hosts answer\n") == 2


def test_hosts_that_never_come(monkeypatch, capsys):
    monkeypatch.setattr(txl_tf.cluster, "_REMINDER", 0.6)
    ports = free_ports(2)
    with pytest.raises(ConnectionError) as error:
        cluster_on(ports, 1).await_hosts(seconds=1.2)
    awaited = f"worker 0 (localhost:{ports[0]}): Connection refused"
    assert str(error.value) == f"Every host of TF_CONFIG must answer within 0.02 minutes. Received: nothing from {awaited}"
    assert capsys.readouterr().out == f"worker 1 (localhost:{ports[1]}) waits for {awaited}\n" * 2


def test_a_port_in_use_is_refused():
    with socket.create_server(("", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ValueError) as error:
            cluster_on([port, port + 1], 0).await_hosts()
    assert str(error.value) == f"The port of this host must be free (Address already in use). Received: worker 0 (localhost:{port})"
