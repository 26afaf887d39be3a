"""The cache with every way of attention: it gives the numbers of the plain path, and generation those of texts read at once."""

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import N_TOKEN, tiny_model, tiny_tokens
from txl_tf.inference.beam_search import beam_search
from txl_tf.inference.cache import initial_cache, read, refitted
from txl_tf.inference.evaluation import evaluate
from txl_tf.inference.sampling import generate, read_prompts
from txl_tf.inference.scoring import score

WINDOW = 12
FORMS = [{"attention": "dense", "dense_form": form} for form in ("two_layer", "conv", "query")]
OTHERS = [{"attention": name} for name in ("random", "factorized_dense", "factorized_random")]
BY_DISTANCE = [*({"max_length": 20, **settings} for settings in (
    {"attention": "shaw"}, *FORMS, *OTHERS, {"attention": "mixture", "mixture_of": ("relative", "random", "dense"), "dense_form": "conv"},
    {"attention": "random", "feed_forward": "conv_relu"})), {"attention": "dot_product"}, {"feed_forward": "conv_relu", "pre_lnorm": True}]
BY_PLACE = [{"tgt_len": WINDOW, "mem_len": 0, **settings} for settings in (
    {"attention": "absolute"}, {"attention": "absolute", "feed_forward": "conv_relu"}, *FORMS, *OTHERS,
    {"attention": "mixture", "mixture_of": ("random", "dot_product"), "absolute_positions": True},
    {"attention": "dense", "dense_form": "conv", "feed_forward": "conv_relu", "absolute_positions": True})]


def log_probs_at_once(model, ids):
    """Returns the log-probabilities (V,) after a text (n,) that is read in one segment."""
    return model.log_probs(np.array([ids], np.int32), model.initial_memory(1, 0))[0].numpy()[0, -1]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", BY_DISTANCE, ids=str)
def test_segments_of_several_lengths_equal_the_plain_path(settings):
    model, ids = tiny_model(**settings), tiny_tokens(2, 17)
    cache, memory, start, before = initial_cache(model, 2, 9, 4), model.initial_memory(2, 9), 0, 4
    step = tf.function(lambda token_ids, cache: read(model, token_ids, cache))
    for length in (4, 4, 4, 1, 1, 1):
        cache = cache if length == before else refitted(model, cache, 9, length)
        token_ids, before = tf.constant(ids[:, start:start + length]), length
        hidden, cache = step(token_ids, cache)
        expected, memory = model.backbone((token_ids, memory))
        np.testing.assert_allclose(hidden, expected, atol=3e-5, err_msg=f"tokens from {start} on")
        start += length


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", BY_PLACE + [BY_DISTANCE[-2], BY_DISTANCE[-1], BY_DISTANCE[2]], ids=str)
def test_prompts_of_several_lengths_equal_texts_read_at_once(settings):
    model, ids = tiny_model(**settings), tiny_tokens(3, WINDOW)
    rows = [ids[0, :9], ids[1, :5], ids[2, :1]]
    hidden, cache = read_prompts(model, rows, WINDOW if model.config.window else 9)
    for _ in range(2):
        found = model.head.log_probs(hidden).numpy()[:, 0]
        np.testing.assert_allclose(found, [log_probs_at_once(model, row) for row in rows], atol=3e-5)
        rows = [np.append(row, 3) for row in rows]
        hidden, cache = read(model, tf.fill((3, 1), 3), cache)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [BY_PLACE[1], BY_PLACE[5]], ids=str)
def test_texts_beyond_the_window_go_on_with_their_last_half(settings):
    model, prompts = tiny_model(**settings), [tiny_tokens(1, length)[0] for length in (3, WINDOW + 5)]
    found = generate(model, prompts, 20, top_k=1)
    for prompt, text in zip(prompts, found):
        read, expected = list(prompt[-WINDOW:]), list(prompt)
        for number in range(20):
            expected.append(int(np.argmax(log_probs_at_once(model, read))))
            read = (read[-(WINDOW // 2):] if len(read) == WINDOW else read) + expected[-1:]
        assert text.tolist() == expected
    alone = generate(model, prompts[0], 20, seed=4)
    assert generate(model, prompts, 20, seed=4)[0].tolist() == alone.tolist()  # the other row ends its window elsewhere


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [BY_PLACE[2], BY_DISTANCE[1]], ids=str)
def test_scores_and_evaluation_are_those_of_the_plain_path(settings):
    model, ids = tiny_model(**{**settings, "tgt_len": 4}), tiny_tokens(2, 9)
    memory, expected = model.initial_memory(2), []
    for start in (0, 4):
        nll, memory = model.nll(ids[:, start:start + 4], ids[:, start + 1:start + 5], memory)
        expected.append(nll)
    np.testing.assert_allclose(np.stack(score(model, list(ids))), -np.concatenate(expected, axis=1), atol=1e-5)
    segments = [(tf.constant(ids[:, start:start + 4]), tf.constant(ids[:, start + 1:start + 5])) for start in (0, 4)]
    assert evaluate(model, segments)[0] == pytest.approx(np.mean(expected), abs=1e-5)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("mem_len", [0, 4])
def test_texts_go_on_with_as_many_distances_as_the_model_knows(mem_len):
    """Also where training had no memory, or the memory leaves less room than its segments had."""
    model, prompt = tiny_model(attention="dense", key_index="distance", mem_len=mem_len, max_length=8), tiny_tokens(1, 11)[0]
    for slots, length in ((None, 4), (7, 1)):
        memory, expected = model.initial_memory(1, slots or 4), list(prompt)
        for end in range(11 % length or length, 12, length):
            log_probs, memory = model.log_probs([prompt[max(end - length, 0):end]], memory)
        for _ in range(6):
            expected.append(int(np.argmax(log_probs[0, -1])))
            log_probs, memory = model.log_probs([expected[-1:]], memory)
        assert generate(model, prompt, 6, top_k=1, mem_len=slots).tolist() == expected
    ids = tiny_tokens(1, 9)
    nll, _ = model.nll(ids[:, :8], ids[:, 1:], model.initial_memory(1, 0))
    assert evaluate(model, [(tf.constant(ids[:, :8]), tf.constant(ids[:, 1:]))], mem_len=0)[0] == pytest.approx(np.mean(nll), abs=1e-5)
    np.testing.assert_allclose(score(model, [ids[0]], mem_len=0, tgt_len=8)[0], -nll.numpy()[0], atol=1e-5)


def refusal(call, *arguments, **settings):
    with pytest.raises(ValueError) as refused:
        call(*arguments, **settings)
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_more_than_was_learned_is_refused():
    by_place, by_distance, ids = tiny_model(**BY_PLACE[2]), tiny_model(**BY_DISTANCE[1]), tiny_tokens(1, 30)[0]
    segment = [(tf.constant(ids[None, :13]), tf.constant(ids[None, 1:14]))]
    assert "at most 12, " in refusal(evaluate, by_place, segment)
    assert refusal(evaluate, by_place, segment, mem_len=1).endswith("Received: mem_len=1, tgt_len=13")
    assert refusal(evaluate, by_distance, segment, mem_len=8).endswith("max_length=20. Received: mem_len=8, tgt_len=13")
    assert refusal(score, by_place, [ids], mem_len=3).endswith("Received: mem_len=3, tgt_len=12")
    assert refusal(score, by_distance, [ids], mem_len=17).endswith("Received: mem_len=17, tgt_len=4")
    assert refusal(generate, by_place, ids, 3, mem_len=5).endswith("Received: mem_len=5")
    assert refusal(generate, by_distance, ids, 3, mem_len=20).endswith("Received: mem_len=20, tgt_len=1")
    assert "at most 12 tokens" in refusal(beam_search, by_place, ids[:8], 5)
    for model, length, sentence in ((by_place, 13, "token_ids must be at most 12 a row"), (by_distance, 21, "together be at most 20")):
        for call in (model.log_probs, lambda *inputs: model.nll(inputs[0], *inputs)):
            assert sentence in refusal(call, ids[None, :length], model.initial_memory(1, 0))
    assert "memory must have no slots" in refusal(by_place.log_probs, ids[None, :2], by_place.initial_memory(1, 3))


@pytest.mark.slow
def test_a_beam_within_the_window_is_as_without_a_cache():
    model, prompt = tiny_model(**BY_PLACE[2]), tiny_tokens(1, 5)[0]
    (best, found), *_ = beam_search(model, prompt, 2, num_beams=N_TOKEN)
    texts = [[*prompt, first, second] for first in range(N_TOKEN) for second in range(N_TOKEN)]
    sums = [log_probs_at_once(model, text[:-2])[text[-2]] + log_probs_at_once(model, text[:-1])[text[-1]] for text in texts]
    assert best.tolist() == texts[int(np.argmax(sums))] and found == pytest.approx(max(sums) / 2, abs=1e-5)
