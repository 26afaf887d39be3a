"""Every way of attention as its paper writes it, number by number in float64: what the fast layers must equal."""

import numpy as np

from testing.relative_attention_oracle import columns, score, softmax
from txl_tf.attention.dense_synthesizer import DenseSynthesizer
from txl_tf.attention.dot_product import DotProductMultiHeadAttention
from txl_tf.attention.factorized_dense_synthesizer import FactorizedDenseSynthesizer
from txl_tf.attention.factorized_random_synthesizer import FactorizedRandomSynthesizer
from txl_tf.attention.mixture_synthesizer import MixtureSynthesizer
from txl_tf.attention.random_synthesizer import RandomSynthesizer
from txl_tf.attention.relative import RelativeMultiHeadAttention
from txl_tf.attention.shaw import ShawMultiHeadAttention


def slow_attention(layer, inputs, memory=None, attention_mask=None):
    """Returns the outputs (B, T, D) and weights (B, N, T, S) of a built layer of attention.

    Args:
        layer: whose weights and settings are used.
        inputs: (B, T, D).
        memory: None or (B, M, D).
        attention_mask: None, (T, S) or (B, T, S), true where a query may look; each must see a key.
    """
    layer = Plain(layer)
    context = np.asarray(inputs if memory is None else np.concatenate([memory, inputs], axis=1), np.float64)
    batch, query_len, key_len = len(inputs), inputs.shape[1], context.shape[1]
    outputs = np.zeros(inputs.shape)
    shares = np.zeros((batch, layer.num_heads, query_len, key_len))
    for row in range(batch):
        mask = np.ones((query_len, key_len), bool) if attention_mask is None else np.asarray(attention_mask)
        mask = mask[row] if mask.ndim == 3 else mask
        there = [any(mask[:, key]) for key in range(key_len)]
        for query in range(query_len):
            merged = []
            for head in range(layer.num_heads):
                place = key_len - query_len + query
                seen = [key for key in range(place + 1 if layer.causal else key_len) if mask[query, key]]
                found = [logit(layer, head, context[row], there, place, key) for key in seen]
                for key, share in zip(seen, softmax(found)):
                    shares[row, head, query, key] = share
                merged += list(shares[row, head, query] @ (context[row] @ columns(layer, weight(layer, "value_kernel"), head)))
            outputs[row, query] = merged @ weight(layer, "output_kernel")
    return outputs, shares


class Plain:
    """A layer's settings, and its weights as float64 arrays."""

    def __init__(self, layer):
        self.layer = layer
        self.weights = {variable.name: np.asarray(variable, np.float64) for variable in layer.weights}
        self.mixed = [Plain(mixed) for mixed in getattr(layer, "mixed", ())]

    def __getattr__(self, name):
        return getattr(self.layer, name)


def logit(layer, head, text, there, place, key):
    """Returns the logit of the query at a place of a text (S, D) for one key; `there` tells which of its tokens any query sees."""
    return LOGITS[type(layer.layer)](layer, head, text, there, place, key)


def dot_product(layer, head, text, there, place, key):
    query_vector, key_vector = (text[token] @ columns(layer, weight(layer, name), head)
                                for token, name in ((place, "query_kernel"), (key, "key_kernel")))
    return query_vector @ key_vector / np.sqrt(layer.head_dim)


def shaw(layer, head, text, there, place, key):
    query_vector = text[place] @ columns(layer, weight(layer, "query_kernel"), head)
    distance_vector = weight(layer, "distance_embedding")[min(place - key, layer.max_length - 1)]
    return dot_product(layer, head, text, there, place, key) + query_vector @ distance_vector / np.sqrt(layer.head_dim)


def relative(layer, head, text, there, place, key):
    return score(layer, layer.weights, head, text, place, key)


def random(layer, head, text, there, place, key):
    row = place if layer.key_index == "position" else 0
    return weight(layer, "logits")[head, row, column(layer, place, key)]


def factorized_random(layer, head, text, there, place, key):
    left, right, index = weight(layer, "left")[head], weight(layer, "right")[head], column(layer, place, key)
    row, index = (place, index) if layer.key_index == "position" else divmod(index, len(right))
    return sum(left[row, number] * right[index, number] for number in range(layer.rank))


def factorized_dense(layer, head, text, there, place, key):
    hidden = relu(affine(layer, "hidden", head, share_of(layer, head, text[place])))
    left, right = affine(layer, "left", head, hidden), affine(layer, "right", head, hidden)
    every_pair = [x * y for x in left for y in right]
    return every_pair[column(layer, place, key)]


def dense(layer, head, text, there, place, key):
    return DENSE_LOGITS[layer.form](layer, head, text, there, place)[column(layer, place, key)]


def two_layer(layer, head, text, there, place):
    return affine(layer, "logits", head, relu(affine(layer, "hidden", head, share_of(layer, head, text[place]))))


def linear(layer, head, text, there, place):
    return affine(layer, "logits", head, share_of(layer, head, text[place]))


def glu(layer, head, text, there, place):
    features = share_of(layer, head, text[place])
    return affine(layer, "logits", head, features) / (1 + np.exp(-affine(layer, "gate", head, features)))


def query_projection(layer, head, text, there, place):
    return relu(text[place] @ columns(layer, weight(layer, "query_kernel"), head)) @ weight(layer, "logits_kernel")


def conv(layer, head, text, there, place):
    first, second = layer.kernel_sizes

    def token(at):
        return share_of(layer, head, text[at]) * (at >= 0 and there[at])

    def hidden(at):
        if at < 0 or not there[at]:
            return 0.0 * weight(layer, "hidden_bias")[head, 0]
        return relu(convolution(layer, "hidden", head, [token(at - back) for back in range(first - 1, -1, -1)]))

    return convolution(layer, "logits", head, [hidden(place - back) for back in range(second - 1, -1, -1)])


def convolution(layer, name, head, vectors):
    """Returns the sum of a kernel's taps, the first of which is the oldest, times a vector each, and the bias."""
    taps = np.split(weight(layer, f"{name}_kernel")[head], len(vectors))
    return sum(vector @ tap for vector, tap in zip(vectors, taps, strict=True)) + weight(layer, f"{name}_bias")[head, 0]


def mixture(layer, head, text, there, place, key):
    found = [logit(mixed, head, text, there, place, key) for mixed in layer.mixed]
    if layer.weighting == "sum":
        return sum(found)
    logits = weight(layer, "mixing_logits")
    if layer.weighting == "softmax":
        return softmax(logits) @ found
    alpha = 1 / (1 + np.exp(-logits[0]))
    return (1 - alpha) * found[0] + alpha * found[1]


def column(layer, place, key):
    """Returns which of l logits is that of a key."""
    return key if layer.key_index == "position" else place - key


def affine(layer, name, head, features):
    return features @ weight(layer, f"{name}_kernel")[head] + weight(layer, f"{name}_bias")[head, 0]


def share_of(layer, head, token):
    width = len(token) // layer.num_heads
    return token[head * width:(head + 1) * width]


def relu(numbers):
    return np.maximum(numbers, 0)


def weight(layer, name):
    return layer.weights[name]


DENSE_LOGITS = {"two_layer": two_layer, "bottleneck": two_layer, "linear": linear, "glu": glu, "query": query_projection, "conv": conv,
                "conv_bottleneck": conv}
LOGITS = {
    DotProductMultiHeadAttention: dot_product,
    ShawMultiHeadAttention: shaw,
    RelativeMultiHeadAttention: relative,
    RandomSynthesizer: random,
    FactorizedRandomSynthesizer: factorized_random,
    FactorizedDenseSynthesizer: factorized_dense,
    DenseSynthesizer: dense,
    MixtureSynthesizer: mixture,
}
