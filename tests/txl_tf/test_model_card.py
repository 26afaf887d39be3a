"""What the card of an export says is so: shapes, bytes, and calls that the signatures take."""

import json
import re

import numpy as np
import pytest
import tensorflow as tf

from data_utils.vocabulary import ByteVocabulary
from testing.optional_package import needed
from testing.tiny_model import tiny_config, tiny_model
from txl_tf.model_card import model_card
from txl_tf.saved_model import CARD, export_saved_model


@pytest.fixture(scope="module", params=["text", "ids"])
def export(request, tmp_path_factory):
    """Returns (card, signatures) of an export with a vocabulary and of one without."""
    folder = tmp_path_factory.mktemp("served") / "mine"
    vocabulary = ByteVocabulary() if request.param == "text" else None
    path = export_saved_model(tiny_model(n_token=256), vocabulary, folder, "int8", facts={"updates": 30, "valid split": "bpc 5.0"})
    with tf.io.gfile.GFile(f"{path}/{CARD}") as file:
        return file.read(), tf.saved_model.load(path).signatures


def block(card, language):
    return re.search(rf"```{language}\n(.*?)```", card, re.DOTALL)[1]


@pytest.mark.slow_but_first
def test_the_python_call_fits_the_signature(export):
    needed("tensorflow_serving")
    card, signatures = export
    names = {}
    exec(block(card, "python").split("channel =")[0], names)
    request = names["request"]
    function = signatures[request.model_spec.signature_name]
    inputs = {name: tf.constant(tf.make_ndarray(proto)) for name, proto in request.inputs.items()}
    for name, spec in function.structured_input_signature[1].items():
        assert inputs[name].dtype == spec.dtype and spec.shape.is_compatible_with(inputs[name].shape)
    answer = function(**inputs)
    shown = re.search(r'answer.outputs\["(\w+)"\]', block(card, "python"))[1]
    assert request.model_spec.name == "mine" and shown in answer
    assert all(np.array_equal(answer[name], value) for name, value in signatures["serving_default"](**inputs).items())


def test_the_rest_call_fits_the_signature(export):
    card, signatures = export
    body = json.loads(re.search(r"curl -d '(.*)' http://localhost:8501/v1/models/mine:predict", block(card, "sh"))[1])
    function = signatures[body["signature_name"]]
    specs = function.structured_input_signature[1]
    answer = function(**{name: tf.constant(value, specs[name].dtype) for name, value in body["inputs"].items()})
    assert len({len(value) for value in answer.values()}) == 1


def test_every_signature_and_its_shapes_are_named(export):
    card, signatures = export
    for name in set(signatures) - {"serving_default"}:
        section = re.search(rf"### {name}\n(.*?)\n(#|$)", card, re.DOTALL)[1]
        sides = {"in": signatures[name].structured_input_signature[1], "out": signatures[name].structured_outputs}
        rows = re.findall(r"\| (in|out) \| `(\w+)` \| (\w+) \| \((.*?),?\) \|", section)
        assert len(rows) == sum(map(len, sides.values()))
        for side, tensor, dtype, shape in rows:
            spec = sides[side][tensor]
            assert dtype == spec.dtype.name
            assert shape.split(", ") == ["B", *("?" if size is None else str(size) for size in spec.shape[1:])]


def test_bytes(export):
    """Of what really goes in and out."""
    card, signatures = export
    inputs = {"token_ids": tf.constant([[5]]), "length": tf.constant([1])}
    cache = signatures["prefill"](**inputs)
    calls = {"prefill": inputs, "next_token": {**inputs, "memory": tf.zeros((1, 2, 6, 12)), "memory_length": tf.constant([6])},
             "step": {"token_id": tf.constant([5]), **{name: value for name, value in cache.items() if name != "log_probs"}}}
    for name, call in calls.items():
        sizes = [sum(tensor.numpy().nbytes for tensor in side.values()) for side in (call, signatures[name](**call))]
        assert f"| {name} | {sizes[0]:,} | {sizes[1]:,} |" in card
    limit = int(re.search(r"at least B x ([\d,]+)", card)[1].replace(",", ""))
    assert sizes[1] < limit < sizes[1] + 5_000


def test_scores_in_segments_of_the_length_it_says_are_those_of_a_text(export):
    card, signatures = export
    length = int(re.search(r"`score` with rows of (\d+) does as `score_text`", card)[1])
    if "score_text" not in signatures:
        return
    text = signatures["score_text"](text=tf.constant(["a text of some more tokens than that"]))
    state, found = {"memory": tf.zeros((1, 2, 0, 12)), "memory_length": tf.constant([0])}, []
    for start in range(0, int(text["length"][0]) - 1, length - 1):
        ids = text["token_ids"][:, start:start + length]
        state = signatures["score"](token_ids=ids, length=tf.shape(ids)[1:], **state)
        found.append(state.pop("log_probs")[:, 1:])
    np.testing.assert_allclose(tf.concat(found, 1), text["log_probs"][:, 1:], rtol=0, atol=1e-5)


def test_what_is_known_is_said(export):
    card, signatures = export
    assert "- updates: 30\n- valid split: bpc 5.0\n" in card
    assert re.search(r"stored as: int8, [\d,]+ bytes, beside [\d,]+ bytes of projected positions\n- change of the loss: [+-]\d\.\d\de-\d\d nats a token, from \d\.\d{4}, on 2,040 tokens of text that", card)
    assert ("Of kind byte, 256 tokens." if "score_text" in signatures else "None is in the export") in card


@pytest.mark.slow
def test_the_change_is_that_of_the_loss(tmp_path):
    model, token_ids = tiny_model(n_token=256), np.random.default_rng(3).integers(0, 256, (4, 30))
    path = export_saved_model(model, None, tmp_path, "int8", measured_on=token_ids)
    card = (tmp_path / "1" / CARD).read_text()
    change, before, tokens = re.search(r"loss: (\S+) nats a token, from (\S+), on (\d+) tokens of given text", card).groups()
    inputs = {"token_ids": tf.constant(token_ids, tf.int32), "length": tf.fill((4,), 30), "memory": tf.zeros((4, 2, 0, 12)),
              "memory_length": tf.zeros((4,), tf.int32)}
    assert int(tokens) == 4 * 29
    memory, total, stored = model.initial_memory(4), 0.0, tf.saved_model.load(path).signatures["score"]
    state, rounded = {"memory": inputs["memory"], "memory_length": inputs["memory_length"]}, 0.0
    for start in range(0, 29, 4):
        labels = token_ids[:, start + 1:start + 5]
        nll, memory = model.nll(token_ids[:, start:start + labels.shape[1]], labels, memory)
        total += float(tf.reduce_sum(nll))
        answer = stored(token_ids=tf.constant(token_ids[:, start:start + labels.shape[1] + 1], tf.int32), length=tf.fill((4,), labels.shape[1] + 1), **state)
        rounded -= float(tf.reduce_sum(answer.pop("log_probs")))
        state = answer
    assert float(before) == pytest.approx(total / 116, abs=1e-3)
    assert float(change) == pytest.approx((rounded - total) / 116, rel=0.02, abs=1e-5)


@pytest.mark.slow
def test_subwords_name_the_version_of_their_operations(tmp_path):
    needed("sentencepiece")
    from data_utils.vocabulary import SubwordVocabulary
    import tensorflow_text

    vocabulary = SubwordVocabulary.trained([b"a little text for a little vocabulary\n" * 9], 275)
    export_saved_model(tiny_model(n_token=275), vocabulary, tmp_path)
    assert f"operations of tensorflow-text {tensorflow_text.__version__}" in (tmp_path / "1" / CARD).read_text()


@pytest.mark.parametrize("settings, kind, rows", [
    ({}, "Transformer-XL", "`score` with rows of 5 does as `score_text`"), ({"attention": "dot_product"}, "Transformer", "rows of 5 does"),
    ({"attention": "dense"}, "Synthesizer", "Rows beside `memory` have at most 4 tokens"),
    ({"attention": "random", "mem_len": 0}, "Synthesizer", "knows the places of 4 tokens"),
    ({"attention": "absolute", "mem_len": 0}, "Transformer", "knows the places of 4 tokens")], ids=str)
def test_it_says_what_kind_of_model_it_is_and_how_long_rows_can_be(settings, kind, rows):
    card = model_card("mine", tiny_config(**settings), *_functions_of_one_signature(), {})
    assert f"\nA {kind} language model for TensorFlow Serving" in card and rows in card


def _functions_of_one_signature():
    @tf.function(input_signature=[tf.TensorSpec((None, None), tf.int32, "token_ids")])
    def generate(token_ids):
        return {"token_ids": token_ids}

    function = generate.get_concrete_function()
    return {"generate": function, "serving_default": function}, {"generate": "Does it."}
