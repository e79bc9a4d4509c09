"""Bins from below by a filter: quadrature of few of them."""

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


def test_what_takes_too_long_is_left():
    """Its filter's powers are no floats."""
    column = np.full(1500, 0.01)
    assert filtered_bins.lower_pair(column, 2000, 2, tail_mass=1e-12) is None
