"""Weights of the number of members in a batch, against exact rational numbers."""

from fractions import Fraction
import math

import pytest

from dp_accounting_ext.pairs import sampled_members


@pytest.mark.parametrize("members", [0, 3])
def test_ends(members):
    assert sampled_members.unsampled(members) == ((float(members), 1.0),)
    assert sampled_members.poisson(members, 1.0) == ((float(members), 1.0),)
    assert sampled_members.poisson(members, 0.0) == ((0.0, 1.0),)
    assert sampled_members.poisson(0, 0.3) == ((0.0, 1.0),)


@pytest.mark.parametrize("most", [0, 1, 2, 4])
def test_capped(most):
    exact = Fraction(0.25)

    def truth(i):
        return math.comb(3, i) * exact**i * (1 - exact) ** (3 - i)

    law = sampled_members.capped(sampled_members.poisson(3, 0.25), most)
    assert max(number for number, _ in law) == min(most, 3)
    found = {i: sum(Fraction(w) for n, w in law if n == i) for i in range(4)}
    for i in range(min(most, 3)):
        assert abs(found[i] - truth(i)) < Fraction(1, 10**14)
    assert abs(sum(found.values()) - 1) < Fraction(1, 10**14)
    # Of a law of two weights less error is assumed than a sum of many has.
    assert len(law) != 2
    assert sampled_members.capped(((0.0, 0.5), (1.0, 0.5)), 1) == (
        (0.0, 0.5),
        (1.0, 0.5),
    )


def test_a_sum_of_strata():
    laws = [
        sampled_members.without_replacement(1, 2, 1),
        sampled_members.without_replacement(2, 4, 2),
    ]
    exact = [Fraction(n, 12) for n in (1, 5, 5, 1)]
    found = sampled_members.total(laws)
    assert [number for number, _ in found] == [0.0, 1.0, 2.0, 3.0]
    for (_, weight), truth in zip(found, exact, strict=True):
        assert abs(Fraction(weight) - truth) < Fraction(1, 10**15)
