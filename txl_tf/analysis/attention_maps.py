"""What each head of a model looks at: its attention weights over [memory; segment]."""

import tensorflow as tf


def attention_maps(model, token_ids, memory=None):
    """Returns the attention weights of all layers for a segment, as the model uses them without dropout.

    Args:
        model: a TransformerXLLM.
        token_ids: (B, T) integers.
        memory: the memory before the segment; None: that before the first token, with the model's mem_len slots.

    Returns:
        (B, L, N, T, S) float32 with S = M+T. Query i stands at key M+i; its weights sum to one, and are zero for keys that it
        may not see.

    Example:
        _, memory = model.log_probs(before, model.initial_memory(batch_size=1))
        weights = attention_maps(model, token_ids, memory)
    """
    backbone = model.backbone
    token_ids = tf.cast(token_ids, tf.int32)
    memory = backbone.initial_memory(tf.shape(token_ids)[0]) if memory is None else memory
    mask = backbone.get_layer("visible_keys")(token_ids, memory)
    positions = None if backbone.distances is None else backbone.distances(token_ids, memory)
    hidden, maps = backbone.token_embedding(token_ids), []
    if backbone.places is not None:
        hidden = backbone.places(hidden)
    for index, block in enumerate(backbone.blocks):
        hidden, weights = block(hidden, memory=memory["hidden"][:, index], attention_mask=mask, position_embedding=positions,
                                return_attention_scores=True)  # (B, N, T, S)
        maps.append(weights)
    return tf.stack(maps, axis=1)
