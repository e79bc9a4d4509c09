"""Pairs chained through a third dataset, against exact fractions and closed forms."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DirectedPairs = dominating_pair.DirectedPairs

EPSILONS = (-2.0, -0.3, 0.0, 0.4, 1.5, 4.0)


def hockey_stick(pair, kappa):
    """E (Z − κ)₊ of the atoms as they are, exactly."""
    atoms = zip(oracles.exact(pair.ratios), oracles.exact(pair.masses), strict=True)
    total = sum((q * max(z - kappa, Fraction(0)) for z, q in atoms), Fraction(0))
    return total + Fraction(pair.infinity_mass)


def least_over_splits(first, second, kappa):
    """The least H_κ₁ + κ₁ H_κ₂ with κ₁κ₂ = κ: at a ratio of one or of the other."""
    places = oracles.exact(first.ratios)
    places += [kappa / z for z in oracles.exact(second.ratios)]
    return min(
        hockey_stick(first, place) + place * hockey_stick(second, kappa / place)
        for place in places
    )


@given(strategies.pairs(Bound.UPPER), strategies.pairs(Bound.UPPER))
def test_the_chain_is_the_least_over_all_splits(first, second):
    chained = chained_pairs.chain_one_way(first, second)
    for epsilon in EPSILONS:
        truth = least_over_splits(first, second, Fraction(math.exp(epsilon)))
        found = chained.delta(epsilon, Direction.REMOVE)
        assert found >= min(truth, 1)
        assert found <= truth + Fraction(1, 10**9)


@st.composite
def three_laws(draw):
    """Laws of one output under three datasets, some without some of the outputs."""
    size = draw(st.integers(2, 5))
    masses = st.lists(st.integers(0, 9), min_size=size, max_size=size)
    laws = [draw(masses.filter(any)) for _ in range(3)]
    return [[Fraction(m, sum(law)) for m in law] for law in laws]


def pair_of(p, q):
    ratios = {}
    for mine, other in zip(p, q, strict=True):
        if mine and other:
            ratios[mine / other] = ratios.get(mine / other, Fraction(0)) + other
    places = sorted(ratios)
    infinity = sum((a for a, b in zip(p, q, strict=True) if not b), Fraction(0))
    zero = sum((b for a, b in zip(p, q, strict=True) if not a), Fraction(0))
    return dominating_pair.DominatingPair(
        np.array([float(z) for z in places]),
        np.array([float(ratios[z]) for z in places]),
        float(infinity),
        float(zero),
        Bound.UPPER,
        mass_error=4e-16,
        ratio_error=4e-16,
    )


@given(three_laws())
def test_it_bounds_the_outer_datasets_both_ways(laws):
    one, two, three = laws
    chained = chained_pairs.chain(
        DirectedPairs.same(pair_of(one, two)), DirectedPairs.same(pair_of(two, three))
    )
    for epsilon in EPSILONS:
        kappa = Fraction(math.exp(epsilon))
        for p, q, direction in (
            (one, three, Direction.REMOVE),
            (three, one, Direction.ADD),
        ):
            truth = sum(max(a - kappa * b, 0) for a, b in zip(p, q, strict=True))
            assert chained.of(direction).delta(epsilon, direction) >= truth


@pytest.mark.parametrize("sigma", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("members", [2, 8])
def test_gaussians_are_exact(sigma, members):
    """μ-Gaussian trade-off functions compose to that of the sum of the μ."""
    chained = DirectedPairs.same(
        gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-120)
    )
    for _ in range(members.bit_length() - 1):
        chained = chained_pairs.chain(chained, chained)
    mean = members / sigma
    for delta in (1e-2, 1e-6, 1e-12, 1e-20):
        lower, upper = (
            gaussian.epsilon(mean, delta, bound) for bound in (Bound.LOWER, Bound.UPPER)
        )
        for direction in Direction:
            found = chained.of(direction).epsilon(delta, direction)
            assert found >= lower
            assert found <= upper * (1 + 1e-5)
