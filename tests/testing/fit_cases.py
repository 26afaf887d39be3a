"""What fit computes on some devices of the same batches, for comparison: `fit_cases.py OUTPUT`, one process for each number of devices."""

import sys

import keras
import numpy as np
import tensorflow as tf

from testing.replica_cases import MODEL, batches, host_dataset
from txl_tf.config import ModelConfig
from txl_tf.distribution import device_strategy
from txl_tf.language_model import TransformerXLLM
from txl_tf.segment_trainer import SegmentTrainer


def trainer(strategy, optimizer, dtype=None, **settings):
    """Returns a compiled SegmentTrainer whose model is sure that row 3 of the batches is wrong."""
    keras.utils.set_random_seed(3)
    with strategy.scope():
        model = TransformerXLLM(ModelConfig(**MODEL), dtype=dtype)
        bias = next(variable for variable in model.trainable_variables if variable.shape == (17,))
        bias.assign(tf.where(tf.range(17) == 16, -9.0, 0.0))
        made = SegmentTrainer(model)
        made.compile(optimizer(), **settings)
    return made


def fitted(strategy, optimizer, steps, **settings):
    """Returns {name: array} of what is left of so many steps in two epochs, with validation."""
    case = trainer(strategy, optimizer, **settings)
    history = case.fit(host_dataset(0).take(steps), validation_data=host_dataset(0).take(3), epochs=2, verbose=0).history
    weights = np.concatenate([variable.numpy().ravel() for variable in case.trainable_variables])
    log_probs = case.predict(host_dataset(0).take(2), verbose=0)
    return {"weights": weights, "iterations": case.optimizer.iterations.numpy(), "log_probs": log_probs, **history, **case.memory}


def sgd():
    return keras.optimizers.SGD(1.0, global_clipnorm=0.3)


def adam():
    return keras.optimizers.Adam(1e-2, clipnorm=0.1)


def step(strategy):
    """Returns {name: array} of one step of gradient descent with a clipped gradient."""
    case = trainer(strategy, sgd)
    before = np.concatenate([variable.numpy().ravel() for variable in case.trainable_variables])
    history = case.fit(host_dataset(0).take(1), verbose=0).history
    after = np.concatenate([variable.numpy().ravel() for variable in case.trainable_variables])
    return {"before": before, "after": after, "loss": history["loss"]}


def refused(strategy):
    """Returns the sentences about rows that the devices can't share, and about steps_per_execution."""
    case = trainer(strategy, sgd)
    odd = tf.data.Dataset.from_tensor_slices((batches()[:, :7, :-1], batches()[:, :7, 1:]))
    found = []
    for refuse in (lambda: case.fit(odd, verbose=0), lambda: case.compile(steps_per_execution=2)):
        try:
            refuse()
        except ValueError as error:
            found.append(f"{error}, {case.optimizer.iterations.numpy()} steps")
    return found


CASES = {"adam": (adam, {}), "compiled": (adam, {"jit_compile": True}), "float16": (adam, {"dtype": "mixed_float16"})}


if __name__ == "__main__":
    strategy_here = device_strategy()
    found = {f"{name}/{key}": value for name, (optimizer, settings) in CASES.items()
             for key, value in fitted(strategy_here, optimizer, 5, **settings).items()}
    np.savez(sys.argv[1], replicas=strategy_here.num_replicas_in_sync, refused=refused(strategy_here), **step(strategy_here), **found)
