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

from dp_accounting_ext.correlated.chains import block_chains
from dp_accounting_ext.correlated.chains import chain_fits

COLUMNS = st.lists(st.floats(0.01, 1.0), min_size=1, max_size=5)


def covariance(fit):
    """The matrix that a chain stands for: more of each end, next to it."""
    places, excess = np.arange(fit.length), fit.excess
    distances = abs(places[:, None] - places)
    near = places < (fit.length + 1) // 2 - 1
    end = np.outer(near * fit.correlation**places, near * fit.correlation**places)
    ends = end + end[::-1, ::-1]
    chain = np.where(distances, fit.share * fit.correlation**distances, 1.0)
    return fit.variance * (chain + fit.share * excess * ends) + fit.shared


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
    chain = chain_fits.of_bins(gram, [2.0])[0]
    for order in (2, 3):
        truth = moment(gram, order)
        assert moment(covariance(chain), order) >= truth * (1 - 1e-12)


def test_what_all_bins_have_in_common_is_no_part_of_the_chain():
    """So ε is that of a chain of less variance: moments are nearer to the truth."""
    gram = 0.3 + correlated_oracles.toeplitz_gram([1.0, 0.5], 6, 1, 1.5)
    chain = chain_fits.of_bins(gram, [2.0])[0]
    assert chain.shared >= 0.3
    truth = moment(gram, 3)
    assert truth <= moment(covariance(chain), 3) <= 1.2 * truth


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
    fit = chain_fits.of_bins(gram, [2.0])[0]
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


def testrefined_chains_have_smaller_moments():
    """That of the grid exceeds the bins' by 8.1 %."""
    gram, _ = band(12, 200, 1 / 3)
    truth = np.expm1(2 * gram).mean()
    found = np.expm1(2 * covariance(chain_fits.of_bins(gram, [2.0])[0])).mean()
    assert truth < found < 1.07 * truth


def testrefined_chains_are_not_nearly_constant():
    """The grid of states took 22 GiB, as the search went up to r = 1 − 1e-16."""
    column = [1.0, *[0.0] * 10, 0.6895711415754504]
    gram = correlated_oracles.toeplitz_gram(column, 3, 4, 18.009168956717108)
    assert chain_fits.of_bins(gram, [2.0])[0].correlation < 0.995


def test_both_ends_of_a_cut_circle_vary_enough():
    """What connects the ends of a closed chain is below what both ends have more of.

    All other entries of the closed chain are below those of the line, or are N's.
    """
    gram, table = band(8, 96, 0.6)
    fit = chain_fits.of_bins(gram, [2.0])[0]
    assert fit.excess > 0.1
    size, bins, r = fit.length, len(table), fit.correlation
    places = np.arange(size)
    distances = abs(places[:, None] - places)
    closed = (r**distances + r ** (bins - distances)) / (1 - r**bins)
    line = r**distances * (1 + min(fit.excess, chain_fits.LEAST_EXCESS))
    from_ends = np.minimum(places, places[::-1])
    # aᵀb is at both ends of the line, on different sides of its middle.
    apart = (places[:, None] < size // 2) != (places < size // 2)
    known = fit.excess * r ** (from_ends[:, None] + from_ends) * apart
    around = np.minimum(distances, bins - distances)
    asked = around <= 2 * np.flatnonzero(table[: bins // 2])[-1]
    assert (asked & apart & (distances > bins // 2)).any()
    assert np.all((line + known - closed)[asked] >= 0)


def test_a_chain_that_is_not_above_its_window_is_refused(monkeypatch):
    """By a check of the entries that runs whenever a chain is made."""
    gram, _ = band(8, 96, 0.6)
    refined = chain_fits.refined

    def lowered(line):
        line = refined(line)
        return dataclasses.replace(line, gap=line.gap - 1e-6)

    monkeypatch.setattr(chain_fits, "refined", lowered)
    with pytest.raises(ArithmeticError, match="must be above its window. It lacks"):
        chain_fits.of_bins(gram, [2.0])[0]
    with pytest.raises(ArithmeticError, match="must be above its window. It lacks"):
        block_chains.fit(gram[0, :8], 16, is_alone=False)


def entrywise(window, correlation):
    return chain_fits.Window(window.near, window.across, window.length, 10**9).excess(
        correlation, np.ones(1)
    )


@pytest.mark.parametrize("epochs", [2, 3, 10])
def test_a_cut_circle_of_some_epochs_is_a_weaker_link(epochs):
    """Bins across the cut meet in one epoch less: c is that share of the epochs."""
    _, table = band(8, 96, 0.6)
    near, across = table[:49] / table[0], table[1:48] / table[0] * (1 - 1 / epochs)
    window = chain_fits.Window(near, across, 96)
    assert window.link == pytest.approx(1 - 1 / epochs)
    (found,) = window.excess(0.7, np.array([0.8]))
    assert found == pytest.approx(0.8 * 0.7 * (1 - 1 / epochs), rel=1e-6)
    assert found < entrywise(window, 0.7)


def test_no_chain_is_closed_where_it_does_not_forget():
    """Then only entries across the cut decide, and so where a link is above one."""
    _, table = band(8, 96, 0.6)
    near = table[:49] / table[0]
    for across, length, correlation in (
        (near[1:], 96, 0.97),
        (near[1:20], 34, 0.8),
        (1.5 * near[1:], 96, 0.7),
        (np.append(near[1:20], 0.1), 96, 0.7),
    ):
        window = chain_fits.Window(near[: length // 2 + 1], across, length)
        least = (across / correlation ** np.arange(across.size)).max()
        assert window.excess(correlation, np.ones(1)) == pytest.approx(least)


@pytest.mark.parametrize(("bands", "bins"), [(2, 14), (2, 24), (3, 24)])
def test_moments_of_closed_chains_are_above_those_of_the_bins(bands, bins):
    tail = [0.4, 0.2][: bands - 1]
    gram = correlated_oracles.toeplitz_gram([1.0, *tail], bins, 4, 4.0)
    chain = chain_fits.of_bins(gram, [2.0])[0]
    for order in (2, 3):
        truth = moment(gram, order)
        assert moment(covariance(chain), order) >= truth * (1 - 1e-12)


def written_out(chain):
    """The covariances of a chain without a shared part, from its definition."""
    found = correlated_oracles.chain_covariance(chain.heights, chain.correlation)
    own = np.eye(chain.length) * (1 - chain.share)
    return chain.variance * (chain.share * found + own)


@pytest.mark.parametrize(
    ("correlation", "share", "excess"),
    [
        (0.3, 1.0, 0.0),
        (0.7, 0.8, 0.0),
        (0.8, 0.1, 0.0),
        (0.3, 1.0, 1.0),
        (0.6, 0.8, 0.2),
    ],
)
def test_blocks_of_a_long_chain_are_above_it(correlation, share, excess, monkeypatch):
    """What is added makes a positive semidefinite matrix, up to what is counted."""
    monkeypatch.setattr(chain_fits, "_RAISES", 0.2)
    monkeypatch.setattr(chain_fits, "_SHORTEST", 32)
    heights = chain_fits.with_excess(excess, correlation, 263)
    chain = chain_fits.Chain(0.2, share, correlation, heights)
    block, copies = chain_fits.cut(chain)
    assert copies > 1 and block.length == 263 // copies
    whole = scipy.linalg.block_diag(*[written_out(block)] * copies)
    # Bins that are left over are left out from anywhere, so that both ends stay.
    kept = np.r_[: len(whole) // 2, 263 - len(whole) + len(whole) // 2 : 263]
    for bins in (np.arange(len(whole)), kept):
        line = written_out(chain)[np.ix_(bins, bins)]
        assert np.linalg.eigvalsh(whole - line).min() >= -1e-12
        within = scipy.linalg.block_diag(*[np.ones((block.length,) * 2)] * copies) > 0
        assert (whole - line)[within].min() >= 0


def test_chains_are_not_cut_where_ends_would_weigh_much():
    """Short ones, strong ones, and those that do not forget, or share a part."""
    ones = (1.0,) * 600
    for chain in (
        chain_fits.Chain(0.2, 1.0, 0.5, ones[:400]),
        chain_fits.Chain(9.0, 1.0, 0.5, ones),
        chain_fits.Chain(0.2, 1.0, 0.985, ones),
        chain_fits.Chain(0.2, 1.0, 0.5, ones, shared=0.1),
    ):
        assert chain_fits.cut(chain) == (chain, 1)
    assert chain_fits.cut(chain_fits.Chain(0.2, 1.0, 0.5, ones))[1] > 1
