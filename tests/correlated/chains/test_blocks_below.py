"""Blocks of bins from below: their matrices, closed forms and quadrature of sums."""

import math

import correlated_oracles
from hypothesis import example
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
from scipy import special

from dp_accounting_ext.correlated.chains import blocks_below

ONE = np.ones(1)


def below(block):
    """The matrix of a block, from its definition."""
    scales, places = np.array(block.scales), np.arange(block.length)
    chain = block.correlation ** abs(places[:, None] - places)
    return np.outer(scales, scales) * chain + block.own * np.eye(block.length)


@settings(max_examples=10)
@given(st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5), st.integers(2, 9))
@example([1.0], 4)
def test_no_block_has_a_larger_covariance(tail, bins):
    """Neither where bins are alike, nor at the end, where they are not."""
    gram = correlated_oracles.toeplitz_gram([1.0, *tail], bins, 2, 1.5)
    end = bins
    for block, number in blocks_below.cut_into_blocks(gram).items():
        for _ in range(number):
            places = slice(end - block.length, end)
            assert np.all(below(block) <= gram[places, places])
            end -= block.length
    assert end == 0


def test_bins_that_all_differ_are_blocks_as_well():
    """Of one bin each, and of rows that are no Toeplitz matrix's."""
    gram = np.array([[1.0, 0.5, 0.4], [0.5, 0.8, 0.3], [0.4, 0.3, 0.5]])
    ((block, number),) = blocks_below.cut_into_blocks(gram).items()
    assert number == 1
    assert np.all(below(block) <= gram)
    assert below(block).sum() > 0.9 * gram.sum()


def chain_of(cells, factors=ONE, probabilities=ONE):
    """Grids of steps without noise of their own, by default."""
    return blocks_below.Grids(
        states=np.linspace(-7.0, 8.0, 151),
        correlation=0.6,
        factors=factors,
        probabilities=probabilities,
        unit=0.02,
        density=cells / 12.0,
        count=cells + 1,
        smallest_mass=1e-220,
    )


def test_sums_from_below_are_below_one_and_two_steps():
    """Calls of one lognormal variable in closed form, of two by quadrature."""
    sums, masses, error = blocks_below.lower_sum(chain_of(1500), np.ones(1))
    assert error < 1e-9
    for strike in (0.2, 1.0, 5.0, 60.0):
        place = 0.5 - math.log(strike)
        truth = special.ndtr(place) - strike * special.ndtr(place - 1)
        found = masses @ np.maximum(sums - strike, 0)
        assert 0.9 * truth - 1e-9 <= found <= truth
    sums, masses, _ = blocks_below.lower_sum(chain_of(1500), np.ones(2))
    assert np.all(np.diff(sums) > 0)
    nodes = np.arange(-9, 10, 0.02)
    x, y = np.meshgrid(nodes, nodes)
    weights = np.exp(-(x**2 + y**2) / 2) / (2 * math.pi) * 0.02**2
    total = np.exp(x - 0.5) + np.exp(0.6 * x + 0.8 * y - 0.5)
    for strike in (0.5, 2.0, 10.0):
        truth = (weights * np.maximum(total - strike, 0)).sum()
        found = masses @ np.maximum(sums - strike, 0)
        assert 0.8 * truth <= found <= truth


@pytest.mark.parametrize(("ratio", "most"), [(1e-9, 1), (1e-2, 18), (1e4, 61)])
def test_merged_factors_keep_their_mean(ratio, most):
    """All convex functions of them have a mean that is no larger."""
    logs = np.linspace(-3.0, 4.0, 200)
    weights = np.exp(-((logs + 0.5) ** 2))
    probabilities = weights / weights.sum()
    chain = chain_of(60, np.exp(logs), probabilities)
    factors, probabilities = blocks_below._merged(chain, ratio)
    assert factors.size <= most
    assert np.all(np.diff(factors) > 0)
    for strike in (0.0, 0.1, 1.0, 3.0, 20.0):
        before = chain.probabilities @ np.maximum(chain.factors - strike, 0)
        after = probabilities @ np.maximum(factors - strike, 0)
        assert after <= before * (1 + 1e-13)
        if not strike:
            assert after >= before * (1 - 1e-13)
