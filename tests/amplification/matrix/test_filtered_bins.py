"""Bins from below by a filter: quadrature of few of them, and how it is chosen."""

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.amplification.matrix import filtered_bins
from dp_accounting_ext.kernel import dominating_pair

Direction = dominating_pair.Direction


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


def test_a_filter_has_the_shape_of_the_column():
    geometric = 0.1 * 0.7 ** np.arange(30)
    scale, correlation = filtered_bins._filter(geometric, 400)
    assert abs(correlation - 0.7) < 0.05
    # It finds nearly all of the signal.
    assert 0.97 < scale / np.linalg.norm(geometric) <= 1


def test_a_filter_of_a_very_long_column_is_finite():
    scale, correlation = filtered_bins._filter(np.full(1500, 0.01), 1600)
    assert 0 < scale < 0.4
    assert 0.5 < correlation < 1


def test_what_takes_too_long_is_left():
    column = np.full(200, 0.01)
    assert filtered_bins.lower_pair(column, 2000, 2, tail_mass=1e-12) is None
