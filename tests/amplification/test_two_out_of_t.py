"""2 out of t by groups: enumeration, closed sums of vectors, blocks, a lower bound."""

from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification import k_out_of_t
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.amplification import two_out_of_t
from dp_accounting_ext.composition import composed_pair
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
REMOVE, ADD = Direction.REMOVE, Direction.ADD
EPSILONS = (0.0, 0.3, 1.0, 2.5)


@settings(max_examples=10, deadline=None)
@given(strategies.pairs(Bound.UPPER, most_atoms=3), st.integers(3, 6))
def test_it_dominates_the_mechanism(pair, steps):
    law, infinity = oracles.allocation_law(pair, 2, steps)
    with pytest.MonkeyPatch.context() as patch:
        # A bound with any number of nodes: few are quick, and split more.
        patch.setattr(two_out_of_t, "_NODES", 48)
        found = two_out_of_t.two_out_of_t(pair, steps, tail_mass=1e-12)
    assert found.bound is Bound.UPPER
    for epsilon in (-1.0, *EPSILONS):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        removed = oracles.remove_divergence(law, kappa, infinity)
        assert found.delta(epsilon, REMOVE) >= removed
        added = oracles.add_divergence(law, kappa, 0)
        assert found.delta(epsilon, ADD) >= added


@pytest.mark.parametrize("steps", [9, 11])
def test_it_dominates_groups_of_unequal_sizes(steps):
    """A coin, tossed in every step: the number of ones is all there is to know."""
    pair = dominating_pair.DominatingPair(
        np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, 0.0, Bound.UPPER
    )
    found = two_out_of_t.two_out_of_t(pair, steps, tail_mass=1e-12)
    law, _ = oracles.allocation_law(pair, 2, steps)
    for epsilon in (0.0, 0.2, 0.4, 0.6):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        truth = oracles.remove_divergence(law, kappa, 0)
        assert truth <= found.delta(epsilon, REMOVE) <= 1.3 * truth
        truth = oracles.add_divergence(law, kappa, 0)
        assert truth <= found.delta(epsilon, ADD) <= 1.3 * truth


@pytest.mark.parametrize(
    ("sigma", "steps", "gain", "gap"),
    [(0.8, 7, 0.03, 0.05), (0.55, 391, 0.015, 0.025), (1.0, 100, 0.012, 0.02)],
)
def test_it_is_between_a_lower_bound_and_the_blocks(sigma, steps, gain, gap):
    upper, lower = (
        gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-16)
        for bound in (Bound.UPPER, Bound.LOWER)
    )
    found = two_out_of_t.two_out_of_t(upper, steps, tail_mass=1e-13)
    blocks = [
        random_allocation.random_allocation(upper, size, tail_mass=1e-13)
        for size in (steps // 2, steps - steps // 2)
    ]
    composed = composed_pair.compose([(each, 1) for each in blocks], tail_mass=1e-13)
    below = k_out_of_t.lower_pair(lower, 2, steps, tail_mass=1e-13)
    epsilon = found.epsilon(1e-6, REMOVE)
    assert epsilon <= (1 - gain) * composed.epsilon(1e-6, REMOVE)
    least = below.epsilon(1e-6, REMOVE)
    assert least <= epsilon <= (1 + gap) * least


def test_a_split_keeps_both_means():
    """Of H and E, 1 and 1 without the record, and every E is at most H²."""
    pair = gaussian.dominating_pair_of(0.9, Bound.UPPER, tail_mass=1e-16)
    group = two_out_of_t._of_one_group(pair)
    two = two_out_of_t._split_sum(two_out_of_t._Sum(group, group))
    four = two_out_of_t._split_sum(two_out_of_t._Sum(two, two))
    for law in (two, four):
        rows = law.masses.sum(axis=1)
        assert rows.sum() == pytest.approx(1.0, rel=1e-12)
        assert sums.dot(rows, law.means) == pytest.approx(1.0, rel=1e-12)
        product = float((law.masses * law.products).sum())
        assert product == pytest.approx(1.0, rel=1e-12)
        assert law.shares.max() == 1.0
        assert (np.diff(law.shares, axis=1) > 0).all()


def test_errors_and_sinks_of_the_step_are_carried():
    ratios, masses = np.array([0.5, 1.4]), np.array([0.5, 0.5])
    pair = dominating_pair.DominatingPair(
        ratios, masses, 0.05, 0.0, Bound.UPPER, mass_error=1e-9, ratio_error=1e-10
    )
    found = two_out_of_t.two_out_of_t(pair, 6, tail_mass=1e-12)
    assert found.infinity_mass >= 1 - 0.95**2
    assert found.mass_error >= 6e-9
    assert found.ratio_error >= 2e-10


def test_what_shows_nothing():
    constant = dominating_pair.identity_pair(Bound.UPPER)
    found = two_out_of_t.two_out_of_t(constant, 5, tail_mass=1e-12)
    assert found.delta(0.0, REMOVE) <= 1e-5
    trivial = dominating_pair.trivial_pair(Bound.UPPER)
    found = two_out_of_t.two_out_of_t(trivial, 5, tail_mass=1e-12)
    assert found.delta(1.0, REMOVE) == 1.0
    assert found.delta(1.0, ADD) == 1.0


def test_ratios_without_squares_have_the_trivial_bound():
    pair = dominating_pair.DominatingPair(
        np.array([0.5, 1e200]), np.array([1.0, 5e-201]), 0.0, 0.0, Bound.UPPER
    )
    found = two_out_of_t.two_out_of_t(pair, 5, tail_mass=1e-12)
    assert found.delta(10.0, REMOVE) == 1.0
