"""Column generation against the whole linear program."""

import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm


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
