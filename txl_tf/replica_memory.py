"""The memory of a batch's rows, of which every replica keeps its own."""

import functools

import tensorflow as tf

from txl_tf.distribution import gathered, replica_variables, scatter


class ReplicaMemory:
    """Holds the memory of B rows between steps: replica r of R that of rows r B / R to (r + 1) B / R.

    Args:
        model: a TransformerXLLM, made under the strategy's scope.
        strategy: a tf.distribute strategy.
        rows: B, a multiple of its replicas.
        mem_len: slots M; None: the model's.

    Attributes:
        rows, mem_len: as given.
        variables: name -> variable, of which every replica has its own, {"hidden": (B / R, L, M, D), "length": (B / R,)}.

    Example:
        memory = ReplicaMemory(model, strategy, rows=32)
        memory.reset()
    """

    def __init__(self, model, strategy, rows, mem_len=None):
        self.strategy, self.rows, self.mem_len = strategy, rows, mem_len
        self._initial = functools.partial(model.initial_memory, rows // strategy.num_replicas_in_sync, mem_len)
        with strategy.scope():
            self.variables = replica_variables(self._initial())
        self._reset = tf.function(functools.partial(strategy.run, self._begin), autograph=False)

    def read(self):
        """Returns the replica's memory; within strategy.run."""
        return {name: tf.identity(variable) for name, variable in self.variables.items()}

    def keep(self, memory):
        """Takes the replica's memory after a segment; within strategy.run."""
        for name, variable in self.variables.items():
            variable.assign(memory[name])

    def _begin(self):
        self.keep(self._initial())

    def reset(self):
        """Gives all rows the memory before the first token."""
        self._reset()

    def gathered(self):
        """Returns the memory of all rows in order as numpy arrays, {"hidden": (B, L, M, D), "length": (B,)}."""
        return gathered(self.strategy, self.variables)

    def scatter(self, rows):
        """Takes the memory of all rows in order."""
        scatter(self.strategy, self.variables, rows)
