"""What is done with trained weights: evaluation and sampling."""
