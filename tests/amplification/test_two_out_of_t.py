"""2 out of t by groups, against the mechanism itself by enumeration."""

from fractions import Fraction
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
from dp_accounting_ext.amplification import two_out_of_t
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface

REMOVE, ADD = Direction.REMOVE, Direction.ADD
EPSILONS = (0.0, 0.3, 1.0, 2.5)


@settings(max_examples=12)
@given(strategies.pairs(Bound.UPPER, most_atoms=3), st.integers(3, 6))
def test_it_dominates_the_mechanism(pair, steps):
    law, infinity = oracles.allocation_law(pair, 2, steps)
    found = two_out_of_t.two_out_of_t(pair, steps, tail_mass=1e-12)
    assert found.bound is Bound.UPPER
    for epsilon in (-1.0, *EPSILONS):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        removed = oracles.remove_divergence(law, kappa, infinity)
        assert found.delta(epsilon, REMOVE) >= removed
        added = oracles.add_divergence(law, kappa, 0)
        assert found.delta(epsilon, ADD) >= added


@pytest.mark.parametrize(("steps", "looseness"), [(3, 1.01), (9, 1.1), (11, 1.1)])
def test_it_dominates_groups_of_unequal_sizes(steps, looseness):
    """A coin, tossed in every step: the number of ones is all there is to know."""
    pair = strategies.coin(Bound.UPPER)
    found = two_out_of_t.two_out_of_t(pair, steps, tail_mass=1e-12)
    for epsilon in (0.0, 0.2, 0.4, 0.6):
        kappa = Fraction(math.exp(epsilon)) * (1 + Fraction(1, 2**50))
        for way in Direction:
            truth = oracles.coin_divergence(2, steps, kappa, is_removed=way is REMOVE)
            assert truth <= found.delta(epsilon, way) <= looseness * truth


def test_fewer_vectors_have_the_same_means():
    rng = np.random.default_rng(4)
    means = np.append(0.0, np.sort(rng.lognormal(0, 2, 40)))[:, np.newaxis]
    shares = np.append(0.0, np.sort(rng.random(19)))
    law = two_out_of_t._Law(
        means, means**2 * shares, rng.lognormal(-5, 3, (41, 20)), 6, 12, 0.0, 0.0
    )
    few = law.with_few_vectors()
    for power, other in ((0, 0), (1, 0), (0, 1)):
        before, after = (
            (each.masses * each.means**power * each.products**other).sum()
            for each in (law, few)
        )
        assert math.isclose(before, after, rel_tol=1e-12)
    # By Jensen all convex functions of linear functions grow.
    for weight, place in ((0.3, 0.5), (2.0, 3.0), (10.0, 40.0)):
        before, after = (
            (
                each.masses * np.maximum(each.means * weight + each.products - place, 0)
            ).sum()
            for each in (law, few)
        )
        assert after >= before * (1 - 1e-12)


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


def test_losses_whose_masses_fit_no_float_are_no_warning():
    """Warnings are errors here: all masses were zero, and their shares 0 / 0."""
    fine = accuracy.Accuracy(1e-288)
    noise = additive_noise.laplace(0.0029756591)
    step = interface.pairs_of(noise, Bound.UPPER, fine).remove
    found = two_out_of_t.two_out_of_t(step, 10, tail_mass=1e-24)
    assert found.delta(600.0, REMOVE) > 0.1


def test_ratios_that_all_underflow_are_none():
    """The masses of all atoms whose E is positive may underflow."""
    means = np.array([[0.0], [0.5]])
    law = two_out_of_t._Law(means, 0 * means, means, 2, 0, 0.0, 0.0)
    found = two_out_of_t._pair_of(law, 0.0)
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
