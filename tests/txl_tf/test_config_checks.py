"""Checks of settings: what passes, and what is refused with the name of the field."""

import dataclasses

import numpy as np
import pytest

from txl_tf import config_checks


@dataclasses.dataclass(frozen=True)
class Settings:
    """A configuration as the checks take it."""

    size: int = 3
    rate: float | None = None
    parts: tuple[int, ...] = ()
    names: tuple[str, ...] = ()


@pytest.mark.parametrize("given, kept", [
    ({"size": np.int64(4)}, 4), ({"rate": 1}, 1.0), ({"parts": [np.int32(2), 3]}, (2, 3)), ({"names": ["a", "b"]}, ("a", "b"))])
def test_values_become_plain_ones_of_their_type(given, kept):
    settings = Settings(**given)
    config_checks.set_types(settings)
    (name,) = given
    assert getattr(settings, name) == kept and type(getattr(settings, name)) is type(kept)


@pytest.mark.parametrize("given", [{"size": None}, {"size": 2.5}, {"rate": "1"}, {"parts": "12"}, {"parts": (2.5,)}, {"names": (1,)}, {"names": "ab"}])
def test_other_types_are_refused(given):
    (name,) = given
    with pytest.raises(ValueError, match=f"^{name} must be .* Received: {name}="):
        config_checks.set_types(Settings(**given))


def test_only_what_is_unset_is_filled():
    settings = Settings()
    assert config_checks.those_set(settings, "size", "rate") == ["size"]
    config_checks.fill(settings, size=9, rate=0.5)
    assert (settings.size, settings.rate) == (3, 0.5)


@pytest.mark.parametrize("check, right, wrong", [
    (lambda settings: config_checks.at_least(settings, 1, "size"), 1, 0),
    (lambda settings: config_checks.above(settings, 1, "size"), 2, 1),
    (lambda settings: config_checks.within(settings, 1, 3, "size"), 1, 3),
    (lambda settings: config_checks.within(settings, 1, 3, "size", open_end=False), 3, 4),
    (lambda settings: config_checks.one_of(settings, ("1", "2"), "size"), "2", "3"),
    (lambda settings: config_checks.named(settings, "size"), "a", ""),
    (lambda settings: config_checks.refuse_if(settings, settings.size > 1, "size must be small", "size"), 1, 2),
], ids=["at_least", "above", "within", "at_most", "one_of", "named", "refuse_if"])
def test_each_check_lets_pass_and_refuses(check, right, wrong):
    check(Settings(size=right))
    with pytest.raises(ValueError, match=f"^size must .*Received: size={wrong}"):
        check(Settings(size=wrong))
