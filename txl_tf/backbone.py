"""The Transformer-XL without its head: (token_ids, memory) -> (hidden, memory)."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.attention.relative import sinusoid
from txl_tf.config import ModelConfig
from txl_tf.layers.absolute_positions import AbsolutePositions
from txl_tf.layers.adaptive_embedding import AdaptiveEmbedding
from txl_tf.layers.transformer_block import TransformerXLBlock
from txl_tf.memory import initial_memory, next_memory, visible_keys


@keras.saving.register_keras_serializable("txl_tf")
class TransformerXLBackbone(keras.Model):
    """The layers of a Transformer-XL (Dai et al. 2019, arXiv 1901.02860) as a Functional model with explicit memory.

    Args:
        config: a ModelConfig.
        dtype: Keras dtype policy or its name, such as "mixed_bfloat16"; None: the global one.

    Call arguments:
        inputs: tensors (token_ids, memory): (B, T) int32, and {"hidden": (B, L, M, E), "length": (B,) int32}. M may differ from
            config.mem_len; E is config.memory_width. Or token_ids alone, for texts that begin with them.

    Returns:
        (hidden, memory): (B, T, D), and the memory after the segment, through which no gradient flows. Of token_ids alone, hidden.

    Raises:
        ValueError: if config can't be built, in one sentence.

    Example:
        backbone = TransformerXLBackbone(ModelConfig(n_token=256))
        hidden, memory = backbone((token_ids, backbone.initial_memory(batch_size=4)))
    """

    def __init__(self, config, dtype=None, **kwargs):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        token_ids = keras.Input((None,), dtype="int32", name="token_ids")
        memory = {"hidden": keras.Input((config.n_layer, None, config.memory_width), dtype=policy.compute_dtype, name="memory_hidden"),
                  "length": keras.Input((), dtype="int32", name="memory_length")}
        embedding = _token_embedding(config, policy)
        places = AbsolutePositions(dtype=policy, name="places") if config.absolute_positions else None
        hidden = embedding(token_ids) if places is None else places(embedding(token_ids))
        hidden = keras.layers.Dropout(config.dropout, dtype=policy, name="embedding_dropout")(hidden)
        mask = _VisibleKeys(config.same_length, config.same_length_extra, name="visible_keys")(token_ids, memory)
        distances = _distances(config, policy)
        positions = None if distances is None else distances(token_ids, memory)
        blocks, remembered = [], []
        for index in range(config.n_layer):
            block = _block(config, policy, index)
            if blocks and not config.untie_r:
                block.attention_layer.tie_biases(blocks[0].attention_layer)
            hidden, of_segment = block(hidden, memory=memory["hidden"][:, index], attention_mask=mask, position_embedding=positions,
                                       return_remembered=True)
            remembered.append(of_segment)
            blocks.append(block)
        hidden = keras.layers.Dropout(config.dropout, dtype=policy, name="hidden_dropout")(hidden)
        after = _NextMemory(dtype=policy, name="next_memory")(memory, remembered)
        super().__init__(inputs=(token_ids, memory), outputs=(hidden, after), **kwargs)
        self.input_spec = None  # token_ids alone will do, too
        self.dtype_policy = policy
        self.config = config
        self.token_embedding = embedding
        self.places = places
        self.distances = distances
        self.blocks = blocks
        self.remembered = remembered

    def call(self, inputs, training=None, mask=None):
        if isinstance(inputs, (tuple, list)):
            return super().call(self.checked(inputs), training=training, mask=mask)
        memory = self.initial_memory(tf.shape(inputs)[0], mem_len=None if self.config.memory_start == "zeros" else 0)
        return super().call((inputs, memory), training=training, mask=mask)[0]

    def checked(self, inputs):
        """Returns (token_ids, memory); raises ValueError if the model has not learned so many places or distances.

        If their lengths are not known yet, they are checked when they are.
        """
        (token_ids, memory), window, limit = inputs, self.config.window, self.config.key_limit
        if window is None and limit is None:
            return token_ids, memory
        length, slots = keras.ops.shape(token_ids)[1], keras.ops.shape(memory["hidden"])[2]
        checks = []
        if window:
            checks += [(slots, 0, "memory must have no slots"), (length, window, f"token_ids must be at most {window} a row")]
        if limit:
            checks.append((slots + length, limit, f"memory and token_ids must together be at most {limit}"))
        wanted = [_at_most(*check, "for the model has learned no more places or distances") for check in checks]
        with tf.control_dependencies([check for check in wanted if check is not None]):
            return tf.identity(token_ids), memory

    def compute_output_spec(self, inputs, training=None, mask=None):
        if isinstance(inputs, (tuple, list)):
            return super().compute_output_spec(inputs, training=training, mask=mask)
        return keras.KerasTensor((*inputs.shape, self.config.d_model), dtype=self.compute_dtype)

    def rematerialize(self, remat=True):
        """Sets whether the backward pass computes each layer's activations again instead of keeping them, when training."""
        for block in self.blocks:
            block.remat = remat

    def initial_memory(self, batch_size, mem_len=None):
        """Returns the memory before the first token for batch_size rows, with mem_len slots (None: config.mem_len)."""
        mem_len = self.config.mem_len if mem_len is None else mem_len
        return initial_memory(batch_size, self.config.n_layer, mem_len, self.config.memory_width, self.compute_dtype,
                              self.config.memory_start)

    def get_config(self):
        return {"config": dataclasses.asdict(self.config), "dtype": self.dtype_policy.name, "name": self.name,
                "trainable": self.trainable}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "config": ModelConfig(**config["config"])})


def _at_most(size, most, expected, reason):
    """Raises ValueError if a size is too large; returns an operation that does so when it runs if it is not known yet."""
    if tf.is_tensor(size):
        return tf.debugging.assert_less_equal(size, most, f"{expected}, {reason}")
    if size > most:
        raise ValueError(f"{expected}, {reason}. Received: {size}")
    return None


def weight_initializer(config, std):
    """Returns the config's initializer of weights: N(0, std), or U(-init_range, init_range)."""
    if config.init == "uniform":
        return keras.initializers.RandomUniform(-config.init_range, config.init_range)
    return keras.initializers.RandomNormal(stddev=std)


def _token_embedding(config, policy):
    return AdaptiveEmbedding(
        config.n_token, config.d_model, config.d_embed, config.cutoffs, config.div_val, config.proj_same_dim,
        embeddings_initializer=weight_initializer(config, config.init_std),
        projection_initializer=weight_initializer(config, config.proj_init_std), dtype=policy, name="token_embedding")


def _distances(config, policy):
    if "relative" not in config.attentions:
        return None
    return _Distances(config.d_model, config.clamp_len, config.dropout, dtype=policy, name="positions")


def _block(config, policy, index):
    return TransformerXLBlock(
        config.n_head, config.d_head, config.d_inner, config.dropout, config.dropatt, config.layer_norm_epsilon,
        kernel_initializer=weight_initializer(config, config.init_std), attention=config.attention,
        attention_settings=config.attention_settings, feed_forward_type=config.feed_forward, pre_lnorm=config.pre_lnorm, dtype=policy, name=f"block_{index}")


@keras.saving.register_keras_serializable("txl_tf")
class _VisibleKeys(keras.layers.Layer):
    """The mask (B, T, S) that all layers share."""

    def __init__(self, same_length, same_length_extra=True, **kwargs):
        super().__init__(**kwargs)
        self.same_length = same_length
        self.same_length_extra = same_length_extra

    def get_config(self):
        return {**super().get_config(), "same_length": self.same_length, "same_length_extra": self.same_length_extra}

    def call(self, token_ids, memory):
        query_len, mem_len = tf.shape(token_ids)[1], tf.shape(memory["hidden"])[2]
        return visible_keys(query_len, mem_len, memory["length"], self.same_length, self.same_length_extra)


@keras.saving.register_keras_serializable("txl_tf")
class _Distances(keras.layers.Layer):
    """The sinusoids (S, D) that all layers share, with dropout."""

    def __init__(self, width, clamp_len, dropout, **kwargs):
        super().__init__(**kwargs)
        self.width = width
        self.clamp_len = clamp_len
        self.dropout = dropout
        self.dropout_layer = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def get_config(self):
        return {**super().get_config(), "width": self.width, "clamp_len": self.clamp_len, "dropout": self.dropout}

    def call(self, token_ids, memory, training=None):
        key_len = tf.shape(memory["hidden"])[2] + tf.shape(token_ids)[1]
        embedding = tf.cast(sinusoid(key_len, self.width, self.clamp_len), self.compute_dtype)
        return self.dropout_layer(embedding, training=training)


@keras.saving.register_keras_serializable("txl_tf")
class _NextMemory(keras.layers.Layer):
    """The memory after a segment."""

    def get_config(self):
        return super().get_config()

    def call(self, memory, remembered):
        return next_memory(memory, remembered)
