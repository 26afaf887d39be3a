"""A model's memory as projected keys and values, for weights that do not change: what was read is never projected again.

A cache is {"layers": for each layer name -> (B, N, R, H), or another width, "positions": for each layer what its scores take of the distances
R-1 .. 0, "next": () int32, "length": (B,) int32, "mem_len": () int32}. The R slots of a layer are a ring: a segment is written
from slot "next" on, over the oldest one. TensorFlow writes in place where no one else holds the cache, as in a tf.while_loop.
"""

import tensorflow as tf

from txl_tf.attention.multi_head import Ring
from txl_tf.attention.recent_tokens import recent_tokens
from txl_tf.attention.relative import sinusoid

_RECEIVED = "received"  # name of what a feed-forward layer with a convolution received


@tf.autograph.experimental.do_not_convert  # here and below: no Python loop or branch on tensors, and converting takes seconds
def initial_cache(model, batch_size, mem_len=None, segment_len=1):
    """Returns the cache before the first token.

    Args:
        model: a TransformerXLLM.
        batch_size: rows B.
        mem_len: slots M of the memory; None: the model's.
        segment_len: tokens T that `read` takes at once, always as many.
    """
    config = model.config
    mem_len = config.mem_len if mem_len is None else mem_len
    check_keys(config, mem_len, segment_len)
    slots = segment_len * (-(-mem_len // segment_len) + 1)  # whole segments, of which none wraps around
    embedding = sinusoid(slots, config.d_model, config.clamp_len)
    zeros = tf.zeros((batch_size, 1, config.d_model), model.compute_dtype)
    projected = [_kept(block, block.attention_inputs(zeros), zeros) for block in model.backbone.blocks]
    return {
        "layers": tuple({name: tf.repeat(value, slots, axis=2) for name, value in values.items()} for values in projected),
        "positions": tuple(block.attention_layer.project_positions(slots, embedding) for block in model.backbone.blocks),
        "next": tf.constant(0),
        "length": tf.fill((batch_size,), mem_len if config.memory_start == "zeros" else 0),
        "mem_len": tf.constant(mem_len),
    }


def check_keys(config, mem_len, segment_len):
    """Raises ValueError if the model does not know the distances of all keys of a memory and a segment."""
    keys = sum(tf.get_static_value(length) or 0 for length in (mem_len, segment_len))  # of those that are known already
    if config.key_limit and keys > config.key_limit:
        raise ValueError(f"mem_len and the tokens of a segment must together be at most max_length={config.key_limit}. Received: "
                         f"mem_len={mem_len}, tgt_len={segment_len}")


def segment_length(config, mem_len):
    """Returns the tokens of a long text that are read at once: those of training, fewer where that would be too many keys."""
    return min(config.tgt_len, config.key_limit - mem_len) if config.key_limit else config.tgt_len


@tf.autograph.experimental.do_not_convert
def read(model, token_ids, cache, lengths=None, by_head=False, compiled=False):
    """Reads a segment as the model's backbone does with a memory.

    Args:
        model: a TransformerXLLM.
        token_ids: (B, T) int32, T the segment_len that the cache was made for.
        cache: the cache before the segment.
        lengths: (B,) int32, how many tokens at the end of each row count; before them a row must have read nothing.
            None: all T.
        by_head: as in `MultiHeadAttentionBase.attend`.
        compiled: whether XLA compiles this, as for TPUs; it has an operation of its own for writing at any place.

    Returns:
        (hidden (B, T, D), cache after the segment).
    """
    length, start, slots = tf.shape(token_ids)[1], cache["next"], tf.shape(cache["layers"][0]["value"])[2]
    lengths = tf.fill(tf.shape(token_ids)[:1], length) if lengths is None else lengths
    ages = (start + length - 1 - tf.range(slots)) % slots  # (R,), 0 for the slot of the newest token
    visible = _visible(model.config, cache, ages, length, lengths)
    counts = (tf.range(length) >= length - lengths[:, None])[:, :, None]  # (B, T, 1)
    before, after = Ring(start, cache["length"]), Ring(start + length, cache["length"] + lengths)
    hidden, layers = _embedded(model.backbone, token_ids, after.text_len), []
    for block, kept, positions in zip(model.backbone.blocks, cache["layers"], cache["positions"], strict=True):
        inputs = block.attention_inputs(hidden)
        new = block.attention_layer.project(block.attention_inputs(tf.where(counts, hidden, 0)))
        kept = {name: _written(ring, new[name], start, compiled) if name in new else ring for name, ring in kept.items()}
        attended = block.attention_layer.attend(inputs, kept, positions, visible, after, by_head)
        earlier = _received_before(block, kept, visible & (ages >= length), before)
        hidden, received = block.after_attention(hidden, attended, earlier, counts)
        if _RECEIVED in kept:
            kept[_RECEIVED] = _written(kept[_RECEIVED], received[:, None], start, compiled)
        layers.append(kept)
    return hidden, {**cache, "layers": tuple(layers), "next": (start + length) % slots,
                    "length": tf.minimum(cache["length"] + lengths, cache["mem_len"])}


@tf.autograph.experimental.do_not_convert
def refitted(model, cache, mem_len, segment_len):
    """Returns a cache that holds the same mem_len slots, to be read on in segments of another length."""
    before = tf.shape(cache["layers"][0]["value"])[2]
    empty = initial_cache(model, tf.shape(cache["length"])[0], mem_len, segment_len)
    slots = empty["layers"][0]["value"].shape[2]

    def moved(ring):
        ring = tf.roll(ring, -cache["next"], axis=2)[:, :, before - mem_len:]  # in text order
        return tf.pad(ring, ((0, 0), (0, 0), (slots - segment_len - mem_len, segment_len), (0, 0)))

    layers = tuple({name: moved(ring) for name, ring in layer.items()} for layer in cache["layers"])
    return {**empty, "layers": layers, "next": tf.constant((slots - segment_len) % slots), "length": cache["length"]}


def _kept(block, attention_inputs, received):
    """Returns what a cache keeps of tokens (B, X, D): name -> (B, N, X, H)."""
    kept = block.attention_layer.project(attention_inputs)
    return {**kept, _RECEIVED: received[:, None]} if block.feed_forward.context_len else kept


def _received_before(block, kept, visible, ring):
    """Returns what a feed-forward layer with a convolution received of the tokens before a segment (B, F-1, D); else None."""
    if _RECEIVED not in kept:
        return None
    return recent_tokens(kept[_RECEIVED], block.feed_forward.context_len, visible, ring)[:, 0]


def _embedded(backbone, token_ids, text_len):
    """Returns the embeddings (B, T, D) of tokens that end texts of text_len (B,) tokens."""
    embedded = backbone.token_embedding(token_ids)
    if backbone.places is None:
        return embedded
    length = tf.shape(token_ids)[1]
    return backbone.places(embedded, tf.maximum(text_len[:, None] - length + tf.range(length), 0))


def _visible(config, cache, ages, length, lengths):
    """Returns (B, T, R) boolean, true where a query may look, as `txl_tf.memory.visible_keys` has it."""
    query_ages = (length - 1 - tf.range(length))[:, None]  # (T, 1)
    visible = (ages >= query_ages) & (ages < length + cache["mem_len"])  # (T, R)
    if config.same_length:
        visible &= ages <= query_ages + tf.maximum(cache["mem_len"] - (0 if config.same_length_extra else 1), 0)
    return visible & (ages < (cache["length"] + lengths)[:, None])[:, None]


def _written(ring, new, start, compiled):
    """Returns a ring (B, N, R, H) with new tokens (B, N, T, H) from slot start on."""
    if compiled:
        from tensorflow.compiler.tf2xla.python.xla import dynamic_update_slice

        return dynamic_update_slice(ring, new, tf.stack([0, 0, start, 0]))
    shape, width = tf.shape(ring), ring.shape[-1]
    flat, new = (tf.reshape(tensor, (shape[0] * shape[1], tf.shape(tensor)[2] * width)) for tensor in (ring, new))
    begin, end = (tf.stack([0, place]) for place in (start * width, start * width + tf.shape(new)[1]))
    flat = tf.raw_ops.TensorStridedSliceUpdate(input=flat, begin=begin, end=end, strides=[1, 1], value=new, begin_mask=1, end_mask=1)
    return tf.ensure_shape(tf.reshape(flat, shape), ring.shape)
