"""The mean of two to four correlated ratios, by quadrature, from its definition."""

import functools
import itertools
import math

import numpy as np
from scipy import special

_POINTS, _FEW_POINTS = np.linspace(-10, 10, 801), np.linspace(-8, 8, 81)


def profile(gram, epsilon, *, remove):
    """δ of (1/b) Σ N(m_i, I) against N(0, I), of means with these inner products.

    g = L u for standard normal u. Given all but the last, the sum is a constant and a
    lognormal variable: a call or a put, in closed form. The rest is a trapezoid rule.
    """
    bins = len(gram)
    weights, fixed, mean, spread = _sums(tuple(map(tuple, gram)))
    kappa = math.exp(epsilon)
    if remove:
        values = _call(mean, spread, bins * kappa - fixed) / bins
    else:
        values = _put(mean, spread, bins / kappa - fixed) * (kappa / bins)
    return float((weights * values).sum())


@functools.cache
def _sums(gram):
    """At all but the last: their sum, and the mean and the spread of the last one."""
    bins = len(gram)
    lower = np.linalg.cholesky(np.asarray(gram, dtype=float))
    points = _POINTS if bins < 4 else _FEW_POINTS
    shape = (points.size,) * (bins - 1)
    grids = np.meshgrid(*[points] * (bins - 1), indexing="ij")
    weights = np.ones(shape)
    for grid in grids:
        weights = weights * np.exp(-(grid**2) / 2)
    weights /= weights.sum()
    fixed, mean = np.zeros(shape), np.zeros(shape)
    for row in range(bins):
        exponent = sum(lower[row, j] * grids[j] for j in range(bins - 1))
        if row < bins - 1:
            fixed += np.exp(exponent - gram[row][row] / 2)
        else:
            spread = lower[row, row]
            mean = np.exp(exponent - gram[row][row] / 2 + spread**2 / 2)
    return weights, fixed, mean, spread


def _call(mean, spread, strike):
    positive = np.maximum(strike, 1e-300)
    logs = np.log(np.maximum(mean, 1e-300)) - np.log(positive)
    place = logs / spread + spread / 2
    value = mean * special.ndtr(place) - positive * special.ndtr(place - spread)
    return np.where(strike > 0, np.maximum(value, 0.0), mean - strike)


def _put(mean, spread, strike):
    """Not by the call: for a small strike, nothing would be left of the difference."""
    positive = np.maximum(strike, 1e-300)
    logs = np.log(np.maximum(mean, 1e-300)) - np.log(positive)
    place = logs / spread + spread / 2
    value = positive * special.ndtr(spread - place) - mean * special.ndtr(-place)
    return np.where(strike > 0, np.maximum(value, 0.0), 0.0)


def toeplitz_gram(column, bins, epochs, sigma):
    """Inner products of the bins, from the matrix written out."""
    steps = bins * epochs
    matrix = np.zeros((steps, steps))
    for row, place in itertools.product(range(steps), range(steps)):
        if 0 <= row - place < len(column):
            matrix[row, place] = column[row - place]
    added = [matrix[:, i::bins].sum(axis=1) / sigma for i in range(bins)]
    return np.array([[float(x @ y) for y in added] for x in added])
