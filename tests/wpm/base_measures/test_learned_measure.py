"""Measures learned from public users."""

import numpy as np
import pytest

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.costs import dense_cost


def clustered_users(generator, points, count):
    """Visits around one of three homes."""
    homes = points[generator.integers(0, len(points), 3)]
    users = np.zeros((count, len(points)))
    for user in users:
        home = homes[generator.integers(3)]
        nearness = np.exp(-np.sum((points - home) ** 2, axis=1) / 0.02)
        visits = generator.choice(len(points), 15, p=nearness / nearness.sum())
        np.add.at(user, visits, 1 / 15)
    return users


@pytest.mark.parametrize("capped", [False, True])
def test_learned_measure_beats_the_others_on_its_users(capped):
    generator = np.random.default_rng(0)
    points = generator.random((30, 2))
    cost = wpm.cost_matrix(points, points, order=1)
    users = clustered_users(generator, points, 12)
    minimax = wpm.minimax_base_measure(cost, 2.0)
    cap = 1.3 * minimax.value if capped else None
    found = wpm.learn_base_measure(cost, 2.0, users, cap)
    assert found.converged
    assert 0 < found.lower_bound <= found.value
    assert found.gap <= 0.01 * found.value
    mean = np.mean(wpm.project(users, cost, found.base_measure, 2.0).value)
    assert mean == pytest.approx(found.value, rel=1e-6)
    if capped:
        assert (
            point_costs.worst_case_cost(
                found.base_measure, dense_cost.DenseCost(cost), 2.0
            )
            <= cap
        )
    uniform = wpm.uniform_base_measure(cost, 2.0)
    for other in (minimax, uniform):
        reached = np.mean(wpm.project(users, cost, other.base_measure, 2.0).value)
        if not capped or other is minimax:
            assert found.lower_bound <= reached
        assert found.value < 0.9 * reached


def test_a_cap_below_the_minimax_cost_is_an_error():
    cost = np.random.default_rng(1).random((4, 4))
    best = wpm.minimax_base_measure(cost, 1.0).value
    with pytest.raises(ValueError, match="worst_case must be at least the minimax"):
        wpm.learn_base_measure(cost, 1.0, np.eye(4), best / 2)
