"""One update of the weights, on one replica or on many."""

import functools

import tensorflow as tf

from txl_tf.distribution import compiled_on_each_replica, sum_over_replicas
from txl_tf.optimization import clip_gradients
from txl_tf.replica_memory import ReplicaMemory

_FIRST_SCALE, _STEPS_TO_GROW = 2.0 ** 15, 2_000  # of the loss in float16


def update(model, optimizer, clip, token_ids, labels, memory):
    """Makes one update of the weights on one device.

    Args:
        model: a TransformerXLLM.
        optimizer: a Keras optimizer.
        clip: largest global norm of the gradient.
        token_ids, labels: (B, T) integers.
        memory: the memory before the segment.

    Returns:
        (mean negative log-likelihood before the update, global norm of its gradient before clipping, memory after).
    """
    loss, gradients, memory = loss_and_gradients(model, token_ids, labels, memory)
    gradients, norm = clip_gradients(gradients, clip)
    optimizer.apply(gradients, model.trainable_variables)
    return loss, norm, memory


def loss_and_gradients(model, token_ids, labels, memory, token_weight=None, parts=1):
    """Returns (sum of token_weight * nll, its gradients as a list of tensors, memory after the segment).

    Args:
        model: a TransformerXLLM.
        token_ids, labels: (B, T) integers.
        memory: the memory before the segment.
        token_weight: a scalar for every token; None: 1 / (B T).
        parts: the rows are worked on in so many equal parts one after the other, which needs less memory.
    """
    token_weight = 1.0 / tf.cast(tf.size(labels), tf.float32) if token_weight is None else token_weight
    if parts == 1:
        return _loss_and_gradients(model, token_ids, labels, memory, token_weight)

    def part(number):
        return tf.nest.map_structure(lambda tensor: _cut(tensor, parts)[number], (token_ids, labels, memory))

    loss, gradients, after = _loss_and_gradients(model, *part(0), token_weight)
    written = tf.nest.map_structure(
        lambda tensor: tf.TensorArray(tensor.dtype, parts, element_shape=tensor.shape).write(0, tensor), after)
    for number in tf.range(1, parts):
        more, more_gradients, after = _loss_and_gradients(model, *part(number), token_weight)
        loss += more
        gradients = [a + b for a, b in zip(gradients, more_gradients)]
        written = {name: written[name].write(number, after[name]) for name in written}
    after = {name: tf.reshape(written[name].stack(), tf.shape(memory[name])) for name in written}
    return loss, gradients, {name: tf.ensure_shape(after[name], memory[name].shape) for name in after}


class TrainStep:
    """Makes updates from a distributed iterator; every replica keeps the memory of its own rows.

    Gradients are those of the mean loss over all replicas. With clip_scope "global" they are summed over the replicas and
    then clipped; with "replica" every replica clips its share before the sum, as the original's TPU program does. In
    float16 the loss is scaled, and an update whose gradients are not finite is left out.

    Args:
        model: a TransformerXLLM, made under the strategy's scope.
        optimizer: its optimizer, from `make_optimizer`, likewise.
        strategy: a tf.distribute strategy.
        train_config: a TrainConfig.
        rows: rows of the batch on all replicas together.

    Attributes:
        memory: the ReplicaMemory of the rows.
        loss_scale: name -> variable of the loss scaling; {} where there is none.

    Raises:
        ValueError: if the rows are no multiple of the replicas and parts.

    Example:
        step = TrainStep(model, optimizer, strategy, TrainConfig(), rows=32)
        outcome = step.run(iterator, tf.constant(10))
    """

    def __init__(self, model, optimizer, strategy, train_config, rows):
        self.model, self.optimizer, self.strategy, self.config = model, optimizer, strategy, train_config
        self.replicas = strategy.num_replicas_in_sync
        if rows % (self.replicas * train_config.batch_chunk):
            raise ValueError(f"train_batch_size must be a multiple of the devices times batch_chunk. Received: train_batch_size={rows}, "
                             f"{self.replicas} devices, batch_chunk={train_config.batch_chunk}")
        self.memory = ReplicaMemory(model, strategy, rows)
        with strategy.scope():
            self.loss_scale = {}
            if train_config.precision == "mixed_float16":
                self.loss_scale = {"scale": tf.Variable(_FIRST_SCALE, trainable=False, name="loss_scale"),
                                   "good_steps": tf.Variable(0, trainable=False, name="loss_scale_steps")}
        self._compute = functools.partial(loss_and_gradients, model, parts=train_config.batch_chunk)
        if train_config.jit_compile and not isinstance(strategy, tf.distribute.TPUStrategy):  # which compiles by itself
            self._compute = compiled_on_each_replica(self._compute)

    @tf.function
    def run(self, iterator, steps):
        """Makes some updates and returns what became of them.

        Args:
            iterator: of `txl_tf.distribution.replica_batches`.
            steps: scalar int32, how many updates, at least one.

        Returns:
            {"nll": sum over tokens, "tokens": their number, "gradient_norm", "learning_rate": of the last update,
            "bad_step": number within `steps` of the first update whose loss or gradient was not finite, 0 if none}.
        """
        outcome = {"nll": tf.constant(0.0), "tokens": tf.constant(0, tf.int64), "gradient_norm": tf.constant(0.0),
                   "learning_rate": tf.constant(0.0), "bad_step": tf.constant(0)}
        for number in tf.range(1, steps + 1):
            token_ids, labels = next(iterator)
            learning_rate = tf.identity(self.optimizer.learning_rate)
            loss, norm, tokens, good = self._update_everywhere(token_ids, labels)
            bad = tf.where((outcome["bad_step"] == 0) & ~good, number, outcome["bad_step"])
            outcome = {"nll": outcome["nll"] + loss * tf.cast(tokens, tf.float32), "tokens": outcome["tokens"] + tokens,
                       "gradient_norm": norm, "learning_rate": learning_rate, "bad_step": bad}
        return outcome

    def _update_everywhere(self, token_ids, labels):
        if not self.loss_scale:
            return self._first(self.strategy.run(self._replica_update, args=(token_ids, labels)))
        *numbers, gradients = self.strategy.run(self._replica_gradients, args=(token_ids, labels))
        loss, norm, tokens = self._first(numbers)
        in_range, lowest = tf.math.is_finite(norm), self.loss_scale["scale"] <= 1.0
        if in_range:
            self.strategy.run(self._apply, args=(gradients,))
        self._rescale(in_range)
        return loss, norm, tokens, tf.math.is_finite(loss) & (in_range | ~lowest)

    def _replica_update(self, token_ids, labels):
        loss, norm, tokens, gradients = self._replica_gradients(token_ids, labels)
        self._apply(gradients)
        return loss, norm, tokens, tf.math.is_finite(loss) & tf.math.is_finite(norm)

    def _replica_gradients(self, token_ids, labels):
        """Returns (mean loss over all replicas, norm before clipping, tokens on all replicas, clipped gradients), the same everywhere."""
        tokens = tf.size(labels, tf.int64) * self.replicas
        scale = self.loss_scale["scale"].read_value() if self.loss_scale else 1.0
        loss, gradients, memory = self._compute(token_ids, labels, self.memory.read(), scale / tf.cast(tokens, tf.float32))
        self.memory.keep(memory)
        loss, gradients = loss / scale, [gradient / scale for gradient in gradients] if self.loss_scale else gradients
        if self.config.clip_scope == "replica":
            gradients, norm = clip_gradients(gradients, self.config.clip)
            loss, norm, gradients = sum_over_replicas((loss, norm / self.replicas, gradients))
        else:
            loss, gradients = sum_over_replicas((loss, gradients))
            gradients, norm = clip_gradients(gradients, self.config.clip)
        return loss, norm, tokens, gradients

    def _apply(self, gradients):
        self.optimizer.apply(gradients, self.model.trainable_variables)

    def _first(self, values):
        return tf.nest.map_structure(lambda value: self.strategy.experimental_local_results(value)[0], values)

    def _rescale(self, in_range):
        """Halves the scale after gradients that are not finite, and doubles it after many that are."""
        scale, good_steps = self.loss_scale["scale"], self.loss_scale["good_steps"]
        steps = tf.where(in_range, good_steps + 1, 0)
        grows = steps == _STEPS_TO_GROW
        scale.assign(tf.where(in_range, tf.where(grows, scale * 2.0, scale), tf.maximum(scale / 2.0, 1.0)))
        good_steps.assign(tf.where(grows, 0, steps))


@tf.autograph.experimental.do_not_convert  # no Python loop or branch on tensors: converting would only take seconds
def _loss_and_gradients(model, token_ids, labels, memory, token_weight):
    variables = [variable.value for variable in model.trainable_variables]
    with tf.GradientTape() as tape:
        loss, memory = model.training_loss(token_ids, labels, memory, token_weights=token_weight)
    return loss, [tf.convert_to_tensor(gradient) for gradient in tape.gradient(loss, variables)], memory


def _cut(tensor, parts):
    """Returns a tensor (B, ...) as (parts, B / parts, ...)."""
    shape = tf.shape(tensor)
    cut = tf.reshape(tensor, tf.concat([[parts, shape[0] // parts], shape[1:]], axis=0))
    return tf.ensure_shape(cut, (parts, None if tensor.shape[0] is None else tensor.shape[0] // parts, *tensor.shape[1:]))
