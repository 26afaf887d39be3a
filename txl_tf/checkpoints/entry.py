"""One variable of another program: which variables it is here, and how they lie in it."""

import dataclasses

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


TRANSFORMER_XL = {"attention": "relative", "feed_forward": "dense"}  # the layers of all these programs


def check_fixed(config, fixed, program):
    """Raises ValueError unless a ModelConfig has the settings {name: value} that are the only ones in another program."""
    other = [name for name, value in fixed.items() if getattr(config, name) != value]
    if other:
        raise ValueError(f"The model must have {', '.join(f'{name}={fixed[name]}' for name in other)}, as {program} has. "
                         f"Received: {', '.join(f'{name}={getattr(config, name)}' for name in other)}")
