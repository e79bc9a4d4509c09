"""Trade-off curves of pairs, and the distance of curves from Gaussian ones."""

import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest
import strategies

from dp_accounting_ext.composition import trade_off
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
RATES = np.array([0.0, 1e-9, 1e-3, 0.1, 0.5, 0.9, 1.0])


def best_test(pair, rate, direction):
    """The best test of a pair's atoms, as they are stored: greedily, in 40 digits."""
    with mpmath.workdps(40):
        atoms = [
            (mpmath.mpf(float(z)), mpmath.mpf(float(q)))
            for z, q in zip(pair.ratios, pair.masses, strict=True)
        ]
        found = mpmath.mpf(pair.infinity_mass)
        gains = [(z * q, q) for z, q in atoms][::-1]
        if direction is Direction.ADD:
            found = mpmath.mpf(pair.zero_mass)
            gains = [(q, z * q) for z, q in atoms]
        left = mpmath.mpf(float(rate))
        for gain, cost in gains:
            if cost <= left:
                found, left = found + gain, left - cost
            else:
                return found + gain * left / cost
        return found


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(Bound).flatmap(strategies.pairs), st.sampled_from(Direction))
def test_the_curve_of_atoms(pair, direction):
    curve = trade_off.Curve(pair, direction)
    found = curve.true_positive_rates(RATES)
    for rate, bound in zip(RATES, found, strict=True):
        truth = max(min(best_test(pair, rate, direction), 1), rate)
        if pair.bound is Bound.UPPER:
            assert truth <= bound
        else:
            assert bound <= truth
        assert bound == pytest.approx(float(truth), rel=1e-6, abs=1e-9)


@settings(max_examples=80, deadline=None)
@given(st.sampled_from(Bound).flatmap(strategies.pairs), st.sampled_from(Direction))
def test_its_inverse(pair, direction):
    """Spending as little finds no more (upper); so much finds as much (lower)."""
    curve = trade_off.Curve(pair, direction)
    goals = np.array([0.0, 1e-6, 0.2, 0.7, 0.999])
    for goal, rate in zip(goals, curve.false_positive_rates(goals), strict=True):
        assert 0 <= rate <= goal
        found = max(min(best_test(pair, rate, direction), 1), rate)
        if pair.bound is Bound.UPPER:
            assert found <= goal * (1 + 1e-9) or rate == 0
        else:
            assert found >= goal * (1 - 1e-9)


@pytest.mark.parametrize("mean", [0.0, 1e-3, 0.5, 3.0, 30.0])
@pytest.mark.parametrize("rate", [1e-200, 1e-12, 0.01, 0.5, 0.999])
def test_the_gaussian_curve(mean, rate):
    with mpmath.workdps(60):
        quantile = mpmath.findroot(
            lambda z: mpmath.log(mpmath.ncdf(z) / mpmath.mpf(rate)),
            float(trade_off._inverse(np.array([rate]))[0]),
            tol=1e-25,
        )
        found = mpmath.ncdf(quantile + mean)
        missed = mpmath.ncdf(-quantile - mean)
        if mean == 0:
            found, missed = mpmath.mpf(rate), 1 - mpmath.mpf(rate)
    rates = np.array([rate])
    for bound, sign in ((Bound.UPPER, 1), (Bound.LOWER, -1)):
        value = float(trade_off.gaussian_rates(mean, rates, bound)[0])
        assert sign * (value - found) >= 0
        assert value == pytest.approx(float(found), rel=1e-8)
        value = float(trade_off.gaussian_misses(mean, rates, bound)[0])
        assert sign * (missed - value) >= 0
        assert value == pytest.approx(float(missed), rel=1e-8, abs=1e-300)


def gaussian(mean, bound):
    def ends(rates):
        return (
            trade_off.gaussian_rates(mean, rates, bound),
            trade_off.gaussian_misses(mean, rates, bound),
        )

    return ends


@pytest.mark.parametrize("mean", [1e-3, 1.0, 12.0])
def test_the_distance_of_a_gaussian_curve_is_its_mean(mean):
    upper = trade_off.largest_distance(
        gaussian(mean, Bound.UPPER), 1e-12, 0.5, Bound.UPPER
    )
    lower = trade_off.largest_distance(
        gaussian(mean, Bound.LOWER), 1e-12, 0.5, Bound.LOWER
    )
    assert lower <= mean <= upper <= lower + 2e-4


@pytest.mark.parametrize("peak", [1e-11, 3.7e-5, 0.2])
def test_a_distance_between_the_places_that_are_looked_at(peak):
    """A curve of two lines that touches a Gaussian one of mean 1 at one rate alone."""
    quantile = float(trade_off._inverse(np.array([peak]))[0])
    height = float(mpmath.ncdf(quantile + 1))

    def chords(rates):
        found = np.interp(rates, [0.0, peak, 1.0], [0.0, height, 1.0])
        return found, 1 - found

    found = trade_off.largest_distance(chords, 1e-12, 0.5, Bound.UPPER)
    assert 1 - 1e-9 <= found <= 1 + 1e-5


def test_an_infinite_distance():
    def everything(rates):
        return np.ones(rates.size), np.zeros(rates.size)

    for bound in Bound:
        found = trade_off.largest_distance(everything, 1e-6, 0.5, bound)
        assert found == math.inf
