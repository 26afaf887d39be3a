"""Floating-point operations of a step, counted from the configuration: two for each multiply-add of a matrix product."""

import math

HEAD_ROWS = 32  # the adaptive softmax fills the table of its head up to a multiple of this


def forward_flops(config, batch_size, tgt_len, mem_len):
    """Returns {part of the model: operations of one pass over a segment}.

    Labels are taken to follow Zipf's law over the ids, which says how many fall into each tail of an adaptive softmax.

    Args:
        config: a ModelConfig with attention "relative".
        batch_size: rows B.
        tgt_len: tokens T of the segment.
        mem_len: slots M of the memory.

    Raises:
        ValueError: for another kind of attention, whose products are not known here.
    """
    if config.attention != "relative":
        raise ValueError(f"Operations are counted for attention=relative alone. Received: attention={config.attention}")
    tokens, keys = batch_size * tgt_len, mem_len + tgt_len
    width, heads = config.d_model, config.n_head * config.d_head
    layer = {
        "projections": 4 * 2 * tokens * width * heads,  # query, key, value, output
        "memory": 2 * 2 * batch_size * mem_len * width * heads,  # key and value
        "positions": 2 * (width + width % 2) * heads * (keys + 1),  # one more, zeros, for the shift
        "attention": 2 * tokens * (3 * keys + 1) * heads,  # scores by content and by position, values
        "feed_forward": 2 * 2 * tokens * width * config.d_inner,
    }
    flops = {part: config.n_layer * count for part, count in layer.items()}
    return {**flops, "embedding": 2 * tokens * width * sum(_projected_widths(config)), "head": _head_flops(config, tokens)}


def cached_flops(config, batch_size, tgt_len, mem_len):
    """Returns the operations of one pass over a segment with a memory of keys and values, as in `txl_tf.inference.cache`."""
    slots = tgt_len * -(-mem_len // tgt_len)
    flops = forward_flops(config, batch_size, tgt_len, slots)
    return sum(flops.values()) - flops["memory"] - flops["positions"]


def training_flops(config, batch_size, tgt_len, mem_len, remat=False):
    """Returns the operations of a forward and backward pass: three times the forward pass, for a product has two gradients.

    Neither memory nor sinusoids have one, so that their projections count twice. With remat, the layers' forward pass is made again.
    """
    flops = forward_flops(config, batch_size, tgt_len, mem_len)
    again = sum(flops.values()) - flops["embedding"] - flops["head"] if remat else 0
    return 3 * sum(flops.values()) - flops["memory"] - flops["positions"] + again


def zipf_shares(bounds):
    """Returns the share of each [left, right) of bounds, the first at 0, if the id r - 1 is as frequent as 1 / r."""
    left_out = [_harmonic(left) for left, _ in bounds]
    reached = [_harmonic(right) for _, right in bounds]
    return [(high - low) / reached[-1] for low, high in zip(left_out, reached)]


def _harmonic(count):
    """Returns 1/1 + 1/2 + ... + 1/count."""
    if count < 100:
        return sum(1 / rank for rank in range(1, count + 1))
    return math.log(count) + 0.5772156649015329 + 1 / (2 * count) - 1 / (12 * count ** 2)


def _clusters(config):
    """Returns (first id, id after the last, width of the table) of each cluster."""
    bounds = (0, *config.cutoffs, config.n_token)
    return [(left, right, config.d_embed // config.div_val ** index) for index, (left, right) in enumerate(zip(bounds, bounds[1:]))]


def _is_projected(config, width):
    return width != config.d_model or (config.proj_same_dim and config.div_val > 1)


def _projected_widths(config):
    """Returns the widths of the embedding's tables that are projected to the model's."""
    clusters = _clusters(config) if config.div_val > 1 else _clusters(config)[:1]
    return [width for _, _, width in clusters if _is_projected(config, width)]


def _head_flops(config, tokens):
    if not config.cutoffs:
        width = config.d_embed if config.tie_weight else config.d_model
        projection = config.d_model * width if _is_projected(config, width) and config.tie_weight else 0
        return 2 * tokens * (projection + width * config.n_token)
    clusters = _clusters(config)
    rows = [right - left for left, right, _ in clusters]
    rows[0] = -(-(rows[0] + len(config.cutoffs)) // HEAD_ROWS) * HEAD_ROWS
    shares = [1.0, *zipf_shares([bounds[:2] for bounds in clusters])[1:]]
    products = sum(share * width * count for share, count, (_, _, width) in zip(shares, rows, clusters))
    projections = sum(config.d_model * width for _, _, width in clusters if _is_projected(config, width))
    return round(2 * tokens * (products + projections))
