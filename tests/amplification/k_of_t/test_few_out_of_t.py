"""2 and 3 out of t by groups: enumeration, sums of vectors, blocks, a lower bound."""

import dataclasses
from fractions import Fraction
import math

from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.amplification.k_of_t import few_out_of_t
from dp_accounting_ext.amplification.k_of_t import k_out_of_t
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import allocated
from dp_accounting_ext.pairs import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
REMOVE, ADD = Direction.REMOVE, Direction.ADD
EPSILONS = (0.0, 0.3, 1.0, 2.5)


# A bound with any number of nodes: few are quick, and split more.
QUICK = few_out_of_t.Effort(nodes=40, groups=4, most_groups=8)


@settings(max_examples=12, deadline=None)
@given(strategies.pairs(Bound.UPPER, most_atoms=3), st.integers(2, 3), st.data())
def test_it_dominates_the_mechanism(pair, selected, data):
    steps = data.draw(st.integers(selected + 1, 6))
    law, infinity = oracles.allocation_law(pair, selected, steps)
    found = few_out_of_t.few_out_of_t(
        pair, selected, steps, tail_mass=1e-12, effort=QUICK
    )
    assert found.bound is Bound.UPPER
    for epsilon in (-1.0, *EPSILONS):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        removed = oracles.remove_divergence(law, kappa, infinity)
        assert found.delta(epsilon, REMOVE) >= removed
        added = oracles.add_divergence(law, kappa, 0)
        assert found.delta(epsilon, ADD) >= added


@pytest.mark.parametrize(
    ("selected", "steps", "looseness"),
    [(2, 9, 1.1), (2, 11, 1.1), (3, 9, 1.2), (3, 11, 1.2)],
)
def test_it_dominates_groups_of_unequal_sizes(selected, steps, looseness):
    """A coin, tossed in every step: the number of ones is all there is to know."""
    pair = dominating_pair.DominatingPair(
        np.array([0.5, 1.5]), np.array([0.5, 0.5]), 0.0, 0.0, Bound.UPPER
    )
    found = few_out_of_t.few_out_of_t(pair, selected, steps, tail_mass=1e-12)
    law, _ = oracles.allocation_law(pair, selected, steps)
    for epsilon in (0.0, 0.2, 0.4, 0.6):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        truth = oracles.remove_divergence(law, kappa, 0)
        assert truth <= found.delta(epsilon, REMOVE) <= looseness * truth
        truth = oracles.add_divergence(law, kappa, 0)
        assert truth <= found.delta(epsilon, ADD) <= looseness * truth


@pytest.mark.parametrize(
    ("sigma", "selected", "steps", "gain", "gap"),
    [
        (0.8, 2, 7, 0.05, 0.02),
        (1.0, 2, 100, 0.017, 0.012),
        (0.8, 3, 10, 0.06, 0.03),
        (1.5, 3, 20, 0.02, 0.015),
    ],
)
def test_it_is_between_a_lower_bound_and_the_blocks(sigma, selected, steps, gain, gap):
    upper, lower = (
        gaussian.dominating_pair_of(sigma, bound, tail_mass=1e-16)
        for bound in (Bound.UPPER, Bound.LOWER)
    )
    found = few_out_of_t.few_out_of_t(upper, selected, steps, tail_mass=1e-13)
    below = k_out_of_t.lower_pair(lower, selected, steps, tail_mass=1e-13)
    epsilon = found.epsilon(1e-6, REMOVE)
    run = allocated.RandomAllocation(additive_noise.Gaussian(sigma), selected, steps)
    blocks = run.blocks().pairs(Bound.UPPER, 1e-13)
    assert epsilon <= (1 - gain) * blocks.remove.epsilon(1e-6, REMOVE)
    least = below.epsilon(1e-6, REMOVE)
    assert least <= epsilon <= (1 + gap) * least
    assert found.epsilon(1e-6, ADD) <= 1.01 * blocks.add.epsilon(1e-6, ADD)


def test_last_digits_of_a_step_move_the_last_digits():
    """Nodes are chosen by a density, of which places too near each other know none."""
    pair = gaussian.dominating_pair_of(1.0, Bound.UPPER, tail_mass=1e-16)
    turns = np.random.default_rng(0).integers(-1, 2, pair.masses.size)
    moved = dataclasses.replace(pair, masses=pair.masses * (1 + 4e-16 * turns))
    one, other = (
        few_out_of_t.few_out_of_t(each, 2, 100, tail_mass=1e-13)
        for each in (pair, moved)
    )
    for direction, error in ((REMOVE, 2e-5), (ADD, 3e-4)):
        found = other.epsilon(1e-6, direction)
        assert found == pytest.approx(one.epsilon(1e-6, direction), rel=error)


def test_a_split_keeps_both_means():
    """Of H and E, 1 and 1 without the record, also with groups of unequal sizes."""
    pair = gaussian.dominating_pair_of(0.9, Bound.UPPER, tail_mass=1e-16)
    one, longer = (few_out_of_t._of_one_group(pair, size, 96) for size in (1, 2))
    two = few_out_of_t._split_sum(few_out_of_t._Sum(one, longer), 96)
    four = few_out_of_t._split_sum(few_out_of_t._Sum(two, two), 96)
    for law, pairs in ((two, 2), (four, 13)):
        assert law.pairs == pairs
        means = law.means[law.rows]
        assert law.masses.sum() == pytest.approx(1.0, rel=1e-12)
        assert sums.dot(law.masses, means) == pytest.approx(1.0, rel=1e-12)
        assert sums.dot(law.masses, law.products) == pytest.approx(1.0, rel=1e-12)
        assert (law.products <= law.top * means**2 * (1 + 1e-12)).all()


def test_shares_increase_between_zero_and_more_than_any_goal():
    pair = gaussian.dominating_pair_of(0.9, Bound.UPPER, tail_mass=1e-16)
    group = few_out_of_t._of_one_group(pair, 1, 64)
    both = few_out_of_t._Sum(group, group)
    means, products, masses = both.sample(2)
    nodes = np.geomspace(means[means > 0].min(), means.max(), 64)
    shares = few_out_of_t._shares(nodes, means, products, masses, both.tops)
    assert (np.diff(shares, axis=1) > 0).all()
    assert (shares[:, 0] == 0).all()
    assert (shares[:, -1:] * means**2 >= products).all()


def test_errors_and_sinks_of_the_step_are_carried():
    ratios, masses = np.array([0.5, 1.4]), np.array([0.5, 0.5])
    pair = dominating_pair.DominatingPair(
        ratios, masses, 0.05, 0.0, Bound.UPPER, mass_error=1e-9, ratio_error=1e-10
    )
    found = few_out_of_t.few_out_of_t(pair, 2, 6, tail_mass=1e-12)
    assert found.infinity_mass >= 1 - 0.95**2
    assert found.mass_error >= 6e-9
    assert found.ratio_error >= 2e-10


def test_what_shows_nothing():
    constant = dominating_pair.identity_pair(Bound.UPPER)
    found = few_out_of_t.few_out_of_t(constant, 2, 5, tail_mass=1e-12)
    assert found.delta(0.0, REMOVE) <= 1e-5
    trivial = dominating_pair.trivial_pair(Bound.UPPER)
    found = few_out_of_t.few_out_of_t(trivial, 3, 5, tail_mass=1e-12)
    assert found.delta(1.0, REMOVE) == 1.0
    assert found.delta(1.0, ADD) == 1.0


def test_ratios_without_squares_have_the_trivial_bound():
    pair = dominating_pair.DominatingPair(
        np.array([0.5, 1e200]), np.array([1.0, 5e-201]), 0.0, 0.0, Bound.UPPER
    )
    found = few_out_of_t.few_out_of_t(pair, 2, 5, tail_mass=1e-12)
    assert found.delta(10.0, REMOVE) == 1.0
