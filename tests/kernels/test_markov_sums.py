"""Sums along a chain, against quadrature with mpmath and closed forms."""

import dataclasses
import math

import mpmath
import numpy as np
import pytest
from scipy import special

from dp_accounting_ext.kernels import markov_sums

CHAIN = markov_sums.Chain(
    states=np.linspace(-7.0, 8.0, 151),
    correlation=0.6,
    scale=1.0,
    factors=np.ones(1),
    chances=np.ones(1),
    lost_factor=0.0,
    places=np.concatenate([[0.0], np.geomspace(1e-2, 3e3, 1500)]),
    length=2,
)


def test_moves_keep_mass_and_mean():
    spread = 0.8
    means = CHAIN.correlation * CHAIN.states
    moves = markov_sums._moves(CHAIN, means, spread)
    whole = moves.matrix.sum(axis=1) + moves.above
    assert np.allclose(whole, 1, atol=1e-8)
    inside = abs(means) < 1
    assert np.allclose((moves.matrix @ CHAIN.states)[inside], means[inside], atol=1e-8)


@mpmath.workdps(40)
def hat_mean(states, target, mean, spread):
    """The mean of the hat function around a state; below the first one it is 1."""
    states = [mpmath.mpf(float(state)) for state in states]
    here = states[target]
    total = mpmath.mpf(0)
    if not target:
        total += mpmath.ncdf((here - mean) / spread)
    for other in (target - 1, target + 1):
        if 0 <= other < len(states):
            ends = sorted([states[other], here])

            def weighted(y, there=states[other]):
                return mpmath.npdf(y, mean, spread) * (y - there) / (here - there)

            total += mpmath.quad(weighted, ends)
    return total


@pytest.mark.parametrize("target", [0, 40, 75, 110, 150])
def test_moves_against_mpmath(target):
    """Each is the mean of the hat function around a state, to the error allowed."""
    spread, start = 0.8, 90
    mean = CHAIN.correlation * CHAIN.states[start]
    moves = markov_sums._moves(CHAIN, np.array([mean]), spread)
    found = moves.matrix[0, target]
    truth = hat_mean(CHAIN.states, target, float(mean), spread)
    far = abs(float(CHAIN.states[target]) - mean) / spread > 9.9
    error = markov_sums.QUADRATURE_ERROR
    assert found >= truth * (1 - error)
    assert far or target == 0 or found <= truth * (1 + error)


def test_one_step_is_a_lognormal_variable():
    law = markov_sums.upper_sum(dataclasses.replace(CHAIN, length=1))
    assert abs(law.masses.sum() + law.lost_mass - 1) < 1e-9
    for strike in (0.2, 1.0, 5.0, 60.0):
        place = (0.5 - math.log(strike)) / 1.0
        truth = special.ndtr(place) - strike * special.ndtr(place - 1)
        found = law.masses @ np.maximum(CHAIN.places - strike, 0) + law.lost_mean
        assert truth <= found <= truth * 1.02 + 1e-9


def test_two_steps_dominate_a_sample_of_paths():
    """Not an exact truth: calls lie above those of ten million paths but for noise."""
    law = markov_sums.upper_sum(CHAIN)
    rng = np.random.default_rng(3)
    first, second = rng.standard_normal((2, 400_000))
    second = CHAIN.correlation * first + 0.8 * second
    sums = np.exp(first - 0.5) + np.exp(second - 0.5)
    for strike in (1.0, 2.0, 6.0):
        payoffs = np.maximum(sums - strike, 0)
        truth, noise = payoffs.mean(), payoffs.std() / math.sqrt(sums.size)
        found = law.masses @ np.maximum(CHAIN.places - strike, 0) + law.lost_mean
        assert truth - 5 * noise <= found <= (truth + 5 * noise) * 1.03


def test_what_leaves_the_grids_is_counted():
    """A short grid of sums and of states: calls are still those of the whole."""
    short = dataclasses.replace(
        CHAIN, states=np.linspace(-3.0, 3.0, 61), places=np.linspace(0.0, 6.0, 601)
    )
    law = markov_sums.upper_sum(short)
    assert law.lost_mean > 1e-2
    assert law.lost_mass > 1e-3
    assert law.lifted_mass > 1e-3
    whole = law.masses @ short.places + law.lost_mean
    assert whole >= 2
    reference = markov_sums.upper_sum(CHAIN)
    for strike in (1.0, 4.0):
        truth = reference.masses @ np.maximum(CHAIN.places - strike, 0)
        found = law.masses @ np.maximum(short.places - strike, 0) + law.lost_mean
        assert found >= truth * 0.999


def test_drift_grows_with_cells_and_correlation():
    coarse = dataclasses.replace(CHAIN, states=CHAIN.states[::2])
    sticky = dataclasses.replace(CHAIN, correlation=0.9)
    known = 0.1**2 / 8 / 0.64
    assert known <= markov_sums.drift(CHAIN) <= known * 1.001
    assert markov_sums.drift(coarse) > 3.9 * known
    assert markov_sums.drift(sticky) > 3 * known


def test_sums_from_below_are_below_one_and_two_steps():
    """Calls of one lognormal variable in closed form, of two over those from above."""
    chain = dataclasses.replace(CHAIN, length=1)
    sums, masses, error = markov_sums.lower_sum(chain)
    assert error < 1e-9
    for strike in (0.2, 1.0, 5.0, 60.0):
        place = 0.5 - math.log(strike)
        truth = special.ndtr(place) - strike * special.ndtr(place - 1)
        found = masses @ np.maximum(sums - strike, 0)
        assert 0.9 * truth - 1e-9 <= found <= truth
    above = markov_sums.upper_sum(CHAIN)
    sums, masses, _ = markov_sums.lower_sum(CHAIN)
    assert np.all(np.diff(sums) > 0)
    for strike in (0.5, 2.0, 10.0):
        high = above.masses @ np.maximum(CHAIN.places - strike, 0)
        found = masses @ np.maximum(sums - strike, 0)
        assert 0.8 * high <= found <= high


def test_a_split_is_below_a_normal_variable_of_that_variance():
    """E|·| of the even split meets it; no other chance is above."""
    chances = np.linspace(1e-6, 0.5, 20_001)
    density = np.exp(-(special.ndtri(chances) ** 2) / 2) / math.sqrt(2 * math.pi)
    split = chances * (1 - chances)
    deviation = math.sqrt(markov_sums._SPLIT_VARIANCE)
    assert np.all(deviation * density >= split * (1 - 1e-15))
    assert deviation * density[-1] < split[-1] * (1 + 1e-11)


def test_states_too_far_apart_are_refused():
    coarse = dataclasses.replace(CHAIN, states=np.linspace(-7.0, 8.0, 31))
    with pytest.raises(ValueError, match="at most 0.5 deviations apart. Found 0.6"):
        markov_sums.upper_sum(coarse)
