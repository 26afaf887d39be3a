"""A language model with memory under Keras's compile, fit, evaluate and predict."""

import functools
import math
import numbers

import keras
import tensorflow as tf

from txl_tf.distribution import compiled_on_each_replica, number_of_hosts, sum_over_replicas
from txl_tf.language_model import TransformerXLLM
from txl_tf.optimization import for_summed_gradients
from txl_tf.replica_memory import ReplicaMemory
from txl_tf.train_step import loss_and_gradients

_KINDS = {"training": "train_function", "evaluation": "test_function", "prediction": "predict_function"}  # of memory, and what reads it


def _once_there_are_data(step):
    """Returns a step of which nothing happens before its data are there: Keras calls it once more where they end, and counts would move."""
    @functools.wraps(step)
    def waiting(self, data):
        with tf.control_dependencies([part for part in tf.nest.flatten(data) if part is not None]):
            return step(self, data)

    return waiting


@keras.saving.register_keras_serializable("txl_tf")
class SegmentTrainer(keras.Model):
    """Trains a Transformer-XL with `fit`: the memory goes along from batch to batch.

    A batch is a segment of B rows of text, and each row goes on where it stopped in the batch before. Training,
    evaluation and prediction have memories of their own, which begin anew with every `fit`, every `evaluate` (so every
    validation too) and every `predict`, and that of training with every epoch, for it is a new pass over the data; with
    steps_per_epoch an epoch goes on in the data, and so in the memory. No memory is in any file. A training that is
    restored within an epoch (keras.callbacks.BackupAndRestore with a save_freq) goes on with an empty one.

    The loss is the mean negative log-likelihood of a token in nats; logs and history have it as "loss", with "perplexity"
    e^loss and "bpc" loss / ln 2 of the epoch so far. A callback that monitors the latter two needs
    mode="min". Gradients are averaged over the replicas and then clipped, if the optimizer clips.

    Args:
        model: a TransformerXLLM; made under the scope of a tf.distribute strategy, it is trained with that.
        eval_mem_len: slots of the memory in evaluation and prediction; None: the model's.

    Attributes:
        model: the model, with `generate` and `save_to_preset`.

    Call arguments:
        inputs: as the model's.

    Returns:
        what the model does.

    Raises, from `fit`, `evaluate` and `predict`:
        ValueError: before the first step, if the data are no tf.data.Dataset of batches of integers (weights: numbers) with
            a fixed number of rows, a multiple of the devices, or the strategy has several hosts.

    Example:
        trainer = SegmentTrainer(TransformerXLLM(ModelConfig(n_token=256)))
        trainer.compile(keras.optimizers.Adam(1e-3, global_clipnorm=0.25))
        history = trainer.fit(corpus.dataset("train", tgt_len=64), validation_data=corpus.dataset("valid", tgt_len=128), epochs=2)
    """

    def __init__(self, model, eval_mem_len=None, **kwargs):
        if not isinstance(model, TransformerXLLM):
            raise ValueError(f"model must be a TransformerXLLM. Received: {type(model).__name__}")
        with model.distribute_strategy.scope():
            super().__init__(**kwargs)
        _check_mem_len(eval_mem_len=eval_mem_len)
        model.config.evaluation_lengths(1, eval_mem_len)
        self.dtype_policy = model.dtype_policy
        self.model = model
        self.eval_mem_len = eval_mem_len
        self.built = True
        self._memories = _Memories()
        self._log_probs = model.log_probs  # to predict, no compile is needed

    @property
    def memory(self):
        """The memory of training, {"hidden": (B, L, M, D), "length": (B,)}; None before the first `fit`."""
        memory = self._memories.training
        return memory and memory.gathered()

    def call(self, inputs, training=None):
        return self.model(inputs, training=training)

    def compile(self, optimizer="adam", steps_per_execution=1, jit_compile=False, run_eagerly=False, auto_scale_loss=True):
        """Sets how the model is trained; the loss and the metrics are its own.

        Args:
            optimizer: a Keras optimizer or its name.
            steps_per_execution: batches of one call.
            jit_compile: compile what a replica computes with XLA.
            run_eagerly: run without graphs, to debug.
            auto_scale_loss: scale the loss of a mixed_float16 model.

        Raises:
            ValueError: if a setting can't be used, or steps_per_execution is above 1 on several devices, where Keras 3.15 fails.
        """
        if optimizer is None:
            raise ValueError("optimizer must be a Keras optimizer or its name. Received: optimizer=None")
        if not _is_whole(steps_per_execution) or steps_per_execution < 1:
            raise ValueError(f"steps_per_execution must be an integer of at least 1. Received: steps_per_execution={steps_per_execution!r}")
        if not isinstance(jit_compile, bool):
            raise ValueError(f"jit_compile must be True or False. Received: jit_compile={jit_compile!r}")
        replicas = self.distribute_strategy.num_replicas_in_sync
        if steps_per_execution > 1 and replicas > 1:
            raise ValueError("steps_per_execution must be 1 on several devices, where Keras can't take more. Received: "
                             f"steps_per_execution={steps_per_execution}, {replicas} devices")
        with self.distribute_strategy.scope():
            super().compile(optimizer, steps_per_execution=steps_per_execution, run_eagerly=run_eagerly, jit_compile=False,
                            auto_scale_loss=auto_scale_loss)
            if not self.optimizer.built:
                self.optimizer.build(self.trainable_variables)
        for_summed_gradients(self.optimizer)
        self._settings = {"steps_per_execution": steps_per_execution, "jit_compile": jit_compile, "run_eagerly": run_eagerly,
                          "auto_scale_loss": auto_scale_loss}
        on_replica = compiled_on_each_replica if jit_compile and not run_eagerly else lambda function: function
        self._gradients = on_replica(functools.partial(loss_and_gradients, self.model))
        self._nll = on_replica(self.model.nll)
        self._log_probs = on_replica(self.model.log_probs)

    def fit(self, x, *, callbacks=None, validation_data=None, steps_per_epoch=None, class_weight=None, **settings):
        """Trains on a tf.data.Dataset of (token_ids, labels) of (B, T) or (token_ids, labels, token_weights); else as Keras's fit."""
        self._assert_compile_called("fit")
        if class_weight is not None:
            raise ValueError(f"class_weight must be None: weights of tokens are the third part of a batch. Received: class_weight={class_weight}")
        if validation_data is not None:
            self._begin("evaluation", validation_data)
        self._begin("training", x)
        if steps_per_epoch is None:
            callbacks = [_BeginsEpoch(), *tf.nest.flatten([callbacks or []])]
        settings = {"shuffle": False, **settings}  # a data set is never shuffled, but Keras would say so
        return super().fit(x, callbacks=callbacks, validation_data=validation_data, steps_per_epoch=steps_per_epoch, **settings)

    def evaluate(self, x, *, mem_len=None, **settings):
        """Returns [loss, bpc, perplexity], or a dict with return_dict, of a tf.data.Dataset as in `fit`; else as Keras's evaluate.

        Args:
            x: the data.
            mem_len: slots of the memory; None: eval_mem_len.
            settings: as of Keras's evaluate.
        """
        self._assert_compile_called("evaluate")
        self._begin("evaluation", x, mem_len)
        return super().evaluate(x, **settings)

    def predict(self, x, **settings):
        """Returns the log-probabilities of the token after each, the batches one after the other: (steps B, T, V).

        Args:
            x: a tf.data.Dataset of token_ids (B, T), or of tuples that begin with them.
            settings: as of Keras's predict.
        """
        self._begin("prediction", x)
        return super().predict(x, **settings)

    @_once_there_are_data
    def train_step(self, data):
        token_ids, labels, weights, total = _batch(data)
        memory, scale = self._memory("training"), self.optimizer.scale_loss(tf.constant(1.0))
        loss, gradients, after = self._gradients(token_ids, labels, memory.read(), weights * scale)
        memory.keep(after)
        loss, gradients = sum_over_replicas((loss / scale, gradients))
        self.optimizer.apply(gradients, self.trainable_variables)
        return self._logs(loss, total)

    @_once_there_are_data
    def test_step(self, data):
        token_ids, labels, weights, total = _batch(data)
        memory = self._memory("evaluation")
        nll, after = self._nll(token_ids, labels, memory.read())
        memory.keep(after)
        return self._logs(sum_over_replicas(tf.reduce_sum(nll * weights)), total)

    @_once_there_are_data
    def predict_step(self, data):
        memory = self._memory("prediction")
        log_probs, after = self._log_probs(keras.utils.unpack_x_y_sample_weight(data)[0], memory.read())
        memory.keep(after)
        return log_probs

    def get_metrics_result(self):
        loss = self._loss_tracker.result()
        return {"loss": loss, "perplexity": tf.exp(loss), "bpc": loss / math.log(2.0)}

    def get_config(self):
        return {"model": keras.saving.serialize_keras_object(self.model), "eval_mem_len": self.eval_mem_len, "name": self.name,
                "trainable": self.trainable}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "model": keras.saving.deserialize_keras_object(config["model"])})

    def get_compile_config(self):
        return {"optimizer": super().get_compile_config()["optimizer"], **self._settings} if self.compiled else {}

    def compile_from_config(self, config):
        self.compile(**keras.saving.deserialize_keras_object(config))

    def _logs(self, loss, tokens):
        self._loss_tracker.update_state(loss, sample_weight=tokens)
        return self.get_metrics_result()

    def _begin(self, kind, segments, mem_len=None):
        """Gives the rows of a data set the memory before their first token. Raises ValueError if it can't be one of segments."""
        rows, memory = self._rows(kind, segments), getattr(self._memories, kind)
        if kind != "training" and mem_len is None:
            mem_len = self.eval_mem_len
        _check_mem_len(mem_len=mem_len)
        if memory is None or (memory.rows, memory.mem_len) != (rows, mem_len):
            setattr(self._memories, kind, ReplicaMemory(self.model, self.distribute_strategy, rows, mem_len))
            setattr(self, _KINDS[kind], None)  # it reads the variables of the memory that was
        else:
            memory.reset()

    def _memory(self, kind):
        memory = getattr(self._memories, kind)
        if memory is None:
            raise ValueError(f"The memory of {kind} must have begun, as fit, evaluate and predict see to; there is none for single batches. "
                             "Received: a batch")
        return memory

    def _rows(self, kind, segments):
        if not isinstance(segments, tf.data.Dataset):
            raise ValueError(f"The data of {kind} must be a tf.data.Dataset, whose batches come in the order of the text. Received: "
                             f"{type(segments).__name__}")
        strategy = self.distribute_strategy
        if number_of_hosts(strategy) > 1:
            raise ValueError(f"SegmentTrainer works on one host; train_gpu.py trains on several. Received: {type(strategy).__name__} of "
                             f"{number_of_hosts(strategy)} hosts")
        spec = _checked_spec(kind, segments)
        if spec.shape[0] % strategy.num_replicas_in_sync:
            raise ValueError(f"The rows of {kind} must be a multiple of the devices. Received: {spec.shape[0]} rows, "
                             f"{strategy.num_replicas_in_sync} devices")
        return spec.shape[0]


class _Memories:
    """Holds memories where Keras does not look for weights to save."""

    training = evaluation = prediction = None


class _BeginsEpoch(keras.callbacks.Callback):
    """Gives the rows of training the memory before their first token at the start of an epoch."""

    def on_epoch_begin(self, epoch, logs=None):
        self.model._memories.training.reset()


def _checked_spec(kind, segments):
    """Returns the tf.TensorSpec of the token_ids of a data set. Raises ValueError, with the kind of its use, if it can't be one of segments."""
    spec = segments.element_spec
    parts = spec if isinstance(spec, tuple) else (spec,)
    if kind != "prediction" and not (isinstance(spec, tuple) and len(parts) in (2, 3)):
        raise ValueError(f"The batches of {kind} must be (token_ids, labels) or (token_ids, labels, token_weights). Received: {spec}")
    used = parts[:1] if kind == "prediction" else parts
    shape = getattr(used[0], "shape", tf.TensorShape(None))
    if shape.rank != 2 or not shape[0] or shape[1] == 0 or not all(isinstance(part, tf.TensorSpec) for part in used):
        raise ValueError(f"The batches of {kind} must be (B, T) with the same number of rows B in each, which drop_remainder=True of "
                         f"tf.data.Dataset.batch makes so. Received: {spec if isinstance(spec, dict) else used[0]}")
    for name, part in zip(("token_ids", "labels", "token_weights"), used):
        if part.shape.rank != 2 or part.shape[0] != shape[0] or not part.shape.is_compatible_with(shape):
            raise ValueError(f"The {name} of {kind} must have the shape {shape} of the token_ids. Received: {part}")
        if not (part.dtype.is_integer or name == "token_weights" and part.dtype.is_floating):
            raise ValueError(f"The {name} of {kind} must be {'numbers' if name == 'token_weights' else 'integers'}. Received: {part}")
    if segments.cardinality() == 0:
        raise ValueError(f"The data of {kind} must have at least one batch; rows that fill no batch are dropped. Received: 0 batches")
    return used[0]


def _is_whole(number):
    return isinstance(number, numbers.Integral) and not isinstance(number, bool)


def _check_mem_len(**named):
    (name, mem_len), = named.items()
    if mem_len is not None and (not _is_whole(mem_len) or mem_len < 0):
        raise ValueError(f"{name} must be at least 0. Received: {name}={mem_len}")


def _batch(data):
    """Returns (token_ids, labels, weights (B, T) that sum to one over all replicas, what they summed to before)."""
    token_ids, labels, weights = keras.utils.unpack_x_y_sample_weight(data)
    weights = tf.ones(tf.shape(labels)) if weights is None else tf.cast(weights, tf.float32)
    total = sum_over_replicas(tf.reduce_sum(weights))
    return token_ids, labels, tf.math.divide_no_nan(weights, total), total
