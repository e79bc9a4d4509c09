"""Weights of the number of members in a batch, against exact rational numbers."""

from fractions import Fraction
import math

import pytest

from dp_accounting_ext.pairs import sampled_members


def assert_weights(found, truth):
    assert sum(weight for _, weight in found) == pytest.approx(1.0, rel=1e-12)
    for shift, weight in found:
        exact = truth(int(shift))
        assert abs(Fraction(weight) - exact) <= exact * Fraction(4, 10**13)
    kept = {int(shift) for shift, _ in found}
    return kept


@pytest.mark.parametrize(
    ("members", "rate"), [(1, 0.25), (16, 1e-3), (64, 1e-4), (5, 0.9)]
)
def test_poisson(members, rate):
    exact = Fraction(rate)

    def truth(i):
        return math.comb(members, i) * exact**i * (1 - exact) ** (members - i)

    kept = assert_weights(sampled_members.poisson(members, rate), truth)
    assert kept == set(range(members + 1))


@pytest.mark.parametrize(
    ("members", "size", "batch"), [(1, 10, 3), (4, 10, 8), (16, 60_000, 600), (9, 9, 4)]
)
def test_without_replacement(members, size, batch):
    def truth(i):
        ways = math.comb(members, i) * math.comb(size - members, batch - i)
        return Fraction(ways, math.comb(size, batch))

    found = sampled_members.without_replacement(members, size, batch)
    kept = assert_weights(found, truth)
    assert kept == {i for i in range(members + 1) if 0 <= batch - i <= size - members}


def test_with_replacement():
    chance = Fraction(4 / 50)

    def truth(i):
        return math.comb(20, i) * chance**i * (1 - chance) ** (20 - i)

    assert_weights(sampled_members.with_replacement(4, 50, 20), truth)


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
