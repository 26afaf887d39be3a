"""A Transformer-XL language model: backbone and head."""

import dataclasses

import keras
import tensorflow as tf

from txl_tf.backbone import TransformerXLBackbone, weight_initializer
from txl_tf.config import ModelConfig
from txl_tf.heads.adaptive_softmax import AdaptiveSoftmax
from txl_tf.heads.full_softmax import FullSoftmax
from txl_tf.memory import reset_memory


@keras.saving.register_keras_serializable("txl_tf")
class TransformerXLLM(keras.Model):
    """A Transformer-XL language model (Dai et al. 2019, arXiv 1901.02860) with explicit memory.

    Args:
        config: a ModelConfig.
        dtype: Keras dtype policy or its name, such as "mixed_bfloat16"; None: the global one.

    Call arguments:
        inputs: tensors (token_ids, memory): (B, T) int32, and {"hidden": (B, L, M, D), "length": (B,) int32}.

    Returns:
        (log_probs, memory): (B, T, V) float32 in nats, and the memory after the segment.

    Raises:
        ValueError: if config can't be built, in one sentence.

    Example:
        model = TransformerXLLM(ModelConfig(n_token=256, n_layer=2))
        memory = model.initial_memory(batch_size=4)
        nll, memory = model.nll(token_ids, labels, memory)
    """

    def __init__(self, config, dtype=None, **kwargs):
        backbone = TransformerXLBackbone(config, dtype=dtype, name="backbone")
        head = _head(config, backbone)
        hidden, memory = backbone.output
        super().__init__(inputs=backbone.input, outputs=(head(hidden), memory), **kwargs)
        self.dtype_policy = backbone.dtype_policy
        self.config = config
        self.backbone = backbone
        self.head = head

    def initial_memory(self, batch_size, mem_len=None):
        """Returns the memory before the first token for batch_size rows, with mem_len slots (None: config.mem_len)."""
        return self.backbone.initial_memory(batch_size, mem_len)

    def reset_memory(self, memory, rows):
        """Returns a memory whose rows (B,), where true, are as before their first token, as at a document's boundary."""
        return reset_memory(memory, rows, self.config.memory_start)

    @tf.autograph.experimental.do_not_convert  # here and below: no Python loop or branch on tensors, and converting takes seconds
    def nll(self, token_ids, labels, memory, training=False):
        """Returns the negative log-likelihood of labels, token by token, and the memory after the segment.

        Args:
            token_ids: (B, T) integers.
            labels: (B, T) integers, what follows each token.
            memory: the memory before the segment.
            training: whether to drop.

        Returns:
            ((B, T) float32 in nats and text order, memory).
        """
        hidden, memory = self.backbone(self._checked(token_ids, memory), training=training)
        return self.head.nll(hidden, labels), memory

    @tf.autograph.experimental.do_not_convert
    def training_loss(self, token_ids, labels, memory, token_weights=None, training=True):
        """Returns sum(token_weights * nll) and the memory after the segment; the way to train, faster than the sum of `nll`.

        Args:
            token_ids, labels, memory, training: as in `nll`.
            token_weights: (B, T), or a scalar for every token alike; None: 1 / (B T), so that the loss is the mean.

        Returns:
            (() float32 in nats, memory).
        """
        hidden, memory = self.backbone(self._checked(token_ids, memory), training=training)
        return self.head.loss(hidden, labels, token_weights), memory

    @tf.autograph.experimental.do_not_convert
    def log_probs(self, token_ids, memory):
        """Returns the log-probabilities (B, T, V) of the token after each of token_ids (B, T), and the memory after them."""
        return self(self._checked(token_ids, memory))

    def call(self, inputs, training=None, mask=None):
        return super().call(self.backbone.checked(inputs), training=training, mask=mask)

    def _checked(self, token_ids, memory):
        """Returns what the backbone takes, checked before Keras would wrap a refusal in its own words."""
        memory = {name: tf.convert_to_tensor(value) for name, value in memory.items()}
        return self.backbone.checked((tf.cast(tf.convert_to_tensor(token_ids), tf.int32), memory))

    def generate(self, prompt_ids, max_new_tokens, **settings):
        """Returns prompt_ids (B, P) followed by max_new_tokens sampled tokens; see txl_tf.inference.sampling.

        The settings are top_k=40, temperature, top_p, repetition_penalty, seed, mem_len and stop_tokens.
        """
        from txl_tf.inference import sampling

        return sampling.generate(self, prompt_ids, max_new_tokens, **settings)

    @classmethod
    def from_preset(cls, folder, dtype=None):
        """Returns the trained model of a folder; see txl_tf.model_folder.load_model."""
        from txl_tf import model_folder

        return model_folder.load_model(folder, dtype)

    def save_to_preset(self, folder, vocabulary=None):
        """Writes the model to a folder; see txl_tf.model_folder.save_model."""
        from txl_tf import model_folder

        model_folder.save_model(self, folder, vocabulary)

    def get_config(self):
        return {"config": dataclasses.asdict(self.config), "dtype": self.dtype_policy.name, "name": self.name,
                "trainable": self.trainable}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        return cls(**{**config, "config": ModelConfig(**config["config"])})


def _head(config, backbone):
    embedding = backbone.token_embedding if config.tie_weight else None
    shared = {"token_embedding": embedding, "dtype": backbone.dtype_policy, "name": "head",
              "kernel_initializer": weight_initializer(config, config.init_std)}
    if not config.cutoffs:
        return FullSoftmax(config.n_token, **shared)
    return AdaptiveSoftmax(
        config.n_token, config.cutoffs, config.div_val, embedding_dim=config.d_embed, project_same_dim=config.proj_same_dim,
        tie_projections=(False,) + (config.proj_share_all_but_first,) * len(config.cutoffs),
        projection_initializer=weight_initializer(config, config.proj_init_std), **shared)
