"""A closed chain: above every rotation of a matrix, quadrature, and when it pays."""

import correlated_oracles
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest

from dp_accounting_ext.amplification.matrix import chain_fits
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


@settings(max_examples=15)
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
