"""What a measure costs for single points: by the linear program, and its tangents."""

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.base_measures import landmarks
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.costs import dense_cost


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_worst_case_of_a_measure_is_that_of_points(seed):
    """φ_i by the linear program; no mixture of points costs more than the worst."""
    generator = np.random.default_rng(seed)
    cost, epsilon = wpm_oracles.small_case(seed)
    measure = wpm_oracles.random_measure(generator, cost.shape[1], epsilon)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    most = np.exp(epsilon / 2) * measure
    values = point_costs.PointCosts(dense_cost.DenseCost(cost), epsilon).values(most)
    for row, point in enumerate(np.eye(len(cost))):
        truth = wpm_oracles.transport_program(
            point, cost, polytope.lower, polytope.upper
        )
        assert values[row] == pytest.approx(truth, rel=1e-9, abs=1e-12)
    worst = point_costs.worst_case_cost(measure, dense_cost.DenseCost(cost), epsilon)
    assert worst == values.max()
    mixture = generator.dirichlet(np.ones(len(cost)))
    assert wpm.project(mixture, cost, measure, epsilon).lower_bound <= worst + 1e-12


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds, st.floats(0, 1))
def test_worst_case_is_convex_and_lies_above_its_tangents(seed, share):
    generator = np.random.default_rng(seed)
    cost, epsilon = wpm_oracles.small_case(seed)
    size = cost.shape[1]
    points = point_costs.PointCosts(dense_cost.DenseCost(cost), epsilon)
    one, other = (
        np.exp(epsilon / 2) * wpm_oracles.random_measure(generator, size, epsilon)
        for _ in range(2)
    )
    mixed = share * one + (1 - share) * other
    mean = share * points.values(one) + (1 - share) * points.values(other)
    assert (points.values(mixed) <= mean + 1e-12).all()
    thresholds, slopes = points.tangents(one, np.arange(len(cost)))
    np.testing.assert_allclose(thresholds + slopes @ one, points.values(one), atol=1e-9)
    assert (thresholds + slopes @ other <= points.values(other) + 1e-9).all()


def test_rows_that_are_not_kept_give_the_same(monkeypatch):
    generator = np.random.default_rng(0)
    cost = dense_cost.DenseCost(generator.random((9, 7)))
    measure = generator.random(7)
    kept = point_costs.PointCosts(cost, 1.0)
    monkeypatch.setattr(point_costs, "_KEPT", 0)
    monkeypatch.setattr(point_costs, "_TOGETHER", 20)
    fresh = point_costs.PointCosts(cost, 1.0)
    np.testing.assert_array_equal(kept.values(measure), fresh.values(measure))
    some = np.array([5, 2, 8, 0])
    for one, other in zip(
        kept.tangents(measure, some), fresh.tangents(measure, some), strict=True
    ):
        np.testing.assert_array_equal(one, other)


def test_bound_from_landmarks_holds(monkeypatch):
    """Above the truth, by at most what the metric leaves open."""
    points = np.random.default_rng(1).random((80, 2))
    for order in (1, 2):
        cost = wpm.PointCost(points, order=order)
        measure = np.full(80, 1 / 80)
        truth = point_costs.worst_case_cost(measure, cost, 2.0)
        with monkeypatch.context() as patched:
            patched.setattr(landmarks, "MOST_PAIRS", 0)
            patched.setattr(landmarks, "_LANDMARK_PAIRS", 0)
            bound = point_costs.worst_case_cost(measure, cost, 2.0)
        assert truth <= bound
        radius = bound ** (1 / order) - truth ** (1 / order)
        assert radius < 0.35
