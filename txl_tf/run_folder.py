"""The folder of a run, which anyone can read: settings, versions, a line of JSON for every report, results, the best weights."""

import dataclasses
import json
import math
import os
import platform
import sys

import keras
import tensorflow as tf

from txl_tf import model_folder
from txl_tf.config import ModelConfig
from txl_tf.faults import writing

RESULTS, LOG, BEST = "results.json", "log.jsonl", "best"
_SCORED = (*model_folder.SHAPE, "memory_start", "layer_norm_epsilon", "same_length_extra", "pre_lnorm")  # settings of a model that its scores depend on


class RunFolder:
    """What a run leaves beside its checkpoints and TensorBoard summaries.

    config.json has the settings, what the run was begun on, the command and the versions; log.jsonl a line of JSON a report;
    results.json what was scored last; best/ the model that was best on the valid split, with its score.

    Args:
        path: the folder, here or at any address that tf.io.gfile opens.

    Raises, from `check_same_run`:
        ValueError: if the folder holds another run.

    Example:
        folder = RunFolder("runs/mine")
        folder.log({"step": 50, "loss": 3.2})
    """

    def __init__(self, path):
        self.path = path

    def file(self, name):
        """Returns the path of a file of the folder."""
        return os.path.join(self.path, name)

    def check_same_run(self, model_config, identity, has_checkpoints):
        """Raises ValueError where the folder holds weights that a run of this model on these data can't go on with."""
        if not has_checkpoints:
            if tf.io.gfile.exists(self.file(model_folder.WEIGHTS)):
                raise ValueError(f"model_dir must be new or hold a run's checkpoints beside its {model_folder.WEIGHTS}. Received: "
                                 f"model_dir={self.path}")
            return
        stored = model_folder.read_config(self.path)
        was = {**_as_json(ModelConfig(**stored["model"])), **{name: stored.get(name) for name in identity}}
        now = {**_as_json(model_config), **identity}
        other = [name for name in now if now[name] != was.get(name)]
        if other:
            raise ValueError(f"model_dir must be new or hold a run of the same model on the same data; {self.path} has "
                             f"{', '.join(f'{name}={was.get(name)}' for name in other)}. Received: "
                             f"{', '.join(f'{name}={now[name]}' for name in other)}")

    def check_model(self, settings):
        """Raises ValueError where settings of a model, name -> value, are others than those of the run, which is to be scored."""
        stored = ModelConfig(**model_folder.read_config(self.path)["model"])
        other = [name for name in _SCORED if name in settings and settings[name] != getattr(stored, name)]
        if other:
            raise ValueError(f"What is scored must be the model of the run in {self.path}, which has "
                             f"{', '.join(f'{name}={getattr(stored, name)}' for name in other)}. Received: "
                             f"{', '.join(f'{name}={settings[name]}' for name in other)}")

    def holds_a_run(self):
        """Tells whether the folder is that of a run, and not only of a model, such as txl_tf.convert writes."""
        return "train" in model_folder.read_config(self.path, missing_ok=True)

    def trained_config(self, vocabulary):
        """Returns the ModelConfig of the run. Raises ValueError if there is none, or its vocabulary is another one."""
        stored = model_folder.read_config(self.path)
        kept = self.file(model_folder.VOCABULARY)
        if tf.io.gfile.exists(kept) and model_folder.load_vocabulary(self.path).sha256() != vocabulary.sha256():
            raise ValueError(f"The data must have the vocabulary of the run; its {model_folder.VOCABULARY} is another one. Received: "
                             f"model_dir={self.path}, vocabulary of {vocabulary.n_token} ids")
        return ModelConfig(**stored["model"])

    def begin(self, model_config, train_config, identity, vocabulary, step):
        """Makes the folder, writes what the run is, and takes from the log what came after the step that it goes on from."""
        config = {"model": dataclasses.asdict(model_config), "train": dataclasses.asdict(train_config), **identity, "command": sys.argv,
                  "versions": {"python": platform.python_version(), "tensorflow": tf.__version__, "keras": keras.__version__}}
        log = self._log()
        kept = "".join(_line(report) for report in _reports(log) if report["step"] <= step)
        with writing(self.path):
            tf.io.gfile.makedirs(self.path)
            vocabulary.save(self.file(model_folder.VOCABULARY))
            model_folder.write_config(self.path, config)
            if kept != log:
                model_folder.write_text(self.file(LOG), kept)

    def log(self, report):
        """Adds a line of JSON to the log; what is not finite becomes null, for JSON has no word for it."""
        with writing(self.path), tf.io.gfile.GFile(self.file(LOG), "a") as file:
            file.write(_line({name: None if isinstance(value, float) and not math.isfinite(value) else value
                              for name, value in report.items()}))

    def has_logged(self, step, name):
        """Tells whether a report of a step has an entry of some name."""
        return any(report["step"] == step and name in report for report in _reports(self._log()))

    def results(self):
        """Returns what `write_results` wrote; {} if there is nothing that can be read."""
        return self._json(RESULTS)

    def write_results(self, results):
        """Writes what was scored; other splits of the same step, scored with the same settings, stay."""
        before = self.results()
        same = all(before.get(name) == results.get(name) for name in ("step", "settings"))
        with writing(self.path):
            model_folder.write_json(self.file(RESULTS), {**before, **results} if same else results)

    def save_weights(self, model):
        """Writes the weights where from_preset finds them."""
        with writing(self.path):
            model_folder.save_model(model, self.path)

    def keep_if_best(self, model, vocabulary, step, settings, score):
        """Keeps the model apart if it scores better than any before it with the same settings. Returns whether it does."""
        best = self._json(os.path.join(BEST, RESULTS))
        bar = best["valid"]["nll"] if best.get("settings") == settings else math.inf
        if not score["nll"] < bar:
            return False
        with writing(self.path):
            model_folder.save_model(model, self.file(BEST), vocabulary)
            model_folder.write_json(self.file(os.path.join(BEST, RESULTS)), {"step": step, "settings": settings, "valid": score})
        return True

    def _json(self, name):
        try:
            with tf.io.gfile.GFile(self.file(name)) as file:
                content = json.loads(file.read())
            return content if isinstance(content, dict) else {}
        except (tf.errors.OpError, OSError, ValueError):
            return {}

    def _log(self):
        if not tf.io.gfile.exists(self.file(LOG)):
            return ""
        with tf.io.gfile.GFile(self.file(LOG), "rb") as file:
            return file.read().decode("utf-8", errors="replace")


def _as_json(model_config):
    """Returns the settings as config.json holds them; a run from before a setting was there has its default."""
    return json.loads(json.dumps(dataclasses.asdict(model_config)))


def _line(report):
    return json.dumps(report) + "\n"


def _reports(log):
    """Returns the reports of a log; a killed run may have left a part of a line, which is none."""
    reports = []
    for line in log.splitlines():
        try:
            report = json.loads(line)
            reports += [report] if isinstance(report["step"], int) else []
        except (ValueError, KeyError, TypeError):
            pass
    return reports
