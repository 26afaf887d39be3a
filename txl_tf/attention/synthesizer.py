"""The part that all Synthesizers share: logits over l keys, found by their place in the text or by their distance."""

import keras
import tensorflow as tf

from txl_tf.attention.multi_head import MultiHeadAttentionBase
from txl_tf.attention.relative import by_distance
from txl_tf.layer_checks import check_sizes

KEY_INDICES = ("position", "distance")


class SynthesizerBase(MultiHeadAttentionBase):
    """Multi-head attention whose scores are no products of two tokens (Tay et al. 2020, arXiv 2005.00743).

    With key_index "position" the logits of a query are those of the keys at the places 0 .. l-1 of a text, as in the paper;
    "distance": of the keys that stand 0 .. l-1 tokens before it, so that a text may be read in segments with a memory.
    A subclass whose logits depend on no token returns them from `project_positions`. Another overrides `project_query` and `scores`:
    it makes logits in the order that `in_key_order` gives to weights, and hands them to `of_keys`.

    Args:
        num_heads: heads N.
        head_dim: width H of a head's values.
        max_length: number l of places or distances that have logits, the largest number of keys S.
        key_index: "position" or "distance".
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of all weights.
        causal: whether a query sees itself and earlier keys only; with key_index "distance" it must be.

    Raises:
        ValueError: if a size is below 1, key_index is no known one, inputs and memory have more than l tokens, memory is not as wide as
            inputs, or has tokens with key_index "position"; where a tf.function finds that out only when it runs, it is a
            tf.errors.InvalidArgumentError.
    """

    works_by_head = False

    def __init__(self, num_heads, head_dim, max_length, key_index="position", dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(num_heads, head_dim, dropout, kernel_initializer, **kwargs)
        check_sizes(max_length=max_length)
        if key_index not in KEY_INDICES:
            raise ValueError(f"key_index must be one of {', '.join(KEY_INDICES)}. Received: key_index={key_index}")
        self.max_length = max_length
        self.key_index = key_index
        if self.is_by_distance:
            self.must_be_causal("with key_index=distance later keys have no logits")

    @property
    def is_by_distance(self):
        return self.key_index == "distance"

    def check_keys(self, key_len):
        known, expected = tf.get_static_value(key_len), "max_length must be at least the number of tokens of memory and segment"
        if known is not None:
            if known > self.max_length:
                raise ValueError(f"{expected}, {known}. Received: max_length={self.max_length}")
            return key_len
        message = f"{expected}. Received: max_length={self.max_length}"
        with tf.control_dependencies([tf.debugging.assert_less_equal(key_len, self.max_length, message)]):
            counted = tf.slice(tf.ones((self.max_length,), tf.int32), [0], [key_len], name="max_length")
        return tf.reduce_sum(counted)  # which is key_len, but XLA, for which there are no assertions, refuses such a slice

    def check_memory(self, memory, inputs):
        memory = super().check_memory(memory, inputs)
        if self.is_by_distance or memory.shape[1] == 0:
            return memory
        message = "memory must have no tokens with key_index=position, where a text begins with the segment"
        if memory.shape[1]:
            raise ValueError(f"{message}. Received: memory.shape={memory.shape}")
        with tf.control_dependencies([tf.debugging.assert_equal(tf.shape(memory)[1], 0, message)]):
            return tf.ensure_shape(memory, (None, 0, None), name="memory_without_tokens")  # XLA refuses it, too

    def in_key_order(self, weights, key_len):
        """Returns weights (..., l), one for each place or distance, as (..., S) or, with a column of zeros in front, (..., 1+S)."""
        return self.cut(self.in_text_order(weights), key_len)

    def in_text_order(self, weights):
        """Returns weights (..., l) in the order of the keys: of the places 0 .. l-1, or the distances l-1 .. 0."""
        return tf.reverse(weights, (-1,)) if self.is_by_distance else weights

    def cut(self, weights, key_len):
        """Returns weights (..., l) that are in text order for S keys, as `in_key_order` does."""
        left_out = tf.maximum(self.max_length - key_len, 0)
        missing = tf.maximum(key_len - self.max_length, 0)  # only slots of a cache that no query sees
        if self.is_by_distance:
            return _padded(weights[..., left_out:], missing + 1, 0)
        return _padded(weights[..., :self.max_length - left_out], 0, missing)

    def of_keys(self, logits, key_len, ring=None):
        """Returns scores (B, N, T, S) from logits that are in the order of `in_key_order`."""
        if self.is_by_distance:
            return by_distance(logits, ring)
        if ring is None:
            return logits
        places = ring.text_len[:, None] - 1 - (ring.end - 1 - tf.range(key_len)) % key_len  # (B, S)
        logits = tf.broadcast_to(logits, tf.concat([tf.shape(places)[:1], tf.shape(logits)[1:]], axis=0))
        by_key = tf.gather(tf.transpose(logits, (0, 3, 1, 2)), tf.maximum(places, 0), batch_dims=1)  # (B, S, N, T)
        return tf.transpose(by_key, (0, 2, 3, 1))

    def project_query(self, inputs, context, visible=None, ring=None):
        return inputs[:, None]  # of which only the number of queries counts

    def scores(self, query, context, positions, ring=None):
        """Returns scores (1, N, T, S), with a ring (B, N, T, S), from positions that are logits which no query changes: those of the
        distances (1, N, 1, 1+S) or of all places (1, N, l, S), in the order of `in_key_order`."""
        logits, query_len, key_len = positions, tf.shape(query)[2], tf.shape(context["value"])[2]
        if self.is_by_distance:
            logits = tf.repeat(logits, query_len, axis=2)
        elif ring is None:
            logits = logits[:, :, :query_len]
        else:
            places = ring.text_len[:, None] - query_len + tf.range(query_len)  # (B, T), below 0 where no token counts
            logits = tf.transpose(tf.gather(logits[0], tf.maximum(places, 0), axis=1), (1, 0, 2, 3))  # (B, N, T, S)
        return self.of_keys(logits, key_len, ring)

    def cast(self, weight):
        """Returns a weight as a tensor of the compute dtype."""
        return tf.cast(tf.convert_to_tensor(weight), self.compute_dtype)

    def add_head_kernel(self, name, *shape):
        """Returns a new weight (N, ...), every head's part of which starts as a kernel of its own."""
        initializer = keras.initializers.get(self.kernel_initializer)
        return self.add_weight(name=name, shape=(self.num_heads, *shape), initializer=_OfEachHead(initializer))

    def add_head_layer(self, name, inputs, units):
        """Returns new weights NAME_kernel (N, inputs, units) and NAME_bias (N, 1, units), a dense layer for each head."""
        kernel = self.add_head_kernel(f"{name}_kernel", inputs, units)
        return kernel, self.add_weight(name=f"{name}_bias", shape=(self.num_heads, 1, units), initializer="zeros")

    def shares(self, inputs):
        """Returns tokens (B, X, D) as the heads' shares (B, N, X, D/N)."""
        shape = tf.shape(inputs)
        heads = tf.reshape(inputs, (shape[0], shape[1], self.num_heads, inputs.shape[-1] // self.num_heads))
        return tf.transpose(heads, (0, 2, 1, 3))

    def share_width(self, width):
        """Returns D/N. Raises ValueError unless the heads can share a token evenly."""
        if width % self.num_heads:
            raise ValueError(f"num_heads must divide the width of inputs, {width}. Received: num_heads={self.num_heads}")
        return width // self.num_heads

    def get_config(self):
        return {**super().get_config(), "max_length": self.max_length, "key_index": self.key_index}


class _OfEachHead(keras.initializers.Initializer):
    """Draws each head's part of a weight (N, ...) by itself, so that the number of heads does not count as inputs."""

    def __init__(self, initializer):
        self.initializer = initializer

    def __call__(self, shape, dtype=None):
        return keras.ops.stack([self.initializer.clone()(shape[1:], dtype=dtype) for _ in range(shape[0])])


def _padded(weights, before, after):
    """Returns weights (..., X) with zeros around the last axis."""
    return tf.pad(weights, [(0, 0)] * (len(weights.shape) - 1) + [(before, after)])
