"""Chains above Gram matrices: moments of brute force, and matrices written out."""

import dataclasses
import itertools

import correlated_oracles
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np
import pytest
import scipy.linalg
import scipy.optimize

from dp_accounting_ext.amplification.matrix import chain_fits

COLUMNS = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5)


def covariance(fit):
    """The matrix that a chain stands for: more of each end, next to it."""
    places = np.arange(fit.length)
    distances = abs(places[:, None] - places)
    near = places < (fit.length + 1) // 2 - 1
    end = np.outer(near * fit.correlation**places, near * fit.correlation**places)
    ends = end + end[::-1, ::-1]
    chain = np.where(distances, fit.share * fit.correlation**distances, 1.0)
    return fit.variance * (chain + fit.share * fit.excess * ends) + fit.shared


def moment(gram, order):
    """E Z^m is the mean over tuples of e to the sum over their pairs."""
    total = 0.0
    for indices in itertools.product(range(len(gram)), repeat=order):
        pairs = itertools.combinations(indices, 2)
        total += np.exp(sum(gram[i, j] for i, j in pairs))
    return total / len(gram) ** order


@settings(max_examples=5)
@given(COLUMNS, st.integers(2, 12), st.sampled_from([1.2, 3.0]))
def test_moments_are_above_those_of_the_bins(tail, bins, sigma):
    gram = correlated_oracles.toeplitz_gram([1.0, *tail], bins, 2, sigma)
    found = chain_fits.candidates(gram)
    for order in (2, 3):
        truth = moment(gram, order)
        for fit in found:
            assert moment(covariance(fit), order) >= truth * (1 - 1e-12)


def test_what_all_bins_have_in_common_is_no_part_of_the_chain():
    """So ε is that of a chain of less variance: moments are nearer to the truth."""
    gram = 0.3 + correlated_oracles.toeplitz_gram([1.0, 0.5], 6, 1, 1.5)
    found = chain_fits.candidates(gram)
    for fit in found:
        assert fit.shared >= 0.3
        truth = moment(gram, 3)
        assert truth <= moment(covariance(fit), 3) <= 1.2 * truth


def band(bands, bins, variance):
    column = np.cumprod([1.0, *((2 * j - 1) / (2 * j) for j in range(1, bands))])
    column /= np.linalg.norm(column)
    circle = np.fft.rfft(np.append(column, np.zeros(bins - bands)))
    table = np.maximum(np.fft.irfft(abs(circle) ** 2, bins), 0.0)
    table[bands : bins - bands + 1] = 0.0
    places = np.arange(bins)
    return variance * table[abs(places[:, None] - places)], variance * table


@pytest.mark.parametrize(
    ("bands", "bins", "variance"), [(8, 96, 0.6), (3, 40, 0.1), (24, 70, 2.0)]
)
def test_chains_are_above_in_the_wider_sense(bands, bins, variance):
    """There is an N with no negative entry whose R, on any line, is semidefinite."""
    gram, table = band(bands, bins, variance)
    for fit in chain_fits.candidates(gram):
        size, half = fit.length, fit.length // 2 + 1
        distances = np.arange(size)
        known = np.where(distances < half, table[:size], 0.0)
        if not fit.excess:
            known = table[:size]
        chain = fit.variance * fit.share * fit.correlation**distances
        chain[0] = fit.variance
        # The symbol less that of N is to be as high as it can, at its lowest.
        cosines = np.cos(np.outer(np.linspace(0, np.pi, 8 * size), distances))
        symbol = cosines[:, 1:] @ (chain - known)[1:] * 2 + (chain - known)[0]
        columns = np.hstack([2 * cosines[:, 1:], np.ones((len(cosines), 1))])
        bounds = [(0, None)] * (size - 1) + [(None, None)]
        found = scipy.optimize.linprog(
            np.append(np.zeros(size - 1), -1.0), columns, symbol, bounds=bounds
        )
        rest = chain - known - np.append(0.0, found.x[:-1])
        assert np.linalg.eigvalsh(scipy.linalg.toeplitz(rest)).min() > -1e-7


def test_refined_chains_have_smaller_moments():
    """Those of the grid exceed the bins' by 8.1 % and 13.9 % at orders 2 and 4."""
    gram, _ = band(12, 200, 1 / 3)
    found = chain_fits.candidates(gram)
    for order, most in ((2.0, 1.07), (4.0, 1.115)):
        truth = np.expm1(order * gram).mean()
        chains = [np.expm1(order * covariance(fit)).mean() for fit in found]
        assert truth < min(chains) < most * truth


def test_both_ends_of_a_cut_circle_vary_enough():
    """What connects bins across the cut is below what both ends have more of."""
    gram, table = band(8, 96, 0.6)
    cut = [fit for fit in chain_fits.candidates(gram) if fit.excess > 0.1]
    assert cut
    for fit in cut:
        size, half = fit.length, fit.length // 2 + 1
        places = np.arange(size)
        across = np.where(abs(places[:, None] - places) >= half, 1, 0)
        connected = across * table[abs(places[:, None] - places)]
        assert connected.max() > 0
        ends = (
            dataclasses.replace(fit, excess=1.0),
            dataclasses.replace(fit, excess=0.0),
        )
        base = np.subtract(*(covariance(end) for end in ends))
        flipped = fit.excess * base[::-1] * across
        assert np.all(flipped >= connected * (1 - 1e-9))
