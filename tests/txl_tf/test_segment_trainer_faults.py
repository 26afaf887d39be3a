"""What fit, evaluate, predict and compile can't use is refused in one sentence before the first step."""

import numpy as np
import pytest
import tensorflow as tf

from testing.segments import dataset, segments
from testing.tiny_model import tiny_config, tiny_model, tiny_tokens
from txl_tf.segment_trainer import SegmentTrainer


def trainer():
    """Returns a compiled SegmentTrainer of a small model."""
    made = SegmentTrainer(tiny_model())
    made.compile()
    return made


BAD_DATA = {
    "must be a tf.data.Dataset, .* Received: ndarray": lambda: tiny_tokens(3, 8),
    "must be a tf.data.Dataset, .* Received: list": lambda: segments(),
    r"\(B, T\) with the same number of rows B .*Received: TensorSpec\(shape=\(None, 8\)":
        lambda: tf.data.Dataset.from_tensor_slices((tiny_tokens(7, 8),) * 2).batch(3),
    r"\(B, T\) with the same number of rows .*Received: TensorSpec\(shape=\(8,\)": lambda: tf.data.Dataset.from_tensor_slices((tiny_tokens(7, 8),) * 2),
}


class TestRefused:
    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("message", BAD_DATA)
    @pytest.mark.parametrize("kind", ["training", "validation", "evaluation", "prediction"])
    def test_data(self, message, kind):
        made, data = trainer(), BAD_DATA[message]()
        named = "evaluation" if kind == "validation" else kind
        with pytest.raises(ValueError, match=rf"of {named} {message}" if message.startswith("must") else f"batches of {named} must be {message}"):
            {"training": lambda: made.fit(data, verbose=0), "validation": lambda: made.fit(dataset(segments()), validation_data=data, verbose=0),
             "evaluation": lambda: made.evaluate(data, verbose=0), "prediction": lambda: made.predict(data, verbose=0)}[kind]()
        assert int(made.optimizer.iterations) == 0

    def test_data_without_labels(self):
        data = dataset(segments()).map(lambda token_ids, labels: token_ids)
        for call in (trainer().fit, trainer().evaluate):
            with pytest.raises(ValueError, match=r"must be \(token_ids, labels\) or \(token_ids, labels, token_weights\). Received: TensorSpec"):
                call(data, verbose=0)

    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("change, message", [
        (lambda ids, labels: (ids, labels, tf.ones((3, 1))), r"token_weights of training must have the shape \(3, 4\) .*shape=\(3, 1\)"),
        (lambda ids, labels: (ids, labels, tf.ones(3)), r"token_weights of training must have the shape .*shape=\(3,\)"),
        (lambda ids, labels: (ids, labels, 2.0), r"token_weights of training must have the shape .*shape=\(\)"),
        (lambda ids, labels: (ids, labels, ids > 2), "token_weights of training must be numbers. .*bool"),
        (lambda ids, labels: (ids, labels[:, 0]), r"labels of training must have the shape .*shape=\(3,\)"),
        (lambda ids, labels: (ids, labels[:, 1:]), r"labels of training must have the shape .*shape=\(3, 3\)"),
        (lambda ids, labels: (ids, tf.cast(labels, tf.float32)), "labels of training must be integers. .*float32"),
        (lambda ids, labels: (tf.strings.as_string(ids), labels), "token_ids of training must be integers. .*string"),
        (lambda ids, labels: ({"token_ids": ids}, labels), r"batches of training must be \(B, T\) .*Received: {'token_ids'"),
        (lambda ids, labels: ((ids, ids), labels), r"batches of training must be \(B, T\) .*Received: \(TensorSpec"),
        (lambda ids, labels: (ids[:, :0], labels[:, :0]), r"batches of training must be \(B, T\) .*shape=\(3, 0\)")])
    def test_parts_of_a_batch(self, change, message):
        data = tf.data.Dataset.from_tensor_slices(tuple(np.stack(side) for side in zip(*segments()))).map(change)
        with pytest.raises(ValueError, match=message):
            trainer().fit(data, verbose=0)

    def test_data_without_a_batch(self):
        made, none = trainer(), tf.data.Dataset.from_tensor_slices((tiny_tokens(7, 8),) * 2).batch(8, drop_remainder=True)
        for call in (made.fit, made.evaluate, made.predict, lambda data, verbose: made.fit(dataset(segments()), validation_data=data)):
            with pytest.raises(ValueError, match="must have at least one batch.* Received: 0 batches"):
                call(none, verbose=0)

    def test_weights_of_classes(self):
        with pytest.raises(ValueError, match="class_weight must be None.* Received: class_weight={1: 2.0}"):
            trainer().fit(dataset(segments()), class_weight={1: 2.0})

    @pytest.mark.parametrize("settings, message", [
        ({"optimizer": None}, "optimizer must be a Keras optimizer or its name. Received: optimizer=None"),
        ({"steps_per_execution": 0}, "steps_per_execution must be an integer of at least 1. Received: steps_per_execution=0"),
        ({"steps_per_execution": "auto"}, "steps_per_execution must be an integer of at least 1. Received: steps_per_execution='auto'"),
        ({"jit_compile": "auto"}, "jit_compile must be True or False. Received: jit_compile='auto'")])
    def test_settings_of_compile(self, settings, message):
        with pytest.raises(ValueError, match=message):
            SegmentTrainer(tiny_model()).compile(**settings)

    def test_another_model(self):
        for other in (tiny_config(), tiny_model().backbone):
            with pytest.raises(ValueError, match=f"model must be a TransformerXLLM. Received: {type(other).__name__}"):
                SegmentTrainer(other)

    def test_single_batches(self):
        with pytest.raises(ValueError, match="The memory of training must have begun"):
            trainer().train_on_batch(*segments()[0])

    @pytest.mark.slow
    def test_rows_that_fill_no_batch_can_be_dropped(self):
        rows = tf.data.Dataset.from_tensor_slices((tiny_tokens(7, 8),) * 2).batch(3, drop_remainder=True)
        made = trainer()
        made.fit(rows, verbose=0)
        assert int(made.optimizer.iterations) == 2

    def test_memory(self):
        with pytest.raises(ValueError, match="eval_mem_len must be at least 0. Received: eval_mem_len=-1"):
            SegmentTrainer(tiny_model(), eval_mem_len=-1)
        with pytest.raises(ValueError, match="eval_mem_len must be at least 0. Received: eval_mem_len=2.5"):
            SegmentTrainer(tiny_model(), eval_mem_len=2.5)
        with pytest.raises(ValueError, match="at most max_length=10. Received: mem_len=10, tgt_len=1"):
            SegmentTrainer(tiny_model(attention="dense", max_length=10), eval_mem_len=10)
        with pytest.raises(ValueError, match="mem_len must be at least 0. Received: mem_len=-2"):
            trainer().evaluate(dataset(segments()), mem_len=-2)

    def test_before_compile(self):
        with pytest.raises(ValueError, match="compile"):
            SegmentTrainer(tiny_model()).fit(dataset(segments()))
