"""Evaluation: every token weighs the same, memory is carried, settings that need no other weights."""

import numpy as np
import pytest

from testing.tiny_model import tiny_model, tiny_tokens
from txl_tf.inference.evaluation import evaluate, evaluation_model

ROWS = 3
TOKENS = tiny_tokens(ROWS, 12)


def segments(*lengths):
    """Returns the first tokens as consecutive (token_ids, labels) of these lengths."""
    ends = np.cumsum(lengths)
    return [(TOKENS[:, end - length:end], TOKENS[:, end - length + 1:end + 1]) for length, end in zip(lengths, ends)]


def one_pass(model, mem_len=None):
    """Returns the nll (B, 11) of all labels in one segment."""
    nll, _ = model.nll(TOKENS[:, :-1], TOKENS[:, 1:], model.initial_memory(ROWS, mem_len))
    return nll.numpy().astype(np.float64)


@pytest.mark.slow
def test_uneven_segments_give_the_mean_over_all_tokens():
    model = tiny_model(mem_len=11)
    for lengths in ((11,), (4, 4, 3), (5, 5, 1)):
        nll, count = evaluate(model, segments(*lengths))
        assert count == 33
        assert nll == pytest.approx(one_pass(model).mean(), rel=1e-5)


def test_the_result_is_weighted_by_tokens_not_by_segments():
    model = tiny_model(mem_len=11)
    nll = one_pass(model)
    by_segments = np.mean([nll[:, :10].mean(), nll[:, 10:].mean()])
    assert abs(by_segments - nll.mean()) > 1e-2, "this data can't tell"
    assert evaluate(model, segments(10, 1))[0] == pytest.approx(nll.mean(), rel=1e-5)


@pytest.mark.slow
def test_memory_is_carried_and_may_have_another_length():
    model = tiny_model(mem_len=2)
    assert evaluate(model, segments(4, 4, 3), mem_len=11)[0] == pytest.approx(one_pass(model).mean(), rel=1e-5)
    alone = [evaluate(model, [segment])[0] * segment[0].size for segment in segments(4, 4, 3)]
    without = evaluate(model, segments(4, 4, 3), mem_len=0)[0]
    assert without == pytest.approx(sum(alone) / 33, rel=1e-5)
    assert len({round(evaluate(model, segments(4, 4, 3), mem_len=mem_len)[0], 4) for mem_len in (0, None, 11)}) == 3


def test_every_evaluation_starts_with_a_memory_of_its_own():
    model = tiny_model()
    assert evaluate(model, segments(4, 4)) == evaluate(model, segments(4, 4))


def test_as_many_segments_as_asked_for():
    model = tiny_model(mem_len=11)
    for most in (1, 2):
        assert evaluate(model, segments(4, 4, 3), max_segments=most) == evaluate(model, segments(4, 4, 3)[:most])
    assert evaluate(model, segments(4, 4, 3), max_segments=9) == evaluate(model, segments(4, 4, 3))


def test_nothing_to_evaluate_is_refused():
    with pytest.raises(ValueError, match="segments must hold at least one segment. Received: none"):
        evaluate(tiny_model(), [])


@pytest.mark.slow
def test_other_settings_with_the_same_weights():
    model = tiny_model(mem_len=6, clamp_len=-1)
    before = evaluate(model, segments(4, 4, 3))
    other = evaluation_model(model, clamp_len=1, same_length=True)
    assert (other.config.clamp_len, other.config.same_length, other.config.d_model) == (1, True, model.config.d_model)
    for ours, theirs in zip(model.weights, other.weights, strict=True):
        np.testing.assert_array_equal(ours, theirs)
    made_so = tiny_model(mem_len=6, clamp_len=1, same_length=True)
    assert evaluate(other, segments(4, 4, 3))[0] == pytest.approx(evaluate(made_so, segments(4, 4, 3))[0], rel=1e-6)
    assert evaluate(model, segments(4, 4, 3)) == before != evaluate(other, segments(4, 4, 3))


def test_the_copy_keeps_the_precision():
    assert evaluation_model(tiny_model("mixed_bfloat16"), clamp_len=1).compute_dtype == "bfloat16"


def test_settings_that_change_nothing_need_no_copy():
    model = tiny_model(clamp_len=5)
    assert evaluation_model(model, clamp_len=5, same_length=None) is model
    assert evaluation_model(model, clamp_len=None, same_length=True).config.clamp_len == 5
