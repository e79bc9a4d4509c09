"""Projections: certificates, and the polytope."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

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
    found = ldp_polytope.lower_bound(masses, prices, cost, polytope)
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
    found = ldp_polytope.lower_bound(np.array([1.0]), cost[0], cost, polytope)
    assert found == pytest.approx(0.7, rel=1e-15)


@settings(max_examples=50, deadline=None)
@given(wpm_oracles.seeds)
def test_kl_projection_satisfies_its_conditions(seed):
    generator = np.random.default_rng(seed)
    size = int(generator.integers(1, 30))
    epsilon = float(generator.choice(wpm_oracles.EPSILONS))
    measure = generator.dirichlet(np.full(size, 0.7)) + 1e-9
    measure *= np.exp(generator.uniform(-1, 1) * epsilon / 2) / measure.sum()
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    weights = generator.normal(size=size) * generator.choice([0.1, 10.0, 100.0])
    (law,), _ = ldp_polytope.kl_projection(
        np.exp(weights)[np.newaxis], np.ones(1), polytope, 300
    )
    assert law.sum() == pytest.approx(1.0, rel=0, abs=1e-10)
    # One θ for all strictly between; larger needed above, smaller below.
    theta = np.log(law) - weights
    low = law <= polytope.lower * (1 + 1e-12)
    high = law >= polytope.upper * (1 - 1e-12)
    least = theta[~low].max(initial=-np.inf)
    most = theta[~high].min(initial=np.inf)
    assert least <= most + 1e-9 * (1 + abs(most))
