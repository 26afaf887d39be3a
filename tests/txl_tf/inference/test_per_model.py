"""Functions of a model: traced once for each, and forgotten with it."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import tensorflow as tf

from testing.tiny_model import tiny_model
from txl_tf.inference.per_model import per_model


def test_every_model_has_a_function_of_its_own_that_is_traced_once():
    traced = []

    @per_model
    def double(model, number):
        traced.append(model)
        return 2 * number

    models = [tiny_model(), tiny_model()]
    for _ in range(2):
        assert [int(double(model, tf.constant(4))) for model in models] == [8, 8]
    assert [id(model) for model in traced] == [id(model) for model in models]


def test_options_are_those_of_tf_function():
    traced = []

    @per_model(input_signature=[tf.TensorSpec(None, tf.float32)])
    def half(model, number):
        traced.append(model)
        return number / 2

    model = tiny_model()
    np.testing.assert_array_equal(half(model, tf.constant([1.0, 2.0])), [0.5, 1.0])
    assert float(half(model, tf.constant(3.0))) == 1.5 and len(traced) == 1


def test_programs_of_several_models_and_functions_are_no_cause_for_a_warning(caplog):
    caplog.set_level("WARNING", logger="tensorflow")  # other tests run commands, which are silent about TensorFlow's remarks
    functions, model = [per_model(lambda model, number, add=add: number + add) for add in range(6)], tiny_model()
    assert [int(function(model, tf.constant(1))) for function in functions] == list(range(1, 7))
    assert [int(functions[0](tiny_model(), tf.constant(1))) for _ in range(6)] == [1] * 6
    assert "retracing" not in caplog.text
    for number in range(6):  # while one that is made again and again for one model is
        functions[0](model, number)
    assert "retracing" in caplog.text


PROGRAM = """
import gc, weakref
from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.inference.beam_search import beam_search
from txl_tf.inference.evaluation import evaluate
from txl_tf.inference.sampling import generate
from txl_tf.inference.scoring import score

model, tokens = tiny_model(), tiny_tokens(1, 5)
generate(model, tokens, 3, seed=1), beam_search(model, tokens[0], 2, 2), score(model, tokens)
evaluate(model, [(tokens[:, :-1], tokens[:, 1:])])
weight, model = weakref.ref(model.trainable_variables[0]), None
gc.collect()  # the model, and with it its functions
gc.collect()  # what these held
print("kept" if weight() else "forgotten")
"""


def test_a_model_that_was_used_is_not_kept():  # in a process of its own, for pytest keeps frames
    root = Path(__file__).parents[3]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(root), str(root / "tests")])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "forgotten\n"
