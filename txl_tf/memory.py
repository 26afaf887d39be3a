"""The memory of a model as explicit state: how it starts, moves on, is reset, and which keys a query may see.

A memory is {"hidden": (B, L, M, E), "length": (B,) int32}: the last M inputs of every layer and how many of these slots are filled,
counted from the newest (the last). E is D, or 2 D where convolutions in the feed-forward layers need what these received, too.
"""

import tensorflow as tf


def initial_memory(batch_size, n_layer, mem_len, width, dtype="float32", memory_start="empty"):
    """Returns the memory before the first token: no slot filled ("empty") or M zero vectors that are seen ("zeros")."""
    hidden = tf.zeros((batch_size, n_layer, mem_len, width), dtype)
    length = tf.fill((batch_size,), mem_len if memory_start == "zeros" else 0)
    return {"hidden": hidden, "length": tf.cast(length, tf.int32)}


def next_memory(memory, remembered):
    """Returns the memory after a segment, behind a stop_gradient.

    Args:
        memory: the memory before the segment.
        remembered: L tensors (B, T, E), what each layer remembers of the segment.
    """
    mem_len = tf.shape(memory["hidden"])[2]
    inputs = tf.cast(tf.stack(remembered, axis=1), memory["hidden"].dtype)
    hidden = tf.concat([memory["hidden"], inputs], axis=2)  # (B, L, M+T, E)
    hidden = hidden[:, :, tf.shape(inputs)[2]:]  # (B, L, M, E)
    hidden.set_shape(memory["hidden"].shape)
    length = tf.minimum(memory["length"] + tf.shape(inputs)[2], mem_len)
    return {"hidden": tf.stop_gradient(hidden), "length": length}


def reset_memory(memory, rows, memory_start="empty"):
    """Returns the memory with some rows as before their first token, as at a document's boundary.

    Args:
        memory: a memory of B rows.
        rows: (B,) boolean, true where the row begins anew.
        memory_start: "empty" or "zeros", the model's setting.
    """
    rows = tf.convert_to_tensor(rows, tf.bool)
    mem_len = tf.shape(memory["hidden"])[2]
    hidden = tf.where(rows[:, None, None, None], tf.zeros_like(memory["hidden"]), memory["hidden"])
    start = mem_len if memory_start == "zeros" else tf.zeros_like(mem_len)
    return {"hidden": hidden, "length": tf.where(rows, start, memory["length"])}


def visible_keys(query_len, mem_len, length, same_length=False, same_length_extra=True):
    """Returns (B, T, M+T) boolean, true where query i may look at key j of [memory; segment].

    A query sees itself, what came before it in the segment and the filled slots of the memory; with same_length only
    its last M+1 keys, without same_length_extra its last M, but always itself.
    """
    query = tf.range(query_len)[:, None]  # (T, 1)
    key = tf.range(mem_len + query_len)[None]  # (1, S)
    visible = key <= query + mem_len
    if same_length:
        visible &= key >= query + tf.minimum(0 if same_length_extra else 1, mem_len)
    filled = key >= mem_len - length[:, None]  # (B, S)
    return visible[None] & filled[:, None]
