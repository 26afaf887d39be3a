"""The Dense Synthesizer: every token computes its own logits, alone."""

from typing import NamedTuple

import keras
import tensorflow as tf

from txl_tf.attention.recent_tokens import recent_tokens, unfolded
from txl_tf.attention.synthesizer import SynthesizerBase
from txl_tf.layer_checks import are_two_sizes, check_sizes


KERNEL_SIZES, BOTTLENECK_DIM = (3, 3), 16


class Form(NamedTuple):
    """A form of F."""

    hidden: str | None = None  # width of the hidden layer: "share" (D/N), "bottleneck", or None for no such layer
    convolves: bool = False  # its products are causal convolutions of kernel_sizes
    gates: bool = False  # its logits are multiplied by the sigmoid of others


FORMS = {
    "two_layer": Form("share"),
    "linear": Form(),
    "bottleneck": Form("bottleneck"),
    "conv": Form("share", convolves=True),
    "conv_bottleneck": Form("bottleneck", convolves=True),
    "glu": Form(gates=True),
    "query": Form(),
}


@keras.saving.register_keras_serializable("txl_tf")
class DenseSynthesizer(SynthesizerBase):
    """Multi-head attention whose query i has the logits F(x_i) for l keys (Tay et al. 2020, arXiv 2005.00743, section 3.1).

    Each head has an F of its own, which reads the head's share of d = D/N numbers of a token. Its forms:

    - "two_layer", the paper's: W2 relu(W1 x + b1) + b2, d to d to l: d^2 + d l parameters a head, and d + l biases.
    - "linear": W x + b.
    - "bottleneck": as two_layer, with bottleneck_dim hidden units.
    - "conv", "conv_bottleneck": as two_layer and bottleneck, each product a convolution over kernel_sizes tokens, padded on the
      left; what lies before the segment comes from memory. A token that no query may see counts as none.
    - "glu": (W x + b) * sigmoid(V x + c).
    - "query", the official code's: W relu(Q x), with a query projection Q of the whole token to H numbers a head, and one H x l matrix W
      for all heads, without biases.

    Args:
        num_heads: heads N.
        head_dim: width H of a head's values.
        max_length: number l of logits, the largest number of keys S.
        key_index: "position": the logits are those of the keys 0 .. l-1 of a text; "distance": of the keys 0 .. l-1 tokens before.
        form: the form of F.
        kernel_sizes: tokens that the first and the second convolution read.
        bottleneck_dim: hidden units of the bottleneck.
        dropout: rate at which attention weights are dropped.
        kernel_initializer: initializer of all kernels; biases start at zero.
        causal: whether a query sees itself and earlier keys only. With key_index "distance" it must.

    Call arguments:
        inputs: (B, T, D).
        memory: None or (B, M, D), what came before; no gradient reaches it. With key_index "position" M must be 0.
        attention_mask: None, (T, S) or (B, T, S) boolean with S = M+T, true where a query may look; where causal, among the keys
            that are not later than itself.
        position_embedding: not used.
        return_attention_scores: also return the weights.
        training: whether to drop weights.

    Returns:
        (B, T, D), with return_attention_scores also the weights (B, N, T, S) in float32, before dropout.

    Raises:
        ValueError: if a size is below 1, form or key_index is no known one, N does not divide D, S exceeds max_length, or memory does
            not fit.

    Example:
        outputs = DenseSynthesizer(num_heads=8, head_dim=64, max_length=256)(segment)
    """

    def __init__(self, num_heads, head_dim, max_length, key_index="position", form="two_layer", kernel_sizes=KERNEL_SIZES,
                 bottleneck_dim=BOTTLENECK_DIM, dropout=0.0, kernel_initializer="glorot_uniform", **kwargs):
        super().__init__(num_heads, head_dim, max_length, key_index, dropout, kernel_initializer, **kwargs)
        if form not in tuple(FORMS):
            raise ValueError(f"form must be one of {', '.join(FORMS)}. Received: form={form}")
        if not are_two_sizes(kernel_sizes):
            raise ValueError(f"kernel_sizes must be two sizes of at least 1. Received: kernel_sizes={kernel_sizes}")
        check_sizes(bottleneck_dim=bottleneck_dim)
        self.form = form
        self.kernel_sizes = tuple(kernel_sizes)
        self.bottleneck_dim = bottleneck_dim

    @property
    def _taps(self):
        """How many tokens each of the two products reads."""
        return self.kernel_sizes if FORMS[self.form].convolves else (1, 1)

    def build_scores(self, width):
        if self.form == "query":
            self.query_kernel = self.add_kernel("query_kernel", width, self.num_heads * self.head_dim)
            self.logits_kernel = self.add_kernel("logits_kernel", self.head_dim, self.max_length)
            return
        form, features = FORMS[self.form], self.share_width(width)
        if form.hidden is not None:
            hidden = features if form.hidden == "share" else self.bottleneck_dim
            self.hidden_kernel, self.hidden_bias = self.add_head_layer("hidden", self._taps[0] * features, hidden)
            features = self._taps[1] * hidden
        self.logits_kernel, self.logits_bias = self.add_head_layer("logits", features, self.max_length)
        if form.gates:
            self.gate_kernel, self.gate_bias = self.add_head_layer("gate", features, self.max_length)

    def project_keys(self, inputs):
        return {"token": inputs[:, None]} if FORMS[self.form].convolves else {}

    def project_positions(self, key_len, position_embedding=None):
        names = ("gate", "logits") if FORMS[self.form].gates else ("logits",)
        return {weight: self.in_key_order(self.cast(getattr(self, weight)), key_len) for name in names
                for weight in ((f"{name}_kernel",) if self.form == "query" else (f"{name}_kernel", f"{name}_bias"))}

    def project_query(self, inputs, context, visible=None, ring=None):
        if self.form == "query":
            return tf.nn.relu(self.split_heads(inputs, self.query_kernel))  # (B, N, T, H)
        if FORMS[self.form].hidden is None:
            return self.shares(inputs)
        if not FORMS[self.form].convolves:
            return self._hidden(self.shares(inputs))
        return self._convolved(context["token"], tf.shape(inputs)[1], visible, ring)

    def _hidden(self, features):
        return tf.nn.relu(tf.matmul(features, self.cast(self.hidden_kernel)) + self.cast(self.hidden_bias))

    def _convolved(self, tokens, query_len, visible, ring):
        """Returns the hidden units (B, N, T, F W) that the logits of T queries are made of."""
        (first, second), there = self._taps, tf.ones_like(tokens[..., :1])
        tokens = recent_tokens(tf.concat([tokens, there], axis=-1), query_len + first + second - 2, visible, ring)[:, 0]
        tokens, there = tokens[..., :-1], tokens[:, None, first - 1:, -1:]
        hidden = self._hidden(unfolded(self.shares(tokens), first)) * there  # before a text there are zeros
        return unfolded(hidden, second)

    def scores(self, query, context, positions, ring=None):
        logits = tf.matmul(query, positions["logits_kernel"])
        if self.form != "query":
            logits += positions["logits_bias"]
        if FORMS[self.form].gates:
            logits *= tf.sigmoid(tf.matmul(query, positions["gate_kernel"]) + positions["gate_bias"])
        return self.of_keys(logits, tf.shape(context["value"])[2], ring)

    def get_config(self):
        return {**super().get_config(), "form": self.form, "kernel_sizes": self.kernel_sizes, "bottleneck_dim": self.bottleneck_dim}
