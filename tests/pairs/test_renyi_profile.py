"""Pairs of what is known by its Rényi divergences alone."""

import math

import mpmath
import numpy as np
import pytest

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import renyi_profile

Direction = dominating_pair.Direction
ORDERS = np.array(renyi_profile.ORDERS)


def conversion(rho, xi, epsilon):
    """The least conversion over all orders, by a search in 30 digits."""
    with mpmath.workdps(30):

        def log_delta(alpha):
            gap = xi + rho * alpha - epsilon + mpmath.log1p(-1 / alpha)
            return (alpha - 1) * gap - mpmath.log(alpha)

        grid = [1 + mpmath.mpf(10) ** (mpmath.mpf(k) / 20) for k in range(-60, 180)]
        best = min(range(1, len(grid) - 1), key=lambda i: log_delta(grid[i]))
        low, high = grid[best - 1], grid[best + 1]
        for _ in range(80):
            third = (high - low) / 3
            if log_delta(low + third) > log_delta(high - third):
                low += third
            else:
                high -= third
        return min(mpmath.exp(log_delta(low)), 1)


@pytest.mark.parametrize(("rho", "xi"), [(1e-8, 0.0), (0.02, 0.0), (0.5, 0.2), (9, 0)])
@pytest.mark.parametrize("deviations", [0.5, 2.0, 6.0, 10.0])
def test_it_is_the_conversion_far_into_the_tails(rho, xi, deviations):
    epsilon = float(xi + rho + deviations * math.sqrt(2 * rho))
    pair = renyi_profile.dominating_pair_of(
        renyi_profile.ORDERS, xi + rho * ORDERS, tail_mass=1e-30
    )
    limit = conversion(rho, xi, epsilon)
    for direction in Direction:
        found = pair.delta(epsilon, direction)
        # Total variation and chords may be the tighter, where δ is large.
        assert found <= limit * mpmath.mpf("1.01")
        if deviations > 3:
            assert found >= limit * mpmath.mpf("0.98")


@pytest.mark.parametrize("rho", [1e-6, 0.02, 1.0, 30.0])
def test_it_dominates_the_gaussian_with_these_divergences(rho):
    """N(m, 1) against N(0, 1) has divergences of α m²/2, and they are attained."""
    pair = renyi_profile.dominating_pair_of(
        renyi_profile.ORDERS, rho * ORDERS, tail_mass=1e-25
    )
    mean = math.sqrt(2 * rho)
    for deviations in (-6.0, -1.0, 0.0, 1.0, 5.0, 9.0):
        epsilon = rho + deviations * mean
        with mpmath.workdps(30):
            truth = mpmath.ncdf(mean / 2 - epsilon / mean)
            truth -= mpmath.exp(epsilon) * mpmath.ncdf(-mean / 2 - epsilon / mean)
        for direction in Direction:
            assert pair.delta(epsilon, direction) >= truth


def test_it_dominates_randomized_response():
    """Of divergences that grow to ε: their orders are few, and the tail is cut."""
    with mpmath.workdps(40):
        p = mpmath.e / (1 + mpmath.e)
        values = [
            float(
                mpmath.log(p**a * (1 - p) ** (1 - a) + (1 - p) ** a * p ** (1 - a))
                / (a - 1)
            )
            * (1 + 1e-14)
            for a in map(mpmath.mpf, (1.5, 2, 4, 16, 64, 1024))
        ]
    pair = renyi_profile.dominating_pair_of(
        (1.5, 2, 4, 16, 64, 1024), values, tail_mass=1e-20
    )
    for epsilon in np.linspace(-1, 1, 21):
        truth = max(p - mpmath.exp(epsilon) * (1 - p), 1 - mpmath.exp(epsilon))
        for direction in Direction:
            assert pair.delta(float(epsilon), direction) >= truth


def test_it_is_a_law_and_the_same_both_ways():
    pair = renyi_profile.dominating_pair_of(
        renyi_profile.ORDERS, 0.3 * ORDERS, tail_mass=1e-25
    )
    assert (np.diff(pair.ratios) >= 0).all()
    assert pair.masses.sum() + pair.zero_mass == pytest.approx(1, rel=1e-10)
    assert pair.p_masses.sum() + pair.infinity_mass == pytest.approx(1, rel=1e-10)
    assert pair.mass_error < 1e-10
    for epsilon in (-1.0, 0.0, 2.0):
        remove, add = (pair.delta(epsilon, way) for way in Direction)
        assert remove == pytest.approx(add, rel=1e-9)


@pytest.mark.parametrize(
    ("values", "delta"),
    [
        (np.zeros(ORDERS.size), 0.0),
        (np.full(ORDERS.size, math.inf), 1.0),
        (1e6 * ORDERS, 1.0),
    ],
)
def test_ends(values, delta):
    pair = renyi_profile.dominating_pair_of(
        renyi_profile.ORDERS, values, tail_mass=1e-25
    )
    assert pair.delta(0.0, Direction.REMOVE) == pytest.approx(delta, abs=1e-14)


def test_tails_that_leave_the_range_of_floats():
    """Far out a mass would be below 1e-308: what lies there counts as infinite."""
    pair = renyi_profile.dominating_pair_of(
        renyi_profile.ORDERS, 100 * ORDERS, tail_mass=1e-270
    )
    found = pair.epsilon(1e-12, Direction.REMOVE)
    assert conversion(100, 0, found) <= 1e-12 * 1.02
    assert found < 300
