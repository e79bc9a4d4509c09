"""Projections with certificates."""

import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm


def test_value_is_the_cost_of_reaching_the_distribution():
    masses, cost, measure, epsilon = wpm_oracles.random_case(np.random.default_rng(5))
    found = wpm.project(masses, cost, measure, epsilon)
    law = found.distribution
    assert found.value == pytest.approx(
        wpm_oracles.reaching_cost(masses, cost, law), rel=1e-9
    )


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
