"""Pairs: both directions, those of outputs, those without finite losses, and ends."""

import dataclasses
from fractions import Fraction
import functools
import math

from hypothesis import example
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest
import strategies

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.kernel import output_pairs
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import profile_pairs

of_probabilities = output_pairs.of_probabilities


# From denormals to one, and chances that are none.
weights = st.one_of(
    st.just(0.0), st.floats(0.01, 1.0), st.floats(-320.0, 0.0).map(lambda x: 10.0**x)
)


def law_of(found):
    """Returns chances that sum to one but for rounding."""
    total = math.fsum(found)
    return [weight / total for weight in found]


both = st.lists(st.tuples(weights, weights), min_size=1, max_size=6).filter(
    lambda each: all(sum(law) > 1e-3 for law in zip(*each, strict=True))
)


def divergence(p, q, kappa):
    """Returns Σ (p − κ q)₊ of the laws that are meant: exact, and of sum one."""
    each = [[Fraction(x) for x in law] for law in (p, q)]
    p, q = ([x / sum(law) for x in law] for law in each)
    return sum(max(x - kappa * y, Fraction(0)) for x, y in zip(p, q, strict=True))


@given(both, st.sampled_from([-2.0, 0.0, 1e-9, 0.7, 3.0, 300.0, 690.0]))
@example([(0.5, 0.5), (0.5, 1e-318)], 600.0)
def test_the_exact_divergences_lie_between(outputs, epsilon):
    """In any order of outputs, with chances among denormals, and of none."""
    p, q = (law_of(law) for law in zip(*outputs, strict=True))
    below, above = (Fraction(math.nextafter(math.exp(epsilon), x)) for x in (0, 1e400))
    for direction, (mine, other) in zip(Direction, ((p, q), (q, p)), strict=True):
        pairs = {b: of_probabilities(p, q, b, error=1e-14) for b in Bound}
        upper = pairs[Bound.UPPER].delta(epsilon, direction)
        lower = pairs[Bound.LOWER].delta(epsilon, direction)
        assert Fraction(lower) <= divergence(mine, other, below)
        assert Fraction(upper) >= divergence(mine, other, above)
        if all(x == 0 or x > 1e-280 for x in (*p, *q)):
            assert upper <= lower + 1e-12


@pytest.mark.parametrize("lacking", [0.25, 1e-6])
def test_what_is_lacking_tells_everything_or_nothing(lacking):
    """A law that is cut off at its tails."""
    p, q = [0.5, 0.5 - lacking], [0.5, 0.5]
    upper = of_probabilities(p, q, Bound.UPPER, error=0.0)
    assert upper.infinity_mass >= lacking * (1 - 1e-9)
    assert upper.zero_mass == 0.0
    lower = of_probabilities(p, q, Bound.LOWER, error=0.0)
    assert lower.infinity_mass == lower.zero_mass == 0.0


Side = conservation.Side


@pytest.mark.parametrize(
    ("bound", "sink", "epsilon"),
    [(Bound.UPPER, 1.0, math.inf), (Bound.LOWER, 0.2, 0.0)],
)
def test_what_has_no_finite_loss(bound, sink, epsilon):
    """All that is asked of it is read off its sinks."""
    none = np.zeros(0)
    nothing = conservation.Ledger(1, Side(1.0, 1.0), Side(1.0, 1.0))
    law = profile.LossPair(none, none, none, sink, sink, bound, 0.0, 0.0, nothing)
    for direction in Direction:
        found = law.profile(direction)
        assert found.deltas(np.array([0.0, 9.0])) == pytest.approx([sink, sink])
        assert found.epsilons(np.array([0.1, 0.5])).tolist() == [math.inf, epsilon]
    lower = dataclasses.replace(law, zero_mass=0.5, bound=Bound.LOWER).swapped()
    assert (lower.infinity_mass, lower.zero_mass) == (0.5, sink)
    # Of a δ beyond all its mass nothing is known from below, however large a loss is.
    p = np.array([0.1])
    masses = p, p * math.exp(-99.0)
    most = conservation.Ledger(1, Side(1.0, 0.9), Side(1.0, 1.0))
    rare = profile.LossPair(
        np.array([99.0]), *masses, 0.0, 0.0, Bound.LOWER, 0.0, 0.0, most
    )
    found = rare.profile(Direction.REMOVE).epsilons(np.array([0.05, 0.5]))
    assert found == pytest.approx([99.0 + math.log(0.5), 0.0])


DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair


def silent(bound):
    """Atoms that tell nothing: one, equal ones, and one that is nearly without mass."""
    for number in (1, 2, 5):
        yield DominatingPair(np.ones(number), np.full(number, 1 / number), 0, 0, bound)
    yield DominatingPair(np.ones(2), np.array([1e-290, 1.0]), 0.0, 0.0, bound)


def composed(pair, count):
    pairs = DirectedPairs.same(pair)
    parts = [(lambda: pairs, count)]
    law = law_sums.ComposedLosses(parts, pair.bound, accuracy.Accuracy(1e-20))
    return law.pairs()


def chained(pair, number):
    links = [DirectedPairs.same(pair)] * number
    return functools.reduce(chained_pairs.chain, links)


OPERATIONS = {
    "runs": composed,
    "allocation": lambda pair, number: DirectedPairs.same(
        random_allocation.random_allocation(pair, number, accuracy.Accuracy(1e-20))
    ),
    "mixture": lambda pair, number: DirectedPairs.same(
        dominating_pair.mixture([pair] * number, [1 / number] * number)
    ),
    "dual": lambda pair, number: DirectedPairs.same(dominating_pair.dual(pair)),
    "without tails": lambda pair, number: DirectedPairs.same(
        dominating_pair.without_tails(pair, 1e-10 * number)
    ),
}
ABOVE = {
    "chain": chained,
    "largest": lambda pair, number: profile_pairs.maximum(
        [DirectedPairs.same(pair)] * number
    ),
    "least": lambda pair, number: DirectedPairs.same(
        profile_pairs.least([profile_pairs.Hinges.of(pair)] * number)
    ),
    "joined": lambda pair, number: DirectedPairs.same(profile_pairs.joined(pair, pair)),
}


@pytest.mark.parametrize("number", [1, 2, 3, 1000])
@pytest.mark.parametrize("name", [*OPERATIONS, *ABOVE])
def test_what_tells_nothing(name, number):
    operation = (OPERATIONS | ABOVE)[name]
    if name in ABOVE:
        number = min(number, 9)  # One after another, and each as the one before.
    for bound in Bound if name in OPERATIONS else [Bound.UPPER]:
        for pair in silent(bound):
            pairs = operation(pair, number)
            for direction in Direction:
                found = pairs.of(direction).delta(0.0, direction)
                assert 0 <= found <= (1e-8 if bound is Bound.UPPER else 0.0)


@pytest.mark.parametrize("number", [1, 2, 3, 1000])
@pytest.mark.parametrize("name", [*OPERATIONS, *ABOVE])
def test_what_may_tell_everything(name, number):
    pair = dominating_pair.trivial_pair(Bound.UPPER)
    pairs = (OPERATIONS | ABOVE)[name](pair, min(number, 9))
    for direction in Direction:
        assert pairs.of(direction).delta(5.0, direction) >= 1 - 1e-12


@pytest.mark.parametrize("bound", list(Bound))
def test_a_sample_has_the_errors_of_its_pair(bound):
    """And those of its own: of 1 − λ, of a product and of a sum."""
    pair = strategies.coin(bound, mass_error=2.0**-20, ratio_error=2.0**-48)
    found = poisson_subsampling.poisson_subsample(pair, 0.25)
    assert found.bound is bound and found.mass_error >= pair.mass_error
    assert found.ratio_error >= pair.ratio_error + 3 * 2.0**-53
    # Nothing is at zero: no atom for it.
    np.testing.assert_array_equal(found.ratios, [0.875, 1.125])
