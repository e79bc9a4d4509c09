"""The least worst case, against a program over all private channels."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.costs import dense_cost


@settings(max_examples=20, deadline=None)
@given(wpm_oracles.seeds)
def test_minimax_is_the_best_of_all_private_channels(seed):
    cost, epsilon = wpm_oracles.small_case(seed, most=6)
    found = wpm.minimax_base_measure(cost, epsilon)
    truth = wpm_oracles.minimax_program(cost, epsilon)
    assert found.converged
    assert found.value == pytest.approx(truth, rel=1e-6, abs=1e-9)
    assert found.lower_bound <= truth + 1e-9
    assert found.gap <= 1e-6 * found.value + 1e-12
    assert found.value == pytest.approx(
        point_costs.worst_case_cost(
            found.base_measure, dense_cost.DenseCost(cost), epsilon
        ),
        rel=1e-12,
    )
    channel = wpm_oracles.random_channel(
        np.random.default_rng(seed), *cost.shape, epsilon
    )
    assert found.lower_bound <= (channel * cost).sum(axis=1).max() + 1e-12


def test_minimax_of_two_hundred_points():
    points = np.random.default_rng(0).random((120, 2))
    cost = wpm.cost_matrix(points, points, order=1)
    found = wpm.minimax_base_measure(cost, 4.0)
    uniform = wpm.uniform_base_measure(cost, 4.0)
    assert found.converged and found.gap <= 1e-6 * found.value
    assert found.value < 0.8 * uniform.value
