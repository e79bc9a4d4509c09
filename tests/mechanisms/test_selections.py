"""Selections: the worst mechanism whose losses span ε, and the best of many runs."""

import math

import asked
import mpmath
import nights
import numpy as np
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import selections


def worst_of_two_outcomes(bounded, runs, delta):
    """A bracket of the largest ε over some t of runs with the losses t − ε and t."""
    found = np.zeros(2)
    shares = [*np.linspace(0.01, 0.999, 60), 0.5, 0.625, 0.75, 0.875, 1 - 2.0**-10]
    with mpmath.workdps(40):
        for share in shares:
            t = mpmath.mpf(bounded) * share
            p = (1 - mpmath.exp(t - bounded)) / (1 - mpmath.exp(-bounded))
            laws = [
                (
                    mpmath.binomial(runs, heads) * p**heads * (1 - p) ** (runs - heads),
                    runs * t - (runs - heads) * mpmath.mpf(bounded),
                )
                for heads in range(runs + 1)
            ]
            low, high = 0.0, runs * bounded
            for _ in range(50):
                middle = (low + high) / 2
                excess = sum(
                    mass * max(1 - mpmath.exp(middle - loss), 0) for mass, loss in laws
                )
                low, high = (middle, high) if excess > delta else (low, middle)
            found = np.maximum(found, (low, high))
    return found


@pytest.mark.parametrize(
    ("bounded", "runs", "delta"),
    [(1.0, 1, 1e-5), (1.0, 10, 1e-5), *nights.at_night((0.1, 40, 1e-6))],
)
def test_runs_of_two_outcomes_are_a_lower_bound(bounded, runs, delta):
    """Ten runs of ε = 1 with losses ±1/2 alone: 4.999."""
    bounds = asked.bounds_of({selections.ExponentialMechanism(bounded): runs})
    low, high = worst_of_two_outcomes(bounded, runs, delta)
    assert 0.98 * low <= bounds.lower_epsilon(delta) <= high
    assert low <= bounds.upper_epsilon(delta)


ORDERS = [2.0, 1e3, 1e9, 1e12, 1e13, 1e16, 1e160, 1.7e308, math.inf]


def test_runs_that_tell_everything_are_counted():
    """Any of a Poisson number of runs does so with the chance 1 − e^{−mean δ}."""
    one = discrete_outputs.PrivacyParameters(1.0, 1e-3)
    found = selections.BestOf(one, 5.0, math.inf).rdp([2.0]).failure_probability
    assert -math.expm1(-5e-3) <= found <= 5e-3 * (1 + 1e-12)


def pair_of(bounded, bound):
    asked = accuracy.Accuracy.of_level(0, accuracy.CELLS)
    return selections.ExponentialMechanism(bounded).pair(bound, asked)


def profile(bounded, epsilon):
    """The largest over t of two outcomes with losses t − ε and t, by a search."""
    with mpmath.workdps(40):
        bounded, kappa = mpmath.mpf(bounded), mpmath.exp(mpmath.mpf(epsilon))

        def two_outcomes(t):
            p = (1 - mpmath.exp(t - bounded)) / (1 - mpmath.exp(-bounded))
            return max(p * (1 - kappa * mpmath.exp(-t)), 0) + max(
                (1 - p) * (1 - kappa * mpmath.exp(bounded - t)), 0
            )

        low = mpmath.mpf(max(epsilon, 0.0))
        high = bounded + min(mpmath.mpf(epsilon), 0)
        for _ in range(200):
            third = (high - low) / 3
            if two_outcomes(low + third) < two_outcomes(high - third):
                low += third
            else:
                high -= third
        return two_outcomes(low)


@pytest.mark.parametrize("bounded", [1e-6, 0.3, 3.0, 50.0])
@pytest.mark.parametrize("share", [-0.99, -0.4, 0.0, 0.5, 0.999])
def test_the_profile_of_the_worst_mechanism(bounded, share):
    epsilon = share * bounded
    truth = profile(bounded, epsilon)
    pair = pair_of(bounded, Bound.UPPER)
    attained = pair_of(bounded, Bound.LOWER)
    for direction in Direction:
        found = pair.delta(epsilon, direction)
        assert truth <= found <= truth * (1 + (1e-4 if share < 0.9 else 0.02)) + 1e-12
        assert attained.delta(epsilon, direction) <= truth


@pytest.mark.parametrize("bounded", [700.0, 1e5])
def test_losses_that_do_not_fit_a_float_say_nothing(bounded):
    assert pair_of(bounded, Bound.UPPER).infinity_mass == 1
    lower = pair_of(bounded, Bound.LOWER)
    assert (lower.bound, lower.infinity_mass) == (Bound.LOWER, 0.0)
    assert lower.delta(10.0, Direction.REMOVE) <= profile(bounded, 10.0)


@pytest.mark.parametrize("epsilon", [1e-9, 1e-3, 3.0, 30.0, 600.0])
def test_no_divergence_of_a_bounded_range_is_below_that_of_a_smaller_order(epsilon):
    found = selections.ExponentialMechanism(epsilon).rdp(ORDERS).values
    # Divergences increase with the order.
    assert (np.diff(found) >= 0).all()
    # With losses t = ε − 1/α and t − ε, Q has at least q = e^−ε/α at t, and D_α is at
    # least ln(q e^{αt}) / (α − 1).
    for order, value in zip(ORDERS, found, strict=True):
        if order * epsilon >= 1 and order < math.inf:
            assert value >= epsilon - (1 + math.log(order)) / (order - 1)
