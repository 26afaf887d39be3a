"""What some devices compute of the same batches, for comparison: `replica_cases.py OUTPUT`, one process for each number of devices."""

import sys

import keras
import numpy as np
import tensorflow as tf

from txl_tf.config import ModelConfig, TrainConfig
from txl_tf.distribution import device_strategy, replica_batches
from txl_tf.inference.evaluation import evaluate
from txl_tf.language_model import TransformerXLLM
from txl_tf.optimization import for_summed_gradients, make_optimizer
from txl_tf.train_step import TrainStep

ROWS, LENGTH, STEPS = 8, 5, 20
MODEL = dict(n_token=17, n_layer=1, d_model=12, n_head=2, d_inner=14, tgt_len=LENGTH, mem_len=7, init_std=0.3)

ROWS_OF_MEMORY = {"hidden": np.random.default_rng(1).normal(size=(ROWS, 1, 7, 12)).astype(np.float32), "length": np.arange(ROWS, dtype=np.int32)}


def batches():
    """Returns the token ids (STEPS, ROWS, LENGTH + 1): row 3, which repeats the rarest token, is unlike the others."""
    tokens = np.random.default_rng(0).integers(0, 12, (STEPS, ROWS, LENGTH + 1)).astype(np.int32)
    tokens[:, 3] = 16
    return tokens


def host_dataset(host):
    del host
    return tf.data.Dataset.from_tensor_slices((batches()[:, :, :-1], batches()[:, :, 1:]))


class Case:
    """A model and its TrainStep on all devices, with an outlier: the model is sure that row 3 is wrong."""

    def __init__(self, strategy, optimizer=None, dropout=0.0, remat=False, **settings):
        keras.utils.set_random_seed(3)
        self.strategy, config = strategy, TrainConfig(warmup_steps=2, train_steps=STEPS, learning_rate=1e-2, **settings)
        with strategy.scope():
            self.optimizer = make_optimizer(config) if optimizer is None else optimizer
            self.model = TransformerXLLM(ModelConfig(**MODEL, dropout=dropout), dtype=config.precision)
            bias = next(variable for variable in self.model.trainable_variables if variable.shape == (17,))
            bias.assign(tf.where(tf.range(bias.shape[0]) == 16, -9.0, 0.0))
            self.optimizer.build(self.model.trainable_variables)
        self.model.backbone.rematerialize(remat)
        self.step = TrainStep(self.model, self.optimizer, strategy, config, ROWS)
        self.iterator = iter(replica_batches(strategy, host_dataset))

    def outcomes(self, *steps):
        """Returns {name: array} of what is reported of so many updates at a time."""
        found = [{name: value.numpy() for name, value in self.step.run(self.iterator, tf.constant(count)).items()} for count in steps]
        return {name: np.array([outcome[name] for outcome in found]) for name in found[0]}

    def weights(self):
        return np.concatenate([variable.numpy().ravel() for variable in self.model.trainable_variables])


def compared(strategy):
    """Returns {name: array} of what must not depend on the devices."""
    sgd = Case(strategy, for_summed_gradients(keras.optimizers.SGD(1.0)), clip=0.3)
    found = {"before": sgd.weights(), **{f"sgd_{name}": value for name, value in sgd.outcomes(1).items()}, "sgd": sgd.weights()}
    parts = strategy.experimental_local_results(sgd.step.memory.variables["hidden"])
    found |= {"memory_parts": np.array([part.numpy() for part in parts]), "replicas": np.array(strategy.num_replicas_in_sync)}
    found |= {f"rows_{name}": value for name, value in ROWS_OF_MEMORY.items()}
    sgd.step.memory.scatter(ROWS_OF_MEMORY)
    found |= {f"scattered_{name}": value for name, value in sgd.step.memory.gathered().items()}
    adam = Case(strategy)
    found |= {f"adam_{name}": value for name, value in adam.outcomes(*[1] * 15, 5).items()}
    found |= {f"adam_memory_{name}": value for name, value in adam.step.memory.gathered().items()}
    with strategy.scope():
        found["evaluated"] = np.array(evaluate(adam.model, replica_batches(strategy, host_dataset), 9, 4))
    return found


def variants(strategy):
    """Returns {name: array} of other ways to the same numbers, and of clipping each share, on these devices."""
    found = {name: Case(strategy, dropout=0.3, remat=remat).outcomes(*[1] * 4)["nll"] for name, remat in (("dropping", False), ("remat", True))}
    for name, settings in {"compiled_parts": {"batch_chunk": 2, "jit_compile": True, "remat": True, "clip": 0.3},
                           "replica": {"clip_scope": "replica", "clip": 0.3}}.items():
        case = Case(strategy, for_summed_gradients(keras.optimizers.SGD(1.0)), **settings)
        outcome = case.outcomes(1)
        found |= {name: case.weights(), f"{name}_nll": outcome["nll"], f"{name}_norm": outcome["gradient_norm"],
                  f"{name}_memory": case.step.memory.gathered()["hidden"]}
    return found


if __name__ == "__main__":
    strategy_here = device_strategy()
    np.savez(sys.argv[1], **compared(strategy_here), **(variants(strategy_here) if strategy_here.num_replicas_in_sync < 4 else {}))
