"""What a run needs to go on exactly where it stopped, in checkpoints."""

import logging
import os

import numpy as np
import tensorflow as tf

from txl_tf.distribution import gathered, is_chief, scatter

_FOLDER, _NAME = "checkpoints", "step"
_APART = 1_000_003  # between the random seeds of one replica and the next


class RunState:
    """The state of a run: weights, optimizer, step, memory of all rows, random state, loss scale.

    The memory is kept as that of the whole batch in the order of its rows, so that another number of replicas can go on
    with it. Random state is that of replica 0, from which those of the others follow. The first host writes; all read.

    Args:
        model_dir: folder of the run, here or at any address that tf.io.gfile opens.
        strategy: the tf.distribute strategy.
        model: a TransformerXLLM.
        optimizer: its optimizer, built.
        train_step: a TrainStep.
        keep: how many checkpoints are kept, the newest ones.
        save_memory: whether the memory is saved; if not, a run goes on with an empty one.

    Raises, from `restore`:
        ValueError: if there are checkpoints, but none that can be read and fits.

    Example:
        state = RunState("runs/mine", strategy, model, optimizer, train_step, keep=2, save_memory=True)
        step = state.restore()
        state.save(step + 100)
    """

    def __init__(self, model_dir, strategy, model, optimizer, train_step, keep, save_memory):
        self.model_dir, self.strategy, self.model, self.optimizer = model_dir, strategy, model, optimizer
        self.train_step, self.keep, self.save_memory = train_step, keep, save_memory
        self.spread_seeds()

    @property
    def memory_bytes(self):
        """Bytes of the memory of all rows, which every checkpoint holds if the memory is saved."""
        return self.strategy.num_replicas_in_sync * sum(
            variable.dtype.size * int(np.prod(variable.shape)) for variable in self.train_step.memory.values())

    def save(self, step):
        """Writes a checkpoint; all hosts must call this together."""
        memory = gathered(self.strategy, self.train_step.memory) if self.save_memory else {}
        if is_chief(self.strategy):
            with tf.device("CPU:0"):
                state = self._checkpoint(tf.Variable(step, dtype=tf.int64), memory)
            manager = tf.train.CheckpointManager(
                state, os.path.join(self.model_dir, _FOLDER), max_to_keep=self.keep, checkpoint_name=_NAME)
            manager.save(checkpoint_number=step)

    def restore(self):
        """Reads the newest checkpoint that can be read, and returns its step; 0 if there is none."""
        for path in reversed(self.checkpoints()):
            try:
                return self.read(path)
            except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
                reason = (str(error).splitlines() or [type(error).__name__])[0]
                logging.warning("%s can't be read (%s); the checkpoint before it is tried.", path, reason)
        if self.checkpoints():
            raise ValueError(f"model_dir must hold a checkpoint of this model that can be read. Received: model_dir={self.model_dir}, whose "
                             f"newest can't be ({reason})")
        return 0

    def checkpoints(self):
        """Returns the paths of the checkpoints, the newest last."""
        found = tf.io.gfile.glob(os.path.join(self.model_dir, _FOLDER, f"{_NAME}-*.index"))
        return sorted((path.removesuffix(".index") for path in found), key=lambda path: int(path.rpartition("-")[2]))

    def spread_seeds(self):
        """Gives every replica random state of its own, from that of replica 0."""
        for variable in self._seeds():
            components = self.strategy.experimental_local_results(variable)
            numbers = self._local_replica_numbers()
            first = components[0].numpy()
            for number, component in zip(numbers, components):
                component.assign([first[0] + _APART * number, first[1]])

    def _local_replica_numbers(self):
        numbers = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(context.replica_id_in_sync_group))
        return [int(number) for number in self.strategy.experimental_local_results(numbers)]

    def _seeds(self):
        return [variable.value for variable in self.model.variables if variable.path.endswith("seed_generator_state")]

    def read(self, path):
        """Reads one checkpoint and returns its step."""
        step = tf.Variable(0, dtype=tf.int64)
        self._checkpoint(step).read(path).assert_existing_objects_matched()
        self.spread_seeds()
        reader = tf.train.load_checkpoint(path)
        names = {name: f"memory_{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in self.train_step.memory}
        if self.save_memory and all(reader.has_tensor(stored) for stored in names.values()):
            scatter(self.strategy, self.train_step.memory, {name: reader.get_tensor(stored) for name, stored in names.items()})
        return int(step)

    def _checkpoint(self, step, memory=None):
        return tf.train.Checkpoint(
            model=[variable.value for variable in self.model.variables],
            optimizer=[variable.value for variable in self.optimizer.variables], step=step, **self.train_step.loss_scale,
            **{f"memory_{name}": tf.Variable(value) for name, value in (memory or {}).items()})
