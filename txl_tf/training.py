"""The training run of the scripts: check, resume, train, save, evaluate, sample."""

import dataclasses
import json
import os
import shlex

import keras
import numpy as np
import tensorflow as tf

from txl_tf import model_folder
from txl_tf.inference.evaluation import evaluate, evaluation_model
from txl_tf.inference.sampling import generate
from txl_tf.language_model import TransformerXLLM
from txl_tf.metrics import in_unit
from txl_tf.optimization import clip_gradients, make_optimizer
from txl_tf.progress import Progress

RESULTS = "results.json"
SAMPLE_TOKENS = 400


class Training:
    """A run in a folder, which goes on where the last one in that folder stopped.

    Rows of a batch continue those of the batch before, and the memory goes along; it starts anew with every pass over the
    data. A checkpoint holds weights, optimizer, step, memory and random state.

    Args:
        model_config: a ModelConfig.
        train_config: a TrainConfig.
        corpus: the data, an object with vocabulary, identity, rows(split), n_segments(split, tgt_len), check(), which raises
            ValueError where files are damaged, and dataset(split, tgt_len), which gives (token_ids, labels) of (B, T).

    Raises:
        ValueError: if the folder can't be written, or holds a run on other data or with another model.

    Example:
        run = Training(ModelConfig(n_token=256), TrainConfig(model_dir="runs/mine"), corpus)
        results = run.run()
    """

    def __init__(self, model_config, train_config, corpus):
        self.train_config = train_config
        self.corpus = corpus
        self.folder = train_config.model_dir
        check_folder(self.folder)
        identity = {"corpus": corpus.identity, "train_batch_size": corpus.rows("train"), "precision": train_config.precision}
        self._check_same_run(model_config, identity)
        keras.utils.set_random_seed(train_config.seed)
        self.optimizer = make_optimizer(train_config)
        try:
            self.model = TransformerXLLM(model_config, dtype=train_config.precision)
            self.optimizer.build(self.model.trainable_variables)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError(f"The model must fit into memory. Received: n_layer={model_config.n_layer}, "
                             f"d_model={model_config.d_model}, d_inner={model_config.d_inner}") from error
        self.memory = self.model.initial_memory(corpus.rows("train"))
        self.step = 0
        self._restore()
        try:
            os.makedirs(self.folder, exist_ok=True)
        except OSError as error:
            raise ValueError(f"model_dir must be a folder that can be written ({error}). Received: model_dir={self.folder}") from error
        corpus.vocabulary.save(os.path.join(self.folder, model_folder.VOCABULARY))
        model_folder.write_config(self.folder, {"model": dataclasses.asdict(model_config),
                                                "train": dataclasses.asdict(train_config), **identity})
        self._update = tf.function(update, jit_compile=train_config.jit_compile, reduce_retracing=True)

    def run(self):
        """Trains to the end, evaluates, samples, says what to do next, and returns {split: {"nll", "tokens", unit}}.

        Raises:
            FloatingPointError: if the loss or its gradient is not finite.
            OSError: if a file of the corpus turns out to be damaged.
        """
        try:
            return self._run()
        except tf.errors.DataLossError as error:
            try:
                self.corpus.check()
            except ValueError as damage:
                raise OSError(str(damage)) from error
            raise OSError(f"The corpus must be readable throughout. Received: {error.message}") from error

    def _run(self):
        results, settings = self._results(), self._evaluation_settings()
        if self.step >= self.train_config.train_steps and (results.get("step"), results.get("settings")) == (self.step, settings):
            return self._say_finished(results)
        self._say_start()
        if self.step < self.train_config.train_steps:
            self.train()
        else:  # it was killed after its last checkpoint, perhaps before it wrote the weights too
            model_folder.save_model(self.model, self.folder)
        model = self._evaluation_model()
        results = {"step": self.step, "settings": settings, **self.evaluate(model)}
        model_folder.write_json(self._path(RESULTS), results)
        self._say_sample(model)
        self._say_next()
        return results

    def train(self):
        """Makes the updates that are left.

        Raises:
            FloatingPointError: if the loss or its gradient is not finite; the checkpoints before that stay as they are.
        """
        config = self.train_config
        progress = Progress(self._path("tensorboard"), config.train_steps, self.corpus.vocabulary.kind)
        batches = None
        while self.step < config.train_steps:
            if batches is None or self.step % self._steps_an_epoch == 0:
                batches = self._batches()
            steps = self._steps_to_next_stop()
            outcome = self._advance(batches, steps)
            progress.report(step=self.step, steps=steps, **outcome)
            self._check_finite(outcome)
            if self.step % config.save_steps == 0 or self.step == config.train_steps:
                self.save()
                progress.restart_clock()
        progress.end_line()

    def _check_finite(self, outcome):
        if not np.isfinite([outcome["nll"], outcome["gradient_norm"]]).all():
            raise FloatingPointError(
                f"The loss and its gradient must be finite; a lower learning_rate or clip may keep them so, and the last checkpoint "
                f"in {self.folder} is from before. Received: loss={outcome['nll']}, gradient_norm={outcome['gradient_norm']} up to "
                f"step {self.step}, learning_rate={self.train_config.learning_rate}")

    def _batches(self):
        """Returns an iterator of the training batches that are left of this pass over the data."""
        done = self.step % self._steps_an_epoch
        if done == 0:
            self.memory = self.model.initial_memory(self.corpus.rows("train"))
        return iter(self.corpus.dataset("train", self.model.config.tgt_len).skip(done))

    def evaluate(self, model=None):
        """Returns {split: {"nll": mean in nats, "tokens": number scored, unit: value}} for valid and test, and prints it."""
        config, results = self.train_config, {}
        model = self._evaluation_model() if model is None else model
        for split in ("valid", "test"):
            nll, tokens = evaluate(model, self.corpus.dataset(split, config.eval_tgt_len), self._eval_mem_len)
            value, unit = in_unit(nll, self.corpus.vocabulary.kind)
            results[split] = {"nll": nll, "tokens": tokens, unit: value}
            print(f"{split}: {value:.3f} {unit} over {tokens:,} tokens (memory {self._eval_mem_len})", flush=True)
        return results

    def save(self):
        """Writes a checkpoint to resume from, and the weights where from_preset finds them."""
        _, manager = self._checkpoint()
        manager.save(checkpoint_number=self.step)
        model_folder.save_model(self.model, self.folder)

    @property
    def _steps_an_epoch(self):
        return self.corpus.n_segments("train", self.model.config.tgt_len)

    @property
    def _eval_mem_len(self):
        length = self.train_config.eval_mem_len
        return 4 * self.model.config.mem_len if length is None else length

    def _steps_to_next_stop(self):
        config, step = self.train_config, self.step
        stops = [every - step % every for every in (config.iterations, config.save_steps, self._steps_an_epoch)]
        return min(*stops, config.train_steps - step)

    def _advance(self, batches, steps):
        """Makes some updates and returns what Progress reports of them."""
        outcome, self.memory = self._updates(batches, self.memory, tf.constant(steps))
        self.step += steps
        outcome = {name: value.numpy().item() for name, value in outcome.items()}
        return {**outcome, "nll": outcome["nll"] / outcome["tokens"]}

    @tf.function
    def _updates(self, batches, memory, steps):
        outcome = dict.fromkeys(("nll", "gradient_norm", "learning_rate"), tf.constant(0.0)) | {"tokens": tf.constant(0)}
        for _ in tf.range(steps):
            token_ids, labels = next(batches)
            learning_rate = tf.identity(self.optimizer.learning_rate)
            loss, norm, memory = self._update(self.model, self.optimizer, self.train_config.clip, token_ids, labels, memory)
            tokens = tf.size(labels)
            outcome = {"nll": outcome["nll"] + loss * tf.cast(tokens, tf.float32), "tokens": outcome["tokens"] + tokens,
                       "gradient_norm": norm, "learning_rate": learning_rate}
        return outcome, memory

    def _evaluation_settings(self):
        config, model = self.train_config, self.model.config
        return {"tgt_len": config.eval_tgt_len, "mem_len": self._eval_mem_len,
                "clamp_len": model.clamp_len if config.eval_clamp_len is None else config.eval_clamp_len,
                "same_length": model.same_length if config.eval_same_length is None else config.eval_same_length}

    def _evaluation_model(self):
        settings = self._evaluation_settings()
        return evaluation_model(self.model, clamp_len=settings["clamp_len"], same_length=settings["same_length"])

    def _check_same_run(self, model_config, identity):
        """Raises ValueError where the folder holds weights that this run can't go on with."""
        checkpoints = tf.io.gfile.glob(self._path("checkpoints/step-*.index"))
        if not checkpoints and not os.path.exists(self._path(model_folder.WEIGHTS)):
            return
        if not checkpoints:
            raise ValueError(f"model_dir must be new or hold a run's checkpoints beside its {model_folder.WEIGHTS}. Received: "
                             f"model_dir={self.folder}")
        stored = model_folder.read_config(self.folder)
        was = {**stored["model"], **{name: stored.get(name) for name in identity}}
        now = {**json.loads(json.dumps(dataclasses.asdict(model_config))), **identity}
        other = [name for name in now if now[name] != was.get(name)]
        if other:
            raise ValueError(f"model_dir must be new or hold a run of the same model on the same data; {self.folder} has "
                             f"{', '.join(f'{name}={was.get(name)}' for name in other)}. Received: "
                             f"{', '.join(f'{name}={now[name]}' for name in other)}")

    def _checkpoint(self):
        """Returns (tf.train.Checkpoint of the whole state, its CheckpointManager)."""
        state = tf.train.Checkpoint(
            model=[variable.value for variable in self.model.variables],
            optimizer=[variable.value for variable in self.optimizer.variables],
            memory_hidden=tf.Variable(self.memory["hidden"]), memory_length=tf.Variable(self.memory["length"]))
        return state, tf.train.CheckpointManager(state, self._path("checkpoints"), max_to_keep=2, checkpoint_name="step")

    def _restore(self):
        state, manager = self._checkpoint()
        if manager.latest_checkpoint is None and not tf.io.gfile.glob(self._path("checkpoints/step-*.index")):
            return
        try:
            state.restore(manager.latest_checkpoint or self._path("checkpoints/checkpoint")).assert_consumed()
        except (tf.errors.OpError, AssertionError, ValueError, IndexError) as error:
            raise ValueError("model_dir must hold a checkpoint of this model that can be read "
                             f"({str(error).splitlines()[0]}). Received: model_dir={self.folder}") from error
        self.step = int(self.optimizer.iterations)
        self.memory = {"hidden": state.memory_hidden.value(), "length": state.memory_length.value()}

    def _results(self):
        """Returns what run() wrote at the end; {} if it has not come so far."""
        try:
            with open(self._path(RESULTS), encoding="utf-8") as file:
                results = json.load(file)
            complete = all(isinstance(results[split]["nll"], float) and results[split]["tokens"] for split in ("valid", "test"))
            return results if complete else {}
        except (OSError, ValueError, KeyError, TypeError):
            return {}

    def _path(self, name):
        return os.path.join(self.folder, name)

    def _say_start(self):
        parameters = sum(int(np.prod(variable.shape)) for variable in self.model.trainable_variables)
        tokens = self.corpus.rows("train") * self.model.config.tgt_len
        print(f"{parameters:,} parameters, {tokens:,} tokens a step, {self._steps_an_epoch:,} steps a pass over the data; "
              f"the run lies in {self.folder}", flush=True)
        if self.step:
            print(f"resumes after step {self.step:,}", flush=True)

    def _say_finished(self, results):
        print(f"{self.folder} is finished: {self.step:,} of {self.train_config.train_steps:,} steps. To train longer, raise "
              "--train_steps; to begin anew, choose another --model_dir.")
        for split in ("valid", "test"):
            value, unit = in_unit(results[split]["nll"], self.corpus.vocabulary.kind)
            print(f"{split}: {value:.3f} {unit} over {results[split]['tokens']:,} tokens (memory {self._eval_mem_len})")
        self._say_next()
        return results

    def _say_sample(self, model):
        token_ids, _ = next(iter(self.corpus.dataset("valid", self.train_config.eval_tgt_len)))
        context = token_ids.numpy()[0]
        ids = generate(model, context, SAMPLE_TOKENS, seed=self.train_config.seed,
                       mem_len=self._eval_mem_len or None)
        decode = self.corpus.vocabulary.decode
        print(f"--- context\n{decode(context)}\n--- sample\n{decode(ids[len(context):])}\n---")

    def _say_next(self):
        print(f"The model lies in {self.folder}. To sample from it:\n"
              f"  python -m txl_tf.generate --model_dir={shlex.quote(self.folder)} --prompt=\"...\"\n"
              f"To see its curves:\n  tensorboard --logdir={shlex.quote(self.folder)}")


def update(model, optimizer, clip, token_ids, labels, memory):
    """Makes one update of the weights.

    Args:
        model: a TransformerXLLM.
        optimizer: a Keras optimizer.
        clip: largest global norm of the gradient.
        token_ids, labels: (B, T) integers.
        memory: the memory before the segment.

    Returns:
        (mean negative log-likelihood before the update, global norm of its gradient before clipping, memory after).
    """
    variables = model.trainable_variables
    with tf.GradientTape() as tape:
        loss, memory = model.training_loss(token_ids, labels, memory)
    gradients, norm = clip_gradients(tape.gradient(loss, variables), clip)
    optimizer.apply(gradients, variables)
    return loss, norm, memory


def check_folder(folder):
    """Raises ValueError if a folder can't be made or written; makes nothing."""
    nearest = os.path.abspath(folder)
    while not os.path.exists(nearest):
        nearest = os.path.dirname(nearest)
    if not os.path.isdir(nearest) or not os.access(nearest, os.W_OK | os.X_OK):
        raise ValueError(f"model_dir must be a folder that can be written, unlike {nearest}. Received: model_dir={folder}")
