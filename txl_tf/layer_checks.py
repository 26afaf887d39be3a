"""What the arguments of layers must be: checks that raise ValueError, in a sentence that names the argument and what was received."""

import numbers


def check_sizes(**sizes):
    """Raises ValueError unless all are integers of at least 1."""
    for name, size in sizes.items():
        if not _is_size(size):
            raise ValueError(f"{name} must be an integer of at least 1. Received: {name}={size!r}")


def check_switches(**switches):
    """Raises ValueError unless all are True or False."""
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise ValueError(f"{name} must be True or False. Received: {name}={value!r}")


def check_rates(**rates):
    """Raises ValueError unless all are numbers from 0 to below 1."""
    for name, rate in rates.items():
        if isinstance(rate, bool) or not isinstance(rate, numbers.Real) or not 0 <= rate < 1:
            raise ValueError(f"{name} must be a number from 0 to below 1. Received: {name}={rate!r}")


def check_not_negative(**values):
    """Raises ValueError unless all are finite numbers of at least 0."""
    for name, value in values.items():
        if isinstance(value, bool) or not isinstance(value, numbers.Real) or not 0 <= value < float("inf"):
            raise ValueError(f"{name} must be a number of at least 0. Received: {name}={value!r}")


def are_two_sizes(values):
    """Tells whether values are a sequence of two integers of at least 1."""
    return isinstance(values, (tuple, list)) and len(values) == 2 and all(map(_is_size, values))


def _is_size(value):
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and value >= 1
