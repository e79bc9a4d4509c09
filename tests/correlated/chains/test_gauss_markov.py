"""Correlated means from above: quadrature of few bins, and properties of the fit."""

import math

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import gauss_markov
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import markov_sums
from dp_accounting_ext.kernel import accuracy


@pytest.mark.parametrize("length", [2, 3])
def test_steps_that_hardly_move_against_quadrature(length):
    """Cells suit the whole chain, but none is too wide for a single move."""
    gram = [[0.99 ** abs(i - j) for j in range(length)] for i in range(length)]
    chain = chain_fits.Chain(1.0, 1.0, 0.99, (1.0,) * length)
    pairs = gauss_markov.of_bins(chain, accuracy.Accuracy(1e-14))
    for direction in Direction:
        for epsilon in (0.0, 1.0):
            truth = correlated_oracles.profile(
                gram, epsilon, remove=direction is Direction.REMOVE
            )
            found = pairs.of(direction).delta(epsilon, direction)
            assert truth <= found < 1.01 * truth


@pytest.mark.parametrize("length", [2, 3])
def test_sums_on_a_grid_of_states_against_quadrature(length):
    """In both directions, with ratios divided by what splits may raise them by."""
    places = np.arange(length)
    gram = 0.6 ** abs(places[:, np.newaxis] - places)
    chain = chain_fits.Chain(1.0, 1.0, 0.6, (1.0,) * length)
    grids = markov_chain.Grids(
        chain=chain,
        scale=1.0,
        states=markov_chain.states_of(1.0, 7.0, 0.076),
        factors=np.ones(1),
        probabilities=np.ones(1),
        lost_factor=0.0,
        factor_error=0.0,
        places=np.concatenate([np.arange(0, 5, 0.01), np.geomspace(5, 1e5, 900)]),
    )
    law = markov_sums.upper_sum(grids)
    ratios = law.places / length
    shrunk = ratios * math.exp(-grids.drift)
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        kappa = math.exp(epsilon)
        removed = law.masses @ np.maximum(ratios - kappa, 0) + law.lost_mean / length
        added = law.masses @ np.maximum(1 - kappa * shrunk, 0)
        added += law.lost_mass + law.lifted_mass
        for found, remove in ((removed, True), (added, False)):
            truth = correlated_oracles.profile(gram.tolist(), epsilon, remove=remove)
            assert truth - 1e-13 <= found <= 1.05 * truth + 1e-4


def test_rare_small_sums_are_not_lost_where_their_products_underflow(monkeypatch):
    """Their mass times their ratio is no float, and counts as an infinite loss."""
    places = np.array([0.0, *np.geomspace(1e-296, 1e-270, 27), 2.0])
    law = markov_sums.SumLaw(
        places=places,
        masses=np.array([0.0, *[1e-60] * 27, 1.0]),
        lost_mean=0.0,
        lost_mass=0.0,
        lifted_mass=0.0,
        mass_error=0.0,
        mean=2.0,
    )
    monkeypatch.setattr(markov_sums, "upper_sum", lambda grids: law)
    pairs = gauss_markov.of_bins(
        chain_fits.Chain(1.0, 0.5, 0.5, (1.0, 1.0)), accuracy.Accuracy(1e-14)
    )
    for epsilon in np.linspace(620.0, 680.0, 61):
        truth = law.masses @ np.maximum(1 - math.exp(epsilon) * places / 2, 0.0)
        assert pairs.add.delta(epsilon, Direction.ADD) >= truth


def test_small_sums_of_large_variances_keep_their_place():
    """They decide in the direction ADD, whose ε is below that of REMOVE here."""
    chain = chain_fits.Chain(8.5, 0.63, correlation=0.9, heights=(1.0,) * 35)
    pairs = gauss_markov.of_bins(chain, accuracy.Accuracy(1e-13))
    assert pairs.add.zero_mass < 1e-8
    add = pairs.add.epsilon(1e-4, Direction.ADD)
    assert add < pairs.remove.epsilon(1e-4, Direction.REMOVE) < 11.5


def test_long_chains_in_blocks_have_nearly_the_same_profile(monkeypatch):
    """Larger ones, as blocks are above the chain."""
    monkeypatch.setattr(chain_fits, "_SHORTEST", 25)
    chain = chain_fits.Chain(0.3, 0.8, correlation=0.5, heights=(1.0,) * 200)
    assert chain_fits.cut(chain)[1] > 1
    blocks = gauss_markov.of_bins(chain, accuracy.Accuracy(1e-13))
    monkeypatch.setattr(chain_fits, "cut", lambda chain: (chain, 1))
    whole = gauss_markov.of_bins(chain, accuracy.Accuracy(1e-13))
    for direction in Direction:
        for delta in (1e-8, 1e-5, 1e-2):
            found = blocks.of(direction).epsilon(delta, direction)
            least = whole.of(direction).epsilon(delta, direction)
            assert 0.995 * least < found < 1.02 * least
