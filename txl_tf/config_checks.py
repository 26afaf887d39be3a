"""What the fields of a configuration must be: checks that raise ValueError, in a sentence that names the field and what was received."""

import numbers
import typing


def set_types(config):
    """Makes every value a plain Python one of its field's type, numpy's numbers too, or raises ValueError."""
    for name, annotation in typing.get_type_hints(type(config)).items():
        value, kinds = getattr(config, name), typing.get_args(annotation) or (annotation,)
        if typing.get_origin(annotation) is tuple:
            if isinstance(value, str) or not hasattr(value, "__iter__"):
                raise ValueError(f"{name} must be a sequence. Received: {name}={value!r}")
            value = tuple(_as_type(name, item, kinds[:1]) for item in value)
        else:
            value = _as_type(name, value, kinds)
        object.__setattr__(config, name, value)


def _as_type(name, value, kinds):
    if type(value) in kinds:
        return value
    if not isinstance(value, bool):
        if int in kinds and isinstance(value, numbers.Integral):
            return int(value)
        if float in kinds and isinstance(value, numbers.Real):
            return float(value)
    expected = " or ".join("unset" if kind is type(None) else kind.__name__ for kind in kinds)
    raise ValueError(f"{name} must be {expected}. Received: {name}={value!r}")


def fill(config, **defaults):
    for name, value in defaults.items():
        if getattr(config, name) is None:
            object.__setattr__(config, name, value)


def those_set(config, *names):
    """Returns those of the names whose value is not None."""
    return [name for name in names if getattr(config, name) is not None]


def named(config, *names):
    for name in names:
        refuse_if(config, not getattr(config, name), f"{name} must name a file or folder", name)


def refuse_if(config, wrong, expected, *names):
    if wrong:
        raise ValueError(f"{expected}. Received: {', '.join(f'{name}={getattr(config, name)}' for name in names)}")


def at_least(config, least, *names):
    for name in names:
        if not least <= getattr(config, name) < float("inf"):
            raise ValueError(f"{name} must be at least {least} and finite. Received: {name}={getattr(config, name)}")


def above(config, bound, *names):
    for name in names:
        if not bound < getattr(config, name) < float("inf"):
            raise ValueError(f"{name} must be above {bound:g} and finite. Received: {name}={getattr(config, name)}")


def within(config, low, high, *names, open_end=True):
    for name in names:
        value = getattr(config, name)
        if not (low <= value < high or (value == high and not open_end)):
            raise ValueError(f"{name} must be at least {low:g} and {'below' if open_end else 'at most'} {high:g}. "
                             f"Received: {name}={value}")


def one_of(config, values, name):
    if getattr(config, name) not in values:
        raise ValueError(f"{name} must be one of {', '.join(values)}. Received: {name}={getattr(config, name)}")
