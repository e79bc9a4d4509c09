"""Correlated Gaussian noise with balls-in-bins batches: chains above, and below."""
