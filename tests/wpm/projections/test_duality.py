"""Bounds that need no trust in a solver."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_any_prices_bound_the_least_cost(seed):
    """Against the linear program; and the same number in rational arithmetic."""
    generator = np.random.default_rng(seed)
    masses, cost, measure, epsilon = wpm_oracles.random_case(generator, most=12)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    prices = generator.normal(size=cost.shape[1]) * generator.choice([0.1, 1.0, 30.0])
    found = duality.lower_bound(masses, prices, cost, polytope)
    slack = 1e-12 * (1 + np.abs(prices).max())
    assert found <= truth + slack + 1e-8 * truth
    exact = wpm_oracles.rational_lower_bound(
        masses, prices, cost, polytope.lower, polytope.upper
    )
    assert abs(found - float(exact)) <= slack


def test_bounds_of_outputs_far_above_one():
    """What is left for the second is not the difference of two such bounds."""
    polytope = ldp_polytope.LdpPolytope(np.array([0.0, 0.5]), np.array([0.3, 7.9e14]))
    cost = np.array([[0.0, 1.0]])
    found = duality.lower_bound(np.array([1.0]), cost[0], cost, polytope)
    assert found == pytest.approx(0.7, rel=1e-15)


def test_completed_prices_leave_the_nearest_as_near():
    generator = np.random.default_rng(0)
    cost, outputs = generator.random((5, 8)), np.array([0, 2, 3, 7])
    prices = generator.normal(size=4)
    completed = duality.complete_prices(prices, cost, outputs)
    np.testing.assert_array_equal(completed[outputs], prices)
    nearest = (cost[:, outputs] - prices).min(axis=1)
    np.testing.assert_allclose((cost - completed).min(axis=1), nearest, atol=1e-15)
    higher = completed + np.where(np.isin(np.arange(8), outputs), 0, 1e-6)
    assert ((cost - higher).min(axis=1) < nearest).any()
