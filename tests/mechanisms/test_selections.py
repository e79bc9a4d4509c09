"""Selections obey the laws of mechanisms, and are attained by two candidates."""

import math

import mechanism_laws
import pytest

from dp_accounting_ext.mechanisms import selections
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction

KINDS = (selections.ExponentialMechanism, selections.PermuteAndFlip)


@pytest.mark.parametrize("epsilon", [1e-3, 0.5, 1.0, 5.0])
@pytest.mark.parametrize("kind", KINDS)
def test_laws(kind, epsilon):
    mechanism_laws.assert_laws(kind(epsilon))


@pytest.mark.parametrize("kind", KINDS)
def test_they_are_private_and_more_so_with_a_smaller_epsilon(kind):
    at = [0.0, 0.2, 0.7]
    for epsilon in (0.3, 1.0):
        less, more = kind(epsilon), kind(2 * epsilon)
        for place in at:
            found, larger = (
                each.closed_form_delta(place, Direction.REMOVE, Bound.UPPER)
                for each in (less, more)
            )
            assert found <= larger * (1 + 1e-12)
        assert less.closed_form_delta(epsilon, Direction.ADD, Bound.UPPER) <= 1e-12


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 3.0])
def test_two_candidates_of_the_exponential_mechanism(epsilon):
    """At ε = 0 the worst odds are e^{ε/2} to one: tanh(ε / 4)."""
    mechanism = selections.ExponentialMechanism(epsilon)
    truth = math.tanh(epsilon / 4)
    lower, upper = (
        mechanism.closed_form_delta(0.0, Direction.REMOVE, bound)
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    assert lower <= truth * (1 + 1e-15)
    assert truth * (1 - 1e-15) <= upper <= truth * (1 + 1e-9)
