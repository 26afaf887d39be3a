"""How many parameters a model of a configuration has, without making it."""

from txl_tf.attention.dense_synthesizer import BOTTLENECK_DIM, FORMS, KERNEL_SIZES
from txl_tf.attention.factors import balanced_factors


def parameter_count(config):
    """Returns the number of trainable scalars of the TransformerXLLM of a ModelConfig.

    Example:
        parameter_count(preset_config("enwik8_large", n_token=204))  # 277_231_820
    """
    shared = 0 if config.untie_r or "relative" not in config.attentions else (config.n_layer - 1) * _relative_biases(config)
    return _embedding(config) + _head(config) + config.n_layer * _layer(config) - shared


def _layer(config):
    """Values, outputs and what scores are made with; feed-forward and the two normalisations."""
    width, inner = config.d_model, config.d_inner
    taps = 3 if config.feed_forward == "conv_relu" else 1
    mixing = {"softmax": len(config.mixture_of), "sigmoid": 1, "sum": 0}[config.mixture_weighting] if config.attention == "mixture" else 0
    attention = 2 * width * _heads_width(config) + mixing + sum(_SCORES[name](config) for name in config.attentions)
    return attention + (taps + 1) * width * inner + inner + width + 4 * width


def _heads_width(config):
    return config.n_head * config.d_head


def _dot_product(config):
    """Kernels of queries and keys."""
    return 2 * config.d_model * _heads_width(config)


def _relative(config):
    return _dot_product(config) + (config.d_model + config.d_model % 2) * _heads_width(config) + _relative_biases(config)


def _relative_biases(config):
    """u and v, which without untie_r are the first layer's."""
    return 2 * _heads_width(config)


def _shaw(config):
    return _dot_product(config) + config.max_length * config.d_head


def dense_sizes(config):
    """Returns what F of a Dense Synthesizer is made of, for one head: (inputs and units of its hidden layer, or None; features and
    logits of its last product; how many such products there are)."""
    form, share = FORMS[config.dense_form], config.d_model // config.n_head
    first, second = KERNEL_SIZES if form.convolves else (1, 1)
    hidden = None if form.hidden is None else (first * share, share if form.hidden == "share" else BOTTLENECK_DIM)
    features = share if hidden is None else second * hidden[1]
    return hidden, (features, config.max_length), 2 if form.gates else 1


def _dense(config):
    """Each head's F of its share of a token, with biases."""
    if config.dense_form == "query":
        return config.d_model * _heads_width(config) + config.d_head * config.max_length
    hidden, (features, logits), products = dense_sizes(config)
    inputs, units = hidden or (0, 0)
    return config.n_head * ((inputs + 1) * units + products * (features + 1) * logits)


def _random(config):
    return config.n_head * config.max_length * (config.max_length if config.key_index == "position" else 1)


def _factorized_dense(config):
    share, factors = config.d_model // config.n_head, sum(balanced_factors(config.max_length))
    return config.n_head * (share * share + share + share * factors + factors)


def _factorized_random(config):
    rows = 2 * config.max_length if config.key_index == "position" else sum(balanced_factors(config.max_length))
    return config.n_head * config.factor_rank * rows


_SCORES = {"relative": _relative, "shaw": _shaw, "absolute": _dot_product, "dot_product": _dot_product, "dense": _dense,
           "random": _random, "random_fixed": lambda config: 0, "factorized_dense": _factorized_dense,
           "factorized_random": _factorized_random}


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
