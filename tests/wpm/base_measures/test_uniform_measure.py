"""The best uniform measure, by brute force over scales."""

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import landmarks
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.base_measures import uniform_measure
from dp_accounting_ext.wpm.costs import dense_cost


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_uniform_is_the_best_of_its_kind(seed):
    cost, epsilon = wpm_oracles.small_case(seed)
    size = cost.shape[1]
    found = wpm.uniform_base_measure(cost, epsilon)
    assert found.converged
    points = point_costs.PointCosts(dense_cost.DenseCost(cost), epsilon)
    most = np.exp(epsilon / 2) * found.base_measure
    assert points.values(most).max() == pytest.approx(found.value, rel=1e-9, abs=1e-15)
    for scale in np.geomspace(1, min(size, np.exp(epsilon)), 40):
        other = points.values(np.full(size, scale / size)).max()
        assert found.lower_bound <= other * (1 + 1e-12) + 1e-15


def test_rows_that_come_when_they_are_worst_give_the_same(monkeypatch):
    points = np.random.default_rng(0).random((150, 2))
    cost = wpm.PointCost(points, order=2)
    whole = wpm.uniform_base_measure(cost, 2.0)
    monkeypatch.setattr(uniform_measure, "_KEPT", 0)
    monkeypatch.setattr(uniform_measure, "_TOGETHER", 1000)
    few = wpm.uniform_base_measure(cost, 2.0)
    assert few.converged
    assert few.value == pytest.approx(whole.value, rel=1e-9)
    assert few.base_measure[0] == pytest.approx(whole.base_measure[0], rel=1e-6)


def test_landmarks_bound_the_worst_case(monkeypatch):
    points = np.random.default_rng(0).random((150, 2))
    cost = wpm.PointCost(points)
    truth = wpm.uniform_base_measure(cost, 2.0)
    monkeypatch.setattr(uniform_measure, "_KEPT", 0)
    monkeypatch.setattr(landmarks, "MOST_PAIRS", 0)
    monkeypatch.setattr(landmarks, "_LANDMARK_PAIRS", 0)
    found = wpm.uniform_base_measure(cost, 2.0)
    assert found.lower_bound <= truth.value * (1 + 1e-9)
    worst = point_costs.PointCosts(cost, 2.0).values(np.e * found.base_measure).max()
    assert worst <= found.value
    cosine = wpm.PointCost(points, metric="cosine")
    assert wpm.uniform_base_measure(cosine, 2.0).value == np.inf
