"""Samples of any pair, and 1 of t steps that differ, against enumeration."""

import dataclasses
from fractions import Fraction
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair

kinds = st.tuples(
    strategies.pairs(Bound.UPPER, most_atoms=2, sinks=False),
    st.integers(1, 2),
    st.integers(1, 3),
)


@settings(max_examples=20)
@given(st.lists(kinds, min_size=1, max_size=2))
def test_truth_is_between(kinds):
    lower, upper = (
        random_allocation.uneven_allocation(
            [
                random_allocation.Steps(dataclasses.replace(pair, bound=bound), *rest)
                for pair, *rest in kinds
            ],
            accuracy.Accuracy(1e-12),
        )
        for bound in (Bound.LOWER, Bound.UPPER)
    )
    total, steps = sum(count * weight for _, count, weight in kinds), []
    for pair, count, weight in kinds:
        atoms = zip(oracles.exact(pair.ratios), oracles.exact(pair.masses), strict=True)
        steps += [[(weight * ratio / total, mass) for ratio, mass in atoms]] * count
    law = [
        (sum(ratio for ratio, _ in way), math.prod(mass for _, mass in way))
        for way in itertools.product(*steps)
    ]
    for epsilon in (0.0, 0.3, 1.5):
        places = [
            Fraction(math.exp(epsilon)) * (1 + s * Fraction(2**-50)) for s in (-1, 1)
        ]
        for direction, divergence in (
            (Direction.REMOVE, oracles.remove_divergence),
            (Direction.ADD, oracles.add_divergence),
        ):
            most, least = (divergence(law, kappa, Fraction(0)) for kappa in places)
            assert lower.delta(epsilon, direction) <= most
            assert upper.delta(epsilon, direction) >= least
            assert upper.delta(epsilon, direction) <= float(most) * (1 + 1e-3) + 1e-9


@pytest.mark.parametrize("bound", list(Bound))
def test_errors_and_side_are_those_of_the_pair(bound):
    """Three roundings of a ratio: of 1 − λ, of the product and of the sum."""
    ratios, masses = np.array([0.5, 1.5]), np.array([0.5, 0.5])
    pair = dominating_pair.DominatingPair(
        ratios, masses, 0.0, 0.0, bound, mass_error=2.0**-20, ratio_error=2.0**-48
    )
    found = poisson_subsampling.poisson_subsample(pair, 0.25)
    assert found.bound is bound
    assert found.mass_error == pair.mass_error
    added = found.ratio_error - pair.ratio_error
    assert 3 * 2.0**-53 <= added <= 4 * 2.0**-53
    # Nothing is at zero: no atom for it.
    np.testing.assert_array_equal(found.ratios, [0.875, 1.125])
    np.testing.assert_array_equal(found.masses, masses)
