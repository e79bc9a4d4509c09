"""Mechanisms of which only one side is known, or that have no privacy."""

from fractions import Fraction

from hypothesis import given
from hypothesis import strategies as st
import mechanism_laws
import numpy as np
import pytest

from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import known_bounds
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DirectedPairs = dominating_pair.DirectedPairs
NonPrivate = known_bounds.NonPrivate


def deltas(pairs, epsilon):
    return [pairs.of(way).delta(epsilon, way) for way in Direction]


@pytest.mark.parametrize("bound", Bound)
def test_known_pairs_are_known_on_one_side(bound):
    known = DirectedPairs(
        *(
            dominating_pair.DominatingPair(
                np.array([0.5, 1.5]), np.array([0.5, 0.5]), sink, sink, bound
            )
            for sink in (0.0, 0.125)
        )
    )
    mechanism = known_bounds.KnownPairs(known)
    assert mechanism.bound is bound
    assert mechanism.pairs(bound, 1e-12) is known
    other = Bound.LOWER if bound is Bound.UPPER else Bound.UPPER
    nothing = mechanism.pairs(other, 1e-12)
    assert deltas(nothing, 0.3) == [1.0 if other is Bound.UPPER else 0.0] * 2


def test_known_pairs_are_themselves_only():
    """Arrays are not compared: two of them are two mechanisms."""
    known = DirectedPairs.same(dominating_pair.identity_pair(Bound.UPPER))
    one, other = known_bounds.KnownPairs(known), known_bounds.KnownPairs(known)
    assert one == one
    assert len({one, other}) == 2


@pytest.mark.parametrize(
    "inner", [additive_noise.Gaussian(0.7), additive_noise.laplace(1.5)]
)
def test_what_is_above_only_says_what_its_inner_mechanism_says_above(inner):
    mechanism = known_bounds.UpperOnly(inner)
    mechanism_laws.assert_laws(mechanism)
    assert mechanism.largest_loss() == inner.largest_loss()
    assert mechanism.gaussian_precision() == inner.gaussian_precision()
    assert mechanism.is_symmetric() == inner.is_symmetric()
    for epsilon in (-1.0, 0.0, 0.4):
        upper = mechanism.pairs(Bound.UPPER, 1e-14)
        assert deltas(upper, epsilon) == deltas(
            inner.pairs(Bound.UPPER, 1e-14), epsilon
        )
        assert max(deltas(mechanism.pairs(Bound.LOWER, 1e-14), epsilon)) <= max(
            1 - np.exp(epsilon), 0
        )
        for way in Direction:
            upper = mechanism.closed_form_delta(epsilon, way, Bound.UPPER)
            assert upper == inner.closed_form_delta(epsilon, way, Bound.UPPER)
            assert mechanism.closed_form_delta(epsilon, way, Bound.LOWER) == 0.0


def test_no_privacy_at_all():
    mechanism_laws.assert_laws(NonPrivate())
    for bound in Bound:
        assert deltas(NonPrivate().pairs(bound, 1e-12), 30.0) == pytest.approx([1, 1])


rates = st.floats(1e-100, 1.0)


@given(rates, rates)
def test_no_privacy_on_a_sample_is_at_least_its_probability(rate, other):
    """To the last digit: of a sample of a sample, the product of both rates."""
    sampled = NonPrivate().on_a_sample(rate).on_a_sample(other)
    truth = Fraction(rate) * Fraction(other)
    low, high = mechanism_laws.bounds_of(sampled, 40.0, Direction.REMOVE)
    assert Fraction(low) <= truth <= Fraction(high)
    assert low >= truth * (1 - Fraction(1, 10**12))
    assert sampled.largest_loss() == sampled.gaussian_precision() == float("inf")


@given(st.floats(1e-6, 0.999), st.floats(0.0, 10.0))
def test_no_privacy_on_a_sample_in_the_other_direction(rate, epsilon):
    """Added: what tells nothing is rarer with the record, 1 − κ (1 − λ)."""
    sampled = NonPrivate().on_a_sample(rate)
    low, high = mechanism_laws.bounds_of(sampled, epsilon, Direction.ADD)
    truth = max(1 - np.exp(epsilon) * (1 - rate), 0.0)
    assert low <= truth + 1e-12
    assert high >= truth - 1e-12
