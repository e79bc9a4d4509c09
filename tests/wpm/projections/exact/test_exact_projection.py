"""Whatever is chosen is exact, and proven in rational arithmetic."""

from hypothesis import example
from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.costs import dense_cost
from dp_accounting_ext.wpm.costs import line_cost
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections.exact import exact_projection


@settings(max_examples=400, deadline=None)
@example(seed=48594)
@example(seed=11463259)
@given(wpm_oracles.seeds)
def test_cost_is_that_of_an_independent_program(seed):
    masses, cost, measure, epsilon = wpm_oracles.random_case(
        np.random.default_rng(seed)
    )
    found = wpm.project(masses, cost, measure, epsilon)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    assert found.converged
    rounding = 1e-13 * cost.max()
    # The program is solved to 1e-7 only where its bounds hardly leave a choice; that
    # it could not be less is proven by prices.
    assert found.value <= truth * (1 + 1e-9) + rounding
    assert found.value == pytest.approx(truth, rel=1e-7, abs=rounding)
    assert found.lower_bound >= found.value * (1 - 1e-9) - rounding
    wpm_oracles.assert_in_polytope(found.distribution, polytope)


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_prices_prove_the_cost_in_rational_arithmetic(seed):
    masses, cost, measure, epsilon = wpm_oracles.random_case(
        np.random.default_rng(seed), most=15
    )
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    found = wpm_oracles.exact(masses, cost, polytope)
    bound = wpm_oracles.rational_lower_bound(
        masses, found.prices[0], cost, polytope.lower, polytope.upper
    )
    slack = 1e-10 * found.values[0] + 1e-13 * cost.max()
    assert abs(float(bound) - found.values[0]) <= slack


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_point_inputs_have_the_closed_form(seed):
    generator = np.random.default_rng(seed)
    _, cost, measure, epsilon = wpm_oracles.random_case(generator)
    row = int(generator.integers(len(cost)))
    found = wpm.project(np.eye(len(cost))[row], cost, measure, epsilon)
    costs = point_costs.PointCosts(dense_cost.DenseCost(cost), epsilon).values(
        np.exp(epsilon / 2) * measure
    )
    assert found.value == pytest.approx(costs[row], rel=1e-9, abs=1e-14)


@settings(max_examples=25, deadline=None)
@given(wpm_oracles.seeds)
def test_projection_is_at_least_as_good_as_any_private_channel(seed):
    """For every input at once, with the measure that covers the channel."""
    generator = np.random.default_rng(seed)
    cost, epsilon = wpm_oracles.small_case(seed)
    channel = wpm_oracles.random_channel(generator, *cost.shape, epsilon)
    measure = np.sqrt(channel.min(axis=0) * channel.max(axis=0))
    inputs = np.concatenate(
        [np.eye(len(cost)), generator.dirichlet(np.ones(len(cost)), size=2)]
    )
    for masses in inputs:
        reached = wpm_oracles.reaching_cost(masses, cost, masses @ channel)
        found = wpm.project(masses, cost, measure, epsilon)
        assert found.value <= reached + 1e-9


def test_every_algorithm_has_its_place():
    choose, names = exact_projection.choose_algorithm, exact_projection.Algorithm
    dense = dense_cost.DenseCost(np.ones((2, 2)))
    line = line_cost.LineCost(np.arange(100.0))
    assert choose(dense, 1, 10**6) is names.KNAPSACK
    assert choose(dense, 50, 50_000) is names.PRICE_BOX
    assert choose(dense, 50, 60) is names.SHORTEST_PATHS
    assert choose(dense, 50, 101) is names.INTERIOR_POINT
    assert choose(dense, 80, 250) is names.INTERIOR_POINT
    assert choose(dense, 400, 400) is names.COLUMN_GENERATION
    assert choose(dense, 5000, 5000) is names.COLUMN_GENERATION
    assert choose(line, 90, 100) is names.SLOPE_TRICK
    assert choose(line, 2, 10**6) is names.SLOPE_TRICK
    squares = line_cost.LineCost(np.arange(100.0), order=2)
    assert choose(squares, 90, 100) is names.SHORTEST_PATHS


def test_too_many_chains_leave_the_rest_to_the_middle(monkeypatch):
    generator = np.random.default_rng(0)
    masses = generator.dirichlet(np.ones(50))
    cost = generator.random((50, 60))
    measure = np.full(60, 1 / 60)
    by_chains = wpm.project(masses, cost, measure, 1.0)
    monkeypatch.setattr(exact_projection, "_MOST_CHAIN_ROUNDS", 1)
    otherwise = wpm.project(masses, cost, measure, 1.0)
    assert otherwise.converged
    assert by_chains.iterations != otherwise.iterations
    assert by_chains.value == pytest.approx(otherwise.value, rel=1e-9)


def test_a_box_that_fails_leaves_the_rest_to_column_generation(monkeypatch):
    generator = np.random.default_rng(0)
    points = generator.random((1500, 2))
    masses = np.zeros(1500)
    masses[:20] = generator.dirichlet(np.ones(20))
    measure = np.full(1500, 1 / 1500)
    by_boxes = wpm.project(masses, wpm.PointCost(points), measure, 2.0)

    def fails(*_):
        raise linear_program.SolverError("no")

    monkeypatch.setattr(exact_projection.price_box, "solve", fails)
    otherwise = wpm.project(masses, wpm.PointCost(points), measure, 2.0)
    assert by_boxes.value == pytest.approx(otherwise.value, rel=1e-10)
