"""Laws of a filter's statistic: masses, means in closed form, and one step by hand."""

import numpy as np

from dp_accounting_ext.amplification.matrix import filter_statistic
from dp_accounting_ext.amplification.matrix import markov_sums

COLUMN = np.array([0.6, 0.3])


def statistic(bins, correlation=0.5, scale=0.7):
    length = bins + COLUMN.size - 1
    chain = markov_sums.Chain(
        states=np.linspace(-8.0, 9.0, 120),
        correlation=correlation,
        scale=scale,
        factors=np.ones(1),
        chances=np.ones(1),
        lost_factor=0.0,
        places=np.concatenate([np.arange(0.0, 10.0, 0.01), np.geomspace(10, 1e4, 500)]),
        length=length,
    )
    return filter_statistic.Filter(chain, np.tile(COLUMN, (length, 1)))


def test_masses_are_on_their_sides():
    p_masses, q_masses, error = filter_statistic.laws(statistic(4))
    assert 1 - 1e-9 < p_masses.sum() <= 1 + error
    assert 1 - error <= q_masses.sum() < 1 + 1e-9
    assert error < 1e-9


def test_means_are_those_of_the_filter():
    """E_Q S is the number of bins; a bin at place i moves x by what it moved y."""
    known = statistic(4)
    p_masses, q_masses, _ = filter_statistic.laws(known)
    places, length = known.chain.places, known.chain.length
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
