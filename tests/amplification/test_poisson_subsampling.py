"""Poisson subsampling of any pair, against the mixture's own ratio."""

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair


@given(
    strategies.pairs(Bound.UPPER),
    st.floats(0.01, 1.0),
    st.floats(-1.0, 3.0),
)
def test_it_is_the_mixture(pair, rate, epsilon):
    """λP + (1 − λ)Q against Q, computed from the masses of both distributions."""
    q = np.append(pair.masses, pair.zero_mass)
    p = np.append(pair.p_masses, 0.0)
    mixed = rate * p + (1 - rate) * q
    kappa = np.exp(epsilon)
    remove = rate * pair.infinity_mass + np.maximum(mixed - kappa * q, 0).sum()
    add = np.maximum(q - kappa * mixed, 0).sum()
    found = poisson_subsampling.poisson_subsample(pair, rate)
    assert float(
        oracles.stored_delta(found, epsilon, Direction.REMOVE)
    ) == pytest.approx(remove, rel=1e-12, abs=1e-14)
    assert float(oracles.stored_delta(found, epsilon, Direction.ADD)) == pytest.approx(
        add, rel=1e-12, abs=1e-14
    )


@pytest.mark.parametrize("bound", list(Bound))
def test_errors_and_side_are_those_of_the_pair(bound):
    """Three roundings of a ratio: of 1 − λ, of the product and of the sum."""
    ratios, masses = np.array([0.5, 1.5]), np.array([0.5, 0.5])
    pair = dominating_pair.DominatingPair(
        ratios, masses, 0.0, 0.0, bound, mass_error=2.0**-20, ratio_error=2.0**-48
    )
    found = poisson_subsampling.poisson_subsample(pair, 0.25)
    assert found.bound is bound
    assert found.mass_error == pair.mass_error
    added = found.ratio_error - pair.ratio_error
    assert 3 * 2.0**-53 <= added <= 4 * 2.0**-53
    # Nothing is at zero: no atom for it.
    np.testing.assert_array_equal(found.ratios, [0.875, 1.125])
    np.testing.assert_array_equal(found.masses, masses)
