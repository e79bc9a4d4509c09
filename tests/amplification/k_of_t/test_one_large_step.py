"""The lower bound from the one large ratio, against the mechanism by enumeration."""

from fractions import Fraction
import math

import dp_accounting
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import mpmath
import numpy as np
import oracles
import pytest

import dp_accounting_ext as ext
from dp_accounting_ext.amplification.k_of_t import allocation_by_sum
from dp_accounting_ext.amplification.k_of_t import one_large_step
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import gaussian

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


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.integers(1, 40), min_size=4, max_size=4, unique=True),
    st.integers(2, 3),
    st.integers(4, 5),
    st.floats(0.0, 4.0),
)
def test_it_is_below_the_mechanism(eighths, selected, steps, epsilon):
    ratios = np.array(sorted(eighths)) / 8.0
    pair = pair_of([*ratios, 100.0], [0.25, 0.5 - RARE, 0.125, 0.125, RARE])
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(allocation_by_sum, "_POINTS", 1 << 11)
        found = one_large_step.lower_pair(pair, selected, steps, tail_mass=1e-12)
    assert found.delta(epsilon, REMOVE) <= truth(pair, selected, steps, epsilon)


def test_errors_of_a_step_are_those_of_all_of_them():
    """Masses of both laws and a ratio for each draw, with and without the record."""
    exact = one_large_step.lower_pair(HEAVY, 2, 6, tail_mass=1e-12)
    inexact = dominating_pair.DominatingPair(
        HEAVY.ratios, HEAVY.masses, 0.0, 0.0, Bound.LOWER, 2.0**-20, 2.0**-21
    )
    found = one_large_step.lower_pair(inexact, 2, 6, tail_mass=1e-12)
    assert found.mass_error - exact.mass_error == pytest.approx(6 * 1.5 * 2.0**-20)
    assert found.ratio_error - exact.ratio_error == pytest.approx(4 * 2.0**-21)
    assert exact.mass_error >= 64 * dominating_pair.UNIT_ROUNDOFF


@pytest.mark.parametrize(
    "pair",
    [
        pair_of([0.5, 1.5], [0.5, 0.5]),
        pair_of([1.0, 64.0], [1 - RARE, RARE]),
        pair_of([], []),
    ],
)
def test_where_no_ratio_is_large_or_the_others_are_one_it_is_the_sum(pair):
    found = one_large_step.lower_pair(pair, 2, 5, tail_mass=1e-12)
    alone = allocation_by_sum.lower_pair(pair, 2, 5, REMOVE, tail_mass=1e-12)
    assert found.ratios.tolist() == alone.ratios.tolist()
    assert found.masses.tolist() == alone.masses.tolist()


@pytest.mark.parametrize(("selected", "steps"), [(2, 65536), (5, 65535)])
def test_gaussian_noise_at_a_rare_delta(selected, steps):
    """Beside the composition of blocks: 63 % to 68 % by sums over all steps alone."""
    tail = 1e-36
    block = ext.RandomAllocationEvent(
        dp_accounting.GaussianDpEvent(1.3), 1, steps // selected
    )
    upper = ext.PLDAccountant().compose(block, selected).get_epsilon(1e-30)
    step = interface.pairs_of_part(
        additive_noise.Gaussian(1.3), Bound.LOWER, tail / steps / 100
    ).remove
    found = one_large_step.lower_pair(step, selected, steps, tail_mass=tail)
    lower = found.epsilon(1e-30, REMOVE)
    assert lower <= upper <= 1.001 * lower


def test_where_all_steps_have_the_record_it_is_the_sum():
    """No step is left that might have missed."""
    pair = gaussian.dominating_pair_of(1.0, Bound.LOWER, tail_mass=1e-14)
    found = one_large_step.lower_pair(pair, 3, 3, tail_mass=1e-14)
    summed = allocation_by_sum.lower_pair(
        pair, 3, 3, dominating_pair.Direction.REMOVE, tail_mass=1e-14
    )
    np.testing.assert_array_equal(found.ratios, summed.ratios)
