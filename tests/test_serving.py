"""An export is served: without this package by three programs, to many clients at once, and in batches that a server merges."""

import concurrent.futures
import os
import shutil
import subprocess
import sys
import threading

import numpy as np
import pytest
import tensorflow as tf

from data_utils.char_vocabulary import CharVocabulary
from testing.servers import CommandServer, CServer, PythonServer, compiled
from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.inference.scoring import score
from txl_tf.saved_model import export_saved_model

pytestmark = pytest.mark.slow
VOCABULARY = CharVocabulary("eta onihré☃")
TEXTS = ["tea", "", "one ☃ither", "né"]
LENGTHS = [5, 1, 7]
SAMPLING = {"max_new_tokens": np.array([4, 9, 1], np.int32), "temperature": np.array([1, 0, 2], np.float32),
            "top_k": np.array([0, 3, 5], np.int32), "top_p": np.array([0.8, 1, 1], np.float32), "seed": np.array([3, 5, 2**40])}
MODEL = tiny_model()


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    return export_saved_model(MODEL, VOCABULARY, tmp_path_factory.mktemp("served"))


@pytest.fixture(scope="module")
def loaded(path):
    return tf.saved_model.load(path)


@pytest.fixture(scope="module")
def signatures(loaded):
    """Returns a function of a signature and its inputs, arrays, to its outputs, arrays."""

    def called(signature, inputs):
        outputs = loaded.signatures[signature](**{name: tf.constant(value) for name, value in inputs.items()})
        return {name: value.numpy() for name, value in outputs.items()}

    return called


@pytest.fixture(scope="module")
def python(path):
    with PythonServer(path) as server:
        yield server


@pytest.fixture(scope="module")
def command(path):
    with CommandServer(path) as server:
        yield server


@pytest.fixture(scope="module")
def c(path, tmp_path_factory):
    if not shutil.which("gcc"):
        pytest.skip("gcc is missing")
    with CServer(path, compiled(tmp_path_factory.mktemp("program"))) as server:
        yield server


@pytest.fixture(scope="module", params=["python", "command", "c"])
def server(request):
    return request.getfixturevalue(request.param)


def padded(rows):
    """Returns arrays of several lengths as one array, padded with zeros along their first axis."""
    longest = max(map(len, rows))
    return np.stack([np.pad(row, [(0, longest - len(row)), *[(0, 0)] * (np.ndim(row) - 1)]) for row in rows])


def scored():
    """Returns (inputs, what the Python model answers) of `score`, with two rows that go on and one that begins."""
    token_ids, start = tiny_tokens(3, 7), MODEL.log_probs(tiny_tokens(3, 4, seed=4), MODEL.initial_memory(3))[1]
    start = MODEL.reset_memory(start, np.array([False, True, False]))
    inputs = {"token_ids": token_ids, "length": np.array(LENGTHS, np.int32), "memory": start["hidden"].numpy()[:, :, -4:],
              "memory_length": start["length"].numpy()}
    log_probs, after = [], []
    for row, length in enumerate(LENGTHS):
        memory, ids = row_of(start, row), token_ids[row:row + 1, :length]
        if length > 1:
            nll, memory = MODEL.nll(ids[:, :-1], ids[:, 1:], memory)
        log_probs.append([0.0, *(-nll[0].numpy() if length > 1 else ())])
        after.append(memory)
    return inputs, {"log_probs": padded(log_probs), **exchanged(after)}


def next_tokens():
    """Returns (inputs, what the Python model answers) of `next_token`."""
    inputs, _ = scored()
    start = {"hidden": tf.constant(np.pad(inputs["memory"], ((0, 0), (0, 0), (2, 0), (0, 0)))),
             "length": tf.constant(inputs["memory_length"])}
    found = [MODEL.log_probs(ids[None, :length], row_of(start, row))
             for row, (ids, length) in enumerate(zip(inputs["token_ids"], LENGTHS, strict=True))]
    return inputs, {"log_probs": np.stack([log_probs[0, -1] for log_probs, _ in found]), **exchanged([memory for _, memory in found])}


def generated():
    """Returns (inputs, what the Python model answers) of `generate`; a stop token ends a row."""
    token_ids, stop_token = tiny_tokens(3, 7), sampled(tiny_tokens(3, 7)[0, :5], 0)[1]
    inputs = {"token_ids": token_ids, "length": np.array(LENGTHS, np.int32), "stop_token": np.array([stop_token, -1, -1], np.int32),
              **SAMPLING}
    rows = [sampled(token_ids[row, :length], row, [stop_token] if row == 0 else ()) for row, length in enumerate(LENGTHS)]
    return inputs, {"token_ids": padded(rows), "length": [len(row) for row in rows]}


def scored_texts():
    """Returns (inputs, what the Python model answers) of `score_text`."""
    encoded = [VOCABULARY.encode(text) for text in TEXTS]
    log_probs = [np.concatenate([np.zeros(min(len(ids), 1)), row]) for ids, row in zip(encoded, score(MODEL, encoded), strict=True)]
    expected = {"token_ids": padded(encoded), "length": [len(ids) for ids in encoded], "log_probs": padded(log_probs),
                "log_prob": [row.sum() for row in log_probs]}
    return {"text": as_bytes(TEXTS)}, expected


def generated_texts():
    """Returns (inputs, what the Python model answers) of `generate_text`."""
    texts = TEXTS[:1] + TEXTS[2:]
    written = [VOCABULARY.decode(sampled(VOCABULARY.encode(text), row)) for row, text in enumerate(texts)]
    return {"text": as_bytes(texts), **SAMPLING}, {"text": as_bytes(written)}


CASES = {"score": scored, "next_token": next_tokens, "generate": generated, "score_text": scored_texts, "generate_text": generated_texts}


def row_of(memory, row):
    return {name: value[row:row + 1] for name, value in memory.items()}


def exchanged(memories):
    """Returns memories of one row each as an export hands them out."""
    return {"memory": np.concatenate([memory["hidden"] for memory in memories]),
            "memory_length": np.concatenate([memory["length"] for memory in memories])}


def sampled(prompt, row, stop_tokens=()):
    """Returns what the Python model samples after a prompt with a row of SAMPLING."""
    settings = {name: values[row].item() for name, values in SAMPLING.items()}
    return MODEL.generate([prompt], stop_tokens=stop_tokens, **settings)[0][len(prompt):]


def last_log_probs(token_ids, lengths):
    """Returns the log-probabilities (B, V) of the token that follows each row."""
    return np.stack([MODEL.log_probs(ids[None, :length], MODEL.initial_memory(1))[0][0, -1]
                     for ids, length in zip(token_ids, lengths, strict=True)])


def as_bytes(texts):
    return np.array([text.encode("utf-8") for text in texts])


def assert_like(found, expected, message=""):
    """Checks that outputs are what is expected: numbers to 1e-5, all else exactly."""
    for name, value in expected.items():
        value = np.asarray(value)
        if value.dtype.kind == "f":
            np.testing.assert_allclose(found[name], value, rtol=0, atol=1e-5, err_msg=f"{name} {message}")
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=f"{name} {message}")


class TestWithoutThisPackage:
    @pytest.mark.parametrize("signature", CASES)
    def test_answers_are_those_of_the_model(self, server, signature):
        inputs, expected = CASES[signature]()
        answer = server.ask(signature, inputs)
        assert answer.keys() == expected.keys()
        assert_like(answer, expected)
        if "seed" in inputs:
            again = server.ask(signature, inputs)
            for name, value in answer.items():
                np.testing.assert_array_equal(again[name], value)
        assert not server.modules & {"txl_tf", "data_utils"}

    def test_steps_go_on_from_a_prefill(self, server):
        token_ids, lengths = tiny_tokens(2, 7), np.array([5, 2], np.int32)
        answer = server.ask("prefill", {"token_ids": token_ids, "length": lengths})
        assert_like(answer, {"log_probs": last_log_probs(token_ids, lengths), "cache_length": lengths})
        for more in range(1, 3):
            cache = {name: value for name, value in answer.items() if name.startswith("cache")}
            answer = server.ask("step", {"token_id": token_ids[[0, 1], lengths + more - 1], **cache})
            assert_like(answer, {"log_probs": last_log_probs(token_ids, lengths + more), "cache_length": np.minimum(lengths + more, 6)})


class TestCommand:
    def test_shows_all_signatures(self, path, tmp_path):
        command = [sys.executable, "-I", "-m", "tensorflow.python.tools.saved_model_cli", "show", "--dir", path, "--all"]
        environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
        shown = subprocess.run(command, cwd=tmp_path, env=environment, stdout=subprocess.PIPE, text=True, check=True).stdout
        for signature in (*CASES, "prefill", "step", "serving_default"):
            assert f"signature_def['{signature}']" in shown
        assert "inputs['memory'] tensor_info" in shown

    def test_takes_expressions(self, command):
        inputs, expected = generated_texts()
        texts = [text.decode("utf-8") for text in inputs.pop("text")]
        settings = [f"{name}={values.tolist()}" for name, values in inputs.items()]
        assert_like(command.answers("generate_text", "--input_exprs", ";".join([f"text={texts}", *settings])), expected)


class Client:
    """Calls signatures in an order of its own, and keeps the memory and the cache that they hand out."""

    def __init__(self, signatures, number):
        self.signatures, self.random = signatures, np.random.default_rng(number)
        self.memory = {"memory": np.ones((1, 2, 1, 12), np.float32), "memory_length": np.zeros(1, np.int32)}
        self.cache = {**dict.fromkeys(("cache_key", "cache_value"), np.ones((1, 2, 3, 6, 5), np.float32)), "cache_length": np.zeros(1, np.int32)}

    def run(self, calls=20):
        """Returns the log-probabilities of all calls."""
        return [self.call(signature) for signature in self.random.choice(["score", "next_token", "step"], calls)]

    def call(self, signature):
        if signature == "step":
            answer = self.signatures("step", {"token_id": self.tokens()["token_ids"][:, 0], **self.cache})
            self.cache = self.kept(answer)
        else:
            answer = self.signatures(signature, {**self.tokens(), **self.memory})
            self.memory = self.kept(answer)
        return answer["log_probs"]

    def tokens(self):
        length = self.random.integers(1, 8)
        return {"token_ids": self.random.integers(0, 11, (1, length)).astype(np.int32), "length": np.array([length], np.int32)}

    @staticmethod
    def kept(answer):
        return {name: value for name, value in answer.items() if name != "log_probs"}


def test_clients_do_not_meet(signatures):
    clients, together = 50, threading.Barrier(50)
    alone = [Client(signatures, number).run() for number in range(clients)]

    def run(number):
        client = Client(signatures, number)
        together.wait()
        return client.run()

    with concurrent.futures.ThreadPoolExecutor(clients) as pool:
        interleaved = list(pool.map(run, range(clients)))
    for one, other in zip(alone, interleaved, strict=True):
        for value, again in zip(one, other, strict=True):
            np.testing.assert_allclose(again, value, rtol=0, atol=1e-5)
    assert sum(len(calls) for calls in interleaved) == 1000
    assert len({b"".join(value.tobytes() for value in calls) for calls in alone}) == clients


def merged(requests):
    """Returns requests as the batcher of TensorFlow Serving merges them with pad_variable_length_inputs.

    A tensor that is shorter than others is padded with its first element behind the end of each axis but the first; one without
    elements, which the batcher refuses then, has none.
    """
    inputs = {}
    for name in requests[0]:
        tensors = [request[name] for request in requests]
        longest = np.max([tensor.shape[1:] for tensor in tensors], axis=0)
        widths = [[(0, 0), *((0, int(most - size)) for most, size in zip(longest, tensor.shape[1:], strict=True))] for tensor in tensors]
        inputs[name] = np.concatenate([np.pad(tensor, width, constant_values=tensor.flat[0]) if np.any(width) else tensor
                                       for tensor, width in zip(tensors, widths, strict=True)])
    return inputs


def request_of(specs, number):
    """Returns the first, second or third of three requests: their lengths and settings differ, and the first has two rows.

    An axis of no slots can't be padded, so the memory of the third, which begins a text, has one slot, of which none counts.
    """
    random, rows = np.random.default_rng(number), 2 if number == 0 else 1
    values = {"token_ids": random.integers(0, 11, (rows, (7, 3, 1)[number])), "length": ([7, 5], [3], [1])[number],
              "memory": random.normal(size=(rows, 2, (6, 6, 1)[number], 12)), "memory_length": ([3, 2], [6], [0])[number],
              "token_id": random.integers(0, 11, rows), "cache_length": ([6, 0], [3], [1])[number],
              "max_new_tokens": ([4, 2], [9], [1])[number], "temperature": ([1, 0], [2], [0.7])[number],
              "top_k": ([0, 1], [3], [5])[number], "top_p": ([1, 0.5], [0.9], [1])[number], "seed": ([1, 2], [3], [2**40])[number],
              "stop_token": ([-1, 4], [4], [-1])[number],
              "text": as_bytes((["tea", "né"], ["one ☃ither"], ["n"])[number])}
    return {name: np.asarray(values[name], spec.dtype.as_numpy_dtype if spec.dtype != tf.string else None) if name in values
            else random.normal(size=(rows, *spec.shape[1:])).astype(np.float32) for name, spec in specs.items()}


@pytest.mark.parametrize("numbers", [(0, 1), (1, 2), (2, 0, 1)])
@pytest.mark.parametrize("signature", [*CASES, "prefill", "step"])
def test_merged_requests_have_their_own_answers(loaded, signatures, signature, numbers):
    requests = [request_of(loaded.signatures[signature].structured_input_signature[1], number) for number in numbers]
    together, start = signatures(signature, merged(requests)), 0
    for number, request in zip(numbers, requests, strict=True):
        alone = signatures(signature, request)
        stop = start + len(next(iter(request.values())))
        own = {name: value[(slice(start, stop), *map(slice, alone[name].shape[1:]))] for name, value in together.items()}
        assert_like(own, alone, f"of request {number}")
        start = stop


def test_a_memory_of_no_slots_begins_a_text(loaded, signatures):
    request = request_of(loaded.signatures["score"].structured_input_signature[1], 2)
    empty = signatures("score", {**request, "memory": request["memory"][:, :, :0]})
    assert_like(empty, signatures("score", request))
