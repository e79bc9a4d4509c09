"""Correlated means from above: quadrature of few bins, and properties of the fit."""

import math

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import gauss_markov
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import markov_sums
from dp_accounting_ext.pairs import gaussian


@pytest.mark.parametrize(
    "gram",
    [
        [[1.0, 0.6], [0.6, 1.0]],
        [[0.3, 0.1], [0.1, 0.2]],
        [[1.5, 0.8, 0.5], [0.8, 1.5, 0.8], [0.5, 0.8, 1.2]],
    ],
)
def test_few_bins_against_quadrature(gram):
    """The chain without a cut is near the truth, and never below it."""
    whole = chain_fits.Fit(max(map(max, gram)), 0.999, 0.61, len(gram))
    for pairs in (
        gauss_markov.of_gram(np.array(gram), tail_mass=1e-14, delta=1e-3),
        gauss_markov.upper_pairs(whole, tail_mass=1e-14),
    ):
        for direction in Direction:
            for epsilon in (0.0, 0.3, 1.0, 2.0):
                truth = correlated_oracles.profile(
                    gram, epsilon, remove=direction is Direction.REMOVE
                )
                assert pairs.of(direction).delta(epsilon, direction) >= truth - 1e-13


def test_a_composition_is_judged_by_its_renyi_divergences():
    """Of Gaussian noise the divergence of order α is α / (2 σ²)."""
    sigma, count, delta = 3.0, 10, 1e-6
    law = gaussian.dominating_pair_of(sigma, Bound.UPPER, tail_mass=1e-40)
    found = gauss_markov.composed_epsilon(law, count, delta)
    slope, most = count / (2 * sigma**2), math.log(1 / delta)
    assert found == pytest.approx(slope + 2 * math.sqrt(slope * most), rel=0.02)
    sampled = gauss_markov.composed_epsilon(law, count, delta, probability=0.5)
    assert found / 4 < sampled < 0.8 * found


def test_states_are_nearest_where_large_sums_have_them():
    """Elsewhere at most so many times as far apart, and no grid is without a range."""
    even, uneven = (
        gauss_markov.states(1.2, 0.8, 1e-12, cell=0.1, widest=widest)
        for widest in (1.0, 2.5)
    )
    assert even[[0, -1]] == pytest.approx(uneven[[0, -1]])
    widths = np.diff(uneven) / 0.06
    assert widths.min() > 0.95 and 2.3 < widths.max() <= 2.5
    assert abs(uneven[widths.argmin()] - 2.7) < 0.5
    assert uneven.size < 0.7 * even.size


@pytest.mark.parametrize("length", [2, 3])
def test_sums_on_uneven_states_against_quadrature(length):
    """In both directions, with ratios divided by what splits may raise them by."""
    places = np.arange(length)
    gram = 0.6 ** abs(places[:, np.newaxis] - places)
    chain = markov_chain.Chain(
        states=gauss_markov.states(1.0, 0.6, 1e-12, cell=0.1, widest=2.5),
        correlation=0.6,
        scale=1.0,
        factors=np.ones(1),
        probabilities=np.ones(1),
        lost_factor=0.0,
        places=np.concatenate([np.arange(0, 5, 0.01), np.geomspace(5, 1e5, 900)]),
        length=length,
    )
    assert np.ptp(np.diff(chain.states)) > 0.1
    law = markov_sums.upper_sum(chain)
    ratios = law.places / length
    shrunk = ratios * math.exp(-markov_chain.drift(chain))
    for epsilon in (0.0, 0.3, 1.0, 2.0):
        kappa = math.exp(epsilon)
        removed = law.masses @ np.maximum(ratios - kappa, 0) + law.lost_mean / length
        added = law.masses @ np.maximum(1 - kappa * shrunk, 0)
        added += law.lost_mass + law.lifted_mass
        for found, remove in ((removed, True), (added, False)):
            truth = correlated_oracles.profile(gram.tolist(), epsilon, remove=remove)
            assert truth - 1e-13 <= found <= 1.05 * truth + 1e-4


def test_small_sums_of_large_variances_keep_their_place():
    """They decide in the direction ADD, whose ε is below that of REMOVE here."""
    chain = chain_fits.Fit(variance=8.5, share=0.63, correlation=0.98, length=35)
    pairs = gauss_markov.upper_pairs(chain, tail_mass=1e-13, coarser=3.0)
    assert pairs.add.zero_mass < 1e-8
    add = pairs.add.epsilon(1e-4, Direction.ADD)
    assert add < pairs.remove.epsilon(1e-4, Direction.REMOVE) < 11.5
