"""Mechanisms with correlated noise, one for each way of drawing batches."""
