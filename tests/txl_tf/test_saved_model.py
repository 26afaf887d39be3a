"""The signatures of an export against the Python model; tests/test_serving.py runs them without this package."""

import subprocess

import keras
import numpy as np
import pytest
import tensorflow as tf

from data_utils.vocabulary import ByteVocabulary, CharVocabulary, SubwordVocabulary, WordVocabulary
from testing.odd_texts import odd_texts
from testing.optional_package import needed
from testing.tiny_model import tiny_model
from txl_tf import saved_model
from txl_tf.inference.scoring import score
from txl_tf.language_model import TransformerXLLM
from txl_tf.saved_model import export_saved_model

SETTINGS = {"plain": {}, "zeros": {"memory_start": "zeros"}, "no memory": {"mem_len": 0}, "same length": {"same_length": True, "clamp_len": 5},
            "clusters and a mixture": {
                "n_layer": 2, "cutoffs": (40, 100), "div_val": 2, "untie_r": True, "tie_weight": False, "attention": "mixture", "dense_form": "conv",
                "mixture_of": ("dense", "dot_product", "relative"), "feed_forward": "conv_relu", "max_length": 400, "tgt_len": 300}}


def model_of(name="plain", **settings):
    return tiny_model(**{"n_token": 256, "n_layer": 1, **SETTINGS[name], **settings})


@pytest.fixture(scope="module", params=[pytest.param(name, marks=[pytest.mark.slow] if name != "zeros" else []) for name in SETTINGS])
def served(request, tmp_path_factory):
    """Returns (model, signatures of its export)."""
    model = model_of(request.param)
    return model, signatures(export_saved_model(model, ByteVocabulary(), tmp_path_factory.mktemp("served")))


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    model = model_of(n_layer=2)
    return model, signatures(export_saved_model(model, ByteVocabulary(), tmp_path_factory.mktemp("served")))


def signatures(path):
    """Returns {signature: function from its inputs to a dict of arrays} of a SavedModel."""
    loaded = tf.saved_model.load(path)

    def called(function, inputs):
        tensors = {name: tf.cast(value, function.structured_input_signature[1][name].dtype) for name, value in inputs.items()}
        return {name: value.numpy() for name, value in function(**tensors).items()}

    found = {name: (lambda function: lambda **inputs: called(function, inputs))(function) for name, function in loaded.signatures.items()}
    found["loaded"] = loaded
    return found


def tokens(rows, length, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (rows, length)).astype(np.int32)


def no_memory(model, rows, slots=0):
    config = model.config
    return {"memory": np.ones((rows, config.n_layer, slots, config.memory_width), np.float32), "memory_length": np.zeros(rows, np.int32)}


def sampling(rows, max_new_tokens=9, **settings):
    values = {"max_new_tokens": max_new_tokens, "temperature": 1.0, "top_k": 40, "top_p": 1.0, "seed": np.arange(rows) + 7, **settings}
    return {name: np.broadcast_to(value, (rows,)) for name, value in values.items()}


def log_probs_of(model, token_ids):
    """Returns (B, T): the log-probability of each token given those before it in one segment, 0 for the first."""
    log_probs, _ = model.log_probs(token_ids, model.initial_memory(len(token_ids)))
    found = np.take_along_axis(log_probs.numpy()[:, :-1], token_ids[:, 1:, None], axis=2)[..., 0]
    return np.pad(found, ((0, 0), (1, 0)))


@pytest.mark.slow_but_first
@pytest.mark.parametrize("rows", [1, 3, 8])
@pytest.mark.parametrize("length", [1, 5, 300])
def test_all_sizes(plain, rows, length):
    model, served = plain
    token_ids, lengths = tokens(rows, length), np.full(rows, length)
    found = served["score"](token_ids=token_ids, length=lengths, **no_memory(model, rows))
    np.testing.assert_allclose(found["log_probs"], log_probs_of(model, token_ids), rtol=0, atol=1e-5)
    expected, memory = model.log_probs(token_ids, model.initial_memory(rows))
    following = served["next_token"](token_ids=token_ids, length=lengths, **no_memory(model, rows, 4))
    np.testing.assert_allclose(following["log_probs"], expected[:, -1], rtol=0, atol=1e-5)
    np.testing.assert_allclose(following["memory"], memory["hidden"], rtol=0, atol=1e-5)
    np.testing.assert_array_equal(following["memory_length"], memory["length"])
    filled = served["prefill"](token_ids=token_ids, length=lengths)
    if length <= 5:
        np.testing.assert_allclose(filled["log_probs"], expected[:, -1], rtol=0, atol=1e-5)
    assert served["step"](token_id=token_ids[:, -1], **without(filled, "log_probs"))["log_probs"].shape == (rows, 256)
    generated = served["generate"](token_ids=token_ids, length=lengths, stop_token=np.full(rows, -1), **sampling(rows))
    np.testing.assert_array_equal(generated["token_ids"], model.generate(token_ids, 9, seed=7)[:, length:])


def without(found, *names):
    return {name: value for name, value in found.items() if name not in names}


class TestStreams:
    @pytest.mark.slow
    def test_scores_of_all_calls_are_those_of_one_stream(self, served):
        """Rows of other lengths in every call; each begins with the token that the call before ended with."""
        model, served = served
        text, starts, found = tokens(3, 40), np.zeros(3, int), [[], [], []]
        state = no_memory(model, 3)
        memory, expected = model.initial_memory(3), [[], [], []]
        for lengths in ([5, 2, 1], [3, 6, 4], [1, 7, 2], [6, 3, 5]):
            batch = np.stack([np.pad(row[start:start + length], (0, 9 - length), constant_values=9)
                              for row, start, length in zip(text, starts, lengths)])
            answer = served["score"](token_ids=batch, length=lengths, **state)
            for row, length in enumerate(lengths):
                assert answer["log_probs"][row, 0] == 0 and not answer["log_probs"][row, length:].any()
                found[row].extend(answer["log_probs"][row, 1:length])
                if length > 1:
                    inputs, labels = (text[row:row + 1, starts[row] + shift:starts[row] + shift + length - 1] for shift in (0, 1))
                    own = {name: value[row:row + 1] for name, value in memory.items()}
                    nll, after = model.nll(inputs, labels, own)
                    expected[row].extend(-nll.numpy()[0])
                    memory = {name: tf.concat([value[:row], after[name], value[row + 1:]], 0) for name, value in memory.items()}
            starts += np.array(lengths) - 1
            state = without(answer, "log_probs")
        for row in range(3):
            np.testing.assert_allclose(found[row], expected[row], rtol=0, atol=1e-5)
        np.testing.assert_allclose(state["memory"], memory["hidden"], rtol=0, atol=1e-5)
        np.testing.assert_array_equal(state["memory_length"], memory["length"])

    def test_next_tokens_and_steps_go_on_alike(self, served):
        model, served = served
        prompt, lengths, more = tokens(3, 4), np.array([4, 1, 3]), tokens(3, 12, seed=1)
        state = served["next_token"](token_ids=prompt, length=lengths, **no_memory(model, 3))
        cache = served["prefill"](token_ids=prompt, length=lengths)
        rows = [[*prompt[row, :lengths[row]], *more[row]] for row in range(3)]
        for index in range(more.shape[1] + 1):
            if model.config.mem_len:  # without it, generation has a memory, and next_token has none
                np.testing.assert_allclose(cache["log_probs"], state["log_probs"], rtol=0, atol=2e-5)
            if index < more.shape[1]:
                state = served["next_token"](token_ids=more[:, index:index + 1], length=np.ones(3), **without(state, "log_probs"))
                cache = served["step"](token_id=more[:, index], **without(cache, "log_probs"))
        memory, log_probs = model.initial_memory(1), None
        for ids in ([rows[0][:4]], *([[token]] for token in rows[0][4:])):
            log_probs, memory = model.log_probs(np.array(ids), memory)
        np.testing.assert_allclose(state["log_probs"][0], log_probs[0, -1], rtol=0, atol=2e-5)

    def test_a_row_begins_anew_where_its_length_is_0(self, plain):
        model, served = plain
        _, memory = model.log_probs(tokens(2, 6), model.initial_memory(2))
        memory_length = np.array([6, 0])
        found = served["next_token"](token_ids=tokens(2, 3, 1), length=[3, 3], memory=memory["hidden"], memory_length=memory_length)
        expected = [model.log_probs(tokens(2, 3, 1), start)[0][row, -1] for row, start in enumerate((memory, model.initial_memory(2)))]
        np.testing.assert_allclose(found["log_probs"], expected, rtol=0, atol=1e-5)
        cache = served["prefill"](token_ids=tokens(2, 6), length=[6, 6])
        cache["cache_length"][1] = 0
        found = served["step"](token_id=[5, 5], **without(cache, "log_probs"))["log_probs"][1]
        np.testing.assert_allclose(found, model.log_probs([[5]], model.initial_memory(1))[0][0, 0], rtol=0, atol=1e-5)

    def test_two_calls_are_the_same(self, plain):
        model, served = plain
        inputs = {"token_ids": tokens(2, 5), "length": [5, 3]}
        for name, more in (("score", no_memory(model, 2)), ("next_token", no_memory(model, 2)), ("prefill", {}),
                           ("generate", {**sampling(2), "stop_token": [-1, -1]})):
            first, second = (served[name](**inputs, **more) for _ in range(2))
            for key in first:
                np.testing.assert_array_equal(first[key], second[key])


class TestGenerate:
    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("settings", [{"temperature": 0.0}, {"top_k": 0}, {"top_k": 3, "temperature": 1.7}, {"top_p": 0.4}])
    def test_equals_the_model(self, served, settings):
        model, served = served
        rows = [tokens(1, length, length)[0] for length in (1, 11, 4)]
        batch = np.stack([np.pad(row, (0, 11 - len(row)), constant_values=5) for row in rows])
        found = served["generate"](token_ids=batch, length=[1, 11, 4], stop_token=[-1] * 3, **sampling(3, 12, **settings))
        expected = model.generate(rows, 12, seed=7, **settings)
        np.testing.assert_array_equal(found["token_ids"], [ids[-12:] for ids in expected])
        assert found["length"].tolist() == [12, 12, 12]

    def test_each_row_has_its_own_settings(self, plain):
        _, served = plain
        batch = {"token_ids": tokens(4, 5), "length": np.array([5, 2, 1, 3])}
        settings = {"max_new_tokens": [6, 3, 4, 1], "temperature": [0.0, 1.0, 1.0, 2.0], "top_k": [0, 5, 40, 1], "top_p": [1.0, 0.5, 1.0, 1.0],
                    "seed": [1, 2, 3, 4]}
        together = served["generate"](**batch, **settings, stop_token=[-1] * 4)
        assert together["length"].tolist() == [6, 3, 4, 1]
        for row in range(4):
            alone = served["generate"](**{name: np.array(value)[row:row + 1] for name, value in {**batch, **settings}.items()}, stop_token=[-1])
            length = together["length"][row]
            assert alone["length"][0] == length
            np.testing.assert_array_equal(alone["token_ids"][0, :length], together["token_ids"][row, :length])
            assert not together["token_ids"][row, length:].any()

    def test_stops(self, plain):
        model, served = plain
        ids = model.generate(tokens(1, 3)[0], 9, temperature=0)[3:]
        stop = int(ids[4])
        expected = ids.tolist().index(stop) + 1
        found = served["generate"](token_ids=tokens(1, 3), length=[3], stop_token=[stop], **sampling(1, temperature=0.0))
        assert found["length"].tolist() == [expected] and found["token_ids"][0].tolist() == ids[:expected].tolist()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("attention", ["random", "absolute"])
def test_a_text_ends_where_the_model_knows_no_more_places(attention, tmp_path):
    model = model_of(attention=attention, tgt_len=12, mem_len=0)
    served, ids, stop = signatures(export_saved_model(model, ByteVocabulary(), tmp_path)), tokens(2, 13), [-1, -1]
    inputs = {"token_ids": ids[:, :5], "length": [5, 3]}
    found = served["generate"](**inputs, stop_token=stop, **sampling(2, 7))
    np.testing.assert_array_equal(found["token_ids"], [row[-7:] for row in model.generate([ids[0, :5], ids[1, :3]], 7, seed=7)])
    with pytest.raises(tf.errors.InvalidArgumentError, match=r"length must .* at most 12"):
        served["generate"](**inputs, stop_token=stop, **sampling(2, 8))
    with pytest.raises(tf.errors.InvalidArgumentError, match="text and max_new_tokens must together be at most 12 tokens"):
        served["generate_text"](text=["hello"], **sampling(1, 8))
    cache = served["prefill"](**inputs)
    for place in range(5, 12):
        token_id = [ids[0, place], ids[1, place - 2]]
        cache = served["step"](token_id=token_id, **without(cache, "log_probs"))
        np.testing.assert_allclose(cache["log_probs"][0], model.log_probs(ids[:1, :place + 1], model.initial_memory(1))[0][0, -1], 0, 2e-5)
    assert cache["cache_length"].tolist() == [12, 10]
    with pytest.raises(tf.errors.InvalidArgumentError, match="cache_length must lie between 0 and 11"):
        served["step"](token_id=token_id, **without(cache, "log_probs"))


@pytest.mark.slow
def test_rows_are_as_long_as_the_model_knows_distances(tmp_path):
    model = model_of(attention="dense", max_length=10)
    served = signatures(export_saved_model(model, ByteVocabulary(), tmp_path))
    np.testing.assert_allclose(served["score"](token_ids=tokens(1, 4), length=[4], **no_memory(model, 1))["log_probs"],
                               log_probs_of(model, tokens(1, 4)), 0, 1e-5)
    with pytest.raises(tf.errors.InvalidArgumentError, match="token_ids must have at most 4 tokens a row"):
        served["score"](token_ids=tokens(1, 5), length=[4], **no_memory(model, 1))
    with pytest.raises(ValueError, match="at most max_length=10. Received: mem_len=7, tgt_len=4"):
        export_saved_model(model, ByteVocabulary(), tmp_path, mem_len=7)


TEXTS = odd_texts()
VOCABULARIES = {
    "byte": lambda: ByteVocabulary(),
    "char": lambda: CharVocabulary(dict.fromkeys("".join(TEXTS[:100]) + "\u2603"), unknown="\u2603"),
    "word": lambda: WordVocabulary(dict.fromkeys(["<eos>", "<unk>", *(word for text in TEXTS[:100] for word in text.split())]), unknown="<unk>"),
    "subword": lambda: needed("sentencepiece") and SubwordVocabulary.trained([text.encode() for text in TEXTS], 330),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", VOCABULARIES)
def test_texts(kind, tmp_path):
    """The tokens of odd texts are those of Python, and so are the scores; what is generated is decoded alike."""
    vocabulary = VOCABULARIES[kind]()
    model = model_of(n_token=vocabulary.n_token, tgt_len=64)
    served = signatures(export_saved_model(model, vocabulary, tmp_path))
    encoded = [np.asarray(vocabulary.encode(text), np.int32) for text in TEXTS]
    assert len(TEXTS) == 200 and max(map(len, encoded)) > 4_000
    for part in ([row for row in range(200) if len(encoded[row]) < 100], *[[row] for row in range(200) if len(encoded[row]) >= 100]):
        found = served["score_text"](text=[TEXTS[row] for row in part])
        expected = score(model, [encoded[row] for row in part], batch_size=len(part))
        for number, row in enumerate(part):
            length = found["length"][number]
            np.testing.assert_array_equal(found["token_ids"][number, :length], encoded[row], TEXTS[row])
            np.testing.assert_allclose(found["log_probs"][number, 1:length], expected[number], rtol=0, atol=3e-5)
            np.testing.assert_allclose(found["log_prob"][number], expected[number].sum(dtype=np.float64), rtol=1e-4, atol=1e-4)
    prompts = [row for row in range(20) if len(encoded[row])]
    generated = served["generate_text"](text=[TEXTS[row] for row in prompts], **sampling(len(prompts)))["text"]
    for text, row, seed in zip(generated, prompts, range(7, 27)):
        decoded = vocabulary.decode(model.generate(encoded[row], 9, seed=seed)[len(encoded[row]):])
        assert text.decode("utf-8").replace("\ufffd", "") == decoded.replace("\ufffd", "")


class TestVersions:
    @pytest.fixture(scope="class")
    def programs(self):
        return {}

    @pytest.fixture(autouse=True)
    def traced_once(self, programs, monkeypatch):
        """Lets exports with as many bytes of weights share a program, which takes long to trace: here it only matters where they are written."""
        trace = saved_model._traced

        def traced(model, vocabulary, stored, mem_len):
            if stored.bytes not in programs:
                programs[stored.bytes] = trace(model, vocabulary, stored, mem_len)
            return programs[stored.bytes]

        monkeypatch.setattr(saved_model, "_traced", traced)

    @pytest.mark.slow
    def test_versions(self, tmp_path):
        for version in ("1", "2"):
            assert export_saved_model(model_of(), None, tmp_path) == str(tmp_path / version)
        (tmp_path / "7").mkdir()
        assert export_saved_model(model_of(), None, tmp_path) == str(tmp_path / "8")
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "7", "8"]

    def test_what_a_killed_export_left_is_removed(self, tmp_path):
        killed = subprocess.Popen(["true"])
        killed.wait()
        left = saved_model._partial_name(killed.pid)
        (tmp_path / left / "left").mkdir(parents=True)
        assert export_saved_model(model_of(), None, tmp_path) == str(tmp_path / "1")
        assert [path.name for path in tmp_path.iterdir()] == ["1"] and not (tmp_path / "1" / "left").exists()

    @pytest.mark.slow
    def test_two_at_once_are_two_versions(self, tmp_path, monkeypatch):
        """One begins when the other has written all but its card."""
        write, others = saved_model.write_text, []

        def begins_another(path, text):
            monkeypatch.setattr(saved_model, "write_text", write)
            others.append(export_saved_model(model_of(), None, tmp_path, "int8"))
            write(path, text)

        monkeypatch.setattr(saved_model, "write_text", begins_another)
        assert (export_saved_model(model_of(), None, tmp_path), others) == (str(tmp_path / "2"), [str(tmp_path / "1")])
        for version, weights in (("1", "int8"), ("2", "float32")):
            assert f"stored as: {weights}" in (tmp_path / version / "model_card.md").read_text()
            tf.saved_model.load(str(tmp_path / version))
        assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2"]

    def test_what_fails_leaves_nothing(self, tmp_path, monkeypatch):
        export_saved_model(model_of(), None, tmp_path)
        monkeypatch.setattr("txl_tf.saved_model.write_text", lambda *_: (_ for _ in ()).throw(OSError(28, "No space left on device")))
        with pytest.raises(OSError, match="export_dir must be a folder that can be written, with room .*No space left on device"):
            export_saved_model(model_of(), None, tmp_path)
        assert [path.name for path in tmp_path.iterdir()] == ["1"]


class TestExport:
    @pytest.mark.slow
    def test_of_a_frozen_model_in_bfloat16_without_vocabulary(self, tmp_path):
        model = TransformerXLLM(model_of().config, dtype="mixed_bfloat16")
        model.trainable = False
        served = signatures(export_saved_model(model, None, tmp_path))
        found = served["next_token"](token_ids=tokens(1, 4), length=[4], **no_memory(model, 1))
        np.testing.assert_allclose(found["log_probs"][0], model.log_probs(tokens(1, 4), model.initial_memory(1))[0][0, -1], rtol=0, atol=1e-5)
        loaded = served["loaded"]
        assert set(loaded.signatures) == {"score", "next_token", "generate", "prefill", "step", "serving_default"}
        assert loaded.signatures["serving_default"].structured_input_signature[1].keys() == loaded.signatures["generate"].structured_input_signature[1].keys()

    @pytest.mark.slow
    def test_with_another_memory(self, tmp_path):
        model, served = model_of(), signatures(export_saved_model(model_of(), ByteVocabulary(), tmp_path, mem_len=9))
        found = served["next_token"](token_ids=tokens(2, 20), length=[20, 20], **no_memory(model, 2))
        memory, token_ids = model.initial_memory(2, 9), tokens(2, 20)
        log_probs, memory = model.log_probs(token_ids, memory)
        np.testing.assert_allclose(found["memory"], memory["hidden"], rtol=0, atol=1e-5)
        log_probs, _ = model.log_probs(token_ids[:, :3], memory)
        again = served["next_token"](token_ids=token_ids[:, :3], length=[3, 3], **without(found, "log_probs"))
        np.testing.assert_allclose(again["log_probs"], log_probs[:, -1], rtol=0, atol=1e-5)
        generated = served["generate"](token_ids=token_ids, length=[20, 20], stop_token=[-1, -1], **sampling(2))
        np.testing.assert_array_equal(generated["token_ids"], model.generate(token_ids, 9, seed=7, mem_len=9)[:, 20:])

    @pytest.mark.slow_but_first
    @pytest.mark.parametrize("weights, tolerance", [("bfloat16", 0.15), ("int8", 0.15)])
    def test_smaller_weights(self, tmp_path, weights, tolerance):
        model = model_of()
        before = model.get_weights()
        found = signatures(export_saved_model(model, ByteVocabulary(), tmp_path, weights))["score"](
            token_ids=tokens(2, 30), length=[30, 30], **no_memory(model, 2))
        for old, new in zip(before, model.get_weights(), strict=True):
            np.testing.assert_array_equal(old, new)
        difference = np.abs(found["log_probs"] - log_probs_of(model, tokens(2, 30)))
        assert 0 < difference.max() < tolerance

    @pytest.mark.parametrize("settings, message", [
        ({"weights": "int4"}, "weights must be one of float32, bfloat16, int8. Received: weights=int4"),
        ({"mem_len": -1}, "mem_len must be at least 0. Received: mem_len=-1"),
        ({"vocabulary": WordVocabulary(["<eos>", *map(str, range(300))])}, "vocabulary must have at most 256 tokens.* Received: n_token=")])
    def test_refused(self, tmp_path, settings, message):
        with pytest.raises(ValueError, match=message):
            export_saved_model(model_of(), **{"vocabulary": None, "folder": tmp_path, **settings})
        assert not list(tmp_path.iterdir())


def test_keras_is_not_in_the_export(plain):
    _, served = plain
    assert not any(isinstance(value, keras.Layer) for value in vars(served["loaded"]).values())
