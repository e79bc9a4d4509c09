"""Gaussian Markov chains above a block of steps, cut off from the blocks beside it.

A record takes part at most once in a block of b steps. Neighbouring blocks have inner
products ρ(i + j + 1) of columns i and j steps away from the cut: S, a symmetric matrix.
With D = |S| the matrix [[D, −S], [−S, D]] is positive semidefinite, as D ± S are:
added to the Gram matrix it leaves blocks that are orthogonal, with D more at either
end. Where S is positive semidefinite, as of slowly decaying columns, D is S, and no sum
of rows of the whole matrix grows. Above a block's matrix is that of a Markov chain.
"""

from collections.abc import Iterator
import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification.matrix import chain_fits
from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]

# Tuning: what is tried, as in `chain_fits`.
_CORRELATIONS = chain_fits.CORRELATIONS[24:185:8]
_SHARES, _LEAST_SHARE = np.linspace(0.4, 1.0, 9), 0.02
_SHARED = np.array([0.0, 0.05, 0.1, 0.15, 0.2])
# Tuning: moments are of so many steps, and variances beyond are no good.
_PLACES, _LARGEST = 65, 50.0
_SMALLEST_POWER = 1e-60  # Of a correlation: no chain that is any good has less.
# Certified: more than LAPACK's eigenvectors, and sums of their products, err by, over
# the sum of all entries.
_SLACK = 1e-9


@dataclasses.dataclass(frozen=True)
class BlockFit:
    """A chain of which step i has the variance B + w + v V_i.

    Steps i < j have the covariance B + v V_i Π s_k over i ≤ k < j, with s_k the
    correlation r times V_{k+1} / V_k where that is above one.

    Attributes:
        shared: B, that all steps have in common.
        own: w, of each step alone.
        common: v.
        correlation: r, in [0, 1).
        variances: V_i of every step, the least of them 1; no s_k is above one.
    """

    shared: float
    own: float
    common: float
    correlation: float
    variances: tuple[float, ...]

    @property
    def length(self) -> int:
        """Number of steps."""
        return len(self.variances)

    def gram(self) -> FloatArray:
        """Returns the (length, length) covariances, rounded."""
        places = np.arange(self.length)
        heights = np.array(self.variances)
        found = self.common * _covariances(self.correlation, heights, places)
        found[np.diag_indices(self.length)] += self.own
        return np.asarray(found + self.shared)


def repair(products: FloatArray) -> FloatArray:
    """Returns D = |S|, rounded up, by distances from the cut.

    Args:
        products: (p,) ρ(0), ρ(1), … at least 0; beyond p there are none.

    Returns:
        (p − 1, p − 1) matrix D such that [[D, −S], [−S, D]] is positive semidefinite,
        with S_ij = ρ(i + j + 1).
    """
    size = products.size - 1
    places = np.arange(size)
    whole = np.append(products[1:], np.zeros(size))
    cross = whole[places[:, np.newaxis] + places]
    values, vectors = np.linalg.eigh(cross)
    found = (vectors * np.abs(values)) @ vectors.T
    # Symmetric to the last digit, and above what eigenvectors err by.
    found = (found + found.T) / 2
    found[np.diag_indices(size)] += _SLACK * float(cross.sum())
    return np.asarray(found)


def fits(
    products: FloatArray, length: int, orders: tuple[float, ...], *, is_alone: bool
) -> list[BlockFit]:
    """Returns the best chain above a block by each of several moments.

    Args:
        products: (p,) inner products of columns by distance over σ², rounded up, at
            least 0, p ≤ length, the first one positive.
        length: b.
        orders: Covariances count so many times in the moments that decide.
        is_alone: Whether there is no other block.

    Guarantees:
        A chain's covariances are at least those of the block and its ends, or of these
        and a positive semidefinite matrix (docs/matrix.md).
    """
    size = min(length, 2 * products.size + 1)
    ends = np.zeros((size, size))
    if not is_alone and products.size > 1:
        cut = repair(products)
        number = min(len(cut), size)
        ends[:number, :number] += cut[:number, :number]
        ends += ends[::-1, ::-1].copy()
    places = np.unique(np.linspace(0, size - 1, min(size, _PLACES)).astype(int))
    best = dict.fromkeys(orders, math.inf)
    found: dict[float, tuple[BlockFit, FloatArray]] = {}
    for shared, own, common, correlation in _lines(products, size, length):
        variances = _variances(ends / common, correlation)
        if not variances.max() <= _LARGEST:
            continue
        chain = BlockFit(shared, own, common * variances.min(), correlation, ())
        heights = variances / variances.min()
        covariances = chain.common * _covariances(correlation, heights, places)
        covariances[np.diag_indices(places.size)] += own
        covariances += shared
        for order in orders:
            cost = float(chain_fits.grown(order * covariances).sum())
            if cost < best[order]:
                best[order] = cost
                line = np.asarray(common * correlation ** np.arange(size))
                found[order] = (
                    dataclasses.replace(chain, variances=tuple(heights.tolist())),
                    line,
                )
    chosen = dict.fromkeys(
        _extended(_above(chain, line, ends), length) for chain, line in found.values()
    )
    return list(chosen)


def _lines(
    products: FloatArray, size: int, length: int
) -> Iterator[tuple[float, float, float, float]]:
    """Yields B, w, v and r of chains above a line of steps, without its ends.

    v r^d is at least ρ(d) − B, or there is a positive semidefinite Toeplitz matrix to
    make up for what it lacks, as in `chain_fits`.
    """
    table = np.zeros(2 * size)
    table[: min(products.size, size)] = products[:size]
    # What is shared is so by steps that are far apart, too.
    shares = _SHARED if size == length and products.size > 1 else _SHARED[:1]
    for shared in (products[0] * shares).tolist():
        variance = float(products[0]) - shared
        near = (table[1:] - shared) / variance
        distances = np.arange(1, near.size + 1)
        for correlation in _CORRELATIONS.tolist():
            powers = np.maximum(correlation**distances, _SMALLEST_POWER)
            highest = max(float((near / powers).max()), _LEAST_SHARE)
            if highest <= 1:
                own = (1 - highest) * variance
                yield shared, own, highest * variance, correlation
            for share in (min(highest, 2.0) * _SHARES).tolist():
                gaps = near - share * powers
                for known in sorted({size // 2, size, 2 * size}):
                    gap = chain_fits.without_surplus(gaps, known)
                    whole = max(1 + chain_fits.highest_of_symbol(gap), share)
                    own = (whole - share) * variance
                    yield shared, own, share * variance, correlation


def _variances(more: FloatArray, correlation: float) -> FloatArray:
    """Returns (n,) variances of a chain with r^|i−j| + more_ij at most, nearly.

    They fall towards the middle, by a factor of r a step at most, and are alike at both
    ends.

    Args:
        more: (n, n) what the ends add, the same from either end.
        correlation: r.
    """
    size = len(more)
    half = (size + 1) // 2
    places = np.arange(size)
    powers = np.maximum(
        correlation ** np.abs(places[:, np.newaxis] - places), _SMALLEST_POWER
    )
    needed = 1 + np.maximum(more, 0.0) / powers
    found = np.triu(needed[:half, :half]).max(axis=1)
    found = np.maximum.accumulate(found[::-1])[::-1]
    for place in range(1, half):
        found[place] = max(found[place], correlation * found[place - 1])
    whole = np.concatenate([found, found[: size - half][::-1]])
    across = needed[:half, half:] * found[-1] / np.outer(found, whole[half:])
    return np.asarray(whole * max(float(across.max(initial=1.0)), 1.0))


def _covariances(
    correlation: float, variances: FloatArray, places: npt.NDArray[np.intp]
) -> FloatArray:
    """Returns covariances of a chain between some places, of variances from 1 on.

    Args:
        correlation: r.
        variances: (n,) V, falling towards the middle and the same from either end.
        places: (m,) which.
    """
    middle = (variances.size - 1) / 2
    chosen, left = variances[places], places < middle
    larger = np.maximum(chosen[:, np.newaxis], chosen)
    both = np.outer(chosen, chosen)
    same = left[:, np.newaxis] == left
    apart = np.abs(places[:, np.newaxis] - places)
    return np.asarray(correlation**apart * np.where(same, larger, both))


def _above(chain: BlockFit, line: FloatArray, ends: FloatArray) -> BlockFit:
    """Returns the chain with v so large that it is certain to be above.

    Args:
        chain: n steps.
        line: (n,) what the covariances along the line are at least, by distance.
        ends: (n, n) what is added at the ends.
    """
    places = np.arange(line.size)
    target = line[np.abs(places[:, np.newaxis] - places)] + ends
    heights = np.array(chain.variances)
    reached = chain.common * _covariances(chain.correlation, heights, places)
    lacking = float((target / np.maximum(reached, floats.SMALLEST_MASS)).max())
    return dataclasses.replace(
        chain,
        shared=floats.raised(chain.shared),
        own=floats.raised(chain.own),
        common=floats.raised(chain.common * max(lacking, 1.0)),
    )


def _extended(chain: BlockFit, length: int) -> BlockFit:
    """Returns a longer chain: steps of the least variance are put into its middle."""
    size = len(chain.variances)
    half = (size + 1) // 2
    first, last = chain.variances[:half], chain.variances[half:]
    middle = (1.0,) * (length - size)
    return dataclasses.replace(chain, variances=first + middle + last)
