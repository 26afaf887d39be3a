"""How tokens look at [memory; segment]: one class a way of attention, and the table of their names."""

import functools
from typing import Callable, NamedTuple

from txl_tf.attention.dense_synthesizer import DenseSynthesizer
from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.factorized_dense_synthesizer import FactorizedDenseSynthesizer
from txl_tf.attention.factorized_random_synthesizer import FactorizedRandomSynthesizer
from txl_tf.attention.mixture_synthesizer import MixtureSynthesizer
from txl_tf.attention.random_synthesizer import RandomSynthesizer
from txl_tf.attention.relative import RelativeMultiHeadAttention
from txl_tf.attention.shaw import ShawMultiHeadAttention


class Attention(NamedTuple):
    """A way of attention."""

    layer: Callable  # makes it, of num_heads and head_dim
    settings: dict[str, str] = {}  # what else it takes: its argument -> the setting's name in ModelConfig


_SYNTHESIZER = {"max_length": "max_length", "key_index": "key_index"}
ATTENTIONS = {
    "relative": Attention(RelativeMultiHeadAttention),
    "shaw": Attention(ShawMultiHeadAttention, {"max_length": "max_length"}),
    "absolute": Attention(DotProductMultiHeadAttention),  # the model adds positions to its embeddings
    "dot_product": Attention(DotProductMultiHeadAttention),
    "dense": Attention(DenseSynthesizer, {**_SYNTHESIZER, "form": "dense_form"}),
    "random": Attention(RandomSynthesizer, _SYNTHESIZER),
    "random_fixed": Attention(functools.partial(RandomSynthesizer, fixed=True), _SYNTHESIZER),
    "factorized_dense": Attention(FactorizedDenseSynthesizer, _SYNTHESIZER),
    "factorized_random": Attention(FactorizedRandomSynthesizer, {**_SYNTHESIZER, "rank": "factor_rank"}),
    "mixture": Attention(MixtureSynthesizer, {"weighting": "mixture_weighting"}),
}


def attention_layer(kind, num_heads, head_dim, settings, **kwargs):
    """Returns a new layer of attention.

    Args:
        kind: a name in ATTENTIONS.
        num_heads, head_dim: heads N and their width H.
        settings: {name in ModelConfig: value}; each layer gets those that its entry in ATTENTIONS names, and a mixture is made of
            the layers that "mixture_of" names.
        kwargs: further arguments, which all layers take.

    Raises:
        ValueError: if kind is none in ATTENTIONS or a setting can't be used.
    """
    if kind not in ATTENTIONS:
        raise ValueError(f"attention must be one of {', '.join(ATTENTIONS)}. Received: attention={kind}")
    make, names = ATTENTIONS[kind]
    own = {argument: settings[setting] for argument, setting in names.items() if setting in settings}
    if kind == "mixture":
        if kind in settings.get("mixture_of", ()):
            raise ValueError(f"mixture_of must be no mixtures. Received: mixture_of={tuple(settings['mixture_of'])}")
        shared = {argument: value for argument, value in kwargs.items() if argument in ("kernel_initializer", "dtype")}
        own["mixed"] = [attention_layer(part, num_heads, head_dim, settings, **shared) for part in settings.get("mixture_of", ())]
    return make(num_heads, head_dim, **own, **kwargs)
