"""What a run needs to go on exactly where it stopped, in checkpoints."""

import logging
import os
import re

import numpy as np
import tensorflow as tf

from txl_tf.distribution import is_chief
from txl_tf.faults import writing

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
            variable.dtype.size * int(np.prod(variable.shape)) for variable in self.train_step.memory.variables.values())

    def save(self, step):
        """Writes a checkpoint; all hosts must call this together. Raises OSError if it can't be written; those before it stay."""
        memory = self.train_step.memory.gathered() if self.save_memory else {}
        if is_chief(self.strategy):
            with tf.device("CPU:0"):
                state = self._checkpoint(tf.Variable(step, dtype=tf.int64), memory)
            with writing(self.model_dir):
                self._write(state, step)

    def _write(self, state, step):
        kept = None
        try:
            self._list_what_is_there(step)
            manager = tf.train.CheckpointManager(state, self._folder, max_to_keep=self.keep, checkpoint_name=_NAME)
            manager.save(checkpoint_number=step)
            kept = [path for path in manager.checkpoints if step_of(path) <= step]
        finally:
            if tf.io.gfile.isdir(self._folder):
                self._remove_leftovers(set(map(step_of, self.checkpoints() if kept is None else kept)))

    def restore(self):
        """Reads the newest checkpoint that can be read, and returns its step; 0 if there is none."""
        for path in reversed(self.checkpoints()):
            step = self.read(path)
            if step is not None:
                return step
        if self.checkpoints():
            raise ValueError("model_dir must hold a checkpoint of this model that can be read. Received: "
                             f"model_dir={self.model_dir}, whose newest can't be ({self._reason(self.checkpoints()[-1])})")
        return 0

    def read(self, path):
        """Reads one checkpoint and returns its step; None, after a warning, if it is damaged or of another model."""
        reason = self._reason(path)
        if reason is not None:
            logging.warning("%s is left out, for it can't be read (%s).", path, reason)
            return None
        return step_of(path)

    def checkpoints(self):
        """Returns the paths of the checkpoints, the newest last."""
        return checkpoint_paths(self.model_dir)

    @property
    def _folder(self):
        return os.path.join(self.model_dir, _FOLDER)

    def _list_what_is_there(self, step):
        """Tells the manager of all checkpoints before a step: a killed run may have left one out, others are damaged."""
        paths = [path for path in self.checkpoints() if step_of(path) < step]
        if paths:
            tf.compat.v1.train.update_checkpoint_state(self._folder, paths[-1], paths, all_model_checkpoint_timestamps=[1.0] * len(paths))

    def _remove_leftovers(self, kept):
        """Removes what killed runs have left of checkpoints, and those that this run went back behind."""
        for name in tf.io.gfile.listdir(self._folder):
            name = name.rstrip("/")
            found = re.match(rf"{_NAME}-(\d+)", name)
            if name.startswith("checkpoint.tmp") or found and (int(found[1]) not in kept or "temp" in name):
                path = os.path.join(self._folder, name)
                (tf.io.gfile.rmtree if tf.io.gfile.isdir(path) else tf.io.gfile.remove)(path)

    def spread_seeds(self):
        """Gives every replica random state of its own, from that of replica 0."""
        numbers = self._local_replica_numbers()
        for variable in self._seeds():
            components = self.strategy.experimental_local_results(variable)
            first = components[0].numpy()
            for number, component in zip(numbers, components):
                component.assign([first[0] + _APART * number, first[1]])

    def _local_replica_numbers(self):
        numbers = self.strategy.experimental_distribute_values_from_function(
            lambda context: tf.constant(context.replica_id_in_sync_group))
        return [int(number) for number in self.strategy.experimental_local_results(numbers)]

    def _seeds(self):
        return [variable.value for variable in self.model.variables if variable.path.endswith("seed_generator_state")]

    def _reason(self, path):
        """Reads one checkpoint and returns why that can't be done, or None."""
        try:
            return self._read(path)
        except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
            return (str(error).splitlines() or [type(error).__name__])[0]

    def _read(self, path):
        reader = _reader(path)
        scaled = reader.has_tensor("scale/.ATTRIBUTES/VARIABLE_VALUE")  # not if an evaluation has another precision than the training
        self._checkpoint(tf.Variable(0, dtype=tf.int64), scaled=scaled).read(path).assert_existing_objects_matched()
        self.spread_seeds()
        names = {name: f"memory_{name}/.ATTRIBUTES/VARIABLE_VALUE" for name in self.train_step.memory.variables}
        if self.save_memory and all(reader.has_tensor(stored) for stored in names.values()):
            self.train_step.memory.scatter({name: reader.get_tensor(stored) for name, stored in names.items()})

    def _checkpoint(self, step, memory=None, scaled=True):
        return tf.train.Checkpoint(
            model=weights_of(self.model), seeds=self._seeds(),
            optimizer=[variable.value for variable in self.optimizer.variables], step=step,
            **(self.train_step.loss_scale if scaled else {}),
            **{f"memory_{name}": tf.Variable(value) for name, value in (memory or {}).items()})


def checkpoint_paths(model_dir):
    """Returns the paths of a run's checkpoints, the newest last."""
    found = [path.removesuffix(".index") for path in tf.io.gfile.glob(os.path.join(model_dir, _FOLDER, f"{_NAME}-*.index"))]
    return sorted((path for path in found if re.fullmatch(rf"{_NAME}-\d+", os.path.basename(path))), key=step_of)


def weights_of(model):
    """Returns the variables that every checkpoint of a run has as its "model", whatever the rates of dropout."""
    return [variable.value for variable in model.weights]


def stored_weights(path):
    """Returns the arrays that a checkpoint of a run has as its "model", in the order of `weights_of`; [] if it is of no run.

    Raises:
        tf.errors.OpError: if the checkpoint is damaged or not there.
    """
    reader = _reader(path)
    count = sum(name.startswith("model/") for name in reader.get_variable_to_shape_map())
    return [reader.get_tensor(f"model/{number}/.ATTRIBUTES/VARIABLE_VALUE") for number in range(count)]


def _reader(path):
    return tf.compat.v1.train.NewCheckpointReader(path)  # tf.train.load_checkpoint takes a path at some addresses for a folder


def step_of(path):
    """Returns the step of a checkpoint of a run."""
    return int(path.rpartition("-")[2])
