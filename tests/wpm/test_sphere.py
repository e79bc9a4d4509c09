"""The sphere: the best cap, and draws that are private for every list of candidates."""

import dp_accounting
import mpmath
import numpy as np
import pytest
from scipy import integrate
from scipy import special
import wpm_oracles

import dp_accounting_ext as ext
from dp_accounting_ext import wpm


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
