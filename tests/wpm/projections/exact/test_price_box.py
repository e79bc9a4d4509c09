"""Prices of a few inputs against column generation, and their proof."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections.exact import column_generation
from dp_accounting_ext.wpm.projections.exact import price_box


def problem_of(masses, cost, measure, epsilon):
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    rows, columns = np.flatnonzero(masses), np.flatnonzero(polytope.upper)
    inner = polytope.of(columns)
    inner = ldp_polytope.LdpPolytope(inner.lower, np.minimum(inner.upper, 1.0))
    part = np.ascontiguousarray(cost[np.ix_(rows, columns)])
    return price_box.Problem(masses[rows], part, inner)


@settings(max_examples=100, deadline=None)
@given(wpm_oracles.seeds)
def test_cost_is_that_of_column_generation_and_proven(seed):
    """Sizes for which it was not made, too."""
    case = wpm_oracles.random_case(np.random.default_rng(seed))
    problem = problem_of(*case)
    if problem.masses.size < 2:
        return
    found = price_box.solve(problem, np.arange(problem.cost.shape[1]))
    other = column_generation.solve(problem.masses, problem.cost, problem.polytope)
    slack = 1e-9 * other.values[0] + 1e-10 * problem.cost.max()
    assert abs(found.values[0] - other.values[0]) <= slack
    wpm_oracles.assert_in_polytope(found.distributions, problem.polytope)
    bound = duality.lower_bound(
        problem.masses, found.prices[0], problem.cost, problem.polytope
    )
    assert found.values[0] - bound <= slack


@pytest.mark.parametrize("order", [1, 2])
@pytest.mark.parametrize("near", [False, True])
def test_many_outputs_and_few_inputs(order, near):
    """Through all pictures of the outputs, coarse and fine."""
    generator = np.random.default_rng(1)
    points = generator.random((12_000, 2))
    distances = ((points - points[0]) ** 2).sum(axis=1)
    inputs = np.argsort(distances)[:20] if near else np.arange(20)
    masses = np.zeros(12_000)
    masses[inputs] = generator.dirichlet(np.ones(20))
    measure = np.full(12_000, 1 / 12_000)
    found = wpm.project(masses, wpm.PointCost(points, order=order), measure, 2.0)
    assert found.converged
    assert abs(found.gap) <= 1e-10 * found.value


@pytest.mark.parametrize(("user", "boxes"), [(1, 4), (3, 4)])
def test_places_close_together_need_few_boxes(user, boxes):
    """The optimum is many boxes away; and equations of a box have no factor."""
    generator = np.random.default_rng(1)
    points = generator.random((20_000, 2))
    for _ in range(user + 1):
        distances = ((points - generator.random(2)) ** 2).sum(axis=1)
        inputs = np.argsort(distances)[generator.choice(400, 50, replace=False)]
        shares = generator.dirichlet(np.ones(50))
    masses = np.zeros(20_000)
    masses[inputs] = shares
    measure = np.full(20_000, 1 / 20_000)
    found = wpm.project(masses, wpm.PointCost(points), measure, 2.0)
    assert found.converged and found.iterations <= boxes
    assert abs(found.gap) <= 1e-10 * found.value


def test_places_far_apart_need_no_groups(monkeypatch):
    """Which cost more time and memory than all else there."""
    generator = np.random.default_rng(1)
    points = generator.random((50_000, 2))
    inputs = np.sort(generator.choice(50_000, 50, replace=False))
    masses = np.zeros(50_000)
    masses[inputs] = generator.dirichlet(np.ones(50))
    monkeypatch.setattr(price_box, "_split", None)
    found = wpm.project(masses, wpm.PointCost(points), np.full(50_000, 1 / 50_000), 2.0)
    assert found.converged and found.iterations == 1


def test_groups_bound_the_dual_and_meet_it_where_none_is_divided():
    generator = np.random.default_rng(0)
    points = generator.random((500, 2))
    cost = wpm.PointCost(points).rows(np.arange(6))
    polytope = wpm_oracles.polytope_of(generator.dirichlet(np.ones(500)), 2.0)
    problem = price_box.Problem(generator.dirichlet(np.ones(6)), cost, polytope)
    prices = price_box._evaluate(problem, 0.1 * generator.random(6))
    outputs = np.arange(500)
    groups = price_box._split(problem, prices, outputs, np.zeros_like(outputs), 0.02)
    box = price_box._grouped(problem, prices, outputs, groups, 0.1)
    means = box.reduced + prices.potentials[:, np.newaxis]
    grouped = price_box.Problem(problem.masses, means, box.polytope)
    assert 20 < grouped.polytope.lower.size < 250
    for bound in ("lower", "upper"):
        sums = getattr(grouped.polytope, bound).sum()
        assert sums == pytest.approx(getattr(polytope, bound).sum())

    def dual(case, potentials):
        excess = (case.cost - potentials[:, np.newaxis]).min(axis=0)
        held = np.where(excess > 0, case.polytope.lower, case.polytope.upper)
        return case.masses @ potentials + held @ excess

    # With bounds in proportion, of which means are exact.
    there = prices.potentials
    assert dual(grouped, there) == pytest.approx(dual(problem, there), rel=1e-12)
    for _ in range(20):
        other = there + 0.05 * generator.normal(size=6)
        assert dual(grouped, other) >= dual(problem, other) - 1e-12


def test_points_of_a_lattice_tie():
    """Thousands of outputs change hands at the same prices."""
    side = np.arange(60.0)
    places = np.stack(np.meshgrid(side, side), axis=-1).reshape(-1, 2)
    masses = np.zeros(3600)
    masses[[0, 59, 1830, 3599]] = 0.4, 0.3, 0.2, 0.1
    cost = wpm.PointCost(places, metric="cityblock")
    found = wpm.project(masses, cost, np.full(3600, 1 / 3600), 1.0)
    assert found.converged and abs(found.gap) <= 1e-10 * found.value
