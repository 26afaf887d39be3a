"""What a run shows while it trains: one line on the screen and TensorBoard summaries."""

import sys
import time

import tensorflow as tf

from txl_tf.faults import say, writing
from txl_tf.metrics import in_unit


class Progress:
    """Reports the loss in the unit people compare, the learning rate, the speed and the time left.

    On a terminal the line is written over itself; elsewhere there is a line a report.

    Args:
        folder: where the TensorBoard summaries go.
        train_steps: updates in all.
        vocabulary_kind: decides the unit, see metrics.in_unit.

    Example:
        progress = Progress("runs/mine/tensorboard", 2_000, "byte")
        progress.report(step=50, steps=50, tokens=102_400, nll=3.2, gradient_norm=0.9, learning_rate=1e-3)
    """

    def __init__(self, folder, train_steps, vocabulary_kind):
        self.folder = str(folder)
        with writing(self.folder, "folder"):
            self.writer = tf.summary.create_file_writer(self.folder)
        self.train_steps = train_steps
        self.vocabulary_kind = vocabulary_kind
        self.seconds_a_step = None
        self.last_time = time.monotonic()

    def report(self, step, steps, tokens, nll, gradient_norm, learning_rate):
        """Shows where the run stands.

        Args:
            step: updates done.
            steps: updates since the last report.
            tokens: tokens trained on since then.
            nll: their mean negative log-likelihood in nats.
            gradient_norm: global norm of the last gradient, before clipping.
            learning_rate: of the last update.
        """
        seconds = time.monotonic() - self.last_time
        self.last_time = time.monotonic()
        recent = seconds / steps
        self.seconds_a_step = recent if self.seconds_a_step is None else 0.7 * self.seconds_a_step + 0.3 * recent
        value, unit = in_unit(nll, self.vocabulary_kind)
        left = round(self.seconds_a_step * (self.train_steps - step))
        self._show(f"step {step:,}/{self.train_steps:,} | {value:.3f} {unit} | lr {learning_rate:.2e} | "
                   f"{tokens / seconds:,.0f} tokens/s | {left // 60}:{left % 60:02d} left")
        with writing(self.folder, "folder"), self.writer.as_default(step=step):
            tf.summary.scalar(f"train/{unit}", value)
            tf.summary.scalar("train/gradient_norm", gradient_norm)
            tf.summary.scalar("train/learning_rate", learning_rate)
            tf.summary.scalar("train/tokens_per_second", tokens / seconds)
            self.writer.flush()

    def restart_clock(self):
        """Leaves what was done since the last report, such as saving, out of the speed."""
        self.last_time = time.monotonic()

    def end_line(self):
        """Moves on from the line that is written over itself."""
        if sys.stdout.isatty():
            say("")

    def _show(self, line):
        say(f"\r\033[K{line}" if sys.stdout.isatty() else line, end="" if sys.stdout.isatty() else "\n")
