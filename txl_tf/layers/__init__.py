"""The layers around attention: embedding, feed-forward and the block that joins them."""
