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


@pytest.mark.parametrize("regularization", [1.0, 1e4, 1e12, 1e20, 1e100])
@pytest.mark.parametrize("epsilon", [1.0, 40.0])
def test_prices_far_above_the_costs_prove_no_more_than_is_true(regularization, epsilon):
    """Prices grow with the regularization, and cancel in the bound."""
    generator = np.random.default_rng(4)
    for size in (2, 3, 7):
        cost = generator.random((size, size))
        np.fill_diagonal(cost, 0.0)
        masses = generator.dirichlet(np.ones(size))
        measure = np.full(size, 1 / size)
        least = wpm.project(masses, cost, measure, epsilon).value
        found = wpm.project(masses, cost, measure, epsilon, regularization)
        assert 0.0 <= found.lower_bound <= least <= found.value * (1 + 1e-9)
