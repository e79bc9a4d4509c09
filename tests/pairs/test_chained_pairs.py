"""Pairs chained through a third dataset, against exact fractions and closed forms."""

from fractions import Fraction
import math

from hypothesis import given
import nights
import numpy as np
import oracles
import pytest
import strategies

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import chained_pairs
from dp_accounting_ext.pairs import gaussian

DirectedPairs = dominating_pair.DirectedPairs

EPSILONS = (-2.0, -0.3, 0.0, 0.4, 1.5, 4.0)


def hockey_stick(pair, kappa):
    """E (Z − κ)₊ of the atoms as they are, exactly."""
    atoms = zip(oracles.exact(pair.ratios), oracles.exact(pair.masses), strict=True)
    return oracles.remove_divergence(list(atoms), kappa, Fraction(pair.infinity_mass))


def least_over_splits(first, second, kappa):
    """The least H_κ₁ + κ₁ H_κ₂ with κ₁κ₂ = κ: at a ratio of one or of the other."""
    places = oracles.exact(first.ratios)
    places += [kappa / z for z in oracles.exact(second.ratios)]
    return min(
        hockey_stick(first, place) + place * hockey_stick(second, kappa / place)
        for place in places
    )


@given(strategies.pairs(Bound.UPPER), strategies.pairs(Bound.UPPER))
def test_the_chain_is_the_least_over_all_splits(first, second):
    chained = chained_pairs.chain_one_way(first, second)
    for epsilon in EPSILONS:
        truth = least_over_splits(first, second, Fraction(math.exp(epsilon)))
        found = chained.delta(epsilon, Direction.REMOVE)
        assert found >= min(truth, 1)
        assert found <= truth + Fraction(1, 10**9)


@pytest.mark.parametrize("sigma", [1.0, 3.0, 20.0])
@pytest.mark.parametrize("members", [2, 8])
def test_gaussians_are_exact(sigma, members):
    """μ-Gaussian trade-off functions compose to that of the sum of the μ."""
    chained = DirectedPairs.same(
        gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-120)
    )
    for _ in range(members.bit_length() - 1):
        chained = chained_pairs.chain(chained, chained)
    mean = members / sigma
    for delta in (1e-2, 1e-6, 1e-12, 1e-20):
        lower, upper = (
            gaussian.epsilon(mean, delta, bound) for bound in (Bound.LOWER, Bound.UPPER)
        )
        for direction in Direction:
            found = chained.of(direction).epsilon(delta, direction)
            assert found >= lower
            assert found <= upper * (1 + 1e-5)


def test_masses_above_one_make_no_rare_loss():
    """By rounding, the masses of a pair may sum to more than one."""
    losses = np.linspace(-0.01, 0.01, 2_001)
    q = np.exp(-losses / 2 - (400 * losses) ** 2)
    p_mass, q_mass = (q * np.exp(losses)).sum(), q.sum()
    pair = dominating_pair.DominatingPair(
        np.exp(losses) * q_mass / p_mass,
        q / q_mass * (1 + 1e-9),
        0.0,
        0.0,
        Bound.UPPER,
        mass_error=1e-8,
    )
    chained = chained_pairs.chain_one_way(pair, pair)
    assert np.ptp(np.log(chained.ratios)) <= 2 * np.ptp(np.log(pair.ratios)) + 1e-8


@pytest.mark.parametrize("members", [1, 2, 3, 7, 8])
def test_powers_are_chains_of_one_pair(members):
    """Of few atoms the bound is hardly above, and never below, the closed form."""
    sigma = 5.0
    pair = gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-60)
    few = chained_pairs.reduced(pair, 512)
    found = chained_pairs.powers(few, members, most_atoms=512)
    assert found.ratios.size <= 514
    for delta in (1e-2, 1e-6, 1e-12):
        truth = gaussian.epsilon(members / sigma, delta, Bound.LOWER)
        assert truth <= found.epsilon(delta, Direction.REMOVE) <= 1.01 * truth + 1e-3


@pytest.mark.parametrize(
    ("loss", "span"),
    [(0.0, 0.0), (600.0, 1e-9), *nights.at_night((5.0, 1e-15), (0.1, 50.0))],
)
def test_losses_that_hardly_differ_are_split_as_others(loss, span):
    losses = np.linspace(loss, loss + span, 70_000)
    masses = np.exp(-losses) / losses.size
    rest = max(1 - float(masses.sum()), 0.0)
    many = dominating_pair.DominatingPair(
        np.exp(losses), masses, 0.0, rest, Bound.UPPER
    )
    few = chained_pairs.reduced(many)
    for epsilon in (loss / 2, loss + span / 2, loss + span + 0.1):
        truth = float(oracles.stored_delta(many, epsilon, Direction.REMOVE))
        found = few.delta(epsilon, Direction.REMOVE)
        assert truth * (1 - 1e-12) <= found <= truth * (1 + 1e-6) + 1e-9


@pytest.mark.parametrize("span", [1e-12, 0.1, 20.0])
def test_atoms_of_lower_pairs_that_share_a_cell_become_one(span):
    losses = np.sort(np.random.default_rng(1).uniform(-span, span, 5_000))
    q = np.exp(-((losses / span) ** 2) - losses / 2)
    q /= (1 + 1e-12) * max(q.sum(), (q * np.exp(losses)).sum())
    many = dominating_pair.DominatingPair(np.exp(losses), q, 0.0, 0.0, Bound.LOWER)
    few = chained_pairs.reduced(many, 500)
    assert few.ratios.size <= 500
    for direction in Direction:
        for epsilon in (-span / 2, 0.0, span / 3, 0.9 * span):
            truth = float(oracles.stored_delta(many, epsilon, direction))
            found = few.delta(epsilon, direction)
            assert 0.995 * truth - 1e-13 <= found <= truth
