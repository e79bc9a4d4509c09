"""Base measures, and the published mechanisms to compare with."""

import math

from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import worst_cases


def point_costs(most, cost, epsilon):
    """The costs of all inputs."""
    return worst_cases.point_costs(most, cost, epsilon, np.arange(cost.shape[0]))


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_worst_case_of_a_measure_is_that_of_points(seed):
    """φ_i by the linear program; no mixture of points costs more than the worst."""
    generator = np.random.default_rng(seed)
    cost, epsilon = wpm_oracles.small_case(seed)
    measure = wpm_oracles.random_measure(generator, cost.shape[1], epsilon)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    most = np.exp(epsilon / 2) * measure
    values = point_costs(most, costs.DenseCost(cost), epsilon)
    for row, point in enumerate(np.eye(len(cost))):
        truth = wpm_oracles.transport_program(
            point, cost, polytope.lower, polytope.upper
        )
        assert values[row] == pytest.approx(truth, rel=1e-9, abs=1e-12)
    worst = worst_cases.worst_case_cost(measure, costs.DenseCost(cost), epsilon)
    assert worst == values.max()
    mixture = generator.dirichlet(np.ones(len(cost)))
    assert wpm.project(mixture, cost, measure, epsilon).lower_bound <= worst + 1e-12


def test_blocks_of_rows_give_the_same(monkeypatch):
    generator = np.random.default_rng(0)
    cost = costs.DenseCost(generator.random((9, 7)))
    arguments = generator.random(7), cost, 1.0, np.array([5, 2, 8, 0])
    whole = worst_cases.point_costs(*arguments)
    monkeypatch.setattr(costs, "TOGETHER", 20)
    np.testing.assert_array_equal(worst_cases.point_costs(*arguments), whole)


def test_tangents_are_below_and_touch():
    generator = np.random.default_rng(1)
    cost = costs.DenseCost(generator.random((9, 7)))
    most, other = generator.dirichlet(np.ones(7), size=2) * 2
    thresholds, slopes = worst_cases.tangents(cost.matrix(), most, 1.0)
    values = point_costs(most, cost, 1.0)
    np.testing.assert_allclose(thresholds + slopes @ most, values, rtol=1e-14)
    assert (thresholds + slopes @ other <= point_costs(other, cost, 1.0) + 1e-15).all()


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_uniform_is_the_best_of_its_kind(seed):
    cost, epsilon = wpm_oracles.small_case(seed)
    size = cost.shape[1]
    found = wpm.uniform_base_measure(cost, epsilon)
    assert found.converged
    dense = costs.DenseCost(cost)
    most = np.exp(epsilon / 2) * found.base_measure
    worst = point_costs(most, dense, epsilon).max()
    assert worst == pytest.approx(found.value, rel=1e-9, abs=1e-15)
    for scale in np.geomspace(1, min(size, np.exp(epsilon)), 40):
        other = point_costs(np.full(size, scale / size), dense, epsilon).max()
        assert found.lower_bound <= other * (1 + 1e-12) + 1e-15


@pytest.mark.parametrize("order", [1, 2])
def test_landmarks_bound_the_worst_case(monkeypatch, order):
    """Above the truth, by at most what the metric leaves open."""
    cost = wpm.PointCost(np.random.default_rng(0).random((150, 2)), order=order)
    dense = costs.DenseCost(np.random.default_rng(0).random((40, 3)))
    truth = wpm.uniform_base_measure(cost, 2.0)
    worst_of_all = worst_cases.worst_case_cost(np.full(3, 0.4), dense, 2.0)
    monkeypatch.setattr(worst_cases, "MOST_PAIRS", 0)
    places, radius = worst_cases.choose_landmarks(cost)
    distances = cost.rows(places).min(axis=0) ** (1 / order)
    assert places.size == 16 and distances.max() == pytest.approx(radius)
    found = wpm.uniform_base_measure(cost, 2.0)
    assert found.lower_bound <= truth.value * (1 + 1e-9)
    worst = point_costs(np.e * found.base_measure, cost, 2.0).max()
    assert truth.value <= worst <= found.value
    assert found.value ** (1 / order) <= truth.value ** (1 / order) + 0.35
    # What is no metric is looked at whole.
    assert worst_cases.choose_landmarks(dense)[1] == np.inf
    found = worst_cases.worst_case_cost(np.full(3, 0.4), dense, 2.0)
    assert found == worst_of_all


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
        worst_cases.worst_case_cost(found.base_measure, costs.DenseCost(cost), epsilon),
        rel=1e-12,
    )
    channel = wpm_oracles.random_channel(
        np.random.default_rng(seed), *cost.shape, epsilon
    )
    assert found.lower_bound <= (channel * cost).sum(axis=1).max() + 1e-12


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


def test_learned_measure_beats_the_others_on_its_users():
    generator = np.random.default_rng(0)
    points = generator.random((30, 2))
    cost = wpm.PointCost(points)
    users = clustered_users(generator, points, 12)
    found = wpm.learn_base_measure(cost, 2.0, users)
    assert found.converged
    assert 0 < found.lower_bound <= found.value
    assert found.gap <= 0.01 * found.value
    mean = np.mean(wpm.project(users, cost, found.base_measure, 2.0).value)
    assert mean == pytest.approx(found.value, rel=1e-6)
    for make in (wpm.minimax_base_measure, wpm.uniform_base_measure):
        other = make(cost, 2.0).base_measure
        reached = np.mean(wpm.project(users, cost, other, 2.0).value)
        assert found.lower_bound <= reached
        assert found.value < 0.9 * reached


def test_a_sum_that_rounding_put_outside_is_brought_back():
    mass = math.exp(0.5) * (1 + 1e-12)
    found = checks.base_measure([mass], 1, 1.0)
    assert found[0] == pytest.approx(math.exp(0.5), rel=1e-15)
    assert found[0] <= math.exp(0.5)


def points(size, seed=0):
    return np.random.default_rng(seed).random((size, 2))


def test_kl_mechanism_is_the_published_one():
    """max(μ / r, 1 / (e^ε + k − 1)), also where masses are zero."""
    cost = wpm.PointCost(points(6))
    mechanism = wpm.KLProjectionMechanism(cost, 1.5)
    masses = np.array([0.6, 0.3, 0.1, 0.0, 0.0, 0.0])
    floor = 1 / (np.exp(1.5) + 5)
    law = mechanism.project(masses)
    scaled = law[:2] / masses[:2]
    assert scaled[0] == pytest.approx(scaled[1], rel=1e-9)
    np.testing.assert_allclose(law[3:], floor, rtol=1e-9)
    assert law[2] == pytest.approx(max(scaled[0] * 0.1, floor), rel=1e-9)


def test_kl_mechanism_with_support_that_cannot_hold_all():
    cost = wpm.PointCost(points(4))
    measure = np.array([0.1, 0.4, 0.4, 0.1])
    mechanism = wpm.KLProjectionMechanism(cost, 0.5, measure)
    law = mechanism.project([1.0, 0.0, 0.0, 0.0])
    assert law[0] == pytest.approx(0.1 * np.exp(0.25), rel=1e-9)
    # What is left rises in proportion to the base measure.
    np.testing.assert_allclose(law[1:] / measure[1:], law[1] / measure[1], rtol=1e-9)


def test_kl_mechanism_fills_what_has_any_mass_first():
    cost = wpm.PointCost(points(4))
    measure = np.array([0.1, 0.4, 0.4, 0.1])
    mechanism = wpm.KLProjectionMechanism(cost, 0.5, measure)
    law = mechanism.project([1 - 1e-7, 1e-7, 0.0, 0.0])
    np.testing.assert_allclose(law[2:], measure[2:] * np.exp(-0.25), rtol=1e-9)
    assert law[0] == pytest.approx(0.1 * np.exp(0.25), rel=1e-9)


def test_exponential_mechanism_is_the_published_one():
    cost = np.random.default_rng(4).random((5, 7))
    mechanism = wpm.ExponentialMechanism(cost, 2.0)
    masses = np.random.default_rng(5).dirichlet(np.ones(5))
    weights = np.exp(-2.0 * (masses @ cost) / (2 * np.ptp(cost, axis=0).max()))
    np.testing.assert_allclose(
        mechanism.project(masses), weights / weights.sum(), rtol=1e-9
    )
    constant = wpm.ExponentialMechanism(np.ones((3, 2)), 1.0)
    np.testing.assert_allclose(constant.project([1, 0, 0]), 0.5)
