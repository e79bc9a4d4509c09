"""Base measures, the published mechanisms to compare with, and the sphere."""

import math

import dp_accounting
from hypothesis import given
from hypothesis import settings
import mpmath
import numpy as np
import pytest
from scipy import integrate
from scipy import special
import wpm_oracles

import dp_accounting_ext as ext
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


def sphere_truth(dimension, epsilon, order):
    """α*, the cap's mass and the least mean cost, by roots in 40 digits."""
    with mpmath.workdps(40):
        d, p = mpmath.mpf(dimension), mpmath.mpf(order)
        low, high = (
            mpmath.exp(-mpmath.mpf(epsilon) / 2),
            mpmath.exp(mpmath.mpf(epsilon) / 2),
        )

        def cap(x):
            return mpmath.betainc(d / 2, d / 2, 0, x, regularized=True)

        whole = mpmath.mpf(4) ** (p / 2) * mpmath.beta((d + p) / 2, d / 2)
        whole /= mpmath.beta(d / 2, d / 2)

        def inside(x):
            return whole * mpmath.betainc((d + p) / 2, d / 2, 0, x, regularized=True)

        def condition(x):
            left = (high - low) * inside(x) + low * whole
            return left - (4 * x) ** (p / 2) * (low + (high - low) * cap(x))

        lower, upper = mpmath.mpf(10) ** -30, mpmath.mpf(1)
        for _ in range(80):
            middle = mpmath.sqrt(lower * upper)
            if condition(middle) > 0:
                lower = middle
            else:
                upper = middle
        scale = 1 / (low + (high - low) * cap(lower))
        cost = scale * ((high - low) * inside(lower) + low * whole)
        return float(scale), float(cap(lower)), float(cost)


@pytest.mark.parametrize("dimension", [1, 2, 50])
@pytest.mark.parametrize("epsilon", [0.01, 1.0, 40.0])
@pytest.mark.parametrize("order", [1, 3.5])
def test_sphere_to_twelve_digits(dimension, epsilon, order):
    scale, _, _ = sphere_truth(dimension, epsilon, order)
    assert wpm.sphere_scale(dimension, epsilon, order) == pytest.approx(
        scale, rel=1e-12
    )


def directions(count, size, seed):
    found = np.random.default_rng(seed).standard_normal((count, size))
    return found / np.linalg.norm(found, axis=1, keepdims=True)


@pytest.mark.parametrize("candidates", [2, 3, 10, None])
@pytest.mark.parametrize("epsilon", [1e-6, 0.5, 3.0, 9.0])
@pytest.mark.parametrize("dimension", [1, 2, 9])
def test_every_list_of_candidates_is_private(dimension, epsilon, candidates):
    """Exactly: weights of all candidates for many vectors, antipodes and ties."""
    if candidates is None and epsilon == 9.0:
        candidates = 500
    private = wpm.SphereMechanism(dimension, epsilon, candidates=candidates)
    size, count = dimension + 1, private.candidates
    for seed in range(2):
        made = directions(count, size, seed)
        made[-1] = made[0]  # A tie.
        vectors = np.concatenate([directions(8, size, 99), np.eye(size), -np.eye(size)])
        weights = np.array([private._weights(made, vector) for vector in vectors])
        wpm_oracles.assert_private(weights, 1 << 62, epsilon)
        # The nearest ones are the heavy ones, always as many.
        for vector, row in zip(vectors, weights, strict=True):
            heavy = row > (row.min() + row.max()) // 2
            if epsilon > 0.1:
                assert heavy.sum() == private._near
                cosines = made @ vector
                assert cosines[heavy].min() >= cosines[~heavy].max() - 1e-12


def test_a_draw_is_a_candidate_that_no_input_made(monkeypatch):
    """Bit by bit, of the same random bits, whatever the vector."""
    private, drawn = wpm.SphereMechanism(2, 1.0), []
    make = private._directions
    monkeypatch.setattr(
        private, "_directions", lambda source: drawn.append(make(source)) or drawn[-1]
    )
    for vector in np.eye(3):
        found = private.sample(vector, rng=3)
        assert (drawn[-1] == found).all(axis=1).any()
    for other in drawn[1:]:
        np.testing.assert_array_equal(drawn[0], other)
    draws = private.sample(np.tile(np.eye(3)[0], (4, 1)))
    assert draws.shape == (4, 3)
    assert len({tuple(draw) for draw in draws}) == 4


@pytest.mark.parametrize(
    ("dimension", "epsilon", "order"), [(2, 1.0, 2), (9, 4.0, 1), (99, 2.0, 3)]
)
def test_the_cost_tends_to_the_least_one(dimension, epsilon, order):
    """With 64 near candidates, and with many."""
    _, cap, least = sphere_truth(dimension, epsilon, order)
    usual = wpm.SphereMechanism(dimension, epsilon, order)
    assert usual.candidates == np.ceil(64 / cap)
    assert least < usual.expected_cost() < 1.01 * least
    many = wpm.SphereMechanism(dimension, epsilon, order, candidates=200_000)
    assert least * (1 - 1e-9) < many.expected_cost() < 1.0001 * least


@pytest.mark.parametrize("order", [1, 2])
def test_the_cost_of_few_candidates_is_an_integral(order):
    """The nearest of five: its cap's mass has the density 5 (1 − s)^4."""
    private = wpm.SphereMechanism(3, 2.5, order, candidates=5)
    assert private._near == 1

    def cost(mass):
        place = special.betaincinv(1.5, 1.5, mass)
        return (4 * place) ** (order / 2)

    nearest = integrate.quad(lambda s: 5 * (1 - s) ** 4 * cost(s), 0, 1)[0]
    mean = integrate.quad(cost, 0, 1)[0]
    rare = 1 / (4 + np.exp(2.5))
    expected = rare * np.exp(2.5) * nearest + rare * (5 * mean - nearest)
    assert private.expected_cost() == pytest.approx(expected, rel=1e-6)


def test_draws_cost_what_is_expected_and_shrink():
    private = wpm.SphereMechanism(4, 3.0, candidates=40)
    vector = directions(1, 5, 1)[0]
    found = private.sample(np.tile(vector, (4000, 1)), rng=5)
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), 1)
    squares = ((found - vector) ** 2).sum(axis=1)
    error = 4 * squares.std() / np.sqrt(4000)
    assert abs(squares.mean() - private.expected_cost()) < error
    assert private.shrinkage == pytest.approx(1 - private.expected_cost() / 2)
    apart = found.mean(axis=0) - private.shrinkage * vector
    assert np.abs(apart).max() < 4 / np.sqrt(4000)


def test_the_event_is_that_of_two_antipodes():
    """For opposite vectors, the event is exact.

    If a candidate is near to one of them only, its probabilities differ by the factor
    of randomized response. All other candidates have the same probability for both.
    """
    private = wpm.SphereMechanism(2, 1.0)
    made = directions(private.candidates, 3, 0)
    one, other = (private._weights(made, s * made[0]) / 2.0**62 for s in (1, -1))
    attained = np.maximum(one - np.exp(0.3) * other, 0).sum()
    event = private.dp_event
    assert event.epsilon == 1.0
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    accountant = ext.PLDAccountant(relation).compose(event)
    low, high = accountant.get_delta_bounds(0.3)
    assert low * (1 - 1e-6) <= attained <= high * (1 + 1e-12)
