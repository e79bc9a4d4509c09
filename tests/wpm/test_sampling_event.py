"""The event of a draw, as an accountant takes it."""

from fractions import Fraction
import itertools

import dp_accounting
from dp_accounting import dp_event as host_event
from hypothesis import given
from hypothesis import settings
import numpy as np
import pytest
import wpm_oracles

import dp_accounting_ext as ext
from dp_accounting_ext import wpm

Event = wpm.PrivateSamplingEvent


def accountant_of(event, count=1):
    relation = dp_accounting.NeighboringRelation.REPLACE_ONE
    return ext.PLDAccountant(relation).compose(event, count)


@pytest.mark.parametrize("event", [Event(1.5, 0.9), Event(1.5, 0.9, [0.5, 0.2])])
def test_event_goes_through_its_named_tuple(event):
    found = host_event.DpEvent.from_named_tuple(event.to_named_tuple())
    assert found == event and isinstance(found, Event)
    assert len({event, found}) == 1
    with pytest.raises(AttributeError):
        event.epsilon = 2.0


@pytest.mark.parametrize(
    ("event", "error", "message"),
    [
        (Event(-1.0, 1.0), ValueError, "epsilon must be positive.* Found -1.0"),
        (Event(1.0, 3.0), ValueError, "total_mass must be in .* Found 3; scale it"),
        (Event(1.0, "1"), TypeError, "total_mass must be a real number"),
        (Event(1.0, 1.0, 0.5), ValueError, "largest_masses must be a list"),
        (Event(1.0, 1.0, [0.2, 0.3]), ValueError, "largest_masses must fall"),
        (Event(1.0, 1.0, [1e-9] * 5000), ValueError, "at most 4096 masses"),
    ],
)
def test_bad_events(event, error, message):
    with pytest.raises(error, match=message):
        accountant_of(event)


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
