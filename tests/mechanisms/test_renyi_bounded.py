"""What is known by its Rényi divergences alone, held against the Gaussian."""

import math

import mechanism_laws
import numpy as np
import pytest

from dp_accounting_ext.mechanisms import renyi_bounded
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import renyi_profile

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
ORDERS = np.array(renyi_profile.ORDERS)


def concentrated(rho):
    """ρ-zCDP: divergences of at most ρ α, which N(√(2ρ), 1) attains."""
    return renyi_bounded.RenyiBounded.of(rho * ORDERS)


@pytest.mark.parametrize("rho", [0.01, 0.5, 4.0])
def test_it_dominates_the_gaussian_that_attains_it(rho):
    mechanism, mean = concentrated(rho), math.sqrt(2 * rho)
    for epsilon in (-1.0, 0.0, 0.5, 2.0, 8.0):
        truth = gaussian.delta(mean, epsilon, Bound.LOWER)
        closed = mechanism.closed_form_delta(epsilon, Direction.REMOVE, Bound.UPPER)
        _, pair = mechanism_laws.bounds_of(mechanism, epsilon, Direction.ADD)
        assert closed >= truth
        assert pair >= truth


def test_nothing_is_known_from_below():
    for epsilon in (-0.5, 0.0, 1.0):
        lower, upper = mechanism_laws.bounds_of(
            concentrated(0.2), epsilon, Direction.REMOVE
        )
        assert lower <= max(0.0, -math.expm1(epsilon)) <= upper


def test_compositions_add_up():
    both = renyi_bounded.composition({concentrated(0.1): 2, concentrated(0.3): 1})
    expected = np.array(concentrated(0.5).values)
    assert np.all(np.array(both.values) >= expected * (1 - 1e-15))
    assert np.array(both.values) == pytest.approx(expected, rel=1e-12)


def test_other_orders_by_chords():
    """(α − 1) times the divergence is convex: between orders a chord is above it."""
    at = (1.5, 2.0, 3.0, 10.0)
    found = renyi_bounded.RenyiBounded.at_orders(at, [0.2 * a for a in at])
    values = np.array(found.values)
    between = (ORDERS >= 1.5) & (ORDERS <= 10)
    assert np.all(values[between] >= 0.2 * ORDERS[between] * (1 - 1e-12))
    assert np.all(np.isinf(values[ORDERS > 10]))
    assert np.all(values[ORDERS < 1.5] == pytest.approx(0.3))
    nothing = renyi_bounded.RenyiBounded.at_orders(at, [math.inf] * 4)
    assert np.all(np.isinf(nothing.values))


@pytest.mark.parametrize("told", [1e-9, 0.3, 1.0])
def test_what_may_tell_everything(told):
    """δ = t + (1 − t) δ′, by the closed form and by the pair."""
    plain = concentrated(0.2)
    mechanism = renyi_bounded.RenyiBounded(plain.values, told)
    for epsilon in (-1.0, 0.0, 1.0, 5.0):
        rest = plain.closed_form_delta(epsilon, Direction.REMOVE, Bound.UPPER)
        closed = mechanism.closed_form_delta(epsilon, Direction.REMOVE, Bound.UPPER)
        _, pair = mechanism_laws.bounds_of(mechanism, epsilon, Direction.ADD)
        exact = told + (1 - told) * gaussian.delta(math.sqrt(0.4), epsilon, Bound.LOWER)
        assert exact <= closed <= (told + (1 - told) * rest) * (1 + 1e-14)
        assert exact <= pair
    both = renyi_bounded.composition({mechanism: 2})
    assert both.told >= min(1 - (1 - told) ** 2, 1)
