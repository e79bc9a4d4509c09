"""Column generation against the whole linear program and rational certificates."""

from hypothesis import example
from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import worst_case
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections.exact import column_generation


@settings(max_examples=400, deadline=None)
@example(seed=48594)
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


@pytest.mark.parametrize(("epsilon", "order"), [(0.5, 1), (5.0, 2)])
def test_cost_of_two_hundred_points(epsilon, order):
    generator = np.random.default_rng(7)
    points = generator.random((200, 2))
    cost = wpm.cost_matrix(points, points, order=order)
    masses = generator.dirichlet(np.full(200, 0.1))
    measure = generator.dirichlet(np.full(200, 2.0))
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    found = wpm.project(masses, cost, measure, epsilon)
    assert found.value == pytest.approx(truth, rel=1e-9)


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_prices_prove_the_cost_in_rational_arithmetic(seed):
    masses, cost, measure, epsilon = wpm_oracles.random_case(
        np.random.default_rng(seed), most=15
    )
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    found = column_generation.solve(masses, cost, polytope)
    bound = wpm_oracles.rational_lower_bound(
        masses, found.prices[0], cost, polytope.lower, polytope.upper
    )
    slack = 1e-10 * found.values[0] + 1e-13 * cost.max()
    assert abs(float(bound) - found.values[0]) <= slack


def test_value_is_the_cost_of_reaching_the_distribution():
    masses, cost, measure, epsilon = wpm_oracles.random_case(np.random.default_rng(5))
    found = wpm.project(masses, cost, measure, epsilon)
    law = found.distribution
    assert found.value == pytest.approx(
        wpm_oracles.reaching_cost(masses, cost, law), rel=1e-9
    )


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_point_inputs_have_the_closed_form(seed):
    generator = np.random.default_rng(seed)
    _, cost, measure, epsilon = wpm_oracles.random_case(generator)
    row = int(generator.integers(len(cost)))
    found = wpm.project(np.eye(len(cost))[row], cost, measure, epsilon)
    costs = worst_case.PointCosts(cost, epsilon).values(np.exp(epsilon / 2) * measure)
    assert found.value == pytest.approx(costs[row], rel=1e-9, abs=1e-14)


def test_a_batch_is_its_users():
    generator = np.random.default_rng(3)
    cost = generator.random((9, 7))
    users = generator.dirichlet(np.ones(9), size=4)
    measure = np.full(7, 1 / 7)
    batch = wpm.project(users, cost, measure, 1.0)
    for place, user in enumerate(users):
        single = wpm.project(user, cost, measure, 1.0)
        np.testing.assert_array_equal(batch.distribution[place], single.distribution)
        assert batch.value[place] == single.value
        assert batch.gap[place] == single.gap


def test_costs_of_zero_leave_nothing_to_do():
    found = wpm.project([0.25, 0.75], np.zeros((2, 3)), np.full(3, 1 / 3), 1.0)
    assert found.value == 0.0 and found.converged


def test_a_failing_program_is_an_error_of_its_own(monkeypatch):
    class Failed:
        status, message = 4, "no"

    monkeypatch.setattr(linear_program.optimize, "linprog", lambda *_, **__: Failed)
    polytope = ldp_polytope.LdpPolytope(np.full(2, 0.2), np.full(2, 0.8))
    with pytest.raises(linear_program.SolverError, match="could not be solved: no"):
        column_generation.solve(np.full(2, 0.5), np.eye(2), polytope)
