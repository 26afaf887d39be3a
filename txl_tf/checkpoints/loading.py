"""Models of checkpoints: every name and shape is checked before anything is allocated."""

import contextlib
import logging

import keras
import numpy as np
import tensorflow as tf

from txl_tf.checkpoints.entry import TRANSFORMER_XL, check_fixed
from txl_tf.language_model import TransformerXLLM


def load(config, entries_of, stored, value_of, name, source, allow_partial=False, passed_over=lambda model: ()):
    """Returns a TransformerXLLM with the values of a checkpoint.

    Args:
        config: its ModelConfig.
        entries_of: function from a model to {name in the checkpoint: Entry}.
        stored: {name: shape} of what the checkpoint holds.
        value_of: function that reads the value of a name.
        name, source, allow_partial: as in `shared_names`.
        passed_over: function from a model to the names in the checkpoint that it needs no value of.

    Raises:
        ValueError: as `shared_names`, or if config has other layers than a Transformer-XL, or more of them than there are variables, or
            a value is not finite.
    """
    check_fixed(config, TRANSFORMER_XL, "a checkpoint of a Transformer-XL")
    if config.n_layer > len(stored):  # a name for every layer would take long to make
        raise ValueError(f"n_layer must be at most {len(stored)}, as many variables as the checkpoint has. "
                         f"Received: n_layer={config.n_layer}, {name}={source}")
    with _allocated_later(config) as model:
        entries, unneeded = entries_of(model), set(passed_over(model))
        needed = {each: shape for each, shape in stored.items() if each not in unneeded}
        shared = shared_names(needed, {each: entry.shape for each, entry in entries.items()}, name, source, allow_partial)
    for each in shared:
        value = value_of(each)
        lowest, highest = np.min(value), np.max(value)
        if not (np.isfinite(lowest) and np.isfinite(highest)):
            raise ValueError(f"{each} must be finite. Received: values from {lowest} to {highest}, {name}={source}")
        entries[each].assign(value)
    return model


@contextlib.contextmanager
def _allocated_later(config):
    """Gives a with block a TransformerXLLM whose variables have shapes alone; they get values after it, or never if it raises an error."""
    try:
        with keras.StatelessScope(initialize_variables=False):
            model = TransformerXLLM(config)
        yield model
    except BaseException:
        with tf.Graph().as_default(), keras.StatelessScope():  # Keras gives them values now: in this graph, without memory
            pass
        raise
    with keras.StatelessScope():  # whose end gives them values
        pass


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
    for shared in expected:
        if shared in stored and tuple(stored[shared]) != expected[shared]:
            raise ValueError(f"{shared} must have the shape {expected[shared]} that config gives. "
                             f"Received: shape={tuple(stored[shared])}, {name}={source}")
    missing, unknown = sorted(expected.keys() - stored.keys()), sorted(stored.keys() - expected.keys())
    difference = f"lacks {missing or 'none'} and has besides {unknown or 'none'}"
    if (missing or unknown) and not allow_partial:
        raise ValueError(f"The checkpoint and config must have the same variables; it {difference}. Received: {name}={source}")
    if missing or unknown:
        logging.warning("The checkpoint %s: what it lacks keeps its initial value, what it has besides is unused.", difference)
    return [shared for shared in expected if shared in stored]
