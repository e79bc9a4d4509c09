"""The event of a draw, and pairs of laws between two bounds, in exact arithmetic."""

from fractions import Fraction
import functools
import itertools
import math
import operator

import dp_accounting
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import pytest
import wpm_oracles

import dp_accounting_ext as ext
from dp_accounting_ext import wpm
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.wpm import reached_laws

Event = wpm.PrivateSamplingEvent


def accountant_of(event, count=1):
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    return ext.PLDAccountant(relation).compose(event, count)


def test_many_masses_are_shown_in_short():
    assert repr(Event(1.0, 1.0, [0.5])).endswith("largest_masses=(0.5,))")
    shown = repr(Event(1.0, 1.0, [0.001] * 1000))
    assert shown.endswith("0.001, ... 1000 in all))") and len(shown) < 140


def test_outputs_as_small_as_may_be_are_bounded_from_both_sides():
    """A hundred draws, and in a group as many as it has members."""
    one = accountant_of(Event(1.0, 1.0), 100)
    low, high = one.get_epsilon_bounds(1e-6)
    assert low <= high <= low * (1 + 1e-5)
    group = ext.GroupSubsampledEvent(4, Event(1.0, 1.0))
    found = accountant_of(group, 25).get_epsilon_bounds(1e-6)
    assert found[0] <= high and low <= found[1]


def test_a_skewed_measure_reveals_less_than_its_sum_tells():
    """One output with nearly all mass cannot be half full."""
    masses = [0.98, 0.01, 0.01]
    known = accountant_of(Event(1.0, 1.0, masses)).get_delta_bounds(0.0)
    plain = accountant_of(Event(1.0, 1.0)).get_delta_bounds(0.0)
    assert known[1] < 0.2 * plain[0]
    assert known[1] == pytest.approx(known[0], rel=1e-9)


@settings(max_examples=30, deadline=None)
@given(wpm_oracles.seeds)
def test_event_of_a_mechanism_covers_its_integer_bounds(seed):
    """All laws within the integers, by sets of outputs, in exact arithmetic."""
    generator = np.random.default_rng(seed)
    epsilon = float(generator.choice([0.01, 1.0, 5.0, 40.0]))
    cost = generator.random((3, 5))
    measure = wpm_oracles.random_measure(generator, 5, epsilon)
    mechanism = wpm.WassersteinProjectionMechanism(cost, epsilon, measure)
    bounds, accountant = mechanism.integer_bounds, accountant_of(mechanism.dp_event)
    low, high, whole = bounds.lower.tolist(), bounds.upper.tolist(), bounds.total
    for share in (0.0, 0.3, 0.9):
        allowed = Fraction(accountant.get_delta(share * epsilon))
        order = wpm_oracles.exponential_lower_bound(share * epsilon)
        for chosen in itertools.product([False, True], repeat=5):
            rows = list(zip(chosen, low, high, strict=True))
            one = min(
                sum(h for inside, _, h in rows if inside),
                whole - sum(w for inside, w, _ in rows if not inside),
            )
            other = max(
                sum(w for inside, w, _ in rows if inside),
                whole - sum(h for inside, _, h in rows if not inside),
            )
            found = Fraction(one, whole) - order * Fraction(other, whole)
            # The order is below e^ε', but by less than an hundredth of this.
            assert found <= allowed + Fraction(1, 2**480)


def test_inputs_of_a_mechanism_attain_the_lower_bound():
    """Outputs that are inputs and free to stay: two laws are their own projections."""
    cost = wpm_oracles.ring(12, order=1)
    measure = np.random.default_rng(3).dirichlet(np.full(12, 0.6))
    mechanism = wpm.WassersteinProjectionMechanism(cost, 2.0, measure)
    accountant = accountant_of(mechanism.dp_event)
    least, most = np.exp(-1.0) * measure, np.exp(1.0) * measure
    generator = np.random.default_rng(0)
    found = np.zeros(3)
    for _ in range(60):
        order = generator.permutation(12)
        users = []
        for places in (order, order[::-1]):
            room = (most - least)[places]
            before = np.cumsum(room) - room
            user = least.copy()
            user[places] += np.clip(1 - least.sum() - before, 0, room)
            users.append(user)
        one, other = np.asarray(mechanism.project(users))
        for place, epsilon in enumerate((0.0, 0.7, 1.6)):
            apart = np.maximum(one - np.exp(epsilon) * other, 0).sum()
            found[place] = max(found[place], apart)
    for place, epsilon in enumerate((0.0, 0.7, 1.6)):
        low, high = accountant.get_delta_bounds(epsilon)
        assert found[place] <= high * (1 + 1e-9)
        assert found[place] >= 0.95 * low and low >= 0.99 * high


SHARES = (0.0, 0.2, 0.5, 0.8, 0.99)


attained_laws = functools.lru_cache(4)(reached_laws.attained)
dominating_laws = functools.lru_cache(4)(reached_laws.dominating)


def bounds_of(epsilon, total, masses, order):
    """What the two pairs say of δ at an order, all allowances counted."""
    attained = attained_laws(epsilon, total, tuple(masses))
    dominating = dominating_laws(epsilon, total, tuple(masses))
    mechanism, lows = discrete_outputs.PrivateDraw(dominating, attained), []
    for direction in Direction:
        low, high = (
            interface.pairs_of(mechanism, bound, accuracy.Accuracy(1e-14))
            .of(direction)
            .delta(order, direction)
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        lows.append(low)
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
        assert high <= truth + Fraction(1e-11 * math.exp(epsilon))


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
