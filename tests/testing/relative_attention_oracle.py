"""Relative attention as the paper writes it, number by number in float64: what the fast layer must equal."""

import math

import numpy as np


def relative_attention(layer, inputs, memory=None, attention_mask=None):
    """Returns the outputs (B, T, D) and weights (B, N, T, S) of a built RelativeMultiHeadAttention.

    Args:
        layer: whose weights, num_heads, head_dim and clamp_len are used.
        inputs: (B, T, D).
        memory: None or (B, M, D).
        attention_mask: None, (T, S) or (B, T, S), true where a query may look.
    """
    weights = layer_weights(layer)
    context = inputs if memory is None else np.concatenate([memory, inputs], axis=1)
    batch, query_len, key_len = len(inputs), inputs.shape[1], context.shape[1]
    outputs = np.zeros(inputs.shape)
    probabilities = np.zeros((batch, layer.num_heads, query_len, key_len))
    for row in range(batch):
        mask = np.ones((query_len, key_len), bool) if attention_mask is None else np.asarray(attention_mask)
        mask = mask[row] if mask.ndim == 3 else mask
        for query in range(query_len):
            heads = []
            for head in range(layer.num_heads):
                place = key_len - query_len + query
                seen = [key for key in range(place + 1) if mask[query, key]]
                scores = [score(layer, weights, head, context[row], place, key) for key in seen]
                for key, share in zip(seen, softmax(scores)):
                    probabilities[row, head, query, key] = share
                values = context[row] @ columns(layer, weights["value_kernel"], head)
                heads.append(probabilities[row, head, query] @ values)
            outputs[row, query] = np.concatenate(heads) @ weights["output_kernel"]
    return outputs, probabilities


def score(layer, weights, head, context, place, key):
    """Returns (q k + q r + u k + v r) / sqrt(H) of the query at a place of the context for one key."""
    query_vector = context[place] @ columns(layer, weights["query_kernel"], head)
    key_vector = context[key] @ columns(layer, weights["key_kernel"], head)
    distance = place - key if layer.clamp_len <= 0 else min(place - key, layer.clamp_len)
    position_vector = position(distance, context.shape[-1]) @ columns(layer, weights["position_kernel"], head)
    u, v = weights["content_bias"][head], weights["position_bias"][head]
    terms = (query_vector @ key_vector, query_vector @ position_vector, u @ key_vector, v @ position_vector)
    return sum(terms) / math.sqrt(layer.head_dim)


def position(distance, width):
    """Returns [sin | cos] of a distance at the frequencies 10000^(-2i/D)."""
    angles = [distance / 10000.0 ** (2 * i / width) for i in range((width + 1) // 2)]
    return np.array([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])


def softmax(scores):
    """Returns the shares of a list of scores."""
    powers = np.exp(np.array(scores) - max(scores))
    return powers / powers.sum()


def columns(layer, kernel, head):
    """Returns the columns (D, H) of a kernel (D, N H) that belong to a head."""
    return kernel[:, head * layer.head_dim:(head + 1) * layer.head_dim]


def layer_weights(layer):
    """Returns {name: float64 array} of the layer's weights."""
    names = ("query_kernel", "key_kernel", "value_kernel", "position_kernel", "output_kernel", "content_bias", "position_bias")
    return {name: np.asarray(getattr(layer, name), np.float64) for name in names}
