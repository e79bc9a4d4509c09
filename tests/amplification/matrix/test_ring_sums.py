"""Sums around a circle: quadrature of few bins, second moments of more, and losses."""

import dataclasses

import correlated_oracles
import numpy as np
import pytest

from dp_accounting_ext.amplification.matrix import markov_sums
from dp_accounting_ext.amplification.matrix import ring_sums

SCALE, R = 0.8, 0.6
STATES = np.linspace(-8.0, 9.0, 171)
CHAIN = markov_sums.Chain(
    states=STATES,
    correlation=R,
    scale=SCALE,
    factors=np.ones(1),
    chances=np.ones(1),
    lost_factor=0.0,
    places=np.concatenate([np.arange(0.0, 8.0, 0.02), np.geomspace(8.0, 4e4, 400)]),
    length=2,
)
NODES = np.array([0, 50, *range(65, 140, 5), 170])


def ring(bins, reach, nodes=NODES, **changed):
    chain = dataclasses.replace(CHAIN, length=bins, **changed)
    return ring_sums.Ring(chain, nodes, reach)


def call(law, places, strike):
    return law.masses @ np.maximum(places - strike, 0) + law.lost_mean


@pytest.mark.parametrize("bins", [2, 3, 4, 8, 9])
def test_arcs_are_bridges_of_the_chain(bins):
    """Along an arc covariances are those of a chain on a line, both ends included."""
    found = ring_sums.covariance(R, bins, 100)
    half = bins // 2
    far = np.r_[half:bins, 0]
    steps = np.arange(far.size)
    line = R ** abs(steps[:, np.newaxis] - steps)
    assert np.allclose(found[np.ix_(far, far)], line, atol=1e-14)
    near = np.arange(half + 1)
    closed = R**half - R ** (bins - half)  # What c and d lack on the shorter way.
    line = R ** abs(near[:, np.newaxis] - near)
    assert np.all(np.abs(found[np.ix_(near, near)] - line) <= 2 * closed + 1e-14)


@pytest.mark.parametrize(("bins", "reach"), [(2, 9), (3, 9), (4, 9), (4, 1)])
def test_few_bins_against_quadrature(bins, reach):
    """Where every x_i varies by one, ratios are those of the Gram matrix."""
    covariance = ring_sums.covariance(R, bins, reach)
    least = float(covariance.diagonal().min())
    grown = np.exp(SCALE**2 * max(1 - least, 0.0) / 2)
    law = ring_sums.upper_sum(ring(bins, reach))
    assert abs(law.masses.sum() + law.lost_mass - 1) < 1e-9
    for epsilon in (0.0, 0.5, 1.5):
        truth = correlated_oracles.profile(SCALE**2 * covariance, epsilon, remove=True)
        strike = bins * np.exp(epsilon)
        found = call(law, CHAIN.places * grown, strike) / bins
        assert truth <= found <= 1.2 * truth


def test_factors_are_in_every_bin():
    """Of mean one and second moment 1.25: only squares of a ratio have it."""
    factors, chances = np.array([0.5, 1.5]), np.array([0.5, 0.5])
    law = ring_sums.upper_sum(ring(5, 9, factors=factors, chances=chances))
    covariance = SCALE**2 * ring_sums.covariance(R, 5, 9)
    known = np.exp(covariance).sum() + 5 * 0.25 * np.exp(SCALE**2)
    found = law.masses @ CHAIN.places**2
    assert known <= found <= 1.04 * known


def test_what_leaves_the_grids_is_counted():
    """Short grids of sums and of states: calls are still those of the whole."""
    whole = ring_sums.upper_sum(ring(5, 9))
    states, places = np.linspace(-2.5, 2.5, 51), np.linspace(0.0, 9.0, 451)
    nodes = np.array([0, 10, 25, 30, 40, 50])
    short = ring(5, 9, nodes, states=states, places=places)
    law = ring_sums.upper_sum(short)
    assert law.lost_mean > 1e-2
    assert 0.01 < law.lost_mass < 0.2
    for strike in (0.0, 1.0, 5.0, 8.0):
        truth = call(whole, CHAIN.places, strike)
        assert call(law, places, strike) >= truth * 0.995
