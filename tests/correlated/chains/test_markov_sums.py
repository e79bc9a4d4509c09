"""Sums along a chain, against quadrature with mpmath and closed forms."""

import dataclasses
import math

import correlated_oracles
import mpmath
import numpy as np
import pytest
from scipy import special

from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.correlated.chains import chain_steps
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.correlated.chains import markov_sums

CHAIN = chain_fits.Chain(1.0, 1.0, correlation=0.6, heights=(1.0, 1.0))
GRIDS = markov_chain.Grids(
    chain=CHAIN,
    scale=1.0,
    states=np.linspace(-7.0, 8.0, 151),
    factors=np.ones(1),
    probabilities=np.ones(1),
    lost_factor=0.0,
    factor_error=0.0,
    places=0.02 * np.expm1(np.linspace(0.0, 12.0, 1501)),
)


def grids_of(length, excess=0.0, **fields):
    heights = chain_fits.with_excess(excess, CHAIN.correlation, length)
    chain = dataclasses.replace(CHAIN, heights=heights)
    return dataclasses.replace(GRIDS, chain=chain, **fields)


@mpmath.workdps(40)
@pytest.mark.parametrize(("start", "spread"), [(40, 0.5), (90, 0.25), (90, 0.8)])
def test_what_is_beyond_the_grid_is_counted(start, spread):
    """Below at its first state, above with its probability and its mean ratio."""
    mean = CHAIN.correlation * float(GRIDS.states[start])
    moves = chain_steps.moves(GRIDS, np.array([mean]), spread)
    low, high = GRIDS.states[[0, -1]]
    least = mpmath.ncdf((mpmath.mpf(float(low)) - mean) / spread)
    assert moves.matrix[0, 0] >= moves.below[0] >= least
    away = (mpmath.mpf(float(high)) - mean) / spread
    assert moves.above[0] >= mpmath.ncdf(-away)
    ratio = mpmath.exp(mean - 0.5 + mpmath.mpf(spread) ** 2 / 2)
    ratio *= mpmath.ncdf(spread - away)
    assert ratio <= moves.ratio_above[0] <= ratio * (1 + 1e-8)


def test_one_step_is_a_lognormal_variable():
    law = markov_sums.upper_sum(grids_of(1))
    assert abs(law.masses.sum() + law.lost_mass - 1) < 1e-9
    for strike in (0.2, 1.0, 5.0, 60.0):
        place = (0.5 - math.log(strike)) / 1.0
        truth = special.ndtr(place) - strike * special.ndtr(place - 1)
        found = law.masses @ np.maximum(law.places - strike, 0) + law.lost_mean
        assert truth <= found <= truth * 1.02 + 1e-9


def test_states_too_far_apart_are_refused():
    coarse = dataclasses.replace(GRIDS, states=np.linspace(-7.0, 8.0, 31))
    with pytest.raises(ValueError, match="at most 0.5 deviations apart. Found 0.6"):
        markov_sums.upper_sum(coarse)


@pytest.mark.parametrize("excess", [0.0, 0.4])
def test_what_is_left_out_is_counted(excess):
    """At its mean above, and at its probability below, however much it is."""
    grids = grids_of(
        6,
        excess,
        states=np.linspace(-7.0, 8.0, 101),
        places=np.concatenate([[0.0], np.geomspace(1e-2, 3e3, 300)]),
        factors=np.array([0.5, 1.5]),
        probabilities=np.array([0.5, 0.5]),
    )
    full = markov_sums.upper_sum(grids)
    cut = markov_sums.upper_sum(dataclasses.replace(grids, smallest_mass=1e-6))
    assert cut.lost_mass > 1e-3
    for strike in (0.5, 5.0, 6.0, 20.0, 200.0):
        calls = np.maximum(full.places - strike, 0)
        assert cut.masses @ calls < full.masses @ calls
        assert cut.masses @ calls + cut.lost_mean >= full.masses @ calls
        puts = np.maximum(strike - full.places, 0)
        whole = full.masses @ puts
        assert cut.masses @ puts + strike * cut.lost_mass >= whole * (1 - 1e-12)


def test_most_to_come_is_no_less_than_any_mean():
    """Given x, the mean of a ratio k steps on is that of a lognormal variable."""
    bounds = GRIDS.most_to_come()
    for steps in range(8):
        share = CHAIN.correlation**steps
        exponents = GRIDS.scale * share * GRIDS.states - (GRIDS.scale * share) ** 2 / 2
        assert np.all(np.exp(exponents) <= bounds)
    assert bounds[-1] < 1.1 * GRIDS.ratios[-1]


@pytest.mark.parametrize("heights", [(1.6, 1.0, 1.0, 1.6), (2.5, 1.6, 1.0, 1.6, 2.5)])
def test_most_to_come_is_no_less_than_any_mean_near_the_ends(heights):
    """The same of steps of larger variance, whose states are shifted."""
    chain = dataclasses.replace(CHAIN, heights=heights)
    bounds = dataclasses.replace(GRIDS, chain=chain).most_to_come()
    covariance = correlated_oracles.chain_covariance(heights, CHAIN.correlation)
    for row, variance in zip(covariance, np.diag(covariance), strict=True):
        given = GRIDS.states + GRIDS.scale * (variance - 1) / 2
        shares = row[:, np.newaxis] / variance
        exponents = shares * given - shares**2 * variance / 2
        assert np.all(np.exp(exponents) <= bounds)
    largest = GRIDS.states[-1] + GRIDS.scale * chain.excess / 2
    assert bounds[-1] < 2 * math.exp(largest)


def grids_of_moments(length, excess):
    """Fine grids, whose factors are 1/2 and 3/2."""
    return grids_of(
        length,
        excess,
        states=np.linspace(-9.0, 10.0, 381),
        scale=0.6,
        factors=np.array([0.5, 1.5]),
        probabilities=np.array([0.5, 0.5]),
        places=np.concatenate([np.arange(0.0, 12.0, 0.01), np.geomspace(12, 1e4, 500)]),
    )


def second_moment(variances, decay):
    """E S² of a sum S that is multiplied by `decay` before each step adds its ratio."""
    covariance = correlated_oracles.chain_covariance(variances, 0.6)
    weights = decay ** np.arange(len(variances))[::-1]
    moments = np.exp(0.36 * covariance) * (1 + np.eye(len(variances)) / 4)
    return weights @ moments @ weights


@pytest.mark.parametrize("length", [1, 2, 5, 6])
@pytest.mark.parametrize("excess", [0.0, 0.4])
def test_both_sides_of_the_middle_vary_as_one_chain(length, excess):
    """The sum's second moment is at least that of the covariances, and little more."""
    grids = grids_of_moments(length, excess)
    law = markov_sums.upper_sum(grids)
    ends = [min(place, length - 1 - place) for place in range(length)]
    variances = [1 + max(excess * 0.36**end, min(excess, 1e-3)) for end in ends]
    moment = second_moment(variances, 1.0)
    assert moment <= law.masses @ law.places**2 <= 1.002 * moment


@pytest.mark.parametrize("decay", [1.0, 0.3])
def test_what_a_step_adds_is_all_there_or_counted(decay):
    """A quarter of the factor's mean is lost, and much is above the highest place."""
    grids = dataclasses.replace(
        GRIDS,
        factors=np.array([0.4, 1.6]),
        probabilities=np.array([0.5, 0.34375]),
        lost_factor=0.25,
        places=np.linspace(0.0, 1.0, 11),
    )
    rows = slice(60, 110)
    masses = np.zeros((grids.states.size, 11))
    masses[rows, 2:9] = np.random.default_rng(4).random((50, 7))
    after, lost = chain_steps.Addition.of(grids, decay).apply(masses)
    given = masses.sum(axis=1)
    assert np.allclose(after.sum(axis=1), given, rtol=1e-13, atol=0)
    means = decay * (masses @ grids.places) + grids.ratios * given
    assert np.allclose(after @ grids.places + lost, means, rtol=1e-13, atol=0)
    assert np.all(lost[rows] > 0.25 * (grids.ratios * given)[rows] * (1 - 1e-13))
    assert lost.max() > 1.0


@pytest.mark.parametrize("decay", [1.0, 0.7])
def test_sums_from_every_start_have_their_second_moments(decay):
    """Sums of the last steps, in each of which all earlier ones are multiplied."""
    grids = grids_of_moments(5, 0.4)
    variances = grids.chain.variances()
    for steps, law in enumerate(markov_sums.upper_sums(grids, decay), 1):
        moment = second_moment(variances[:steps], decay)
        assert moment <= law.masses @ law.places**2 <= 1.002 * moment
        assert law.mean == pytest.approx(sum(decay**step for step in range(steps)))
