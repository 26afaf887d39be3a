"""One variable of another program: which variables it is here, and how they lie in it."""

import dataclasses
import logging

import numpy as np


@dataclasses.dataclass(frozen=True)
class Entry:
    """One variable of another program.

    Args:
        variables: our variables, one or several.
        axis: None where it is one variable as it stands; "columns" or "rows" where ours are joined along the last or the first
            axis; "layers" where they are stacked along a new first axis.
        transposed: whether all that is then transposed, a matrix.
    """

    variables: tuple
    axis: str | None = None
    transposed: bool = False

    def join(self, arrays):
        """Returns the other's array of arrays shaped as our variables."""
        joined = {None: lambda: arrays[0], "columns": lambda: np.concatenate(arrays, axis=-1),
                  "rows": lambda: np.concatenate(arrays, axis=0), "layers": lambda: np.stack(arrays)}[self.axis]()
        return joined.T if self.transposed else joined

    def split(self, array):
        """Returns arrays shaped as our variables from the other's array."""
        array = array.T if self.transposed else array
        if self.axis in ("columns", "rows"):
            axis = -1 if self.axis == "columns" else 0
            ends = np.cumsum([variable.shape[axis] for variable in self.variables])
            return np.split(array, ends[:-1], axis=axis)
        return list(array) if self.axis == "layers" else [array]

    @property
    def shape(self):
        """The other's shape."""
        first = tuple(self.variables[0].shape)
        if self.axis == "columns":
            first = (*first[:-1], sum(variable.shape[-1] for variable in self.variables))
        elif self.axis == "rows":
            first = (sum(variable.shape[0] for variable in self.variables), *first[1:])
        elif self.axis == "layers":
            first = (len(self.variables), *first)
        return first[::-1] if self.transposed else first

    def assign(self, array):
        """Gives our variables the other's values."""
        for variable, part in zip(self.variables, self.split(array), strict=True):
            variable.assign(np.asarray(part, np.float32))

    def value(self):
        """Returns the other's array of our variables' values."""
        return np.ascontiguousarray(self.join([variable.numpy() for variable in self.variables]))


def shared_names(stored, expected, name, source, allow_partial=False):
    """Returns the names in both of two {name: shape}, after a check of every shape, before any value is read.

    Args:
        stored: what the file holds.
        expected: what the model has.
        name: of the argument that says where the file is, for messages.
        source: that argument.
        allow_partial: whether names that only one of them has are passed over; they are logged.

    Raises:
        ValueError: if a shape differs, or, without allow_partial, a name is missing or unknown.
    """
    missing, unknown = sorted(expected.keys() - stored.keys()), sorted(stored.keys() - expected.keys())
    difference = f"lacks {missing or 'none'} and has besides {unknown or 'none'}"
    if (missing or unknown) and not allow_partial:
        raise ValueError(f"The checkpoint and config must have the same variables; it {difference}. Received: {name}={source}")
    for shared in expected.keys() & stored.keys():
        if tuple(stored[shared]) != expected[shared]:
            raise ValueError(f"{shared} must have the shape {expected[shared]} that config gives. "
                             f"Received: shape={tuple(stored[shared])}, {name}={source}")
    if missing or unknown:
        logging.warning("The checkpoint %s: what it lacks keeps its initial value, what it has besides is unused.", difference)
    return [shared for shared in expected if shared in stored]


def assign_shared(entries, stored, value_of, name, source, allow_partial=False):
    """Gives the variables of {name: Entry} the values that value_of(name) reads; the other arguments and errors as in `shared_names`."""
    expected = {each: entry.shape for each, entry in entries.items()}
    for shared in shared_names(stored, expected, name, source, allow_partial):
        entries[shared].assign(value_of(shared))


def check_fixed(config, fixed, program):
    """Raises ValueError unless a ModelConfig has the settings {name: value} that are the only ones in another program."""
    other = [name for name, value in fixed.items() if getattr(config, name) != value]
    if other:
        raise ValueError(f"The model must have {', '.join(f'{name}={fixed[name]}' for name in other)}, as {program} has. "
                         f"Received: {', '.join(f'{name}={getattr(config, name)}' for name in other)}")
