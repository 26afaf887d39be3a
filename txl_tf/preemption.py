"""Being told to end, by the signal SIGTERM, as machines are before they are taken away."""

import contextlib
import signal

import tensorflow as tf

STATUS = 128 + signal.SIGTERM  # of a process that ended because it was told to


class Preemption:
    """Knows whether this process, or that of another host, was told to end.

    Args:
        strategy: the tf.distribute strategy.

    Example:
        preemption = Preemption(strategy)
        with preemption.awaited():
            while not preemption.is_told():
                work()
    """

    def __init__(self, strategy):
        self.strategy = strategy
        self._told = False

    @contextlib.contextmanager
    def awaited(self):
        """Handles the signal within a with block, where signals can be handled at all: in the main thread."""
        try:
            before = signal.signal(signal.SIGTERM, self._hear)
        except ValueError:
            before = None
        try:
            yield
        finally:
            if before is not None:
                signal.signal(signal.SIGTERM, before)

    def is_told(self):
        """Tells whether any host was told to end; all hosts must ask together."""
        if self.strategy.cluster_resolver is None or self.strategy.num_replicas_in_sync == 1:
            return self._told
        flags = self.strategy.experimental_distribute_values_from_function(lambda _: tf.constant(int(self._told)))
        return bool(self.strategy.reduce(tf.distribute.ReduceOp.SUM, flags, axis=None))

    def _hear(self, number, frame):
        del number, frame
        self._told = True
