"""The hosts that train together, as TF_CONFIG names them: checked and waited for, which TensorFlow does without a word."""

import json
import os
import socket
import time

from txl_tf.faults import say

_EXAMPLE = '{"cluster": {"worker": ["host0:2222", "host1:2222"]}, "task": {"type": "worker", "index": 0}}'
_JOBS = ("chief", "worker")  # of hosts that train
_PATIENCE = 600  # seconds; after that hosts count as lost
_KNOCK = 5  # seconds that a host has to answer
_PAUSE = 0.5  # seconds between two rounds of knocking
_REMINDER = 60  # seconds between two lines about the same hosts


class Cluster:
    """The hosts that train together, and the one that this is.

    Args:
        text: what TF_CONFIG says, as JSON.

    Attributes:
        hosts: {"worker 0": ("host0", 2222), ...}.
        own: name of this host.

    Raises:
        ValueError: if the text names no cluster of chief and workers, or no task in it.

    Example:
        cluster = Cluster(os.environ["TF_CONFIG"])
        cluster.await_hosts()
    """

    def __init__(self, text):
        try:
            self.hosts, self.own = _hosts_and_task(json.loads(text))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            reason = f"no {error}" if isinstance(error, KeyError) else error
            raise ValueError(f"TF_CONFIG must be as {_EXAMPLE} ({reason}). Received: TF_CONFIG={text}") from error

    def await_hosts(self, seconds=_PATIENCE):
        """Waits until all other hosts answer, and says which do not yet: at once, and again every minute.

        Until then this host answers at its own port, as TensorFlow's server does afterwards.

        Raises:
            ValueError: if the port is in use.
            ConnectionError: if a host does not answer for so long.
        """
        missing, since, said = [name for name in self.hosts if name != self.own], time.monotonic(), None
        with self._listening() as server:
            while missing := {name: reason for name in missing if (reason := self._knock(name))}:
                waited = time.monotonic() - since
                awaited = ", ".join(f"{self._described(name)}: {reason}" for name, reason in missing.items())
                if waited >= seconds:
                    raise ConnectionError("Every host of TF_CONFIG must answer within "
                                          f"{seconds / 60:g} minutes. Received: nothing from {awaited}")
                if said is None or waited >= said + _REMINDER:
                    say(f"{self._described(self.own)} waits for {awaited}")
                    said = waited
                _answer(server)
        if said is not None:
            say("all hosts answer")

    def _listening(self):
        """Returns a socket that listens at this host's port, on all of its addresses."""
        both = socket.has_dualstack_ipv6()
        try:
            return socket.create_server(("", self.hosts[self.own][1]), dualstack_ipv6=both,
                                        family=socket.AF_INET6 if both else socket.AF_INET)
        except OSError as error:
            raise ValueError(f"The port of this host must be free ({os.strerror(error.errno)}). Received: {self._described(self.own)}") from error

    def _knock(self, name):
        """Returns why a host does not answer; None if it does."""
        try:
            socket.create_connection(self.hosts[name], timeout=_KNOCK).close()
        except OSError as error:
            return error.strerror or str(error)
        return None

    def _described(self, name):
        host, port = self.hosts[name]
        return f"{name} ({host}:{port})"


def _hosts_and_task(config):
    """Returns the attributes of a Cluster."""
    jobs, task = config["cluster"], config["task"]
    if not jobs or set(jobs) - set(_JOBS) or len(jobs.get("chief", ())) > 1:
        raise ValueError(f"cluster must be of workers, and a chief if need be, not {', '.join(jobs) or 'empty'}")
    hosts = {f"{job} {index}": _address(place) for job in _JOBS for index, place in enumerate(jobs.get(job, ()))}
    if len(set(hosts.values())) < len(hosts):
        raise ValueError("every host must have an address of its own")
    own = f"{task['type']} {task['index']}"
    if own not in hosts:
        raise ValueError(f"task must be one of {', '.join(hosts)}, not {own}")
    return hosts, own


def _address(place):
    host, _, port = place.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 2 ** 16:
        raise ValueError(f"an address must be HOST:PORT, not {place}")
    return host.strip("[]"), int(port)


def _answer(server):
    """Answers a host that knocks, or pauses."""
    server.settimeout(_PAUSE)
    try:
        server.accept()[0].close()
    except TimeoutError:
        pass
