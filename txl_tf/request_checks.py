"""What the inputs of a served signature must be; a request that is something else fails, and is told which input it was."""

import tensorflow as tf


def checked(inputs, config):
    """Returns the inputs of a signature, with 0 in place of the ids behind the rows' ends.

    What a graph computes with them fails with InvalidArgument, in a sentence that names the input, where one is of another shape
    than the others or its signature, or of a value that means nothing.

    Args:
        inputs: {name: tensor}, batch first.
        config: the model's ModelConfig.
    """
    n_token = config.n_token
    inputs = {name: tf.ensure_shape(value, value.shape) for name, value in inputs.items()}
    first, rows = next((name, tf.shape(value)[0]) for name, value in inputs.items())
    inputs = {name: required(value, tf.shape(value)[0] == rows, f"{name} must have as many rows as {first}. Received: shape", tf.shape(value))
              for name, value in inputs.items()}
    for name, (condition, sentence) in {**_conditions(inputs, n_token), **_room(inputs, config)}.items():
        inputs[name] = required(inputs[name], condition, f"{name} must {sentence}. Received: {name}", inputs[name])
    if "token_ids" in inputs:
        ids = tf.where(tf.range(tf.shape(inputs["token_ids"])[1]) < inputs["length"][:, None], inputs["token_ids"], 0)
        inputs["token_ids"] = required(ids, (ids >= 0) & (ids < n_token), f"token_ids must lie between 0 and {n_token - 1}. Received: token_ids", ids)
    return inputs


def required(value, condition, sentence, received):
    """Returns a tensor that can be had only where a condition holds for all elements."""
    with tf.control_dependencies([tf.debugging.Assert(tf.reduce_all(condition), [sentence, received], summarize=8)]):
        return tf.identity(value)


def _conditions(inputs, n_token):
    """Returns {input: (tensor of booleans, what the input must be)} of those among the inputs that need not be of any value."""
    conditions = {
        "length": lambda value: (_within(value, 1, tf.shape(inputs["token_ids"])[1]), "lie between 1 and the tokens of token_ids"),
        "memory_length": lambda value: (_within(value, 0, tf.shape(inputs["memory"])[2]), "lie between 0 and the slots of memory"),
        "cache_length": lambda value: (_within(value, 0, tf.shape(inputs["cache_value"])[3]), "lie between 0 and the slots of the cache"),
        "token_id": lambda value: (_within(value, 0, n_token - 1), f"lie between 0 and {n_token - 1}"),
        "max_new_tokens": lambda value: (value >= 1, "be at least 1"),
        "temperature": lambda value: (value >= 0, "be at least 0"),
        "top_k": lambda value: (value >= 0, "be at least 0"),
        "top_p": lambda value: ((value > 0) & (value <= 1), "be above 0 and at most 1"),
        "stop_token": lambda value: (_within(value, -1, n_token - 1), f"be a token, 0 to {n_token - 1}, or -1"),
    }
    return {name: conditions[name](value) for name, value in inputs.items() if name in conditions}


def _room(inputs, config):
    """Returns the conditions of inputs that together must not be longer than what the model knows places or distances of."""
    found, window = {}, config.window
    if window and "cache_length" in inputs:
        found["cache_length"] = (_within(inputs["cache_length"], 0, window - 1), f"lie between 0 and {window - 1}, for a text has {window} tokens")
    if window and "length" in inputs:
        added = inputs.get("max_new_tokens", 0)
        found["length"] = (_within(inputs["length"], 1, window - added), f"be at least 1 and, with what is added, at most {window}")
    if config.key_limit and "memory" in inputs:
        most = config.key_limit - config.mem_len
        found["token_ids"] = (tf.shape(inputs["token_ids"])[1] <= most, f"have at most {most} tokens a row, the next ones in another call")
    return found


def _within(value, least, most):
    return (value >= least) & (value <= most)
