"""How tokens look at [memory; segment]: one class a way of attention, and the table of their names."""

from txl_tf.attention.relative import RelativeMultiHeadAttention

ATTENTIONS = {"relative": RelativeMultiHeadAttention}
