"""Algorithm 1: its certificate, its limit, and that users are kept apart."""

import contextlib
import functools

from hypothesis import given
from hypothesis import settings
import nights
import numpy as np
import pytest
from scipy import special
import wpm_oracles

from dp_accounting_ext import wpm
from dp_accounting_ext.wpm.projections import entropic

PATHS = {"own rows": 0, "all rows": 10**9, "each": 2}


@contextlib.contextmanager
def by_path(name):
    """Products by a path; blocks of few users."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropic, "_SHARE", PATHS[name])
        patch.setattr(entropic, "_ENTRIES", 40)
        patch.setattr(entropic, "_ROWS", 4)
        yield


@settings(max_examples=40, deadline=None)
@given(wpm_oracles.seeds)
def test_the_certificate_encloses_the_least_cost(seed):
    """Of any passes and λ: bound ≤ linear program ≤ cost of the law ≤ value."""
    generator = np.random.default_rng(seed)
    masses, cost, measure, epsilon = wpm_oracles.random_case(generator, most=15)
    polytope = wpm_oracles.polytope_of(measure, epsilon)
    strength = float(cost.max() or 1.0) * generator.choice([0.003, 0.03, 0.3, 30.0])
    passes = int(generator.choice([1, 7, 40]))
    with by_path(list(PATHS)[seed % len(PATHS)]):
        found = wpm.project(
            masses, cost, measure, epsilon, regularization=strength, iterations=passes
        )
    truth = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    slack = 1e-7 * truth + 1e-12 * cost.max()
    assert found.lower_bound <= truth + slack
    assert truth <= found.value + slack
    wpm_oracles.assert_in_polytope(found.distribution, polytope)
    reached = wpm_oracles.reaching_cost(masses, cost, found.distribution)
    assert reached <= found.value + slack + 1e-9 * cost.max()
    assert found.iterations == passes
    assert found.converged == (found.gap <= 1e-6 * found.value + 1e-13 * cost.max())


def regularized(masses, cost, polytope, strength, passes=600):
    """The law of the least regularized cost: logarithms, and bisection for the sum."""
    g = np.zeros(cost.shape[1])
    for _ in range(passes):
        f = strength * np.log(masses)
        f -= strength * special.logsumexp((g - cost) / strength, axis=1)
        log_sums = special.logsumexp((f[:, np.newaxis] - cost) / strength, axis=0)
        low, high = -100.0, 100.0
        for _ in range(60):
            middle = (low + high) / 2
            law = np.clip(np.exp(log_sums + middle), polytope.lower, polytope.upper)
            low, high = (middle, high) if law.sum() < 1 else (low, middle)
        g = strength * (np.log(law) - log_sums)
    return law


@functools.lru_cache
def limit(strength):
    """A user, costs, a measure, the least cost, and the regularized law."""
    generator = np.random.default_rng(5)
    cost, masses = generator.random((6, 8)), generator.dirichlet(np.ones(6))
    measure = generator.dirichlet(np.ones(8)) + 0.05
    measure /= measure.sum()
    polytope = wpm_oracles.polytope_of(measure, 2.0)
    least = wpm_oracles.transport_program(masses, cost, polytope.lower, polytope.upper)
    return (masses, cost, measure, least, regularized(masses, cost, polytope, strength))


@pytest.mark.parametrize("strength", [0.05, 0.3])
@pytest.mark.parametrize("path", PATHS)
def test_many_passes_reach_the_regularized_law(path, strength):
    """Lemma 4.2's fixed point; its cost is within λ log k of the least one."""
    masses, cost, measure, least, expected = limit(strength)
    with by_path(path):
        found = wpm.project(
            masses, cost, measure, 2.0, regularization=strength, iterations=600
        )
    np.testing.assert_allclose(found.distribution, expected, atol=1e-8)
    reached = wpm_oracles.reaching_cost(masses, cost, found.distribution)
    assert reached <= least + strength * np.log(8)
    assert found.gap <= strength * np.log(8) + 1e-6


def crowd(size=61, users=40):
    """Users with few and with many places."""
    generator = np.random.default_rng(1)
    counts = generator.integers(0, 3, (users, size))
    counts *= generator.random((users, size)) < generator.random((users, 1))
    counts[:, 0] += counts.sum(axis=1) == 0
    return counts


def mechanism(strength=0.05, iterations=40, size=61):
    places = np.random.default_rng(5).random((size, 2))
    return wpm.from_points(places, 2.0, regularization=strength, iterations=iterations)


@pytest.mark.parametrize("path", ["own rows", *nights.at_night(*list(PATHS)[1:])])
def test_no_user_depends_on_the_others(path):
    """Bit by bit, wherever the row stands and whatever the others hold."""
    private, users = mechanism(), crowd()
    with by_path(path):
        whole = np.asarray(private.integer_weights(users))
        turned = np.asarray(private.integer_weights(users[::-1]))[::-1]
        fewer = np.asarray(private.integer_weights(users[3:30:4]))
        alone = np.asarray([private.integer_weights(user) for user in users])
    np.testing.assert_array_equal(whole, turned)
    np.testing.assert_array_equal(whole[3:30:4], fewer)
    np.testing.assert_array_equal(whole, alone)


def test_what_is_expected_is_what_single_points_pay(monkeypatch):
    private = mechanism()
    laws, matrix = np.asarray(private.project(np.eye(61))), private.cost.matrix()
    paid = (laws * matrix).sum(axis=1)
    exact = wpm.from_points(np.random.default_rng(5).random((61, 2)), 2.0)
    expected = private.expected_cost()
    assert expected.worst == pytest.approx(paid.max(), rel=1e-9)
    assert expected.average == pytest.approx(paid.mean(), rel=1e-9)
    assert expected.average > exact.expected_cost().average
    monkeypatch.setattr("dp_accounting_ext.wpm.worst_cases.MOST_PAIRS", 600)
    assert mechanism().worst_case_cost >= paid.max()


@pytest.mark.parametrize("order", [1, 2])
def test_largest_costs(order):
    """Every kind of cost says its largest one, or somewhat more."""
    points = np.random.default_rng(0).random((9, 2))
    edges = np.column_stack([np.arange(9), np.roll(np.arange(9), -1)])
    found = [
        wpm.PointCost(points, metric=metric, order=order)
        for metric in ("euclidean", "haversine", "cosine")
    ]
    found.append(wpm.GraphCost.from_edges(edges, np.ones(9), order=order))
    for cost in found:
        true = cost.matrix().max()
        assert true <= cost.largest() * (1 + 1e-12)
        assert cost.metric_order is None or cost.largest() <= 2.1**order * true
    kept = wpm.WassersteinProjectionMechanism(found[0].matrix(), 1.0).cost
    assert (
        kept.largest() == found[0].matrix().max() == super(type(kept), kept).largest()
    )
