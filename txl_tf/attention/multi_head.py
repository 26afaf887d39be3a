"""The part that all ways of attention share: values, mask, softmax, dropout and output projection."""

from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from txl_tf.layer_checks import check_rates, check_sizes, check_switches

HIDDEN_SCORE = -1e30


class Ring(NamedTuple):
    """How the tokens of a context lie that is written in a circle, over its oldest tokens."""

    end: tf.Tensor  # () int32, the newest token stands at end - 1, the oldest at end
    text_len: tf.Tensor  # (B,) int32, how many tokens of each row's text are in the context


class MultiHeadAttentionBase(keras.layers.Layer):
    """Multi-head attention of a segment over [memory; segment], without saying how scores are made.

    A subclass implements `project_query` and `scores`, adds its weights in `build_scores`, and where its scores need more of a token
    than its value, or something of the distances, extends `project` and `project_positions`.

    Args:
        num_heads: heads N.
        head_dim: width H of a head.
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of all kernels and biases.
        causal: whether a query sees itself and earlier keys only.

    Raises:
        ValueError: if num_heads or head_dim is no integer of at least 1, or inputs, memory or attention_mask have other shapes or types.
    """

    works_by_head = True  # whether scores of a head need nothing but that head of query, context and positions

    def __init__(self, num_heads, head_dim, dropout=0.0, kernel_initializer="glorot_uniform", causal=True, **kwargs):
        super().__init__(**kwargs)
        check_sizes(num_heads=num_heads, head_dim=head_dim)
        check_switches(causal=causal)
        check_rates(dropout=dropout)
        if kernel_initializer is None:
            raise ValueError("kernel_initializer must be an initializer or its name. Received: kernel_initializer=None")
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.dropout = dropout
        self.memory_gradient = False  # whether a gradient reaches what a block made the memory of
        self.kernel_initializer = keras.initializers.get(kernel_initializer)
        self.causal = causal
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, inputs_shape):
        width = inputs_shape[-1]
        self.value_kernel = self.add_kernel("value_kernel", width, self.num_heads * self.head_dim)
        self.output_kernel = self.add_kernel("output_kernel", self.num_heads * self.head_dim, width)
        self.build_scores(width)

    def must_be_causal(self, reason):
        """Raises ValueError if the layer is not causal, with the reason why it must be."""
        if not self.causal:
            raise ValueError(f"causal must be True: {reason}. Received: causal={self.causal}")

    def build_scores(self, width):
        """Adds the weights that scores are made with, for tokens of a width; a mixture builds no more of a layer."""

    def tie_biases(self, owner):
        """Makes this layer, which must not be built yet, use the weights of another that all layers of a model may share."""

    def check_memory(self, memory, inputs):
        """Returns the memory; raises ValueError if it can't come with inputs. If its length is not known yet, it is checked when it is."""
        if memory.shape[-1] != inputs.shape[-1]:
            raise ValueError(f"memory must be as wide as inputs, {inputs.shape[-1]}. Received: memory.shape={memory.shape}")
        if not tf.TensorShape((inputs.shape[0], None, None)).is_compatible_with(memory.shape):
            raise ValueError(f"memory must be (B, M, D) with the rows of inputs, {inputs.shape[0]}. Received: memory.shape={memory.shape}")
        return memory

    def check_keys(self, key_len):
        """Returns the number of keys; raises ValueError if it is too large. If it is not known yet, it is checked when it is."""
        return key_len

    def add_kernel(self, name, *shape):
        """Returns a new weight of the layer with the layer's initializer."""
        return self.add_weight(name=name, shape=shape, initializer=self.kernel_initializer.clone())

    def project(self, inputs):
        """Returns what is looked at of tokens (B, X, D), which with frozen weights need not be computed again: name -> (B, N, X, H)."""
        return {"value": self.split_heads(inputs, self.value_kernel), **self.project_keys(inputs)}

    def project_keys(self, inputs):
        """Returns what `scores` needs of the tokens (B, X, D) that are looked at: name -> (B, N or 1, X, ...)."""
        return {}

    def project_positions(self, key_len, position_embedding=None):
        """Returns what `scores` takes as positions, of the distances key_len-1 .. 0: a structure of tensors, () where it takes none."""
        return ()

    def project_query(self, inputs, context, visible=None, ring=None):
        """Returns what `scores` takes as query of tokens (B, T, D), the newest of the context: tensors (B, N, T, ...)."""
        raise NotImplementedError(f"{type(self).__name__} must implement project_query(inputs, context)")

    def scores(self, query, context, positions, ring=None):
        """Returns scores (B, N, T, S), or (1, N, T, S) where all rows have the same.

        Args:
            query: what `project_query` makes of T tokens.
            context: name -> (B, N, S, H), what `project` makes of the tokens that are looked at.
            positions: what `project_positions` makes of S distances.
            ring: None: the context is in text order and, for those who count places, begins a text; else a Ring.
        """
        raise NotImplementedError(f"{type(self).__name__} must implement scores(query, context, positions)")

    def call(self, inputs, memory=None, attention_mask=None, return_attention_scores=False, training=None, position_embedding=None):
        if len(inputs.shape) != 3 or not tf.as_dtype(inputs.dtype).is_floating:
            raise ValueError(f"inputs must be (B, T, D) numbers. Received: inputs.shape={inputs.shape}, {tf.as_dtype(inputs.dtype).name}")
        parts = [self.project(part) for part in self._parts(memory, inputs)]
        context = {name: tf.concat([part[name] for part in parts], axis=2) if len(parts) > 1 else parts[0][name] for name in parts[0]}
        positions = self.project_positions(self.check_keys(keras.ops.shape(context["value"])[2]), position_embedding)
        attention_mask = _checked_mask(attention_mask, inputs, context["value"])
        scores = self.scores(self.project_query(inputs, context, attention_mask), context, positions)
        weights = masked_softmax(_of_all_rows(scores, inputs), attention_mask, self.causal)
        kept = self.dropout_layer(tf.cast(weights, self.compute_dtype), training=training)
        outputs = self._merge_heads(tf.matmul(kept, context["value"]))
        return (outputs, weights) if return_attention_scores else outputs

    def attend(self, inputs, context, positions, visible, ring=None, by_head=False):
        """Returns (B, T, D), what `call` does without dropout, from a context that is projected already.

        Args:
            inputs: (B, T, D).
            context, positions, ring: as in `scores`.
            visible: (B, T, S) boolean, true where a query may look; any order of the context's tokens will do.
            by_head: work on one head of one row after the other, so that its scores stay in a processor's cache; where scores are
                made in a way that allows it.
        """
        query, hidden = self.project_query(inputs, context, visible, ring), hidden_scores(visible[:, None])  # (B, 1, T, S)

        def mixed(query, context, positions, hidden):
            scores = tf.cast(self.scores(query, context, positions, ring), tf.float32)
            weights = tf.nn.softmax(scores + hidden)
            return tf.matmul(tf.cast(weights, context["value"].dtype), context["value"])  # (B, N, T, H)

        if not by_head or not self.works_by_head:
            return self._merge_heads(mixed(query, context, positions, hidden))
        rows = tf.nest.map_structure(_rows, (query, context, positions, hidden))

        def mixed_row(row):
            batch, head = row // self.num_heads, row % self.num_heads
            numbers = tf.nest.map_structure(lambda _: row, (query, context)) + (tf.nest.map_structure(lambda _: head, positions), batch)
            return mixed(*tf.nest.map_structure(lambda tensor, number: tensor[number][None, None], rows, numbers))[0, 0]

        count = tf.shape(inputs)[0] * self.num_heads
        heads = tf.map_fn(mixed_row, tf.range(count), fn_output_signature=inputs.dtype, parallel_iterations=4)
        return self._merge_heads(tf.reshape(heads, (tf.shape(inputs)[0], self.num_heads, tf.shape(inputs)[1], self.head_dim)))

    def _merge_heads(self, heads):
        """Returns (B, N, T, H) as (B, T, D), through the output projection."""
        merged = tf.transpose(heads, (0, 2, 1, 3))  # (B, T, N, H)
        shape = tf.shape(merged)
        return matrix_product(tf.reshape(merged, (shape[0], shape[1], self.num_heads * self.head_dim)), self.output_kernel)

    def _parts(self, memory, inputs):
        """Returns [memory; inputs] as its parts; without memory_gradient, no backward pass is made for the memory's."""
        if memory is None:
            return (inputs,)
        memory = tf.cast(self.check_memory(memory, inputs), inputs.dtype)
        return memory if self.memory_gradient else tf.stop_gradient(memory), inputs

    def split_heads(self, tensor, kernel):
        """Returns (B, X, D) times a kernel (D, N H) as (B, N, X, H)."""
        shape = tf.shape(tensor)
        heads = tf.reshape(matrix_product(tensor, kernel), (shape[0], shape[1], self.num_heads, self.head_dim))
        return tf.transpose(heads, (0, 2, 1, 3))

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "dropout": self.dropout,
            "kernel_initializer": keras.initializers.serialize(self.kernel_initializer),
            "causal": self.causal,
        }


def _checked_mask(mask, inputs, value):
    """Returns a mask as booleans; raises ValueError if it can't be one of queries inputs (B, T, D) and keys with value (B, N, S, H)."""
    if mask is None:
        return None
    mask = tf.convert_to_tensor(mask)
    whole = tf.TensorShape((inputs.shape[0], inputs.shape[1], value.shape[2]))
    wanted = whole if mask.shape.rank == 3 else whole[1:]
    fits = mask.shape.rank in (2, 3) and all(size in (1, None) or most in (size, None) for size, most in zip(mask.shape, wanted))
    if not fits:
        raise ValueError(f"attention_mask must be (T, S) or (B, T, S) booleans, with (B, T, S) = {tuple(whole)}. Received: "
                         f"attention_mask.shape={mask.shape}, {mask.dtype.name}")
    if mask.dtype != tf.bool:
        _check_zeros_and_ones(mask)
    return tf.cast(mask, tf.bool)


def _check_zeros_and_ones(mask):
    """Raises ValueError if the numbers of a mask are others, as of one that is to be added; if they are not known yet, when they are."""
    expected, known = "attention_mask must be booleans, or 1 where a query may look, and else 0", tf.get_static_value(mask)
    if known is None:
        tf.debugging.assert_equal(mask * mask, mask, expected)
    elif np.any(known * known != known):
        raise ValueError(f"{expected}. Received: numbers from {np.min(known)} to {np.max(known)}, {mask.dtype.name}")


def matrix_product(tensor, kernel):
    """Returns (B, X, D) times a kernel (D, E), as one product of two matrices, whose gradient is another such product."""
    kernel = tf.cast(tf.convert_to_tensor(kernel), tensor.dtype)
    rows = tf.matmul(tf.reshape(tensor, (-1, kernel.shape[0])), kernel)
    return tf.reshape(rows, tf.concat([tf.shape(tensor)[:-1], [kernel.shape[1]]], axis=0))


def _rows(tensor):
    """Returns (B, N, X, Y) as (B N, X, Y), of which TensorFlow gives out a row without a copy."""
    return tf.reshape(tensor, tf.concat([[-1], tf.shape(tensor)[2:]], axis=0))


def _of_all_rows(scores, inputs):
    """Returns scores (B, N, T, S) or (1, N, T, S) for each row of inputs (B, T, D)."""
    if scores.shape[0] != 1 or inputs.shape[0] == 1:
        return scores
    return tf.broadcast_to(scores, tf.concat([tf.shape(inputs)[:1], tf.shape(scores)[1:]], axis=0))


def masked_softmax(scores, attention_mask=None, causal=True):
    """Returns float32 weights (B, N, T, S) that sum to one over the keys a query may see.

    Args:
        scores: (B, N, T, S); query i stands at key i + S - T.
        attention_mask: None, (T, S) or (B, T, S) boolean, true where a query may look.
        causal: whether keys later than the query are hidden, whatever the mask says.
    """
    mask = _not_later(tf.shape(scores)[2], tf.shape(scores)[3]) if causal else tf.constant(True)
    if attention_mask is not None:
        given = tf.cast(attention_mask, tf.bool)
        mask = mask & (given[:, None] if len(given.shape) == 3 else given)
    return tf.nn.softmax(tf.cast(scores, tf.float32) + hidden_scores(mask))


def hidden_scores(mask):
    """Returns float32 0 where a mask is true and HIDDEN_SCORE where not: to add it is faster than to choose, and no less exact."""
    return tf.where(mask, 0.0, HIDDEN_SCORE)


def _not_later(query_len, key_len):
    """Returns (T, S) boolean, true where a key is not later than the query."""
    return tf.range(key_len)[None] <= tf.range(query_len)[:, None] + key_len - query_len
