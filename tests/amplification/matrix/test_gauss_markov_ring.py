"""A closed chain: above every rotation of a matrix, quadrature, and when it pays."""

import dataclasses

import correlated_oracles
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from dp_accounting_ext.amplification.matrix import chain_fits
from dp_accounting_ext.amplification.matrix import gauss_markov
from dp_accounting_ext.amplification.matrix import gauss_markov_ring
from dp_accounting_ext.amplification.matrix import ring_sums
from dp_accounting_ext.kernel import dominating_pair

REMOVE = dominating_pair.Direction.REMOVE


def line_of(variance):
    """Returns the chain of one bin: no amplification."""
    return chain_fits.Fit(variance, 0.0, 0.0, 1)


def circulant(row):
    places = np.arange(len(row))
    return np.array(row)[(places[:, np.newaxis] - places) % len(row)]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.floats(0.01, 0.6), min_size=1, max_size=4), st.integers(5, 14))
@example([0.5], 12)
def test_a_closed_chain_is_above_every_rotation(tail, bins):
    gram = correlated_oracles.toeplitz_gram([1.0, *tail], bins, 2, 1.5)
    found = gauss_markov_ring.fit(gram)
    if found is None:
        return
    fitted, reach, least = found
    states = ring_sums.covariance(fitted.correlation, bins, reach)
    assert least <= states.diagonal().min()
    whole = fitted.variance * fitted.share * states
    whole += fitted.variance * (1 - fitted.share) * np.eye(bins)
    for turn in range(bins):
        rows = np.roll(np.arange(bins), turn)
        assert np.all(gram[np.ix_(rows, rows)] <= whole)


@pytest.mark.parametrize(
    "row", [[1.0, 0.5, 0.2, 0.5], [1.5, 0.6, 0.0, 0.6], [0.5, 0.1, 0.02, 0.1]]
)
def test_four_bins_against_quadrature(row):
    gram = circulant(row)
    pair = gauss_markov_ring.remove_pair(
        gram, line_of(row[0]), delta=1e-3, tail_mass=1e-12
    )
    for epsilon in (0.0, 0.5, 1.0, 2.0):
        truth = correlated_oracles.profile(gram, epsilon, remove=True)
        assert truth <= pair.delta(epsilon, REMOVE) + 1e-13
        assert epsilon > 1 or pair.delta(epsilon, REMOVE) <= 1.35 * truth


def test_no_bins_are_left_out():
    """Of 12 bins with 4 bands a chain on a line leaves out some."""
    gram = correlated_oracles.toeplitz_gram([0.8, 0.45, 0.3, 0.2], 12, 4, 1.4)
    line = gauss_markov.fit(gram, delta=1e-5)
    assert line.length < 12
    pair = gauss_markov_ring.remove_pair(gram, line, delta=1e-5, tail_mass=1e-11)
    cut = gauss_markov.upper_pairs(line, tail_mass=1e-11).remove
    closed, cut = (each.epsilon(1e-5, REMOVE) for each in (pair, cut))
    assert 0.8 * cut < closed < 0.97 * cut


@pytest.mark.parametrize(
    "row",
    [
        [1.0, 0.5, 0.5],  # Fewer bins than two on either way.
        [1.0, 0.0, 0.0, 0.0, 0.0],  # No correlations.
        [1.0] * 6,  # Nothing but one bin.
        [1.0, 0.5, *[0.0] * 500, 0.5],
    ],
)
def test_where_it_does_not_pay_there_is_none(row):
    gram = circulant(row)
    line = line_of(1.0)
    found = gauss_markov_ring.remove_pair(gram, line, delta=1e-5, tail_mass=1e-11)
    assert found is None


def test_a_line_that_is_as_good_is_kept():
    gram = circulant([1.0, 0.1, *[0.0] * 9, 0.1])
    fitted, _, _ = gauss_markov_ring.fit(gram)
    for variance, kept in ((0.9, True), (1.0, False)):
        line = dataclasses.replace(fitted, length=11, variance=variance)
        found = gauss_markov_ring.remove_pair(gram, line, delta=1e-5, tail_mass=1e-9)
        assert (found is None) == kept


def test_nodes_reach_both_ends():
    states = np.linspace(-7.0, 8.4, 150)
    nodes = gauss_markov_ring._nodes(states, 1e-5)
    assert nodes[0] == 0
    assert nodes[-1] == 149
    assert np.diff(states[nodes]).max() < 4.5
    inner = (states[nodes] > 0) & (states[nodes] < 5)
    assert np.diff(states[nodes][inner]).max() < 0.7
