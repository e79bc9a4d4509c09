"""2 and 3 out of t by groups, samples, and 1 of t steps that differ, by enumeration."""

import dataclasses
from fractions import Fraction
import itertools
import math

import dp_accounting
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import oracles
import pytest
import strategies

import dp_accounting_ext as ext
from dp_accounting_ext.amplification import few_out_of_t
from dp_accounting_ext.amplification import group_laws
from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.amplification import random_allocation
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface

REMOVE, ADD = Direction.REMOVE, Direction.ADD
EPSILONS = (0.0, 0.3, 1.0, 2.5)


@settings(max_examples=12)
@given(strategies.pairs(Bound.UPPER, most_atoms=3), st.integers(2, 3), st.data())
def test_it_dominates_the_mechanism(pair, selected, data):
    steps = data.draw(st.integers(selected + 1, 6))
    law, infinity = oracles.allocation_law(pair, selected, steps)
    found = few_out_of_t.few_out_of_t(pair, selected, steps, tail_mass=1e-12)
    assert found.bound is Bound.UPPER
    for epsilon in (-1.0, *EPSILONS):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        removed = oracles.remove_divergence(law, kappa, infinity)
        assert found.delta(epsilon, REMOVE) >= removed
        added = oracles.add_divergence(law, kappa, 0)
        assert found.delta(epsilon, ADD) >= added


@pytest.mark.parametrize(
    ("selected", "steps", "looseness"),
    [(2, 9, 1.1), (2, 11, 1.1), (3, 9, 1.25), (3, 11, 1.25)],
)
def test_it_dominates_groups_of_unequal_sizes(selected, steps, looseness):
    """A coin, tossed in every step: the number of ones is all there is to know."""
    pair = strategies.coin(Bound.UPPER)
    found = few_out_of_t.few_out_of_t(pair, selected, steps, tail_mass=1e-12)
    for epsilon in (0.0, 0.2, 0.4, 0.6):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        for way in Direction:
            truth = oracles.coin_divergence(
                selected, steps, kappa, is_removed=way is REMOVE
            )
            assert truth <= found.delta(epsilon, way) <= looseness * truth


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


def test_losses_whose_masses_fit_no_float_are_no_warning():
    """Warnings are errors here: all masses were zero, and their shares 0 / 0."""
    fine = accuracy.Accuracy(1e-288)
    noise = additive_noise.laplace(0.0029756591)
    step = interface.pairs_of(noise, Bound.UPPER, fine).remove
    found = few_out_of_t.few_out_of_t(step, 2, 10, tail_mass=1e-24)
    assert found.delta(600.0, REMOVE) > 0.1


def test_ratios_that_all_underflow_are_none():
    """The masses of all atoms whose E is positive may underflow."""
    law = group_laws.GroupLaw(
        means=np.array([0.0, 0.5]),
        rows=np.array([0, 1]),
        products=np.zeros(2),
        masses=np.array([0.5, 0.5]),
        sizes=(2, 2),
        top=0.0,
        mass_error=0.0,
        place_error=0.0,
    )
    both = few_out_of_t._Sum(law, law, 3)
    found = few_out_of_t._pair_of(both, 0.0)
    assert (found.infinity_mass, found.zero_mass) == (1.0, 1.0)


def test_ratios_all_of_whose_masses_underflow_are_none():
    """Only 0 and infinity are left: the pair is the trivial one, and no error."""
    steps = ext.RandomAllocationEvent(dp_accounting.LaplaceDpEvent(0.0016956), 4, 5)
    accountant = ext.PLDAccountant().compose(steps)
    (lower,), (upper,) = accountant.get_true_positive_rate_bounds([1e-290])
    assert 1e-290 <= lower <= upper <= 1.0


@pytest.mark.parametrize("noise", [0.02, 0.0219371])
def test_groups_whose_masses_underflow_are_no_error(noise):
    """The masses of all positive ratios of a group do: what is left is Gaussian."""
    step = dp_accounting.GaussianDpEvent(noise)
    found = ext.PLDAccountant().compose(ext.RandomAllocationEvent(step, 3, 100))
    all_of_it = ext.PLDAccountant().compose(step, 3)
    assert found.get_epsilon(1e-6) <= all_of_it.get_epsilon(1e-6) * (1 + 1e-12)


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
