"""How many parameters a model of a configuration has, without making it."""


def parameter_count(config):
    """Returns the number of trainable scalars of the TransformerXLLM of a ModelConfig.

    Raises:
        ValueError: if there is no count for config.attention.

    Example:
        parameter_count(preset_config("enwik8_large", n_token=204))  # 277_231_820
    """
    if config.attention not in _ATTENTION:
        raise ValueError(f"attention must be one of {', '.join(_ATTENTION)}. Received: attention={config.attention}")
    return _embedding(config) + _head(config) + _ATTENTION[config.attention](config) + config.n_layer * _layer(config)


def _layer(config):
    """What every layer has: feed-forward and the two normalisations."""
    width, inner = config.d_model, config.d_inner
    return 2 * width * inner + inner + width + 4 * width


def _relative_attention(config):
    """Kernels of queries, keys, values, outputs and positions; the biases u and v, shared by all layers or not."""
    width, heads = config.d_model, config.n_head * config.d_head
    positions = width + width % 2
    return config.n_layer * (4 * width + positions) * heads + 2 * heads * (config.n_layer if config.untie_r else 1)


_ATTENTION = {"relative": _relative_attention}


def _clusters(config):
    """Returns (tokens, width of the table) of each cluster."""
    bounds = (0, *config.cutoffs, config.n_token)
    return [(right - left, config.d_embed // config.div_val ** index) for index, (left, right) in enumerate(zip(bounds, bounds[1:]))]


def _tables(config):
    return sum(tokens * width for tokens, width in _clusters(config))


def _projections(config, widths):
    """Kernels from tables of these widths to the model's width; where they are equal, proj_same_dim decides if div_val is above 1."""
    same = config.proj_same_dim and config.div_val > 1
    return sum(width * config.d_model for width in widths if same or width != config.d_model)


def _embedding(config):
    widths = [width for _, width in _clusters(config)]
    return _tables(config) + _projections(config, widths if config.div_val > 1 else widths[:1])


def _head(config):
    if not config.cutoffs:
        return config.n_token + (0 if config.tie_weight else config.n_token * config.d_model)
    widths = [width for _, width in _clusters(config)]
    own = widths[:1] if config.proj_share_all_but_first else widths
    tail_entries = len(config.cutoffs) * (config.d_embed + 1)
    return config.n_token + tail_entries + _projections(config, own) + (0 if config.tie_weight else _tables(config))
