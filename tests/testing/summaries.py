"""What TensorBoard would show of a run."""

import tensorflow as tf


def summaries(folder):
    """Returns {(tag, step): value} of the event files below a folder."""
    found = {}
    for path in folder.rglob("*tfevents*"):
        for record in tf.data.TFRecordDataset(str(path)):
            event = tf.compat.v1.Event.FromString(record.numpy())
            found.update({(value.tag, event.step): float(tf.make_ndarray(value.tensor)) for value in event.summary.value})
    return found
