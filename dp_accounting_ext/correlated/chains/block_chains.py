"""Gaussian Markov chains that bound a block of steps from above.

A record takes part at most once in a block of b steps. Let i and j be the distances of
two columns from the cut between two neighboring blocks, one on each side. Their inner
product is ρ(i + j + 1). These products form a symmetric matrix S.

Let D = |S|. The matrix [[D, −S], [−S, D]] is positive semidefinite, as D + S and D − S
are. Adding it to the Gram matrix makes the blocks orthogonal to each other, and adds D
at both ends of each block. If S is positive semidefinite, as it is for slowly decaying
columns, then D = S, and no sum of a row of the whole matrix grows. The Gram matrix of
each block, with its ends, is then bounded from above by the covariances of a Markov
chain.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.kernel import floats

_LEAST_SHARE = 0.02
_SMALLEST_POWER = 1e-60  # The least correlation: no good chain has a smaller one.
# Certified: a bound on the error, in the spectral norm, of a matrix composed of
# LAPACK's eigenvectors, as a share of the sum of all entries.
_SLACK = 1e-9


class _Grid(NamedTuple):
    """The parameters of chains that are tried.

    Attributes:
        shared: Values of B, over ρ(0).
        correlations: Values of r.
        shares: Values of v, over the least one with which v r^d is above ρ(d) − B for
            all distances d, or over 2 (ρ(0) − B) if that is smaller.
    """

    shared: FloatArray
    correlations: FloatArray
    shares: FloatArray


# Tuning: the parameters that are tried first, and those around the best of these.
# Without the latter, ε is up to 1.5 % higher. Moments are computed for _PLACES steps,
# and a longer chain is extended in its middle.
_COARSE = _Grid(
    np.linspace(0.0, 0.2, 5), np.linspace(0.14, 0.98, 22), np.linspace(0.4, 1.0, 9)
)
_NEAR, _BETWEEN = np.linspace(-0.75, 0.75, 5), 0.04
_FINE_SHARES, _PLACES = np.linspace(0.4, 1.0, 16), 65


def repair(products: FloatArray) -> FloatArray:
    """Returns D = |S|, rounded up, by distances from the cut.

    Args:
        products: (p,) inner products ρ(0), ρ(1), …, at least 0. Further ones are 0.

    Returns:
        (p − 1, p − 1) matrix D such that [[D, −S], [−S, D]] is positive semidefinite,
        with S_ij = ρ(i + j + 1).
    """
    size = products.size - 1
    places = np.arange(size)
    padded = np.append(products[1:], np.zeros(size))
    cross = padded[places[:, np.newaxis] + places]
    values, vectors = np.linalg.eigh(cross)
    absolute = (vectors * np.abs(values)) @ vectors.T
    # The result is exactly symmetric, and above the error of the eigenvectors.
    absolute = (absolute + absolute.T) / 2
    absolute[np.diag_indices(size)] += _SLACK * float(cross.sum())
    return np.asarray(absolute)


def fit(products: FloatArray, length: int, *, is_alone: bool) -> chain_fits.Chain:
    """Returns the chain above a block of steps that has about the least moment.

    Args:
        products: (p,) inner products of columns by distance over σ², rounded up, at
            least 0, p ≤ length, the first one positive.
        length: The number b of steps of a block.
        is_alone: Whether there is no other block.

    Guarantees:
        The covariances of the chain are at least those of the block with its ends, to
        which a positive semidefinite matrix may have been added (docs/matrix.md).
    """
    size = min(length, 2 * products.size + 1)
    ends = np.zeros((size, size))
    if not is_alone and products.size > 1:
        cut = repair(products)
        number = min(len(cut), size)
        ends[:number, :number] += cut[:number, :number]
        ends += ends[::-1, ::-1].copy()
    block = _Block(products, size, length, ends)
    coarse = _best(block, _COARSE)
    shared = coarse.shared / products[0] + _COARSE.shared[1] * _NEAR
    around = _Grid(
        np.clip(shared, 0.0, 0.5),
        np.clip(coarse.correlation + _BETWEEN * _NEAR, *_COARSE.correlations[[0, -1]]),
        _FINE_SHARES,
    )
    better = min(coarse, _best(block, around), key=lambda candidate: candidate.cost)
    return _above(better, block)


class _Block(NamedTuple):
    """The block that a chain must be above.

    Attributes:
        products: (p,) The inner products ρ(0), ρ(1), …
        size: The number of places for which the chain is computed.
        length: The number b of steps, at least as large.
        ends: (size, size) The matrix that is added at both ends.
    """

    products: FloatArray
    size: int
    length: int
    ends: FloatArray


class _Candidate(NamedTuple):
    """A candidate for a chain, which need not be above the block yet, and its moment.

    Attributes:
        cost: The moment Σ e^{order · covariance} − 1 of the covariances.
        shared: The part B, which all steps have in common.
        own: The part w of the variance that each step has alone.
        common: The factor v, for variances of at least 1.
        correlation: The correlation r.
        heights: (size,) the variances V_i.
        line: The values v r^d of the line without its ends.
    """

    cost: float
    shared: float
    own: float
    common: float
    correlation: float
    heights: FloatArray
    line: float


def _best(block: _Block, grid: _Grid) -> _Candidate:
    """Returns the chain of a grid that has the least moment.

    For every correlation there is a chain above the block.
    """
    places = np.unique(np.linspace(0, block.size - 1, _PLACES).astype(int))
    best: _Candidate | None = None
    for shared, correlation, own, common in _lines(block, grid):
        variances = _variances(block.ends, common, correlation)
        smallest = variances.min(axis=1, keepdims=True)
        heights = variances / smallest
        covariances = _covariances(correlation, heights, places)
        covariances *= (common[:, np.newaxis] * smallest)[:, np.newaxis]
        diagonal = np.arange(places.size)
        covariances[:, diagonal, diagonal] += own[:, np.newaxis]
        covariances += shared
        costs = chain_fits.grown(chain_fits.ORDER * covariances).sum(axis=(1, 2))
        chosen = int(costs.argmin())
        if best is None or costs[chosen] < best.cost:
            best = _Candidate(
                cost=float(costs[chosen]),
                shared=shared,
                own=float(own[chosen]),
                common=float(common[chosen] * smallest[chosen, 0]),
                correlation=correlation,
                heights=heights[chosen],
                line=float(common[chosen]),
            )
    assert best is not None
    return best


def _lines(
    block: _Block, grid: _Grid
) -> Iterator[tuple[float, float, FloatArray, FloatArray]]:
    """Yields the chains above a block without its matrix `ends`, for each B and r.

    Either v r^d is at least ρ(d) − B at all distances d, or it is so after a positive
    semidefinite Toeplitz matrix is added, as in `chain_fits`.

    Yields:
        B; r; (n,) the part w of the variance that each step of each chain has alone;
        and (n,) the factor v of each chain.
    """
    products, size = block.products, block.size
    table = np.zeros(2 * size)
    table[: min(products.size, size)] = products[:size]
    # All steps share B, even the furthest ones. So B is useful only for short blocks.
    is_short = size == block.length and products.size > 1
    values = np.unique(grid.shared) if is_short else np.zeros(1)
    for shared in (products[0] * values).tolist():
        variance = float(products[0]) - shared
        near = (table[1:] - shared) / variance
        distances = np.arange(1, near.size + 1)
        for correlation in np.unique(grid.correlations).tolist():
            powers = np.maximum(correlation**distances, _SMALLEST_POWER)
            highest = max(float((near / powers).max()), _LEAST_SHARE)
            shares = min(highest, 2.0) * grid.shares
            gaps = near - shares[:, np.newaxis] * powers
            gaps = chain_fits.without_surplus(gaps, size)
            diagonals = np.maximum(1 + chain_fits.highest_of_symbol(gaps), shares)
            own = diagonals - shares
            if highest <= 1:
                own, shares = np.append(1 - highest, own), np.append(highest, shares)
            yield shared, correlation, own * variance, shares * variance


def _variances(ends: FloatArray, common: FloatArray, correlation: float) -> FloatArray:
    """Returns (m, n) variances of chains that are nearly above v r^|i−j| + ends_ij.

    The variances are divided by v. They are symmetric about the middle, and decrease
    towards it. No variance is less than r times the one before it.

    Args:
        ends: (n, n) What the ends add. It is the same from both ends.
        common: (m,) The factor v of each chain.
        correlation: The correlation r.
    """
    size = len(ends)
    half = (size + 1) // 2
    places = np.arange(size)
    powers = np.maximum(
        correlation ** np.abs(places[:, np.newaxis] - places), _SMALLEST_POWER
    )
    more = np.maximum(ends, 0.0) / powers
    near_end = np.triu(more[:half, :half]).max(axis=1)
    near_end = np.maximum.accumulate(near_end[::-1])[::-1]
    common = common[:, np.newaxis]
    heights = 1 + near_end / common
    for place in range(1, half):
        lowest = correlation * heights[:, place - 1]
        np.maximum(heights[:, place], lowest, out=heights[:, place])
    mirrored = np.hstack([heights, heights[:, : size - half][:, ::-1]])
    # The chain's entries between its halves are products of variances.
    needed = (1 + more[:half, half:] / common[:, np.newaxis]) * heights[
        :, -1:, np.newaxis
    ]
    needed /= heights[:, :, np.newaxis] * mirrored[:, np.newaxis, half:]
    across = needed.max(axis=(1, 2), initial=1.0)
    return np.asarray(mirrored * across[:, np.newaxis])


def _covariances(
    correlation: float, variances: FloatArray, places: IndexArray
) -> FloatArray:
    """Returns the (…, m, m) covariances of Markov chains between some places.

    On one side of the middle, the covariance of two places is r^distance times the
    larger of their variances. Across the middle, where the least variance is 1, it is
    r^distance times the product of both.

    Args:
        correlation: The correlation r.
        variances: (…, n) variances, at least 1. They are symmetric about the middle,
            and decrease towards it.
        places: (m,) the places.
    """
    is_left = places < (variances.shape[-1] - 1) / 2
    on_one_side = is_left[:, np.newaxis] == is_left
    at_places = variances[..., places]
    rows, columns = at_places[..., :, np.newaxis], at_places[..., np.newaxis, :]
    covariances = np.where(on_one_side, np.maximum(rows, columns), rows * columns)
    distances = np.abs(places[:, np.newaxis] - places)
    return np.asarray(correlation**distances * covariances)


def _above(candidate: _Candidate, block: _Block) -> chain_fits.Chain:
    """Returns the chain with v raised until it is certainly above the block."""
    heights, correlation = candidate.heights, candidate.correlation
    places = np.arange(block.size)
    distances = np.abs(places[:, np.newaxis] - places)
    target = candidate.line * correlation**distances + block.ends
    reached = candidate.common * _covariances(correlation, heights, places)
    lacking = float((target / np.maximum(reached, floats.SMALLEST_MASS)).max())
    common = candidate.common * max(lacking, 1.0)
    variance = candidate.own + common
    # A longer chain has more steps of the least variance in its middle.
    half = (block.size + 1) // 2
    middle = np.ones(block.length - block.size)
    heights = np.concatenate([heights[:half], middle, heights[half:]])
    return chain_fits.Chain(
        variance=floats.raised(variance),
        share=min(floats.raised(common / variance), 1.0),
        correlation=correlation,
        heights=tuple(heights.tolist()),
        shared=floats.raised(candidate.shared) if candidate.shared else 0.0,
    )
