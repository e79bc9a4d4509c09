"""1 of t steps that differ, and that count for several, against enumeration."""

import dataclasses
from fractions import Fraction
import itertools
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import oracles
import strategies

from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy

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
