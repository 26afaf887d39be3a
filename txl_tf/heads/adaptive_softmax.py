"""A softmax that spends little on rare tokens: a head over the frequent ones, and clusters of the others."""

import keras
import tensorflow as tf

from txl_tf.heads.chunked_loss import all_tokens, logits_of, project, tail_tokens
from txl_tf.heads.softmax_head import SoftmaxHead
from txl_tf.layer_checks import check_sizes
from txl_tf.layers.adaptive_embedding import cluster_bounds


@keras.saving.register_keras_serializable("txl_tf")
class AdaptiveSoftmax(SoftmaxHead):
    """Turns hidden states into the distribution of the next token, cluster by cluster.

    Efficient softmax approximation for GPUs (Grave et al. 2016, arXiv 1609.04309) as Transformer-XL uses it: the head is a
    softmax over the first cluster's tokens and one entry for each other (tail) cluster, the first tail cluster first; a
    tail's token has the probability of its cluster times that within it. It is exact, whatever the mix of labels: nll and
    loss sort the tokens by cluster and work them in chunks (heads/chunked_loss.py), a tail as many as it has labels, so
    that the logits of all tokens over a cluster never exist and no shape depends on the labels.

    Args:
        vocabulary_size: tokens V.
        cutoffs: ids at which the tail clusters begin, rising; at least one.
        div_val: factor by which the tables narrow from cluster to cluster; 1: one table, whose rows the clusters share out.
        token_embedding: the AdaptiveEmbedding whose tables are shared; None: the layer has tables of its own.
        tie_projections: for each cluster whether its projection is the embedding's, if it has one; None: for none of them.
        project_same_dim: with div_val above 1, project also to tables that are as wide as the hidden states.
        embedding_dim: width E of the (first) table; None: token_embedding's, or the hidden states'.
        kernel_initializer: initializer of tables of its own; the kernel of the tail entries and all biases start at zero.
        projection_initializer: initializer of projections of its own.

    Call arguments:
        inputs: (B, T, D), hidden states.

    Returns:
        (B, T, V) float32, log-probabilities in nats, in the order of the ids.

    Raises:
        ValueError: if the cutoffs do not rise strictly between 0 and vocabulary_size, tie_projections has not one entry a
            cluster or nothing to tie to, or token_embedding is of another shape.

    Example:
        embedding = AdaptiveEmbedding(10_000, 512, cutoffs=(2_000, 5_000), div_val=2)
        head = AdaptiveSoftmax(10_000, (2_000, 5_000), div_val=2, token_embedding=embedding)
        loss = head.loss(embedding(token_ids), labels)
    """

    def __init__(self, vocabulary_size, cutoffs, div_val=1, token_embedding=None, tie_projections=None, project_same_dim=True,
                 embedding_dim=None, kernel_initializer="glorot_uniform", projection_initializer="glorot_uniform", **kwargs):
        super().__init__(vocabulary_size, token_embedding, kernel_initializer, **kwargs)
        if embedding_dim is None and token_embedding is not None:
            embedding_dim = token_embedding.embedding_dim
        self.cutoffs = tuple(cutoffs)
        self.div_val = div_val
        self.tie_projections = (False,) * (len(self.cutoffs) + 1) if tie_projections is None else tuple(tie_projections)
        self.project_same_dim = project_same_dim
        self.embedding_dim = embedding_dim
        self.projection_initializer = keras.initializers.get(projection_initializer)
        self._check()

    def _check(self):
        check_sizes(div_val=self.div_val, embedding_dim=1 if self.embedding_dim is None else self.embedding_dim)
        self.bounds = cluster_bounds(self.vocabulary_size, self.cutoffs, self.embedding_dim, self.div_val)
        if not self.cutoffs:
            raise ValueError("cutoffs must not be empty; without clusters, use FullSoftmax. Received: cutoffs=()")
        if len(self.tie_projections) != len(self.bounds):
            raise ValueError(f"tie_projections must have {len(self.bounds)} entries, one a cluster. Received: "
                             f"tie_projections={self.tie_projections}")
        if self.token_embedding is None and any(self.tie_projections):
            raise ValueError("tie_projections must be False for every cluster without token_embedding. Received: "
                             f"tie_projections={self.tie_projections}")
        for name in ("embedding_dim", "div_val", "cutoffs")[:3 if self.div_val > 1 else 2]:
            theirs = getattr(self.token_embedding, name, getattr(self, name))
            if theirs != getattr(self, name):
                raise ValueError(f"token_embedding must have {name}={getattr(self, name)}. Received: "
                                 f"token_embedding.{name}={theirs}")

    def build(self, inputs_shape):
        self._first_width = inputs_shape[-1] if self.embedding_dim is None else self.embedding_dim
        cluster_bounds(self.vocabulary_size, self.cutoffs, self._first_width, self.div_val)
        if self.token_embedding is not None and not self.token_embedding.built:
            self.token_embedding.build((None, None))
        self.tables, self.projections, self.biases = [], [], []
        for index, (left, right) in enumerate(self.bounds):
            self.tables.append(self._add_table(index))
            self.projections.append(self._add_projection(index, inputs_shape[-1]))
            self.biases.append(self._add_zeros(f"bias_{index}", right - left))
        self.cluster_kernel = self._add_zeros("cluster_kernel", len(self.cutoffs), self._first_width)
        self.cluster_bias = self._add_zeros("cluster_bias", len(self.cutoffs))

    def _add_zeros(self, name, *shape):
        return self.add_weight(name=name, shape=shape, initializer="zeros", autocast=False)

    def _add_table(self, index):
        if self.token_embedding is not None or (self.div_val == 1 and index > 0):
            return None
        left, right = self.bounds[index] if self.div_val > 1 else (0, self.vocabulary_size)
        return self.add_weight(name=f"table_{index}", shape=(right - left, self._width(index)), autocast=False,
                               initializer=self.kernel_initializer.clone())

    def _add_projection(self, index, hidden_dim):
        same = self._width(index) == hidden_dim and not (self.project_same_dim and self.div_val > 1)
        if same or self.tie_projections[index]:
            return None
        return self.add_weight(name=f"projection_{index}", shape=(self._width(index), hidden_dim), autocast=False,
                               initializer=self.projection_initializer.clone())

    def _width(self, index):
        return self._first_width // self.div_val ** index

    def call(self, inputs):
        head, *tails = [logits_of(features, table, bias) for features, table, bias in self._clusters(inputs)]
        head = tf.nn.log_softmax(head)
        entries = tf.unstack(head[..., self.cutoffs[0]:], axis=-1)
        tails = [entry[..., None] + tf.nn.log_softmax(tail) for entry, tail in zip(entries, tails)]
        return tf.concat([head[..., :self.cutoffs[0]], *tails], axis=-1)

    def _best(self, hidden, k):
        head, *tails = self._clusters(hidden)
        head = tf.nn.log_softmax(logits_of(*head))
        entries = tf.unstack(head[..., self.cutoffs[0]:], axis=-1)
        best = _top(head[..., :self.cutoffs[0]], k)
        for entry, tail, (left, _) in zip(entries, tails, self.bounds[1:]):
            best = _better(best, entry, tail, left, k)
        return best

    def _parts(self, hidden, labels):
        head, *tails = self._clusters(hidden)
        cluster = tf.reduce_sum(tf.cast(labels[:, None] >= tf.constant(self.cutoffs), tf.int32), axis=1)
        head_labels = tf.where(cluster > 0, self.cutoffs[0] + cluster - 1, labels)
        parts = [((*head, head_labels), all_tokens(head[0], head[1]))]
        order = tf.argsort(cluster, stable=True)
        start = tf.reduce_sum(tf.cast(cluster == 0, tf.int32))
        for index, tail in enumerate(tails, start=1):
            count = tf.reduce_sum(tf.cast(cluster == index, tf.int32))
            parts.append(((*tail, labels - self.bounds[index][0]), tail_tokens(order, start, count, tail[1])))
            start += count
        return parts

    def _clusters(self, hidden):
        """Returns (features, table, bias) of each cluster.

        The head's table goes on with the tails' entries, then with rows of probability 0 up to a multiple of 32 rows, which
        makes the products faster.
        """
        tables, projections = self._shared_tables(), self._shared_projections()
        biases = [tf.convert_to_tensor(bias) for bias in self.biases]
        filling = -(self.cutoffs[0] + len(self.cutoffs)) % 32
        tables[0] = tf.concat([tables[0], self.cluster_kernel, tf.zeros((filling, self._first_width))], axis=0)
        biases[0] = tf.concat([biases[0], self.cluster_bias, tf.fill((filling,), -1e30)], axis=0)
        features = [project(hidden, projection, self.compute_dtype) for projection in projections]
        return list(zip(features, tables, biases))

    def _shared_tables(self):
        tables = self.tables if self.token_embedding is None else self.token_embedding.tables
        if self.div_val > 1:
            return [tf.convert_to_tensor(table) for table in tables]
        return tf.split(tf.convert_to_tensor(tables[0]), [right - left for left, right in self.bounds])

    def _shared_projections(self):
        theirs = self.token_embedding.projections if any(self.tie_projections) else []
        theirs = theirs if self.div_val > 1 else theirs * len(self.bounds)
        return [theirs[index] if tied else self.projections[index] for index, tied in enumerate(self.tie_projections)]

    def get_config(self):
        return {
            **super().get_config(),
            "cutoffs": self.cutoffs,
            "div_val": self.div_val,
            "tie_projections": self.tie_projections,
            "project_same_dim": self.project_same_dim,
            "embedding_dim": self.embedding_dim,
            "projection_initializer": keras.initializers.serialize(self.projection_initializer),
        }


def _better(best, entry, tail, first_id, k):
    """Returns the best (values, ids), each (..., k), of those found and a tail with log-probability entry (...)."""
    values, ids = best

    def merged():
        logits = logits_of(*tail)
        theirs, their_ids = _top(logits, k)
        theirs += (entry - tf.reduce_logsumexp(logits, axis=-1))[..., None]
        every, places = _top(tf.concat([values, theirs], axis=-1), k)
        return every, tf.gather(tf.concat([ids, their_ids + first_id], axis=-1), places, batch_dims=ids.shape.rank - 1)

    if values.shape[-1] < k:
        return merged()
    return tf.cond(tf.reduce_any(entry > values[..., -1]), merged, lambda: (values, ids))  # no token is likelier than its tail


def _top(scores, k):
    return tf.math.top_k(scores, min(k, scores.shape[-1]))
