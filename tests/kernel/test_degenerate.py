"""Pairs with one atom, with equal ones and with none, through all that takes pairs.

One that tells nothing has no divergence whatever is done to it, and one that may tell
everything has all of it, but on a sample.
"""

import functools

import numpy as np
import pytest

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import law_sums
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import profile_pairs

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


@pytest.mark.parametrize("rate", [1e-300, 1e-100, 0.25, 1.0])
def test_samples(rate):
    for bound in Bound:
        for pair in silent(bound):
            sampled = poisson_subsampling.poisson_subsample(pair, rate)
            for direction in Direction:
                assert sampled.delta(0.0, direction) <= 1e-14
    everything = dominating_pair.trivial_pair(Bound.UPPER)
    sampled = poisson_subsampling.poisson_subsample(everything, rate)
    assert sampled.delta(0.0, Direction.REMOVE) >= rate
