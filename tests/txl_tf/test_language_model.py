"""The language model: likelihoods, saving, compiling and exporting."""

import json

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.test_case import LOW_PRECISION
from testing.tiny_model import N_TOKEN, tiny_config, tiny_model, tiny_tokens
from txl_tf import TransformerXLLM

ROWS = 2


def segment(length=5):
    """Returns (token_ids, labels) of (B, length)."""
    tokens = tiny_tokens(ROWS, length + 1)
    return tokens[:, :-1], tokens[:, 1:]


def memory_after(model, length=3):
    """Returns the memory after a few tokens."""
    return model.log_probs(tiny_tokens(ROWS, length, seed=7), model.initial_memory(ROWS))[1]


@pytest.mark.parametrize("settings", [{}, {"d_embed": 5}, {"tie_weight": False}])
def test_log_probs_sum_to_one_and_nll_picks_the_labels(settings):
    model, (token_ids, labels) = tiny_model(**settings), segment()
    memory = memory_after(model)
    log_probs, after = model.log_probs(token_ids, memory)
    nll, after_nll = model.nll(token_ids, labels, memory)
    assert log_probs.shape == (ROWS, 5, N_TOKEN) and log_probs.dtype == nll.dtype == tf.float32
    np.testing.assert_allclose(np.exp(log_probs).sum(-1), 1.0, 1e-5)
    np.testing.assert_allclose(nll, -np.take_along_axis(log_probs.numpy(), labels[..., None], -1)[..., 0], 1e-4, 1e-5)
    tf.nest.map_structure(np.testing.assert_array_equal, after, after_nll)


def test_tied_softmax_is_the_embedding_table_and_an_untied_one_is_not():
    size = N_TOKEN * 12
    tied, untied = tiny_model(), tiny_model(tie_weight=False)
    assert tied.count_params() == tied.backbone.count_params() + N_TOKEN
    assert untied.count_params() == untied.backbone.count_params() + N_TOKEN + size
    token_ids, labels = segment()
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(tied.nll(token_ids, labels, tied.initial_memory(ROWS))[0])
    gradient = tf.convert_to_tensor(tape.gradient(loss, tied.backbone.token_embedding.tables[0].value))
    assert np.abs(gradient).sum(-1).all(), "also tokens that are not in the segment have a gradient, from the softmax"


def test_log_probs_follow_from_the_hidden_states():
    model, (token_ids, _) = tiny_model(d_embed=5), segment()
    memory = memory_after(model)
    hidden = model.backbone((tf.constant(token_ids), memory))[0].numpy().astype(np.float64)
    table, projection = (np.asarray(part[0]) for part in (model.backbone.token_embedding.tables, model.backbone.token_embedding.projections))
    logits = hidden @ projection.T @ table.T + np.asarray(model.head.bias)
    expected = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(model.log_probs(token_ids, memory)[0], expected, 1e-4, 1e-4)


def test_nll_takes_numpy_and_any_integers():
    model, (token_ids, labels) = tiny_model(), segment()
    memory = {name: value.numpy() for name, value in memory_after(model).items()}
    expected, _ = model.nll(token_ids, labels, memory)
    for dtype in (np.int64, np.uint8):
        np.testing.assert_array_equal(model.nll(token_ids.astype(dtype), labels.astype(dtype), memory)[0], expected)


def test_dropout_only_in_training():
    model, (token_ids, labels) = tiny_model(dropout=0.5), segment()
    memory = model.initial_memory(ROWS)
    plain = tiny_model().nll(token_ids, labels, memory)[0].numpy()
    np.testing.assert_array_equal(model.nll(token_ids, labels, memory)[0], plain)
    first, second = (model.nll(token_ids, labels, memory, training=True)[0].numpy() for _ in range(2))
    assert np.any(first != plain) and np.any(first != second)


def test_memory_of_both_starts_and_of_another_length():
    for start, filled in (("empty", 0), ("zeros", 6)):
        model = tiny_model(memory_start=start)
        assert model.initial_memory(ROWS)["hidden"].shape == (ROWS, 2, 6, 12)
        assert model.initial_memory(ROWS)["length"].numpy().tolist() == [filled] * ROWS
    assert tiny_model().initial_memory(3, mem_len=8)["hidden"].shape == (3, 2, 8, 12)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("dtype", ["float32", *LOW_PRECISION])
def test_nll_and_gradients_stay_finite(dtype):
    model, (token_ids, labels) = tiny_model(dtype), segment()
    memory = memory_after(model)
    with tf.GradientTape() as tape:
        nll, memory = model.nll(token_ids, labels, memory)
        loss = tf.reduce_mean(nll)
    assert nll.dtype == tf.float32 and memory["hidden"].dtype == model.compute_dtype
    assert np.isfinite(nll).all()
    for variable, gradient in zip(model.trainable_variables, tape.gradient(loss, model.trainable_variables)):
        assert variable.dtype == "float32"
        assert np.isfinite(tf.convert_to_tensor(gradient)).all(), variable.path
    np.testing.assert_allclose(nll, tiny_model().nll(token_ids, labels, memory_after(tiny_model()))[0], atol=0.25)


def test_config_round_trip_as_json():
    model = TransformerXLLM(tiny_config(clamp_len=3, tie_weight=False), dtype="mixed_float16", name="mine")
    config = json.loads(json.dumps(model.get_config()))
    copy = TransformerXLLM.from_config(config)
    assert json.loads(json.dumps(copy.get_config())) == config
    assert (copy.config, copy.name, copy.compute_dtype) == (model.config, "mine", "float16")


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{}, {"tie_weight": False, "dtype": "mixed_bfloat16"}, {"d_embed": 5, "untie_r": True}])
def test_keras_file_round_trip(tmp_path, settings):
    model, (token_ids, labels) = tiny_model(**settings), segment()
    model.save(tmp_path / "model.keras")
    copy = keras.saving.load_model(tmp_path / "model.keras")
    assert isinstance(copy, TransformerXLLM) and copy.config == model.config
    assert copy.count_params() == model.count_params()
    memory = memory_after(model)
    np.testing.assert_array_equal(copy.nll(token_ids, labels, memory)[0], model.nll(token_ids, labels, memory)[0])


def test_compiled_calls_equal_plain():
    model, (token_ids, labels) = tiny_model(n_layer=1), segment()
    memory = memory_after(model)
    for method, arguments in ((model.nll, (token_ids, labels, memory)), (model.log_probs, (token_ids, memory))):
        compiled = tf.function(method, jit_compile=True)(*arguments)
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, 1e-4, 1e-4), compiled, method(*arguments))


@pytest.mark.slow
def test_a_compiled_training_step_lowers_the_loss():
    model, (token_ids, labels) = tiny_model(n_layer=1, dropout=0.1, dropatt=0.1), segment()
    optimizer = keras.optimizers.Adam(1e-2)
    optimizer.build(model.trainable_variables)

    @tf.function(jit_compile=True)
    def step(memory):
        with tf.GradientTape() as tape:
            nll, memory = model.nll(token_ids, labels, memory, training=True)
            loss = tf.reduce_mean(nll)
        optimizer.apply(tape.gradient(loss, [variable.value for variable in model.trainable_variables]))
        return memory

    memory = model.initial_memory(ROWS)
    before = model.nll(token_ids, labels, memory)[0].numpy().mean()
    for _ in range(20):
        memory = step(memory)
    assert model.nll(token_ids, labels, model.initial_memory(ROWS))[0].numpy().mean() < before - 0.5


@pytest.mark.slow
def test_exported_model_takes_and_returns_memory(tmp_path):
    model = tiny_model()
    signature = [tf.TensorSpec((None, None), tf.int32, name="token_ids"),
                 {"hidden": tf.TensorSpec((None, 2, None, 12), tf.float32, name="hidden"),
                  "length": tf.TensorSpec((None,), tf.int32, name="length")}]

    def log_probs(token_ids, memory):
        values, memory = model((token_ids, memory))
        return {"log_probs": values, **memory}

    archive = keras.export.ExportArchive()
    archive.track(model)
    archive.add_endpoint("log_probs", log_probs, input_signature=signature)
    archive.write_out(str(tmp_path), verbose=False)
    served, memory, memory_of_served = tf.saved_model.load(str(tmp_path)), model.initial_memory(ROWS), model.initial_memory(ROWS)
    for length in (5, 3):
        token_ids = tf.constant(tiny_tokens(ROWS, length))
        expected, memory = model.log_probs(token_ids, memory)
        memory_of_served = served.log_probs(token_ids, memory_of_served)
        np.testing.assert_allclose(memory_of_served.pop("log_probs"), expected, 1e-5, 1e-5)
        tf.nest.map_structure(lambda a, b: np.testing.assert_allclose(a, b, 1e-5, 1e-5), memory_of_served, memory)
