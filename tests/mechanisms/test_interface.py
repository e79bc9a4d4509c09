"""Pairs that are made when asked for, once, and for few different tails."""

import collections
import dataclasses
import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DominatingPair = dominating_pair.DominatingPair
CALLS = collections.Counter()


@dataclasses.dataclass(frozen=True)
class Told(interface.OnePairMechanism):
    """Tells with some probability; counts how often its pair is made."""

    chance: float
    error: float = 0.0

    def pair(self, bound, tail_mass):
        CALLS[self, bound, tail_mass] += 1
        return DominatingPair(
            np.ones(1),
            np.array([1 - self.chance]),
            self.chance,
            self.chance,
            bound,
            mass_error=self.error,
        )


@dataclasses.dataclass(frozen=True)
class Amplified(interface.AmplifiedMechanism):
    """Any mechanism on a part of the records."""

    def pairs(self, bound, tail_mass):
        return dominating_pair.DirectedPairs.same(dominating_pair.trivial_pair(bound))


def test_what_is_not_said_is_no_bound():
    """A mechanism of one's own need name nothing but its pairs."""
    mechanism = Told(0.25)
    assert mechanism.parts(Bound.UPPER) == {mechanism: 1}
    assert mechanism.closed_form_delta(1.0, Direction.ADD, Bound.UPPER) is None
    assert mechanism.gaussian_precision() == mechanism.largest_loss() == math.inf
    assert not mechanism.is_symmetric()


def test_one_pair_is_one_object_for_both_directions():
    pairs = Told(0.125).pairs(Bound.UPPER, 1e-12)
    assert pairs.remove is pairs.add
    kept = interface.pairs_of(Told(0.125), Bound.UPPER, 1e-12)
    assert kept.remove is kept.add


@pytest.mark.parametrize("bound", Bound)
def test_pairs_are_made_once(bound):
    CALLS.clear()
    first = interface.pairs_of(Told(0.5), bound, 1e-9)
    assert interface.pairs_of(Told(0.5), bound, 1e-9) is first
    assert interface.pairs_of_part(Told(0.5), bound, 1e-9) is first
    assert interface.pairs_of(Told(0.5), bound, 1e-10) is not first
    assert sorted(CALLS.values()) == [1, 1]


def test_no_tail_is_smaller_than_a_table_has():
    CALLS.clear()
    tiny = interface.pairs_of(Told(0.375), Bound.UPPER, 0.0)
    assert interface.pairs_of(Told(0.375), Bound.UPPER, 1e-300) is tiny
    ((_, _, tail_mass),) = CALLS
    assert 0 < tail_mass <= 1e-280


@pytest.mark.parametrize("bound", Bound)
def test_pairs_whose_errors_have_grown_say_nothing(bound):
    """Bounds on errors are of first order."""
    kept, lost = (
        interface.pairs_of(Told(0.5, error), bound, 1e-9).remove
        for error in (0.0099, 0.02)
    )
    assert kept.delta(3.0, Direction.REMOVE) == pytest.approx(0.5, rel=0.02)
    nothing = 1.0 if bound is Bound.UPPER else 0.0
    assert lost.delta(3.0, Direction.REMOVE) == nothing


@given(st.floats(0.0, 1.0), st.floats(0.0, 1.0))
def test_parts_have_few_different_tails_and_none_that_is_larger(one, other):
    coarse = [Amplified().tail_as_a_part(tail) for tail in (one, other)]
    for tail, found in zip((one, other), coarse, strict=True):
        assert found <= max(tail, 1e-290) * (1 + 1e-9)
        assert found >= max(tail, 1e-290) / 1e6 * (1 - 1e-9)
        exponent = math.log10(found) / 6
        assert exponent == pytest.approx(round(exponent), abs=1e-9)
    assert (coarse[0] <= coarse[1]) or (one >= other)
    # What has no parts of its own is computed as it is asked for.
    assert Told(0.5).tail_as_a_part(one) == max(one, Told(0.5).tail_as_a_part(0.0))


@dataclasses.dataclass(frozen=True)
class Coin(interface.OnePairMechanism):
    """A coin that says 7 times in 10 whether the record is there; without a claim."""

    sink: float = 0.0

    def pair(self, bound, tail_mass):
        return dominating_pair.DominatingPair(
            np.array([3 / 7, 7 / 3]), np.array([0.7, 0.3]), self.sink, 0.0, bound
        )


def test_the_largest_loss_is_that_of_the_atoms():
    largest = math.log(7 / 3)
    assert largest <= Coin().largest_loss() <= largest * (1 + 1e-9)
    assert Coin(1e-300).largest_loss() == math.inf


def test_a_composition_differs_no_more_often_than_any_of_its_runs():
    assert 0.4 <= Coin().total_variation() <= 0.4 * (1 + 1e-9)
    found = interface.total_variation_of({Coin(): 3})
    assert 1 - 0.6**3 <= found <= (1 - 0.6**3) * (1 + 1e-8)
    assert interface.total_variation_of({}) == 0.0


def test_rough_pairs_are_the_pairs_where_there_are_no_others():
    mechanism = additive_noise.laplace(1.0)
    exact = interface.pairs_of(mechanism, Bound.UPPER, 1e-12)
    assert interface.rough_pairs_of(mechanism, 1e-12, 4096) is exact
    rough = interface.rough_pairs_of(
        additive_noise.GaussianMixture(((1.0, 1.0),), ((0.0, 1.0),)), 1e-12, 4096
    )
    assert rough.remove.bound is Bound.UPPER
