"""Sampling: prompts are read once, seeds, greedy choice, top-k, top-p, penalties, ends, batches and bad arguments."""

import numpy as np
import pytest
import tensorflow as tf

from testing.tiny_model import N_TOKEN, tiny_model, tiny_tokens
from txl_tf.inference.sampling import ENDED, draw, generate, sample_tokens

PROMPT = tiny_tokens(2, 9)


def reads_of(model):
    """Returns a list that grows by the token ids (B, T) of every segment that the model reads from now on."""
    reads, embedding = [], model.backbone.token_embedding
    call = embedding.call

    def recorder(token_ids):
        tf.py_function(lambda ids: reads.append(ids.numpy()), [token_ids], [])
        return call(token_ids)

    embedding.call = recorder
    return reads


def test_the_prompt_is_read_once_in_segments_and_every_sampled_token_but_the_last_once():
    model = tiny_model(tgt_len=4)
    reads = reads_of(model)
    outputs = generate(model, PROMPT, 5, seed=1)
    assert [ids.shape for ids in reads] == [(2, 4)] * 3 + [(2, 1)] * 4
    np.testing.assert_array_equal(np.concatenate(reads, axis=1)[:, 3:], outputs[:, :-1])  # three places before the prompt are empty


@pytest.mark.slow
def test_output_begins_with_the_prompt_and_has_its_rank():
    model = tiny_model()
    outputs = generate(model, PROMPT, 3, seed=1)
    assert outputs.shape == (2, 12) and outputs.dtype == np.int32
    np.testing.assert_array_equal(outputs[:, :9], PROMPT)
    assert (0 <= outputs).all() and (outputs < N_TOKEN).all()
    flat = generate(model, PROMPT[0], 3, top_k=1)
    assert flat.shape == (12,)
    np.testing.assert_array_equal(flat, generate(model, PROMPT[:1], 3, top_k=1)[0])


@pytest.mark.slow
def test_a_list_and_one_token_will_do_as_prompt():
    model = tiny_model()
    assert generate(model, [3], 1, seed=1).tolist()[:1] == [3]
    np.testing.assert_array_equal(generate(model, [[1, 2], [3, 4]], 2, seed=1)[:, :2], [[1, 2], [3, 4]])


def test_seeds():
    model = tiny_model()
    first, again, other = (generate(model, PROMPT, 15, seed=seed) for seed in (5, 5, 6))
    np.testing.assert_array_equal(first, again)
    assert (first != other).any()
    assert (generate(model, PROMPT, 15) != generate(model, PROMPT, 15)).any()
    assert (first[0, 9:] != first[1, 9:]).any()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("greedy", [{"top_k": 1}, {"temperature": 0}, {"temperature": 0.0, "top_k": 0}])
def test_greedy_equals_the_argmax_of_the_whole_prefix(greedy):
    model = tiny_model(tgt_len=4)
    outputs = generate(model, PROMPT, 8, mem_len=20, **greedy)
    for length in range(9, 17):
        log_probs, _ = model.log_probs(outputs[:, :length], model.initial_memory(2, mem_len=20))
        np.testing.assert_array_equal(outputs[:, length], np.argmax(log_probs[:, -1], axis=-1))


@pytest.mark.slow
def test_greedy_batches_equal_each_prompt_alone():
    model = tiny_model()
    together = generate(model, PROMPT, 8, top_k=1)
    for prompt, outputs in zip(PROMPT, together):
        np.testing.assert_array_equal(generate(model, prompt, 8, top_k=1), outputs)


def plainly(model, prompt, count, mem_len):
    """Returns a prompt (P,) and the likeliest tokens after it, by the model's plain path; the prompt's segments end with it."""
    ids, memory, done = list(prompt), model.initial_memory(1, mem_len), 0
    for end in range(len(prompt) % model.config.tgt_len or model.config.tgt_len, len(prompt) + 1, model.config.tgt_len):
        log_probs, memory = model.log_probs(np.array([ids[done:end]]), memory)
        done = end
    for _ in range(count - 1):
        ids.append(int(np.argmax(log_probs[0, -1])))
        log_probs, memory = model.log_probs(np.array([ids[-1:]]), memory)
    return ids + [int(np.argmax(log_probs[0, -1]))]


@pytest.mark.slow_but_first
@pytest.mark.parametrize("settings", [
    {}, {"clamp_len": 3}, {"memory_start": "zeros", "same_length": True, "clamp_len": 2}, {"cutoffs": (3, 7), "div_val": 2, "d_embed": 8},
])
def test_greedy_text_is_that_of_the_plain_path(settings):
    model = tiny_model(tgt_len=4, mem_len=6, **settings)
    for prompt, mem_len in ((PROMPT[0, :1], None), (PROMPT[1], None), (PROMPT[1], 0), (PROMPT[0, :4], 9)):
        expected = plainly(model, prompt, 25, 6 if mem_len is None else mem_len)
        np.testing.assert_array_equal(generate(model, prompt, 25, top_k=1, mem_len=mem_len), expected)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("memory_start", ["empty", "zeros"])
@pytest.mark.parametrize("settings", [{"top_k": 1}, {"seed": 8, "repetition_penalty": 1.5, "top_p": 0.8}])
def test_prompts_of_many_lengths_give_what_each_gives_alone(memory_start, settings):
    model = tiny_model(tgt_len=7, mem_len=6, memory_start=memory_start)
    prompts = [tiny_tokens(1, length, seed=length)[0] for length in (1, 5, 17)]
    together = generate(model, prompts, 12, **settings)
    for row, (prompt, outputs) in enumerate(zip(prompts, together, strict=True)):
        alone = {**settings, "seed": settings["seed"] + row} if "seed" in settings else settings
        np.testing.assert_array_equal(outputs[:len(prompt)], prompt)
        np.testing.assert_array_equal(generate(model, prompt, 12, **alone), outputs)


@pytest.mark.slow
def test_a_row_ends_with_its_stop_token():
    model = tiny_model()
    free = generate(model, PROMPT, 12, seed=3)[:, 9:]
    stop = int(free[0, 4])
    first = [int(np.argmax(row == stop)) if stop in row else 11 for row in free]
    outputs = generate(model, PROMPT, 12, seed=3, stop_tokens=[stop])
    for prompt, row, end, output in zip(PROMPT, free, first, outputs, strict=True):
        np.testing.assert_array_equal(output, np.concatenate([prompt, row[:end + 1]]))
    tokens = np.stack(list(sample_tokens(model, PROMPT, 12, seed=3, stop_tokens=[stop])), axis=1)
    assert all((row[end + 1:] == ENDED).all() and (row[:end + 1] >= 0).all() for row, end in zip(tokens, first))


def test_nothing_more_is_read_when_all_rows_have_ended():
    model = tiny_model()
    reads = reads_of(model)
    everything = list(range(N_TOKEN))
    assert [len(row) for row in generate(model, PROMPT, 50, seed=3, stop_tokens=everything)] == [10, 10]
    assert all(ids.shape[1] > 1 for ids in reads)


@pytest.mark.slow
def test_the_models_memory_is_the_default():
    model = tiny_model(mem_len=6)
    np.testing.assert_array_equal(generate(model, PROMPT, 8, top_k=1), generate(model, PROMPT, 8, top_k=1, mem_len=6))
    assert (generate(model, PROMPT, 30, seed=1, mem_len=0) != generate(model, PROMPT, 30, seed=1)).any()


@pytest.mark.slow
def test_a_model_trained_without_memory_remembers_a_segment():
    model = tiny_model(mem_len=0, tgt_len=4)
    outputs = generate(model, PROMPT, 5, top_k=1)
    np.testing.assert_array_equal(outputs, generate(model, PROMPT, 5, top_k=1, mem_len=4))
    np.testing.assert_array_equal(generate(model, PROMPT, 2, top_k=1, mem_len=0)[:, :9], PROMPT)


def draws(log_probs, top_k, temperature, count=400, top_p=1.0):
    """Returns the tokens of many draws from the same distribution (V,)."""
    many = tf.constant(np.tile(log_probs, (count, 1)).astype(np.float32))
    candidates, ids = tf.math.top_k(many, min(top_k or 99, len(log_probs)))
    settings = (tf.fill((count,), float(value)) for value in (temperature, top_p))
    return draw(candidates, ids, tf.range(count, dtype=tf.int64), 4, *settings).numpy()


@pytest.mark.slow_but_first
@pytest.mark.parametrize("top_p, kept", [(0.3, {1}), (0.4, {1}), (0.5, {1, 3}), (0.8, {1, 3, 4}), (0.99, {0, 1, 2, 3, 4}), (1.0, {0, 1, 2, 3, 4})])
def test_top_p_keeps_the_likeliest_that_reach_it(top_p, kept):
    probabilities = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
    tokens = draws(np.log(probabilities), 0, 1.0, 4000, top_p)
    assert set(tokens) == kept
    expected = np.array([probabilities[token] if token in kept else 0 for token in range(5)])
    np.testing.assert_allclose(np.bincount(tokens, minlength=5) / 4000, expected / expected.sum(), atol=0.03)


@pytest.mark.slow
def test_a_repetition_penalty_is_by_what_the_row_holds():
    model = tiny_model()
    free = generate(model, PROMPT, 20, top_k=1)
    assert max(np.bincount(row[9:]).max() for row in free) > 4, "this model never repeats itself"
    outputs = generate(model, PROMPT[:, :3], N_TOKEN - 3, top_k=1, repetition_penalty=1e6)
    for row in outputs:  # while there are tokens that the row lacks, none comes again
        new = row[3:3 + N_TOKEN - len(set(row[:3]))]
        assert len(set(new)) == len(new) and not set(new) & set(row[:3])
    np.testing.assert_array_equal(generate(model, PROMPT, 9, seed=1, repetition_penalty=1), generate(model, PROMPT, 9, seed=1))


def test_every_sampled_token_is_among_the_likeliest_k():
    model = tiny_model()
    ids = model.generate(tiny_tokens(4, 3), 12, top_k=3, seed=5, mem_len=20)
    log_probs, _ = model.log_probs(ids, model.initial_memory(4, mem_len=20))
    ranks = (log_probs.numpy()[:, 2:-1] > np.take_along_axis(log_probs.numpy()[:, 2:-1], ids[:, 3:, None], axis=-1)).sum(axis=-1)
    assert ranks.max() == 2 and ranks.min() == 0


@pytest.mark.slow
def test_top_k_limits_the_choice_and_renormalises():
    probabilities = np.array([0.1, 0.4, 0.05, 0.25, 0.2])
    tokens = draws(np.log(probabilities), top_k=2, temperature=1.0, count=4000)
    assert set(tokens) == {1, 3}
    assert (tokens == 1).mean() == pytest.approx(0.4 / 0.65, abs=0.03)
    for everything in (0, 5, 40):
        counts = np.bincount(draws(np.log(probabilities), everything, 1.0, 4000), minlength=5) / 4000
        np.testing.assert_allclose(counts, probabilities, atol=0.03)


@pytest.mark.slow
def test_temperature_sharpens_and_flattens():
    probabilities = np.array([0.2, 0.8])
    for temperature in (0.5, 2.0):
        powers = probabilities ** (1 / temperature)
        share = (draws(np.log(probabilities), 0, temperature, 4000) == 1).mean()
        assert share == pytest.approx(powers[1] / powers.sum(), abs=0.03)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("temperature", [1e-6, 1e-42])
def test_a_very_low_temperature_takes_the_likeliest(temperature):
    greedy = generate(tiny_model(), PROMPT, 6, temperature=0)
    np.testing.assert_array_equal(generate(tiny_model(), PROMPT, 6, temperature=temperature, seed=1), greedy)


def test_rows_with_the_same_prompt_are_drawn_apart():
    outputs = generate(tiny_model(), np.tile(PROMPT[:1], (6, 1)), 10, top_k=0, temperature=3.0, seed=1)
    assert len({tuple(row) for row in outputs}) == 6


def test_tokens_come_one_after_another():
    model = tiny_model()
    tokens = list(sample_tokens(model, PROMPT, 4, seed=2))
    assert [token.shape for token in tokens] == [(2,)] * 4
    np.testing.assert_array_equal(np.stack(tokens, axis=1), generate(model, PROMPT, 4, seed=2)[:, 9:])


@pytest.mark.slow_but_first
@pytest.mark.parametrize("dtype", ["mixed_bfloat16", "mixed_float16"])
def test_low_precision_samples_too(dtype):
    assert generate(tiny_model(dtype), PROMPT, 3, seed=1).shape == (2, 12)


@pytest.mark.slow_but_first
@pytest.mark.parametrize("name, value", [
    ("prompt_ids", []), ("prompt_ids", [[]]), ("prompt_ids", np.zeros((0, 3), int)), ("prompt_ids", 3), ("prompt_ids", "text"),
    ("prompt_ids", [0.5]), ("prompt_ids", [[[1]]]), ("prompt_ids", [N_TOKEN]), ("prompt_ids", [0, -1]),
    ("max_new_tokens", 0), ("max_new_tokens", -1), ("top_k", -1),
    ("temperature", -0.1), ("temperature", float("nan")), ("mem_len", -1),
    ("top_p", 0), ("top_p", 1.1), ("top_p", float("nan")), ("repetition_penalty", 0), ("repetition_penalty", float("inf")), ("repetition_penalty", -1),
    ("stop_tokens", [N_TOKEN]), ("stop_tokens", ["a"]),
    ("max_new_tokens", 2.5), ("top_k", 2.5), ("mem_len", 2.5), ("seed", 1.5), ("seed", 2 ** 63), ("seed", "1"),
])
def test_bad_arguments_are_refused_by_name_before_anything_is_read(name, value):
    model = tiny_model()
    reads = reads_of(model)
    for method in (generate, lambda *args, **kwargs: list(sample_tokens(*args, **kwargs))):
        with pytest.raises(ValueError, match=f"{name} must .* Received: "):
            method(model, **{"prompt_ids": PROMPT, "max_new_tokens": 2, name: value})
    assert not reads
