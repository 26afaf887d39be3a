"""Floating-point operations of a step, counted from the configuration: two for each multiply-add of a matrix product."""

import math
from typing import NamedTuple

from txl_tf.attention.factors import balanced_factors
from txl_tf.parameter_count import dense_sizes

HEAD_ROWS = 32  # the adaptive softmax fills the table of its head up to a multiple of this


def forward_flops(config, batch_size, tgt_len, mem_len):
    """Returns {part of the model: operations of one pass over a segment}.

    Labels are taken to follow Zipf's law over the ids, which says how many fall into each tail of an adaptive softmax.

    Args:
        config: a ModelConfig.
        batch_size: rows B.
        tgt_len: tokens T of the segment.
        mem_len: slots M of the memory.
    """
    tokens, keys, width, heads = batch_size * tgt_len, mem_len + tgt_len, config.d_model, config.n_head * config.d_head
    scores = [_SCORES[name](config, batch_size, tgt_len, mem_len) for name in config.attentions]
    layer = {
        "projections": 2 * 2 * tokens * width * heads + sum(part.projections for part in scores),  # value and output are everyone's
        "memory": 2 * batch_size * mem_len * width * heads + sum(part.memory for part in scores),
        "positions": sum(part.positions for part in scores),
        "logits": sum(part.logits for part in scores),
        "attention": 2 * tokens * keys * heads + sum(part.scores for part in scores),
        "feed_forward": 2 * (4 if config.feed_forward == "conv_relu" else 2) * tokens * width * config.d_inner,
    }
    flops = {part: config.n_layer * count for part, count in layer.items()}
    return {**flops, "embedding": 2 * tokens * width * sum(_projected_widths(config)), "head": _head_flops(config, tokens)}


class _Scores(NamedTuple):
    """Operations of what makes the scores of a layer."""

    projections: int = 0  # of the segment's tokens
    memory: int = 0  # of the memory's tokens
    positions: int = 0  # of sinusoids
    logits: int = 0  # of weights with weights
    scores: int = 0  # of queries with keys, distances or logits


def _dot_product(config, batch_size, tgt_len, mem_len):
    heads = config.n_head * config.d_head
    return _Scores(projections=2 * 2 * batch_size * tgt_len * config.d_model * heads, memory=2 * batch_size * mem_len * config.d_model * heads,
                   scores=2 * batch_size * tgt_len * (mem_len + tgt_len) * heads)


def _shaw(config, batch_size, tgt_len, mem_len):
    content = _dot_product(config, batch_size, tgt_len, mem_len)
    by_distance = 2 * batch_size * tgt_len * (mem_len + tgt_len + 1) * config.n_head * config.d_head  # one more, zeros, for the shift
    return content._replace(scores=content.scores + by_distance)


def _relative(config, batch_size, tgt_len, mem_len):
    positions = 2 * (config.d_model + config.d_model % 2) * config.n_head * config.d_head * (mem_len + tgt_len + 1)
    return _shaw(config, batch_size, tgt_len, mem_len)._replace(positions=positions)


def _dense(config, batch_size, tgt_len, mem_len):
    tokens, columns = batch_size * tgt_len, mem_len + tgt_len + (config.key_index == "distance")
    if config.dense_form == "query":
        heads = config.n_head * config.d_head
        return _Scores(projections=2 * tokens * config.d_model * heads, scores=2 * tokens * heads * columns)
    hidden, (features, _), products = dense_sizes(config)
    inputs, units = hidden or (0, 0)
    again = 0 if hidden is None else features // units - 1  # tokens before the segment that the second convolution reads
    return _Scores(projections=2 * batch_size * (tgt_len + again) * config.n_head * inputs * units,
                   scores=2 * tokens * config.n_head * products * features * columns)


def _factorized_dense(config, batch_size, tgt_len, mem_len):
    share = config.d_model // config.n_head
    return _Scores(projections=2 * batch_size * tgt_len * config.n_head * share * (share + sum(balanced_factors(config.max_length))))


def _factorized_random(config, batch_size, tgt_len, mem_len):
    rows = config.max_length if config.key_index == "position" else 1
    return _Scores(logits=2 * config.n_head * config.factor_rank * config.max_length * rows)


def _random(config, batch_size, tgt_len, mem_len):
    return _Scores()


_SCORES = {"relative": _relative, "shaw": _shaw, "absolute": _dot_product, "dot_product": _dot_product, "dense": _dense,
           "random": _random, "random_fixed": _random, "factorized_dense": _factorized_dense, "factorized_random": _factorized_random}


def cached_flops(config, batch_size, tgt_len, mem_len):
    """Returns the operations of one pass over a segment with a memory of keys and values, as in `txl_tf.inference.cache`."""
    slots = tgt_len * -(-mem_len // tgt_len)
    flops = forward_flops(config, batch_size, tgt_len, slots)
    return sum(flops.values()) - flops["memory"] - flops["positions"] - flops["logits"]


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
