"""Selections and discrete noise: the worst mechanisms, largest losses, many digits."""

import math

import asked
from hypothesis import given
from hypothesis import strategies as st
import mpmath
import nights
import numpy as np
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import renyi_bounded
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


@pytest.mark.parametrize("tail_mass", [1e-9, 1e-300])
@pytest.mark.parametrize("epsilon", [0.0, 0.7, 30.0, 650.0])
@pytest.mark.parametrize(
    ("sigma", "shift"), [(0.05, 1), (0.09, 1), (0.2, 3), (1.0, 1), (7.0, 3)]
)
def test_a_discrete_gaussian_holds_the_truth(sigma, shift, epsilon, tail_mass):
    asked = accuracy.Accuracy(tail_mass)
    lower, upper = (
        discrete_outputs.DiscreteGaussian(sigma, shift).pair(bound, asked)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    reach = math.ceil(60 * sigma) + 3 * shift
    with mpmath.workdps(40):
        kappa, deviation = mpmath.exp(epsilon), mpmath.mpf(sigma)
        p, q = (
            [
                mpmath.exp(-(((x - at) / deviation) ** 2) / 2)
                for x in range(-reach, reach)
            ]
            for at in (shift, 0)
        )
        excess = (max(a - kappa * b, 0) for a, b in zip(p, q, strict=True))
        truth = mpmath.fsum(excess) / mpmath.fsum(q)
        for way in Direction:
            low, high = lower.delta(epsilon, way), upper.delta(epsilon, way)
            assert low <= truth * (1 + mpmath.mpf(10) ** -30)
            assert high >= truth * (1 - mpmath.mpf(10) ** -30)
            if sigma >= 1:
                assert high - low <= 1e-9 * truth + 9 * tail_mass + 1e-280


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
    orders = np.array([1.5, 2, 4, 16, 64, 1024])
    pair = renyi_bounded.dominating_pair_of(orders, np.array(values), 1e-20)
    for epsilon in np.linspace(-1, 1, 21):
        truth = max(p - mpmath.exp(epsilon) * (1 - p), 1 - mpmath.exp(epsilon))
        for direction in Direction:
            assert pair.delta(float(epsilon), direction) >= truth


def exact_loss(p, q):
    """The logarithm of the ratio of the densities, at either end of the shifts."""
    with mpmath.workdps(60):

        def log_ratio(x):
            laws = [
                sum(mpmath.mpf(w) * mpmath.exp(-abs(x - mpmath.mpf(s))) for s, w in law)
                for law in (p, q)
            ]
            return mpmath.log(laws[0] / laws[1])

        high = max(mpmath.mpf(s) for s, _ in p)
        low = min(mpmath.mpf(s) for s, _ in q)
        return max(log_ratio(high), -log_ratio(low))


@given(
    st.floats(-30.0, -0.001), st.floats(-12.0, 3.0), st.sampled_from([0.0, 0.5, 1.0])
)
def test_the_largest_loss_of_a_sample(log_rate, log_shift, also_below):
    """Small rates, small shifts: what used to be a difference of equal logarithms."""
    rate, shift = 10.0**log_rate, 10.0**log_shift
    with mpmath.workdps(60):
        rest = 1 - mpmath.mpf(rate)
    p = ((0.0, 1 - rate), (shift, rate))
    q = ((0.0, 1 - rate), (-also_below * shift, rate)) if also_below else ((0.0, 1.0),)
    truth = exact_loss(
        [(0, rest), (shift, rate)],
        [(0, rest), (-also_below * shift, rate)] if also_below else [(0, 1)],
    )
    found = additive_noise.LaplaceMixture(p, q).claims().loss
    assert truth * (1 - 1e-30) <= found == pytest.approx(float(truth), rel=2e-12)
