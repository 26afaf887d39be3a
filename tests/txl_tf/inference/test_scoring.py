"""Scores equal the model's own log-probabilities, whatever shares the batch and wherever segments end."""

import numpy as np
import pytest

from testing.tiny_model import N_TOKEN, tiny_model, tiny_tokens
from txl_tf.inference import scoring
from txl_tf.inference.scoring import score

LENGTHS = (1, 2, 5, 17, 300)
DOCUMENTS = [tiny_tokens(1, length, seed=length)[0] for length in LENGTHS]
ADAPTIVE = {"cutoffs": (4, 7), "div_val": 2}


def in_one_pass(model, document):
    """Returns the scores (n-1,) from the log-probabilities of the whole document in one segment."""
    log_probs, _ = model.log_probs(document[None, :-1], model.initial_memory(1, len(document)))
    return np.take_along_axis(log_probs.numpy()[0], document[1:, None], axis=-1)[:, 0]


def in_segments(model, document, mem_len, tgt_len):
    """Returns the scores (n-1,) segment by segment, the memory projected anew for each."""
    memory, found = model.initial_memory(1, mem_len), [np.zeros((1, 0))]
    for start in range(0, len(document) - 1, tgt_len):
        labels = document[None, start + 1:start + 1 + tgt_len]
        nll, memory = model.nll(document[None, start:start + labels.shape[1]], labels, memory)
        found.append(-nll.numpy())
    return np.concatenate(found, axis=1)[0]


def assert_close(found, wanted):
    assert len(found) == len(wanted)
    for ours, theirs in zip(found, wanted, strict=True):
        assert ours.dtype == np.float32
        np.testing.assert_allclose(ours, theirs, rtol=3e-5, atol=3e-5)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [{}, ADAPTIVE], ids=["full", "adaptive"])
def test_a_long_memory_gives_the_log_probabilities_of_the_whole_document(settings):
    model = tiny_model(**settings)
    wanted = [in_one_pass(model, document) if len(document) > 1 else [] for document in DOCUMENTS]
    for tgt_len in (7, 1000):
        assert_close(score(model, DOCUMENTS, mem_len=300, tgt_len=tgt_len), wanted)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("mem_len, tgt_len, settings", [
    (6, 4, {}), (3, 8, ADAPTIVE), (0, 5, {}), (20, 1, {"clamp_len": 3}), (3, 8, {"same_length": True}), (40, 4, {"same_length": True}),
    (6, 4, {"memory_start": "zeros"}), (3, 32, {"memory_start": "zeros"}),
], ids=str)
def test_a_short_memory_gives_what_the_segments_give(mem_len, tgt_len, settings):
    model = tiny_model(**settings)
    documents = DOCUMENTS[:4] + [tiny_tokens(1, 40)[0]]
    assert_close(score(model, documents, mem_len, tgt_len), [in_segments(model, document, mem_len, tgt_len) for document in documents])


def test_the_models_own_lengths_by_default():
    model = tiny_model(mem_len=6, tgt_len=4)
    assert_close(score(model, DOCUMENTS[3:4]), [in_segments(model, DOCUMENTS[3], 6, 4)])


@pytest.mark.slow_but_first
@pytest.mark.parametrize("batch_size", [1, 3, 16])
def test_the_other_documents_of_a_batch_change_nothing(batch_size):
    model = tiny_model()
    alone = [score(model, [document])[0] for document in DOCUMENTS]
    assert [len(scores) for scores in alone] == [0, 1, 4, 16, 299]
    for order in (slice(None), slice(None, None, -1)):
        assert_close(score(model, DOCUMENTS[order], batch_size=batch_size), alone[order])


def test_scores_do_not_depend_on_how_many_segments_a_call_takes(monkeypatch):
    model = tiny_model()
    wanted = score(model, DOCUMENTS)
    monkeypatch.setattr(scoring, "_AT_ONCE", 3)
    assert_close(score(model, DOCUMENTS), wanted)


def test_what_has_no_context_has_no_score():
    assert score(tiny_model(), []) == []
    for documents in ([[]], [[], [3], np.zeros(0)]):
        assert [scores.shape for scores in score(tiny_model(), documents)] == [(0,)] * len(documents)


def test_lists_and_bytes_as_numbers_will_do():
    model = tiny_model()
    assert_close(score(model, [[1, 2, 3], np.array([1, 2, 3], np.uint8)]), score(model, [np.array([1, 2, 3])] * 2))


def test_low_precision_scores_too():
    found, = score(tiny_model("mixed_bfloat16"), DOCUMENTS[3:4])
    np.testing.assert_allclose(found, score(tiny_model(), DOCUMENTS[3:4])[0], atol=0.3)


@pytest.mark.slow
def test_few_programs_serve_many_lengths(monkeypatch):
    model, traced = tiny_model(tgt_len=16), []
    read = scoring.read
    monkeypatch.setattr(scoring, "read", lambda *arguments: traced.append(1) or read(*arguments))
    for length in range(2, 60):
        score(model, [tiny_tokens(1, length)[0]])
    assert 1 <= len(traced) <= 8  # autograph may call a loop's body twice for a program


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name, value, received", [
    ("documents", [[1, 2], [0, N_TOKEN]], r"documents\[1\] with 0 .. 11"), ("documents", [[-1]], r"documents\[0\] with -1 .. -1"),
    ("documents", [[0.5]], r"documents\[0\] of shape=\(1,\), dtype=float64"), ("documents", [[[1]]], r"documents\[0\] of shape=\(1, 1\)"),
    ("mem_len", -1, "mem_len=-1"), ("mem_len", 2.5, "mem_len=2.5"), ("tgt_len", 0, "tgt_len=0"), ("batch_size", 0, "batch_size=0"),
], ids=str)
def test_bad_arguments(name, value, received):
    with pytest.raises(ValueError, match=f"{name} must .* Received: {received}"):
        score(tiny_model(), **{"documents": [[1, 2]], name: value})
