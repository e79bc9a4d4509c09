"""Gaussian Markov chains that bound a block of steps from above.

A record takes part at most once in a block of b steps. Let i and j be the distances of
two columns from the cut between two neighboring blocks, one on each side. Their inner
product is ρ(i + j + 1). These products form a symmetric matrix S.

Let D = |S|. The matrix [[D, −S], [−S, D]] is positive semidefinite, as D + S and D − S
are. Adding it to the Gram matrix makes the blocks orthogonal to each other, and adds D
at both ends of each block. If S is positive semidefinite, as it is for slowly decaying
columns, then D = S, and no sum of a row of the whole matrix grows. The Gram matrix of
each block, with its ends, is then bounded from above by the covariances of a Markov
chain: one above the line of the block's steps (`chain_fits`), with larger variances
near both ends.
"""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import chain_fits
from dp_accounting_ext.kernel import floats

# What the ends add is divided by powers of r that are at least this. If a smaller power
# is needed, heights are far above `_HIGHEST`.
_SMALLEST_POWER = 1e-60
# Certified: a bound on the error, in the spectral norm, of a matrix composed of
# LAPACK's eigenvectors, as a share of the sum of all entries.
_SLACK = 1e-9
# Tuning, all of these constants.
# These parts B, over ρ(0), are tried, and every so many of the correlations. Without B,
# ε is up to 7 % higher.
_SHARED, _STRIDE = np.linspace(0.0, 0.3, 10), 4
# Chains of larger heights are not chosen, as the number of states grows with the root
# of the largest one.
_HIGHEST = 10.0


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
    # A longer block has more steps in its middle, which are all alike.
    size = min(length, 2 * products.size + 1)
    ends = np.zeros((size, size))
    if not is_alone and products.size > 1:
        cut = repair(products)
        number = min(len(cut), size)
        ends[:number, :number] += cut[:number, :number]
        ends += ends[::-1, ::-1].copy()
    # All steps share B, even the furthest ones. So B is useful only for short blocks.
    is_short = size == length and float(products[1:].max(initial=0.0)) > 0
    shared_parts = (products[0] * _SHARED).tolist()[: None if is_short else 1]
    lines = [(line, b) for b in shared_parts for line in _lines(products, length, b)]
    line, shared = min(lines, key=lambda x: _moment(_with_ends(x[0], x[1], ends)))
    refined = chain_fits.refined(line)
    chain = min(
        _with_ends(line, shared, ends), _with_ends(refined, shared, ends), key=_moment
    )
    half = (size + 1) // 2
    middle = (1.0,) * (length - size)
    heights = (*chain.heights[:half], *middle, *chain.heights[half:])
    return dataclasses.replace(chain, heights=heights)


def _lines(
    products: FloatArray, length: int, shared: float
) -> Iterator[chain_fits.Line]:
    """Yields a chain of each correlation above a block without its ends.

    Nothing is yielded if no two different steps have an inner product above B > 0.

    Args:
        products: As in `fit`, as is `length`.
        length: The number of steps.
        shared: B, which is taken out of all entries.
    """
    table = np.zeros(length)
    table[: products.size] = np.maximum(products - shared, 0.0)
    if shared and not table[1:].any():
        return
    window = chain_fits.Window(table / table[0], np.zeros(0), length)
    orders, variance = [chain_fits.ORDER], float(table[0])
    for correlation in chain_fits.CORRELATIONS[::_STRIDE].tolist():
        for _, line in chain_fits.lines_at(window, orders, variance, correlation):
            yield line


def _with_ends(
    line: chain_fits.Line, shared: float, ends: FloatArray
) -> chain_fits.Chain:
    """Returns a chain above a line and what is added at its ends.

    The variances of one half are above all entries of that half. Then all variances are
    raised until the entries between the two halves are covered, too.

    Args:
        line: The chain without its ends.
        shared: B, which all steps have in common.
        ends: (n, n) What the ends add. It is the same from both ends.
    """
    size, correlation = len(ends), line.correlation
    half = (size + 1) // 2
    places = np.arange(size)
    distances = np.abs(places[:, np.newaxis] - places)
    powers = correlation**distances
    common = max(line.variance * line.share, floats.SMALLEST_MASS)
    added = np.maximum(ends, 0.0) / common
    excess = added[:half, :half] / np.maximum(powers[:half, :half], _SMALLEST_POWER)
    heights = 1 + np.triu(excess).max(axis=1)
    heights = np.maximum.accumulate(heights[::-1])[::-1]
    for place in range(1, half):
        heights[place] = max(heights[place], correlation * heights[place - 1])
    heights = np.append(heights, heights[: size - half][::-1]) / heights[-1]
    reached = np.maximum(_covariances(correlation, heights), floats.SMALLEST_MASS)
    common *= max(float(((powers + added) / reached).max()), 1.0)
    variance = line.variance * (line.whole - line.share) + common
    chain = chain_fits.Chain(
        variance=floats.raised(variance),
        share=min(floats.raised(common / variance), 1.0),
        correlation=correlation,
        heights=tuple(heights.tolist()),
        shared=floats.raised(shared) if shared else 0.0,
    )
    line.check(chain)
    return chain


def _covariances(correlation: float, heights: FloatArray) -> FloatArray:
    """Returns the (n, n) covariances of a Markov chain, without what steps have alone.

    On one side of the middle, the covariance of two steps is r^distance times the
    larger of their variances. Across the middle, where the least variance is 1, it is
    r^distance times the product of both.

    Args:
        correlation: The correlation r.
        heights: (n,) variances, at least 1. They are symmetric about the middle, and
            decrease towards it.
    """
    places = np.arange(heights.size)
    is_left = places < (heights.size - 1) / 2
    rows, columns = heights[:, np.newaxis], heights
    on_one_side = is_left[:, np.newaxis] == is_left
    products = np.where(on_one_side, np.maximum(rows, columns), rows * columns)
    powers = correlation ** np.abs(places[:, np.newaxis] - places)
    return np.asarray(powers * products)


def _moment(chain: chain_fits.Chain) -> float:
    """Returns about the moment of the sum of a chain's ratios, or infinity."""
    if max(chain.heights) > _HIGHEST:
        return math.inf
    covariances = chain.share * _covariances(chain.correlation, chain.variances())
    covariances[np.diag_indices(chain.length)] += 1 - chain.share
    entries = chain.shared + chain.variance * covariances
    return float(chain_fits.grown(chain_fits.ORDER * entries).sum())
