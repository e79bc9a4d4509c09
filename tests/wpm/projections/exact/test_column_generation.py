"""Column generation against the whole linear program."""

import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections.exact import column_generation


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


def test_a_search_that_is_cut_short_is_feasible_and_bounded(monkeypatch):
    """One program, of arcs to the nearest: its plan and its prices enclose the cost."""
    generator = np.random.default_rng(7)
    points = generator.random((200, 2))
    cost = wpm.cost_matrix(points, points, order=1)
    masses = generator.dirichlet(np.full(200, 1.0))
    polytope = wpm_oracles.polytope_of(np.full(200, 1 / 200), 0.5)
    monkeypatch.setattr(column_generation, "_MOST_ARCS", 0)
    found = column_generation.solve(masses, cost, polytope)
    assert found.iterations[0] == 1 and not found.converged[0]
    wpm_oracles.assert_in_polytope(found.distributions, polytope)
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    bound = duality.lower_bound(masses, found.prices[0], cost, polytope)
    assert bound < truth * (1 - 1e-6) and truth * (1 + 1e-9) < found.values[0]
