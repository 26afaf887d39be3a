"""Segments of random text whose rows go on from one to the next, and data sets of them."""

import tensorflow as tf

from testing.tiny_model import tiny_tokens

T, STEPS = 4, 5


def segments(batch=3, steps=STEPS, seed=2, length=T, rest=0):
    """Returns [(token_ids, labels)] of (B, T), the last of which has `rest` tokens if that is above 0."""
    tokens = tiny_tokens(batch, length * steps + 1 - (length - rest if rest else 0), seed)
    return [(tokens[:, start:start + length][:, :tokens.shape[1] - 1 - start], tokens[:, start + 1:start + length + 1])
            for start in range(0, tokens.shape[1] - 1, length)]


def dataset(pairs, cardinality=True):
    """Returns the pairs as a tf.data.Dataset."""
    rows, parts = len(pairs[0][0]), len(pairs[0])
    made = tf.data.Dataset.from_generator(lambda: iter(pairs), output_signature=(tf.TensorSpec((rows, None), tf.int32),) * 2 +
                                          (tf.TensorSpec((rows, None), tf.float32),) * (parts - 2))
    return made.apply(tf.data.experimental.assert_cardinality(len(pairs))) if cardinality else made
