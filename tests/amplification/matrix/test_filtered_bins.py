"""Bins from below by a filter: laws of its statistic, and quadrature of few of them."""

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.amplification.matrix import filtered_bins
from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.common_types import Direction

COLUMN = np.array([0.6, 0.3])


def statistic(bins, correlation=0.5, scale=0.7):
    length = bins + COLUMN.size - 1
    chain = markov_sums.Chain(
        states=np.linspace(-8.0, 9.0, 120),
        correlation=correlation,
        scale=scale,
        factors=np.ones(1),
        probabilities=np.ones(1),
        lost_factor=0.0,
        places=np.concatenate([np.arange(0.0, 10.0, 0.01), np.geomspace(10, 1e4, 500)]),
        length=length,
    )
    return chain, np.tile(COLUMN, (length, 1))


def test_masses_are_on_their_sides():
    p_masses, q_masses, error = filtered_bins.laws(*statistic(4))
    assert 1 - 1e-9 < p_masses.sum() <= 1 + error
    assert 1 - error <= q_masses.sum() < 1 + 1e-9
    assert error < 1e-9


def test_means_are_those_of_the_filter():
    """E_Q S is the number of bins; a bin at place i moves x by what it moved y."""
    chain, shifts = statistic(4)
    p_masses, q_masses, _ = filtered_bins.laws(chain, shifts)
    places, length = chain.places, chain.length
    # States are split between grid points, so that each step's mean grows a little.
    assert 4 <= q_masses @ places <= 1.01 * 4
    means = []
    for place in range(4):
        moved = np.zeros(length)
        moved[place : place + 2] = np.sqrt(0.75) * COLUMN
        # x_t = r x_{t+1} + what y_t is moved by.
        for step in range(length - 2, -1, -1):
            moved[step] += 0.5 * moved[step + 1]
        means.append(np.exp(0.7 * moved[:4]).sum())
    assert np.mean(means) <= p_masses @ places <= 1.01 * np.mean(means)


@pytest.mark.parametrize(
    ("column", "bins", "epochs"),
    [([1.0, 0.5], 2, 1), ([1.0, 0.5, 0.25], 3, 2), ([0.8], 3, 1), ([0.5, 0.5], 3, 3)],
)
def test_few_bins_against_quadrature(column, bins, epochs):
    sigma = 1.5
    gram = correlated_oracles.toeplitz_gram(column, bins, epochs, sigma)
    pair = filtered_bins.lower_pair(
        np.array(column) / sigma, bins, epochs, tail_mass=1e-12
    )
    for direction in Direction:
        for epsilon in (0.0, 0.3, 1.0):
            truth = correlated_oracles.profile(
                gram, epsilon, remove=direction is Direction.REMOVE
            )
            found = pair.delta(epsilon, direction)
            assert found <= truth + 1e-13
            assert direction is Direction.ADD or epsilon > 0.5 or found >= 0.6 * truth


def test_what_takes_too_long_is_left():
    column = np.full(1500, 0.01)
    assert filtered_bins.lower_pair(column, 2000, 2, tail_mass=1e-12) is None
