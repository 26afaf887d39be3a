"""Beam search: against exhaustive search, lengths and ends, batches, memory that follows its beam, bad arguments."""

import itertools

import numpy as np
import pytest

from testing.tiny_model import N_TOKEN, tiny_model, tiny_tokens
from txl_tf.inference.beam_search import beam_search
from txl_tf.inference.sampling import generate

PROMPT = tiny_tokens(1, 5)[0]


def sums(model, prompt, continuations):
    """Returns the log-probabilities of continuations (C, n) of a prompt, summed up to each of their tokens, (C, n)."""
    ids = np.array([[*prompt, *continuation] for continuation in continuations], np.int32)
    log_probs, _ = model.log_probs(ids[:, :-1], model.initial_memory(len(ids), mem_len=0))
    chosen = np.take_along_axis(log_probs.numpy(), ids[:, 1:, None], axis=-1)[:, len(prompt) - 1:, 0]
    return chosen.cumsum(axis=1)


def exhaustive(model, prompt, length, length_penalty=1.0, stop_tokens=()):
    """Returns every continuation as (tokens, score), best first."""
    found = {}
    continuations = list(itertools.product(range(model.config.n_token), repeat=length))
    for tokens, totals in zip(continuations, sums(model, prompt, continuations)):
        end = next((place for place, token in enumerate(tokens) if token in stop_tokens), length - 1)
        found[tokens[:end + 1]] = totals[end] / (end + 1) ** length_penalty
    return sorted(found.items(), key=lambda pair: -pair[1])


def check(found, expected, prompt):
    for (ids, score), (tokens, right) in zip(found, expected):
        np.testing.assert_array_equal(ids, [*prompt, *tokens])
        assert ids.dtype == np.int32 and score == pytest.approx(right, abs=1e-5)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("stop_tokens", [(), (1,)])
@pytest.mark.parametrize("seed, length_penalty", [(0, 0.0), (1, 0.7), (2, 1.0), (3, 2.0)])
def test_three_beams_equal_exhaustive_search_on_a_toy_model(seed, length_penalty, stop_tokens):
    model = tiny_model(seed=seed, n_token=3, mem_len=20)
    prompt = tiny_tokens(1, 4, seed)[0] % 3
    expected = exhaustive(model, prompt, 2, length_penalty, stop_tokens)
    check(beam_search(model, prompt, 2, 3, length_penalty, stop_tokens=stop_tokens), expected, prompt)


@pytest.mark.slow
def test_enough_beams_equal_exhaustive_search_over_longer_texts():
    model = tiny_model(n_token=4, mem_len=20)
    prompt = PROMPT % 4
    for stop_tokens in ((), (2,), (0, 3)):
        expected = exhaustive(model, prompt, 4, 1.0, stop_tokens)
        found = beam_search(model, prompt, 4, num_beams=64, stop_tokens=stop_tokens)
        check(found, expected, prompt)
        assert len(found) == min(64, len(expected))


@pytest.mark.slow
def test_more_beams_are_no_worse_and_one_is_greedy():
    model = tiny_model(mem_len=30)
    scores = [beam_search(model, PROMPT, 8, num_beams)[0][1] for num_beams in (1, 3, 9, 27)]
    assert scores == sorted(scores) and scores[0] < scores[-1]
    np.testing.assert_array_equal(beam_search(model, PROMPT, 8, 1)[0][0], generate(model, PROMPT, 8, top_k=1))


@pytest.mark.slow
def test_scores_are_those_of_the_plain_path_so_memory_follows_its_beam():
    model = tiny_model(mem_len=40)
    for ids, score in beam_search(model, PROMPT, 20, 5, length_penalty=0):
        assert sums(model, PROMPT, [ids[len(PROMPT):]])[0, -1] == pytest.approx(score, abs=2e-4)


@pytest.mark.slow
def test_several_prompts_give_what_each_gives_alone():
    model = tiny_model(tgt_len=7, mem_len=6)
    prompts = [tiny_tokens(1, length, seed=length)[0] for length in (1, 5, 17)]
    for prompt, found in zip(prompts, beam_search(model, prompts, 6, 3, stop_tokens=[4]), strict=True):
        for (ids, score), (alone, right) in zip(found, beam_search(model, prompt, 6, 3, stop_tokens=[4]), strict=True):
            np.testing.assert_array_equal(ids, alone)
            assert score == pytest.approx(right, abs=1e-5)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name, value", [
    ("prompt_ids", []), ("prompt_ids", [N_TOKEN]), ("max_new_tokens", 0), ("max_new_tokens", 1.5), ("num_beams", 0), ("num_beams", "3"),
    ("length_penalty", float("nan")), ("length_penalty", 400), ("length_penalty", "1"), ("mem_len", -1), ("stop_tokens", [-1]),
])
def test_bad_arguments_are_refused_by_name(name, value):
    with pytest.raises(ValueError, match=f"{name} must .* Received: "):
        beam_search(tiny_model(), **{"prompt_ids": PROMPT, "max_new_tokens": 2, name: value})
