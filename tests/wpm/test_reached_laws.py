"""Pairs of laws between two bounds, against all laws, in exact arithmetic."""

from fractions import Fraction
import functools
import itertools
import math
import operator

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import wpm_oracles

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.wpm import reached_laws

SHARES = (0.0, 0.2, 0.5, 0.8, 0.99)


attained_laws = functools.lru_cache(4)(reached_laws.attained)
dominating_laws = functools.lru_cache(4)(reached_laws.dominating)


def bounds_of(epsilon, total, masses, order):
    """What the two pairs say of δ at an order, all allowances counted."""
    attained = attained_laws(epsilon, total, tuple(masses))
    dominating = dominating_laws(epsilon, total, tuple(masses))
    lows = []
    for laws in attained:
        mechanism = discrete_outputs.PrivateDraw(dominating, laws)
        for direction in Direction:
            pair = interface.pairs_of(
                mechanism, Bound.LOWER, accuracy.Accuracy(1e-14)
            ).of(direction)
            lows.append(pair.delta(order, direction))
            pair = interface.pairs_of(
                mechanism, Bound.UPPER, accuracy.Accuracy(1e-14)
            ).of(direction)
            high = pair.delta(order, direction)
    return max(lows), high


@functools.lru_cache(1)
def chances_of(epsilon, masses):
    """Returns for each set of outputs its largest probability under one law, and its
    least one under the other, as integers over one denominator."""
    with mpmath.workprec(600):
        most = wpm_oracles.rational(mpmath.exp(mpmath.mpf(epsilon) / 2))
    least, exact = 1 / most, [Fraction(mass) for mass in masses]
    total, found = sum(exact), []
    sets = itertools.product([0, 1], repeat=len(exact))
    for inside in {sum(map(operator.mul, exact, held)) for held in sets}:
        one = min(most * inside, 1 - least * (total - inside))
        other = max(least * inside, 1 - most * (total - inside))
        found.append((one, other))
    unit = math.lcm(*{chance.denominator for both in found for chance in both})
    return [tuple(int(chance * unit) for chance in both) for both in found], unit


def truth_of(epsilon, masses, order):
    """The largest divergence of two laws, over all sets of outputs."""
    with mpmath.workprec(600):
        growth = wpm_oracles.rational(mpmath.exp(mpmath.mpf(order)))
    found, unit = chances_of(epsilon, tuple(masses))
    more, less = growth.as_integer_ratio()
    worst = max(less * one - more * other for one, other in found)
    return Fraction(max(worst, 0), less * unit)


def random_masses(generator, epsilon):
    size = int(generator.integers(1, 8))
    masses = generator.dirichlet(np.full(size, generator.choice([0.3, 3.0]))) + 1e-6
    if generator.random() < 0.3:
        masses = np.full(size, 1.0)
    masses *= np.exp(generator.uniform(-1, 1) * epsilon / 2) / masses.sum()
    # Multiples of a power of two, of which sums are exact.
    return np.ldexp(np.ceil(np.ldexp(np.sort(masses)[::-1], 40)), -40).tolist()


@settings(max_examples=60, deadline=None)
@given(wpm_oracles.seeds)
def test_the_truth_of_a_known_measure_is_between_both_and_near(seed):
    generator = np.random.default_rng(seed)
    epsilon = float(generator.choice([0.05, 0.5, 2.0, 6.0]))
    masses = random_masses(generator, epsilon)
    for share in SHARES:
        order = share * epsilon
        low, high = bounds_of(epsilon, math.fsum(masses), masses, order)
        truth = truth_of(epsilon, masses, order)
        assert Fraction(low) <= truth <= Fraction(high)
        assert high <= low + 1e-11 * math.exp(epsilon)


@settings(max_examples=30, deadline=None)
@given(wpm_oracles.seeds)
def test_of_other_outputs_only_the_largest_need_be_known(seed):
    """The bounds hold for all measures of that sum and those largest masses."""
    generator = np.random.default_rng(seed)
    epsilon = float(generator.choice([0.05, 0.5, 2.0, 6.0]))
    masses = random_masses(generator, epsilon)
    known = masses[: int(generator.integers(0, len(masses)))]
    for share in SHARES:
        order = share * epsilon
        low, high = bounds_of(epsilon, math.fsum(masses), known, order)
        truth = truth_of(epsilon, masses, order)
        assert truth <= Fraction(high)
        assert not known or Fraction(low) <= truth


@settings(deadline=None)
@given(st.floats(1e-6, 100), st.floats(-1, 1))
def test_small_outputs_have_a_closed_form(epsilon, place):
    total = math.exp(place * epsilon / 2)
    low, high = bounds_of(epsilon, total, (), 0.0)
    with mpmath.workprec(400):
        least = mpmath.exp(-mpmath.mpf(epsilon) / 2)
        exact = max(min(1 - least * total, total / least - 1), 0)
        assert low <= exact <= high
        assert high - low <= 1e-13 * (1 + epsilon)


def test_no_room_between_the_bounds_leaves_nothing_to_tell():
    for total in (math.exp(-0.5), math.exp(0.5)):
        low, high = bounds_of(1.0, total, [total], 0.0)
        assert 0 <= low <= high <= 1e-11
