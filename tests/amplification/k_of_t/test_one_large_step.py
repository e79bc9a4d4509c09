"""The lower bound from the one large ratio, against the mechanism by enumeration."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest

from dp_accounting_ext.amplification.k_of_t import one_large_step
from dp_accounting_ext.kernel import dominating_pair

Bound = dominating_pair.Bound
REMOVE = dominating_pair.Direction.REMOVE
RARE = 2.0**-24  # Of a large ratio.


def pair_of(ratios, masses):
    """A lower pair of mass one, none of whose numbers is rounded."""
    return dominating_pair.DominatingPair(
        np.array(ratios), np.array(masses), 0.0, 0.0, Bound.LOWER
    )


HEAVY = pair_of([0.5, 1.25, 40.0, 64.0], [0.25 - RARE, 0.75 - RARE, RARE, RARE])


def kappa_of(epsilon):
    with mpmath.workdps(40):
        return Fraction(str(mpmath.exp(epsilon)))


def truth(pair, selected, steps, epsilon):
    law, _ = oracles.allocation_law(pair, selected, steps)
    return oracles.remove_divergence(law, kappa_of(epsilon), Fraction(0))


@pytest.mark.parametrize(("selected", "steps"), [(2, 3), (2, 6), (4, 5), (3, 7)])
def test_nearly_all_of_what_one_large_ratio_makes(selected, steps):
    """Three of them have probability 1e-21; four atoms have few sums."""
    found = one_large_step.lower_pair(HEAVY, selected, steps, tail_mass=1e-12)
    # Beyond what ordinary ratios make: their largest loss is that of the draws.
    for epsilon in (selected * math.log(1.25) + 0.1, 2.0, 2.5):
        exact = truth(HEAVY, selected, steps, epsilon)
        assert 0.99 * exact <= found.delta(epsilon, REMOVE) <= exact


@pytest.mark.parametrize(("selected", "steps"), [(2, 6), (3, 7)])
def test_nearly_all_of_what_two_large_ratios_make(selected, steps):
    """Beyond all that one of them can; three have probability 1e-21."""
    found = one_large_step.lower_pair(HEAVY, selected, steps, tail_mass=1e-30)
    for epsilon in (math.log(100), math.log(200)):
        exact = truth(HEAVY, selected, steps, epsilon)
        assert 0.99 * exact <= found.delta(epsilon, REMOVE) <= exact


@settings(max_examples=12)
@given(
    st.lists(st.integers(1, 40), min_size=4, max_size=4, unique=True),
    st.integers(2, 3),
    st.integers(4, 5),
    st.floats(0.0, 4.0),
)
def test_it_is_below_the_mechanism(eighths, selected, steps, epsilon):
    ratios = np.array(sorted(eighths)) / 8.0
    pair = pair_of([*ratios, 100.0], [0.25, 0.5 - RARE, 0.125, 0.125, RARE])
    found = one_large_step.lower_pair(pair, selected, steps, tail_mass=1e-12)
    assert found.delta(epsilon, REMOVE) <= truth(pair, selected, steps, epsilon)
