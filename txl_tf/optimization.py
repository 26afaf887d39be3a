"""The optimizer: Adam, a learning rate that warms up and then falls along a cosine, and clipping by the global norm."""

import math

import keras
import tensorflow as tf


@keras.saving.register_keras_serializable("txl_tf")
class WarmupCosine(keras.optimizers.schedules.LearningRateSchedule):
    """Rises linearly from 0 over warmup_steps, then falls along half a cosine to min_lr_ratio of the peak at train_steps.

    Args:
        learning_rate: the peak.
        warmup_steps: updates of the rise; 0: it starts at the peak.
        train_steps: updates in all; later ones keep the lowest rate.
        min_lr_ratio: the end as a share of the peak.

    Example:
        optimizer = keras.optimizers.Adam(WarmupCosine(2.5e-4, 4_000, 400_000), epsilon=1e-8)
    """

    def __init__(self, learning_rate, warmup_steps, train_steps, min_lr_ratio=0.0):
        self.learning_rate = learning_rate
        self.warmup_steps = warmup_steps
        self.train_steps = train_steps
        self.min_lr_ratio = min_lr_ratio

    def __call__(self, step):
        step = tf.cast(step, tf.float32)
        rise = step / max(1, self.warmup_steps)
        done = (step - self.warmup_steps) / max(1, self.train_steps - self.warmup_steps)
        cosine = 0.5 * (1.0 + tf.cos(math.pi * tf.clip_by_value(done, 0.0, 1.0)))
        fall = self.min_lr_ratio + (1.0 - self.min_lr_ratio) * cosine
        return self.learning_rate * tf.where(step < self.warmup_steps, rise, fall)

    def get_config(self):
        return {"learning_rate": self.learning_rate, "warmup_steps": self.warmup_steps, "train_steps": self.train_steps,
                "min_lr_ratio": self.min_lr_ratio}


@keras.saving.register_keras_serializable("txl_tf")
class _Adam(keras.optimizers.Adam):
    """Adam that updates each weight by one kernel, which passes over the weight and its two moments once."""

    def update_step(self, gradient, variable, learning_rate):
        index, dtype = self._get_variable_index(variable), variable.dtype
        weight, momentum, velocity = (_tensorflow(v) for v in (variable, self._momentums[index], self._velocities[index]))
        step = tf.cast(self.iterations.value + 1, dtype)
        beta_1, beta_2 = tf.constant(self.beta_1, dtype), tf.constant(self.beta_2, dtype)
        tf.raw_ops.ResourceApplyAdam(
            var=weight.handle, m=momentum.handle, v=velocity.handle, beta1_power=beta_1 ** step, beta2_power=beta_2 ** step,
            lr=tf.cast(learning_rate, dtype), beta1=beta_1, beta2=beta_2, epsilon=tf.constant(self.epsilon, dtype), grad=gradient)


def _tensorflow(variable):
    return variable.value if isinstance(variable, keras.Variable) else variable


def make_optimizer(train_config):
    """Returns Adam (0.9, 0.999, epsilon 1e-8, as in TensorFlow 1) with the schedule of a TrainConfig.

    Under a tf.distribute strategy it wants the gradients' sum over the replicas, the same on every one.
    """
    schedule = WarmupCosine(train_config.learning_rate, train_config.warmup_steps, train_config.train_steps,
                            train_config.min_lr_ratio)
    return for_summed_gradients(_Adam(schedule, beta_1=0.9, beta_2=0.999, epsilon=1e-8, name="adam"))


def for_summed_gradients(optimizer):
    """Returns a Keras optimizer, changed to take gradients that are summed over the replicas already, so that it clips their sum.

    By itself it would clip what each replica has, and sum afterwards.
    """
    summing = getattr(optimizer, "inner_optimizer", optimizer)
    summing._all_reduce_sum_gradients = lambda gradients_and_variables: gradients_and_variables
    return optimizer


def clip_gradients(gradients, clip):
    """Returns (gradients scaled down to a global norm of at most clip, their norm before).

    Sparse gradients are made dense first: the norm of rows that occur twice is that of their sum.
    """
    return tf.clip_by_global_norm([tf.convert_to_tensor(gradient) for gradient in gradients], clip)
