"""Laws that hold of every mechanism, whatever it does."""

import math

import mpmath

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import interface

TAIL = 1e-14
SIDES = (Bound.LOWER, Bound.UPPER)
EPSILONS = (-1.0, 0.0, 0.1, 0.7, 2.0, 6.0)


def deltas(mechanism, epsilon, bound=Bound.UPPER, tail_mass=1e-30):
    """Returns what the pairs say of δ at ε in each direction."""
    pairs = interface.pairs_of(mechanism, bound, accuracy.Accuracy(tail_mass))
    return [pairs.of(way).delta(epsilon, way) for way in Direction]


def assert_masses(mechanism):
    """Neither law of a lower pair has a mass above one, nor of an upper one below."""
    for bound, sign in ((Bound.LOWER, 1), (Bound.UPPER, -1)):
        pairs = interface.pairs_of(mechanism, bound, accuracy.Accuracy(TAIL))
        for pair in (pairs.remove, pairs.add):
            error = pair.mass_error + 2 * pair.ratio_error + pair.masses.size * 2**-52
            q = math.fsum([*pair.masses, pair.zero_mass])
            p = math.fsum([*pair.p_masses, pair.infinity_mass])
            assert sign * (q - 1) <= error
            assert sign * (p - 1) <= error


def assert_claims(mechanism, epsilons=EPSILONS):
    """Every claim is at least what the mechanism's own lower pair shows."""
    assert_masses(mechanism)
    claims = mechanism.claims()
    mean = math.sqrt(claims.gaussian_precision) * (1 + 1e-15)
    around = (claims.loss * factor for factor in (0.5, 1, 1 + 1e-9, 1.01))
    places = [*epsilons, *(place for place in around if place < 1e6)]
    for place in places:
        lows, highs = (deltas(mechanism, place, bound, TAIL) for bound in SIDES)
        for direction, low, high in zip(Direction, lows, highs, strict=True):
            assert low <= high
            if place >= claims.loss:
                assert low <= claims.probability_of_more
            assert low <= _normal_delta(mean**2 / 2, mean, place)
            assert low <= _normal_delta(*claims.loss_tail(direction), place)
            if claims.is_symmetric:
                assert low <= min(highs)


def _normal_delta(mean, deviation, epsilon):
    """Returns δ at ε of a normal loss: the mean of (1 − e^{ε − L})₊."""
    if math.isinf(mean):
        return 1.0
    if deviation == 0:
        return max(-math.expm1(epsilon - mean), 0.0)
    with mpmath.workdps(50):
        spread, above = mpmath.mpf(deviation), mpmath.mpf(mean) - epsilon
        rest = mpmath.ncdf(above / spread - spread)
        return mpmath.ncdf(above / spread) - rest * mpmath.exp(spread**2 / 2 - above)
