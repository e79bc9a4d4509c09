"""The mean of two to four correlated ratios, by quadrature, from its definition."""

import itertools

import min_sep_oracles
import numpy as np


def profile(gram, epsilon, *, remove):
    """δ of (1/b) Σ N(m_i, I) against N(0, I), of means with these inner products.

    One of b steps is taken, each with the same chance.
    """
    bins = len(gram)
    law = {(i,): 1 / bins for i in range(bins)}
    grid = {"points": 801, "reach": 10.0} if bins < 4 else {"points": 81, "reach": 8.0}
    return min_sep_oracles.profile(gram, law, epsilon, remove=remove, **grid)


def toeplitz_gram(column, bins, epochs, sigma):
    """Inner products of the bins, from the matrix written out."""
    matrix = min_sep_oracles.toeplitz(column, bins * epochs)
    added = [matrix[:, i::bins].sum(axis=1) for i in range(bins)]
    return min_sep_oracles.gram_of(np.transpose(added), sigma)


def chain_covariance(heights, correlation):
    """Covariances of a Markov chain of these variances, from its definition.

    From one step to the next they fall by the correlation, and do not where the
    variance grows.
    """
    found = np.diag(heights)
    for first, last in itertools.combinations(range(len(heights)), 2):
        slope = correlation * max(heights[last] / heights[last - 1], 1.0)
        assert slope <= 1 + 1e-12
        found[first, last] = found[last, first] = found[first, last - 1] * slope
    return found
