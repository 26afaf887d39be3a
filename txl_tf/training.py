"""The training run of the scripts: check, resume, train, save, evaluate, sample."""

import functools
import math
import shlex

import keras
import tensorflow as tf

from txl_tf.distribution import is_chief, number_of_hosts, replica_batches
from txl_tf.faults import check_folder, computing, say
from txl_tf.host_memory import check_host_memory
from txl_tf.inference.evaluation import evaluate, evaluation_model
from txl_tf.inference.sampling import generate
from txl_tf.language_model import TransformerXLLM
from txl_tf.metrics import in_unit
from txl_tf.optimization import make_optimizer
from txl_tf.preemption import STATUS, Preemption
from txl_tf.progress import Progress
from txl_tf.run_folder import RunFolder
from txl_tf.run_state import RunState, step_of
from txl_tf.train_step import TrainStep
from txl_tf.warm_start import load_any_weights

SAMPLE_TOKENS = 400


class Training:
    """A run in a folder, which goes on where the last one in that folder stopped.

    Rows of a batch continue those of the batch before, and the memory goes along; it starts anew with every pass over the
    data. A checkpoint holds weights, optimizer, step, memory and random state. On several hosts each runs this; the
    first writes and reports, and all read the folder.

    Args:
        model_config: a ModelConfig.
        train_config: a TrainConfig.
        corpus: the data, an object with vocabulary, identity, splits, rows(split), n_segments(split, tgt_len), check(), which
            raises ValueError where files are damaged, and dataset(split, tgt_len, drop_remainder, host), which gives (token_ids,
            labels) of (B, T), the rows of one host.
        strategy: a tf.distribute strategy; None: one device.

    Raises:
        ValueError: if the folder holds a run on other data or with another model; if rows are no multiple of the devices.
        OSError: if the folder can't be written.
        MemoryError, ConnectionError: as `txl_tf.faults.computing` says.

    Example:
        run = Training(ModelConfig(n_token=256), TrainConfig(model_dir="runs/mine"), corpus)
        results = run.run()
    """

    def __init__(self, model_config, train_config, corpus, strategy=None):
        self.train_config, self.corpus = train_config, corpus
        self.strategy = tf.distribute.get_strategy() if strategy is None else strategy
        self.folder = RunFolder(train_config.model_dir)
        self.is_chief = is_chief(self.strategy)
        check_folder(train_config.model_dir)
        if not train_config.do_train and not train_config.eval_ckpt_path:
            model_config = self.folder.trained_config(corpus.vocabulary)
        self._eval_tgt_len, self._eval_mem_len = model_config.evaluation_lengths(train_config.eval_tgt_len, train_config.eval_mem_len)
        self._check_data(model_config.tgt_len)
        self._check_memory(model_config)
        self.step = 0
        self._preemption = Preemption(self.strategy)
        self._copy = None  # of the model, for evaluation with other settings
        self._scored = {}  # the step of the last evaluation while training: its scores
        with self.strategy.scope():
            self._make_model(model_config)
        rows = corpus.rows("train") if train_config.do_train else self.strategy.num_replicas_in_sync * train_config.batch_chunk
        with self._computing():
            self._step = TrainStep(self.model, self.optimizer, self.strategy, train_config, rows)
        self.state = RunState(train_config.model_dir, self.strategy, self.model, self.optimizer, self._step,
                              train_config.keep_checkpoints, train_config.save_memory and train_config.do_train)
        if train_config.do_train:
            identity = {"corpus": corpus.identity, "train_batch_size": rows, "precision": train_config.precision}
            self.folder.check_same_run(model_config, identity, bool(self.state.checkpoints()))
        self._begin()
        if self.is_chief and train_config.do_train:
            self.folder.begin(model_config, train_config, identity, corpus.vocabulary, self.step)

    def run(self):
        """Trains to the end, evaluates, samples, says what to do next, and returns {split: {"nll", "tokens", unit}}.

        Raises:
            FloatingPointError: if the loss or its gradient is not finite.
            MemoryError: if a device has too little memory.
            OSError: if a file of the corpus turns out to be damaged, the folder can't be written any more, or a host is lost.
            SystemExit: with code 143, after a checkpoint, if the process was told to end (SIGTERM).
        """
        try:
            with self._computing():
                return self._run()
        except tf.errors.DataLossError as error:
            try:
                self.corpus.check()
            except ValueError as damage:
                raise OSError(str(damage)) from error
            raise OSError(f"The corpus must be readable throughout. Received: {error.message}") from error

    def _run(self):
        config = self.train_config
        if not config.do_train:
            return self._run_evaluation()
        before, settings = self.folder.results(), self._evaluation_settings()
        if self.step >= config.train_steps and self._is_complete(before, settings):
            return self._say_finished(before)
        self._say_start()
        if self._evaluation_is_due() and not self.folder.has_logged(self.step, "valid"):
            self._evaluate_while_training()  # it was killed before that
        if self.step < config.train_steps:
            self.train()
        elif self.is_chief:  # it was killed after its last checkpoint, perhaps before it wrote the weights too
            self.folder.save_weights(self.model)
        results = {"step": self.step, "settings": settings, **self._final_scores()}
        if self.is_chief:
            if "valid" in results and before.get("step") != self.step:
                self._keep_if_best(results["valid"])
            self.folder.write_results(results)
            self._say_sample()
            self._say_next()
        return results

    def train(self):
        """Makes the updates that are left.

        Raises:
            FloatingPointError: if the loss or its gradient is not finite; the checkpoints before that stay as they are.
            OSError: if a checkpoint or report can't be written; the checkpoints before stay as they are.
            SystemExit: with code 143, after a checkpoint, if the process was told to end (SIGTERM).
        """
        config = self.train_config
        progress = Progress(self.folder.file("tensorboard"), config.train_steps, self.corpus.vocabulary.kind) if self.is_chief else None
        batches = None
        with self._preemption.awaited():
            while self.step < config.train_steps:
                if batches is None or self.step % self._steps_an_epoch == 0:
                    batches = self._batches()
                steps = self._steps_to_next_stop()
                outcome = self._advance(batches, steps)
                self._report(progress, steps, outcome)
                self._check_finite(outcome)
                self._end_if_told_to()
                if self.step % config.save_steps == 0 or self.step == config.train_steps:
                    self.save()
                if self._evaluation_is_due():
                    self._evaluate_while_training()
                if progress:
                    progress.restart_clock()
        if progress:
            progress.end_line()

    def evaluate(self, splits=None):
        """Returns {split: {"nll": mean in nats, "tokens": number scored, unit: value}}, and prints it.

        Args:
            splits: names; None: those of the settings.
        """
        config, results = self.train_config, {}
        with self.strategy.scope():
            model = self._evaluation_model()
            for split in config.evaluated_splits if splits is None else splits:
                batches = replica_batches(self.strategy, functools.partial(self._host_batches, split, self._eval_tgt_len))
                most = config.max_eval_batch if config.max_eval_batch > 0 else None
                nll, tokens = evaluate(model, batches, self._eval_mem_len, most)
                value, unit = in_unit(nll, self.corpus.vocabulary.kind)
                results[split] = {"nll": nll, "tokens": tokens, unit: value}
                self._say_score(split, results[split])
        return results

    def save(self):
        """Writes a checkpoint to resume from, and the weights where from_preset finds them."""
        self.state.save(self.step)
        if self.is_chief:
            self.folder.save_weights(self.model)

    def _computing(self):
        config, model = self.train_config, self.model.config
        rows = {"train_batch_size": self.corpus.rows("train")} if self.train_config.do_train else {}  # else there may be no such split
        return computing(self.strategy, **rows, tgt_len=model.tgt_len, mem_len=model.mem_len,
                         batch_chunk=config.batch_chunk, remat=config.remat, eval_tgt_len=self._eval_tgt_len,
                         eval_mem_len=self._eval_mem_len)

    def _make_model(self, model_config):
        config = self.train_config
        keras.utils.set_random_seed(config.seed)
        self.optimizer = make_optimizer(config)
        try:
            self.model = TransformerXLLM(model_config, dtype=config.precision)
            self.model.backbone.rematerialize(config.remat)
            self.optimizer.build(self.model.trainable_variables)
        except tf.errors.ResourceExhaustedError as error:
            raise ValueError(f"The model must fit into memory. Received: n_layer={model_config.n_layer}, "
                             f"d_model={model_config.d_model}, d_inner={model_config.d_inner}") from error

    def _begin(self):
        """Goes on from the newest checkpoint, or begins with the weights that the settings name."""
        config = self.train_config
        if config.eval_ckpt_path:
            load_any_weights(self.model, config.eval_ckpt_path, "eval_ckpt_path")
            return
        self.step = self.state.restore()
        if not config.do_train and not self.state.checkpoints():
            if self.folder.holds_a_run():
                raise ValueError(f"model_dir must hold checkpoints when nothing is to be trained. Received: model_dir={config.model_dir}")
            load_any_weights(self.model, config.model_dir, "model_dir")
        if self.step == 0 and config.warm_start_path:
            load_any_weights(self.model, config.warm_start_path, "warm_start_path")

    def _check_data(self, tgt_len):
        """Raises ValueError unless there is a batch of every split, of which every device gets as many rows."""
        config, devices = self.train_config, self.strategy.num_replicas_in_sync
        for split in config.evaluated_splits + ("valid",) * bool(config.do_train and config.do_eval and config.eval_steps):
            if self.corpus.rows(split) % devices:
                raise ValueError(f"The rows of the {split} split must be a multiple of the devices; another --eval_batch_size or "
                                 f"--num_core_per_host makes them so. Received: {self.corpus.rows(split)} rows, {devices} devices")
            self._check_segments(split, "eval_tgt_len", self._eval_tgt_len)
        if config.do_train:
            self._check_segments("train", "tgt_len", tgt_len)

    def _check_memory(self, model_config):
        """Raises ValueError if this machine has too little memory for the run."""
        config, hosts = self.train_config, number_of_hosts(self.strategy)
        eval_rows = max((self.corpus.rows(split) for split in config.evaluated_splits), default=0)
        check_host_memory(model_config, config, self.corpus.rows("train") // hosts if config.do_train else 0, eval_rows // hosts)

    def _check_segments(self, split, name, length):
        if not self.corpus.n_segments(split, length, self._drops_remainder):
            raise ValueError(f"{name} must be at most the labels of a row of the {split} split. Received: {name}={length}")

    def _report(self, progress, steps, outcome):
        if not self.is_chief:
            return
        shown = {name: value for name, value in outcome.items() if name != "bad_step"}
        progress.report(step=self.step, steps=steps, **shown)
        value, unit = in_unit(outcome["nll"], self.corpus.vocabulary.kind)
        self.folder.log({"step": self.step, unit: value, **shown})

    def _check_finite(self, outcome):
        if outcome["bad_step"]:
            last = self.state.checkpoints()
            raise FloatingPointError(
                f"The loss and its gradient must be finite; a lower learning_rate or clip may keep them so, and "
                f"{f'the last checkpoint, {last[-1]}, is from before' if last else 'there is no checkpoint yet'}. Received: "
                f"loss={outcome['nll']}, gradient_norm={outcome['gradient_norm']}, first at step {outcome['bad_step']}, "
                f"learning_rate={self.train_config.learning_rate}")

    def _final_scores(self):
        """Returns what `evaluate` does; a split that was scored after the last update is not scored again."""
        splits = self.train_config.evaluated_splits
        known = self._scored.get(self.step, {})
        found = {**known, **self.evaluate([split for split in splits if split not in known])}
        return {split: found[split] for split in splits}

    def _evaluate_while_training(self):
        results = self.evaluate(["valid"])
        self._scored = {self.step: results}
        if self.is_chief:
            self._keep_if_best(results["valid"])
            self.folder.log({"step": self.step, "valid": results["valid"]})

    def _evaluation_is_due(self):
        config = self.train_config
        return bool(config.do_eval and config.eval_steps and self.step and self.step % config.eval_steps == 0)

    def _keep_if_best(self, score):
        self.folder.keep_if_best(self.model, self.corpus.vocabulary, self.step, self._evaluation_settings(), score)

    def _run_evaluation(self):
        """Scores the newest checkpoint, or with do_eval_only every one that is kept, and says which is best."""
        config, results = self.train_config, {}
        every = config.do_eval_only and not config.eval_ckpt_path and self.state.checkpoints()
        for path in every or [None]:
            if path is not None:
                if step_of(path) < config.start_eval_steps or self.state.read(path) is None:
                    continue
                self.step = step_of(path)
            self._say(f"step {self.step:,}:" if not config.eval_ckpt_path else f"{config.eval_ckpt_path}:")
            results[self.step] = self.evaluate()
        if not results:
            raise ValueError(f"model_dir must hold a checkpoint from start_eval_steps on. Received: model_dir={config.model_dir}, "
                             f"start_eval_steps={config.start_eval_steps}")
        split = config.evaluated_splits[0]
        best = min(results, key=lambda step: results[step][split]["nll"])
        if len(results) > 1:
            value, unit = in_unit(results[best][split]["nll"], self.corpus.vocabulary.kind)
            self._say(f"best on {split}: step {best:,} with {value:.3f} {unit}")
        found = {"step": best, "settings": self._evaluation_settings(), **results[best]}
        if self.is_chief and not config.eval_ckpt_path:
            self.folder.write_results(found)
        return found

    def _batches(self):
        """Returns an iterator of the training batches that are left of this pass over the data."""
        done = self.step % self._steps_an_epoch
        if done == 0:
            self._step.memory.reset()
        dataset = functools.partial(self._host_batches, "train", self.model.config.tgt_len)
        return iter(replica_batches(self.strategy, lambda host: dataset(host).skip(done)))

    def _host_batches(self, split, tgt_len, host):
        return self.corpus.dataset(split, tgt_len, self._drops_remainder, host=host)

    @property
    def _drops_remainder(self):
        """Whether the last, shorter segment of a pass is left out: TPUs need one shape."""
        return isinstance(self.strategy, tf.distribute.TPUStrategy)

    @property
    def _steps_an_epoch(self):
        return self.corpus.n_segments("train", self.model.config.tgt_len, self._drops_remainder)


    def _steps_to_next_stop(self):
        config, step = self.train_config, self.step
        every = (config.iterations, config.save_steps, self._steps_an_epoch, *[config.eval_steps] * bool(config.eval_steps))
        return min(*(count - step % count for count in every), config.train_steps - step)

    def _advance(self, batches, steps):
        """Makes some updates and returns what is reported of them."""
        outcome = self._step.run(batches, tf.constant(steps))
        outcome = {name: value.numpy().item() for name, value in outcome.items()}
        bad = self.step + outcome["bad_step"] if outcome["bad_step"] else 0
        self.step += steps
        return {**outcome, "nll": outcome["nll"] / outcome["tokens"], "bad_step": bad}

    def _evaluation_settings(self):
        config, model = self.train_config, self.model.config
        return {"tgt_len": self._eval_tgt_len, "mem_len": self._eval_mem_len, "max_eval_batch": config.max_eval_batch,
                "clamp_len": model.clamp_len if config.eval_clamp_len is None else config.eval_clamp_len,
                "same_length": model.same_length if config.eval_same_length is None else config.eval_same_length}

    def _evaluation_model(self):
        """Returns the model for evaluation: this one, or a copy where its settings differ, with today's weights."""
        settings = {name: self._evaluation_settings()[name] for name in ("clamp_len", "same_length")}
        if all(getattr(self.model.config, name) == value for name, value in settings.items()):
            return self.model
        if self._copy is None:
            self._copy = evaluation_model(self.model, **settings)
        self._copy.set_weights(self.model.get_weights())
        return self._copy

    def _is_complete(self, results, settings):
        """Tells whether a run's results are there, for these settings."""
        try:
            scored = all(isinstance(results[split]["nll"], float) and results[split]["tokens"]
                         for split in self.train_config.evaluated_splits)
            return scored and (results["step"], results["settings"]) == (self.step, settings)
        except (KeyError, TypeError):
            return False

    def _end_if_told_to(self):
        """Saves and ends if this process, or that of another host, was told to end."""
        if self._preemption.is_told():
            self.save()
            self._say(f"\ntold to end: saved at step {self.step:,}; the same command goes on from there")
            raise SystemExit(STATUS)

    def _say(self, text):
        if self.is_chief:
            say(text)

    def _say_score(self, split, score):
        value, unit = in_unit(score["nll"], self.corpus.vocabulary.kind)
        self._say(f"{split}: {value:.3f} {unit} over {score['tokens']:,} tokens (memory {self._eval_mem_len})")

    def _say_start(self):
        parameters = sum(math.prod(variable.shape) for variable in self.model.trainable_variables)
        tokens = self.corpus.rows("train") * self.model.config.tgt_len
        devices = self.strategy.num_replicas_in_sync
        self._say(f"{parameters:,} parameters, {tokens:,} tokens a step{f' on {devices} devices' if devices > 1 else ''}, "
                  f"{self._steps_an_epoch:,} steps a pass over the data; the run lies in {self.folder.path}")
        if self.train_config.save_memory and self.state.memory_bytes > 1 << 20:
            self._say(f"every checkpoint holds {self.state.memory_bytes / 2 ** 20:,.0f} MiB of memory; --save_memory=false leaves it out")
        if self.step:
            self._say(f"resumes after step {self.step:,}")

    def _say_finished(self, results):
        self._say(f"{self.folder.path} is finished: {self.step:,} of {self.train_config.train_steps:,} steps. To train longer, raise "
                  "--train_steps; to begin anew, choose another --model_dir.")
        for split in self.train_config.evaluated_splits:
            self._say_score(split, results[split])
        self._say_next()
        return results

    def _say_sample(self):
        if isinstance(self.strategy, tf.distribute.TPUStrategy) or "valid" not in self.corpus.splits:
            return
        token_ids, _ = next(iter(self.corpus.dataset("valid", self._eval_tgt_len)))
        context = token_ids.numpy()[0]
        ids = generate(self._evaluation_model(), context, SAMPLE_TOKENS, seed=self.train_config.seed, mem_len=self._eval_mem_len or None)
        decode = self.corpus.vocabulary.decode
        self._say(f"--- context\n{decode(context)}\n--- sample\n{decode(ids[len(context):])}\n---")

    def _say_next(self):
        folder = shlex.quote(self.folder.path)
        self._say(f"The model lies in {self.folder.path}. To sample from it:\n"
                  f"  python -m txl_tf.generate --model_dir={folder} --prompt=\"...\"\n"
                  f"To see its curves:\n  tensorboard --logdir={folder}")
