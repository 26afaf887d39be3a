"""Token embedding whose width may shrink from frequent to rare tokens."""

import numbers

import keras
import tensorflow as tf

from txl_tf.layer_checks import check_sizes


@keras.saving.register_keras_serializable("txl_tf")
class AdaptiveEmbedding(keras.layers.Layer):
    """Embeds token ids, projects them to the model's width where needed and scales them by sqrt(D).

    Adaptive input representations (Baevski and Auli 2018, arXiv 1809.10853) as Transformer-XL uses them. With div_val 1
    there is one table whatever the cutoffs; above 1, cluster i has a table of width embedding_dim // div_val**i. Every
    token gets its own vector whatever the mix, and no shape depends on the ids.

    Args:
        vocabulary_size: tokens V.
        output_dim: width D of the model.
        embedding_dim: width of the (first) table; None: output_dim.
        cutoffs: ids at which the second and later clusters begin, rising.
        div_val: factor by which the width shrinks from cluster to cluster.
        project_same_dim: with div_val above 1, project also tables that are as wide as the model.
        embeddings_initializer: initializer of the tables.
        projection_initializer: initializer of the projections.

    Call arguments:
        inputs: (B, T) integers below vocabulary_size. Other ids raise InvalidArgumentError on a CPU without XLA; a GPU, a
            TPU and compiled code do not check.

    Returns:
        (B, T, D).

    Raises:
        ValueError: if the cutoffs do not rise strictly between 0 and vocabulary_size, or a size is below 1.

    Example:
        embedding = AdaptiveEmbedding(10_000, 512, cutoffs=(2_000, 5_000), div_val=2)
        hidden = embedding(token_ids)
    """

    def __init__(self, vocabulary_size, output_dim, embedding_dim=None, cutoffs=(), div_val=1, project_same_dim=True,
                 embeddings_initializer="uniform", projection_initializer="glorot_uniform", **kwargs):
        super().__init__(**kwargs)
        self.vocabulary_size = vocabulary_size
        self.output_dim = output_dim
        self.embedding_dim = output_dim if embedding_dim is None else embedding_dim
        self.cutoffs = tuple(cutoffs)
        self.div_val = div_val
        self.project_same_dim = project_same_dim
        self.embeddings_initializer = keras.initializers.get(embeddings_initializer)
        self.projection_initializer = keras.initializers.get(projection_initializer)
        check_sizes(vocabulary_size=vocabulary_size, output_dim=output_dim, embedding_dim=self.embedding_dim, div_val=div_val)
        clusters = cluster_bounds(vocabulary_size, self.cutoffs, self.embedding_dim, div_val)
        self.bounds = clusters if div_val > 1 else ((0, vocabulary_size),)

    def build(self, inputs_shape):
        self.tables, self.projections = [], []
        for index, (left, right) in enumerate(self.bounds):
            width = self.embedding_dim // self.div_val ** index
            self.tables.append(self.add_weight(
                name=f"table_{index}", shape=(right - left, width), initializer=self.embeddings_initializer.clone(),
                autocast=False))
            self.projections.append(self._add_projection(index, width))

    def _add_projection(self, index, width):
        if width == self.output_dim and not (self.project_same_dim and self.div_val > 1):
            return None
        return self.add_weight(name=f"projection_{index}", shape=(width, self.output_dim),
                               initializer=self.projection_initializer.clone())

    def call(self, inputs):
        outputs = self._embed(inputs, 0)
        for index, (left, _) in enumerate(self.bounds[1:], start=1):
            outputs = tf.where(inputs[..., None] >= left, self._embed(inputs, index), outputs)
        return outputs * tf.cast(self.output_dim ** 0.5, outputs.dtype)

    def _embed(self, inputs, index):
        """Returns (B, T, D), right where the id is in the cluster. Ids outside all clusters stay outside the outer tables."""
        left, right = self.bounds[index]
        local = inputs - left
        if index > 0:
            local = tf.maximum(local, 0)
        if index < len(self.bounds) - 1:
            local = tf.minimum(local, right - left - 1)
        vectors = tf.cast(tf.gather(self.tables[index], local), self.compute_dtype)
        if self.projections[index] is None:
            return vectors
        return tf.matmul(vectors, tf.cast(self.projections[index], vectors.dtype))

    def get_config(self):
        return {
            **super().get_config(),
            "vocabulary_size": self.vocabulary_size,
            "output_dim": self.output_dim,
            "embedding_dim": self.embedding_dim,
            "cutoffs": self.cutoffs,
            "div_val": self.div_val,
            "project_same_dim": self.project_same_dim,
            "embeddings_initializer": keras.initializers.serialize(self.embeddings_initializer),
            "projection_initializer": keras.initializers.serialize(self.projection_initializer),
        }


def cluster_bounds(vocabulary_size, cutoffs, embedding_dim=None, div_val=1):
    """Returns the (first id, id after the last) of each cluster. Raises ValueError if the cutoffs can't be used."""
    bounds = (0, *cutoffs, vocabulary_size)
    whole = all(isinstance(bound, numbers.Integral) for bound in bounds)
    if not whole or any(left >= right for left, right in zip(bounds, bounds[1:])):
        raise ValueError("cutoffs must be integers that rise strictly, each above 0 and below vocabulary_size. Received: "
                         f"cutoffs={tuple(cutoffs)}, vocabulary_size={vocabulary_size}")
    if embedding_dim is not None and embedding_dim // div_val ** len(cutoffs) < 1:
        raise ValueError("embedding_dim must be at least div_val to the power of the number of cutoffs. Received: "
                         f"embedding_dim={embedding_dim}, div_val={div_val}, cutoffs={tuple(cutoffs)}")
    return tuple(zip(bounds, bounds[1:]))
