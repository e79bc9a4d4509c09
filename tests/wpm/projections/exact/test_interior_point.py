"""Steps through the middle of all plans, against column generation and rationals."""

import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections.exact import column_generation
from dp_accounting_ext.wpm.projections.exact import interior_point


def crowd_problem(seed, *, inputs=40, outputs=120, epsilon=1.0):
    """A user of a crowd: random embeddings, a uniform measure."""
    generator = np.random.default_rng(seed)
    places = generator.normal(size=(inputs + outputs, 16))
    places /= np.linalg.norm(places, axis=1, keepdims=True)
    cost = 1 - places[:inputs] @ places[inputs:].T
    masses = generator.integers(1, 6, inputs).astype(float)
    polytope = wpm_oracles.polytope_of(np.full(outputs, 1 / outputs), epsilon)
    return masses / masses.sum(), cost, polytope


@pytest.mark.parametrize("epsilon", [0.2, 1.0, 4.0])
@pytest.mark.parametrize("inputs", [3, 40])
def test_cost_is_that_of_the_whole_program(inputs, epsilon):
    masses, cost, polytope = crowd_problem(1, inputs=inputs, epsilon=epsilon)
    found = interior_point.project(masses, cost, polytope)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    assert found.converged[0]
    assert found.values[0] == pytest.approx(truth, rel=1e-9)
    wpm_oracles.assert_in_polytope(found.distributions, polytope)


def test_prices_prove_the_cost_in_rational_arithmetic():
    """Of all arcs, those that were dropped on the way among them."""
    masses, cost, polytope = crowd_problem(2)
    found = interior_point.project(masses, cost, polytope)
    bound = wpm_oracles.rational_lower_bound(
        masses, found.prices[0], cost, polytope.lower, polytope.upper
    )
    assert abs(found.values[0] - float(bound)) <= 1e-10 * found.values[0]


def test_crowds_seldom_need_another_method():
    proven = 0
    for seed in range(20):
        masses, cost, polytope = crowd_problem(seed, inputs=80, outputs=250)
        found = interior_point.project(masses, cost, polytope)
        proven += int(found.converged[0])
        other = column_generation.solve(masses, cost, polytope)
        assert found.values[0] >= other.values[0] * (1 - 1e-9)
    assert proven >= 19


def test_what_cannot_be_moved_costs_the_penalty():
    """Two units to one output that takes one: the rest stays, at its price."""
    polytope = ldp_polytope.LdpPolytope(np.array([0.5]), np.array([1.0]))
    problem = interior_point.Problem(
        np.array([0.25, 0.5]),
        np.array([0, 1]),
        np.array([0, 0]),
        np.array([1.0, 1.0]),
        polytope,
        2.0,
    )
    found = interior_point.solve(
        problem, np.zeros(2), np.array([0.25]), relative_gap=1e-10
    )
    assert found.unmoved == pytest.approx(1.0, rel=1e-8)
    assert found.amounts == pytest.approx([1.0, 0.0], abs=1e-8)
    assert found.potentials[1] == pytest.approx(2.0, abs=1e-6)


def test_bounds_that_leave_no_middle_are_for_others():
    masses, cost, _ = crowd_problem(3, inputs=3, outputs=4)
    fixed = ldp_polytope.LdpPolytope(np.full(4, 0.25), np.full(4, 0.25))
    with pytest.raises(linear_program.SolverError):
        interior_point.project(masses, cost, fixed)
