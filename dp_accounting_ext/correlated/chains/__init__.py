"""Dominating pairs of correlated noise, by Gaussian Markov chains."""
