"""Chains of outputs, against the whole program and in rational arithmetic."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections.exact import shortest_paths

ENOUGH = 10_000


def random_problem(seed, most=25):
    """A case without inputs and outputs that take no part."""
    masses, cost, measure, epsilon = wpm_oracles.random_case(
        np.random.default_rng(seed), most=most
    )
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    rows, columns = np.flatnonzero(masses), np.flatnonzero(polytope.upper > 0)
    polytope = polytope.of(columns)
    upper = np.minimum(polytope.upper, 1.0)
    allowed = ldp_polytope.LdpPolytope(polytope.lower, upper)
    return masses[rows], cost[np.ix_(rows, columns)], allowed


@settings(max_examples=150, deadline=None)
@given(wpm_oracles.seeds)
def test_cost_is_that_of_an_independent_program(seed):
    masses, cost, polytope = random_problem(seed)
    found = shortest_paths.solve(masses, cost, polytope, ENOUGH)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    assert found.converged[0]
    rounding = 1e-13 * cost.max()
    assert found.values[0] <= truth * (1 + 1e-9) + rounding
    assert found.values[0] == pytest.approx(truth, rel=1e-7, abs=rounding)
    wpm_oracles.assert_in_polytope(found.distributions, polytope)


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_prices_prove_the_cost_in_rational_arithmetic(seed):
    masses, cost, polytope = random_problem(seed)
    found = shortest_paths.solve(masses, cost, polytope, ENOUGH)
    bound = wpm_oracles.rational_lower_bound(
        masses, found.prices[0], cost, polytope.lower, polytope.upper
    )
    slack = 1e-11 * found.values[0] + 1e-13 * cost.max()
    assert abs(float(bound) - found.values[0]) <= slack


def test_law_is_reached_at_the_cost():
    """What the plan costs is what its law costs to reach, by another program."""
    for seed in range(5):
        masses, cost, polytope = random_problem(seed, most=12)
        found = shortest_paths.solve(masses, cost, polytope, ENOUGH)
        reached = wpm_oracles.reaching_cost(masses, cost, found.distributions[0])
        assert reached == pytest.approx(found.values[0], rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("epsilon", [0.5, 2.0, 5.0])
def test_many_equal_costs_end(order, epsilon):
    """On a ring, where chains of equal length abound, and masses are tiny."""
    generator = np.random.default_rng(3)
    cost = wpm_oracles.ring(30, order)
    masses = generator.dirichlet(np.full(30, 0.1))
    polytope = wpm_oracles.polytope_of(np.full(30, 1 / 30), epsilon)
    found = shortest_paths.solve(masses, cost, polytope, ENOUGH)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    assert found.converged[0]
    assert found.values[0] == pytest.approx(truth, rel=1e-9)


def test_what_may_stay_stays():
    cost = wpm_oracles.ring(4)
    polytope = ldp_polytope.LdpPolytope(np.full(4, 0.1), np.full(4, 0.5))
    masses = np.array([0.1, 0.4, 0.3, 0.2])
    found = shortest_paths.solve(masses, cost, polytope, 0)
    np.testing.assert_array_equal(found.distributions[0], masses)
    assert found.values[0] == 0 and found.iterations[0] == 0


def test_what_its_prices_do_not_prove_is_not_converged(monkeypatch):
    """Nor is it handed on: another method solves the problem."""
    generator = np.random.default_rng(0)
    masses, cost = generator.dirichlet(np.ones(8)), generator.random((8, 8))
    measure = np.full(8, 1 / 8)
    polytope = wpm_oracles.polytope_of(measure, 1.0)
    truth = shortest_paths.solve(masses, cost, polytope, ENOUGH)
    # Chains that are a tenth of the largest cost too long pass for the cheapest.
    monkeypatch.setattr(shortest_paths, "_SHORTER", 0.1)
    found = shortest_paths.solve(masses, cost, polytope, ENOUGH)
    assert found.values[0] > 1.001 * truth.values[0]
    assert truth.converged[0] and not found.converged[0]
    wpm_oracles.assert_in_polytope(found.distributions, polytope)
    handed = wpm.project(masses, cost, measure, 1.0)
    assert handed.converged
    assert handed.value == pytest.approx(truth.values[0], rel=1e-9)


def test_it_gives_up_after_so_many_rounds():
    masses, cost = np.array([1.0]), np.array([[0.0, 1.0, 2.0]])
    polytope = ldp_polytope.LdpPolytope(np.full(3, 0.2), np.full(3, 0.5))
    assert shortest_paths.solve(masses, cost, polytope, 2).converged[0]
    with pytest.raises(linear_program.SolverError, match="too many"):
        shortest_paths.solve(masses, cost, polytope, 1)


def test_bounds_that_no_law_meets_are_refused():
    masses, cost = np.array([1.0]), np.array([[0.0, 1.0]])
    narrow = ldp_polytope.LdpPolytope(np.zeros(2), np.full(2, 0.4))
    with pytest.raises(linear_program.SolverError):
        shortest_paths.solve(masses, cost, narrow, ENOUGH)


def test_chains_that_rounding_makes_rings_end(monkeypatch):
    """Costs that differ in their last digits only, and no slack for it."""
    monkeypatch.setattr(shortest_paths, "_SHORTER", 1e-14)
    cost = 1 + 1e-14 * np.array([[2.0, 0.0, -4.0, -3.0], [2.0, 0.0, -3.0, -1.0]])
    polytope = wpm_oracles.polytope_of(np.full(4, 0.25), 0.1)
    masses = np.array([6.0, 8.0]) / 14
    with pytest.raises(linear_program.SolverError, match="ring"):
        shortest_paths.solve(masses, cost, polytope, ENOUGH)


@pytest.mark.parametrize("order", [1, 2])
def test_places_in_degrees_end(order):
    """All distances between neighbours are equal, but for rounding."""
    grid = np.stack(np.meshgrid(np.arange(6), np.arange(6)), -1).reshape(-1, 2)
    mechanism = wpm.from_points([48.85, 2.35] + 0.01 * grid, 1.0, order=order)
    generator = np.random.default_rng(0)
    for _ in range(10):
        counts = generator.integers(0, 3, 36)
        assert mechanism.project(counts).sum() == pytest.approx(1)
