"""The sweep along a line against the general projection."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.costs import line_cost
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections.exact import line_projection


@settings(max_examples=80, deadline=None)
@given(wpm_oracles.seeds)
def test_line_is_exact_and_proves_it(seed):
    generator = np.random.default_rng(seed)
    k, size = generator.integers(1, 30, 2)
    if seed % 2 == 0:
        k, size = generator.integers(1, 4), 130
    inputs, outputs = generator.random(k), generator.random(size)
    if seed % 3 == 0:
        inputs, outputs = np.round(9 * inputs), np.round(9 * outputs)
    cost = wpm.cost_matrix(inputs, outputs, order=1)
    masses = generator.dirichlet(np.full(k, 0.3))
    epsilon = float(generator.choice(wpm_oracles.EPSILONS))
    polytope = wpm_oracles.polytope_of(
        wpm_oracles.random_measure(generator, size, epsilon), epsilon
    )
    line = line_cost.LineCost(inputs, outputs)
    found = line_projection.solve(np.arange(k), masses, line, polytope)
    general = wpm_oracles.exact(masses, cost, polytope)
    wpm_oracles.assert_in_polytope(found.distributions, polytope)
    slack = 1e-11 * (1 + cost.max())
    assert found.values[0] == pytest.approx(general.values[0], rel=1e-9, abs=slack)
    bound = duality.lower_bound(masses, found.prices[0], cost, polytope)
    assert found.values[0] - bound <= slack


def test_long_line_is_proven_as_well():
    generator = np.random.default_rng(1)
    places = generator.random(200_000)
    line = line_cost.LineCost(places)
    polytope = wpm_oracles.polytope_of(np.full(places.size, 1 / places.size), 2.0)
    inputs = generator.choice(places.size, 20, replace=False)
    masses = generator.dirichlet(np.ones(20))
    found = line_projection.solve(inputs, masses, line, polytope)
    bound = duality.lower_bound(masses, found.prices[0], line.rows(inputs), polytope)
    assert abs(found.values[0] - bound) <= 1e-10 * bound
