"""What the papers measure beside the loss, and what a model costs."""
