"""Chains above Gram matrices: moments of brute force, and matrices written out."""

import itertools

import correlated_oracles
from hypothesis import given
from hypothesis import settings
from hypothesis import strategies as st
import numpy as np

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
    return fit.variance * (chain + fit.share * fit.excess * ends)


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


@settings(max_examples=5)
@given(COLUMNS, st.integers(2, 9))
def test_the_first_is_above_every_entry_of_any_window(tail, bins):
    gram = correlated_oracles.toeplitz_gram([1.0, *tail], bins, 2, 1.5)
    found = chain_fits.candidates(gram)[0]
    starts = [0] if found.length == bins else range(bins)
    for start in starts:
        window = (start + np.arange(found.length)) % bins
        assert np.all(gram[np.ix_(window, window)] <= covariance(found) * (1 + 1e-8))


def band(bands, bins, variance):
    column = np.cumprod([1.0, *((2 * j - 1) / (2 * j) for j in range(1, bands))])
    column /= np.linalg.norm(column)
    circle = np.fft.rfft(np.append(column, np.zeros(bins - bands)))
    table = np.maximum(np.fft.irfft(abs(circle) ** 2, bins), 0.0)
    table[bands : bins - bands + 1] = 0.0
    places = np.arange(bins)
    return variance * table[abs(places[:, None] - places)], table


def test_the_wider_chain_is_above_in_the_wider_sense():
    """R written out has no negative eigenvalue, for any r that is tried."""
    _, table = band(8, 96, 0.6)
    places = np.arange(60)
    distances = abs(places[:, None] - places)
    tried = 0
    for correlation, share, noise, added in chain_fits.programs(table, 0.6):
        tried += 1
        known = np.zeros(60)
        known[: added.size] = added
        assert np.all(known >= 0)
        known[:49] += table[:49]
        rest = share * correlation**distances + noise * (distances == 0)
        rest -= known[distances]
        assert np.linalg.eigvalsh(rest).min() > -1e-10
    assert tried > 10


def test_both_ends_of_a_cut_circle_vary_enough():
    """What connects bins across the cut is below what both ends have more of."""
    gram, table = band(8, 96, 0.6)
    wider = chain_fits.candidates(gram)[1]
    assert wider.excess > 0.1
    size = wider.length
    across = np.zeros((size, size))
    half = size // 2 + 1
    for i, j in itertools.product(range(size), repeat=2):
        if abs(i - j) >= half:
            across[i, j] = 0.6 * table[abs(i - j)]
    assert across.max() > 0
    base = covariance(chain_fits.Fit(1.0, 1.0, wider.correlation, size, 1.0))
    base -= covariance(chain_fits.Fit(1.0, 1.0, wider.correlation, size))
    ends = wider.variance * wider.share * wider.excess * base
    outer = np.where(abs(np.subtract.outer(range(size), range(size))) >= half, 1, 0)
    flipped = ends[::-1] * outer  # a bᵀ, entry by entry above what connects them.
    assert np.all(flipped >= across * (1 - 1e-9))
