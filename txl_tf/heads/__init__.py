"""From hidden states to the distribution of the next token: each head has nll() and log_probs()."""
