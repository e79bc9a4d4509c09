"""Correlated ratios from below: what a few linear functions of the outputs tell.

Under Q the outputs are N(0, I), under P they are N(m_i, I) for a random i. Whoever sees
no more than one linear function of them sees N(0, 1) or N(s_i, 1), once it is scaled to
variance one. By data processing that pair is dominated by the mechanism's, in both
directions. With g_i = m_i · y and T = Σ w_i g_i, the shifts are (G w)_i / √(wᵀ G w), G
the inner products of the m_i.

Several such functions are several dimensions, whitened, and cut into cells: who sees
the cell alone sees less again.

Shifts on a line are rounded down: of s ≥ 0 the ratio Σ p_i e^{s_i x − s_i² / 2} falls
in the convex order as the s_i s_j fall, by Kahane's inequality (docs/matrix.md).
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import gaussian_mixture
from dp_accounting_ext.pairs import normal_cells

# A larger shift is lowered to it: ratios hold losses of up to 690 nats.
_LARGEST_SHIFT = 32.0
# Tuning: shifts that are nearer to each other than that, over the largest, are one.
_APART = 1e-6
# Tuning: steps towards the leading eigenvector of a Gram matrix.
_ITERATIONS = 16
# Tuning: up to how many eigenvectors; cells in the first one's direction, over the
# deviation, and how many times as wide others are at most; cells of log ratios. With a
# fourth eigenvector ε is 1 % higher, in ten times as long.
_DIMENSIONS, _CELL, _WIDEST, _RATIO_CELL = 3, 0.25, 6.0, 0.003
# A limit of time: of more bins no eigenvectors are looked at.
_MOST_BINS = 1024
# Eigenvalues are at least so much of the largest: weights stay of one size.
_LEAST_EIGENVALUE = 1e-4
# Shifts in a product of matrices: a limit of memory.
_ROWS = 256
# Masses of a line's cells below 1e-280 are left out, which is nothing beside it.
_LEAST_CELL = 1e-260
# Of the logarithm of a density: beyond it a projection is not looked at.
_LARGEST_ERROR = 1e-4


def mixture_below(
    shifts: FloatArray,
    chances: FloatArray,
    *,
    tail_mass: float,
    chance_error: float = 0.0,
) -> dominating_pair.DominatingPair:
    """Returns a pair dominated by Σ chance · N(shift, 1) against N(0, 1).

    Args:
        shifts: (n,) shifts over the noise's standard deviation, at least 0, rounded
            down.
        chances: (n,) their probabilities, which sum to one.
        tail_mass: Probability that may be left out on either side.
        chance_error: Bound on the relative error of any of the probabilities, beyond
            a few thousand roundings.

    Returns:
        A pair for both directions.

    Raises:
        ValueError: If a shift is negative, or a probability is.
    """
    if not (shifts >= 0).all() or not (chances >= 0).all():
        raise ValueError(
            "shifts and chances must be at least 0. "
            f"Found {np.min(shifts)} and {np.min(chances)}."
        )
    shifts = np.minimum(shifts, _LARGEST_SHIFT)
    order = np.argsort(shifts, kind="stable")
    shifts, chances = _gathered(shifts[order], chances[order])
    pair = gaussian_mixture.dominating_pair_of(
        gaussian_mixture.Mixture(
            tuple(zip(shifts.tolist(), chances.tolist(), strict=True))
        ),
        gaussian_mixture.Mixture(((0.0, 1.0),)),
        Bound.LOWER,
        tail_mass=tail_mass,
    )
    error = pair.ratio_error + chance_error
    return dataclasses.replace(pair, ratio_error=error)


def _gathered(shifts: FloatArray, chances: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns fewer shifts, none of them above what it stands for, with chances.

    What has hardly any chance is added to the next shift below, and the lowest shift
    has some chance: no logarithm is that of zero.

    Args:
        shifts: (n,) increasing.
        chances: (n,) their probabilities.
    """
    near = shifts - _APART * shifts[-1:]
    starts = np.unique(np.searchsorted(shifts, near))
    shifts, chances = shifts[starts], np.add.reduceat(chances, starts)
    likely = chances >= floats.TINY
    likely[0] = True
    found = sums.gather(np.cumsum(likely) - 1, chances)
    return shifts[likely], np.maximum(found, floats.TINY)


def of_gram(
    gram: FloatArray, *, error: float, tail_mass: float
) -> list[dominating_pair.DominatingPair]:
    """Returns pairs dominated by the mean of b correlated ratios.

    Projections on a line, with all weights one or G's leading eigenvector, and on its
    three leading eigenvectors.

    Args:
        gram: (b, b) inner products G, at least 0, positive on the diagonal.
        error: Bound on the relative error of any of them.
        tail_mass: Probability that may be left out of each pair.
    """
    bins = len(gram)
    chances = np.full(bins, 1 / bins)
    leading = np.ones(bins)
    for _ in range(_ITERATIONS):
        leading = gram @ leading
        leading /= leading.max()
    found = [
        mixture_below(_shifts(gram, weights, error=error), chances, tail_mass=tail_mass)
        for weights in (np.ones(bins), leading)
    ]
    several = _on_eigenvectors(gram, error, tail_mass) if bins <= _MOST_BINS else None
    return found if several is None else [*found, several]


def _on_eigenvectors(
    gram: FloatArray, error: float, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns the lower pair of the outputs projected on leading eigenvectors.

    Args:
        gram: (n, n) inner products, positive semidefinite but for their error.
        error: Bound on the relative error of any of them.
        tail_mass: Probability that may be left out.

    Returns:
        The pair, or None where shifts are too large, or too inaccurate, or on a line.
    """
    values, vectors = np.linalg.eigh(gram)
    kept = np.flatnonzero(values > _LEAST_EIGENVALUE * values[-1])[-_DIMENSIONS:]
    if kept.size == 1:
        return None
    weights = vectors[:, kept[::-1]] / np.sqrt(values[kept[::-1]])
    # Whatever the weights are: what is seen has means M, the covariance C = L Lᵀ.
    means = gram @ weights
    root = np.linalg.cholesky(weights.T @ means)
    shifts = np.linalg.solve(root, means.T).T
    # C is off by that much of |W|ᵀ G |W|, and L⁻¹ is the identity, nearly.
    rounding = error + 4 * (len(gram) + 16) * floats.UNIT_ROUNDOFF
    sizes = gram @ np.abs(weights)
    off = 4 * rounding * float((np.abs(weights).T @ sizes).sum())
    shift_off = 4 * rounding * float(sizes.max()) + off * float(np.abs(shifts).max())
    if np.abs(shifts).max() > _LARGEST_SHIFT:
        return None
    return _cells_below(shifts, off, shift_off, tail_mass)


def _cells_below(
    shifts: FloatArray, covariance_error: float, shift_error: float, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns the pair of cells of an even mixture of N(shift, I) against N(0, I).

    Args:
        shifts: (n, m) shifts.
        covariance_error: Bound on the sum of what the entries of the covariance differ
            from those of I.
        shift_error: Bound on the error of any shift.
        tail_mass: Probability that may be left out.

    Returns:
        The pair, or None where the errors are too large.
    """
    count, dimensions = shifts.shape
    reach = -float(special.ndtri(max(tail_mass / dimensions, floats.TINY)))
    # Of all boxes with as many cells, these lose least of the shifts' squares.
    sizes = np.sqrt((shifts**2).sum(axis=0))
    widths = _CELL * max(reach / 10, 1.0) * np.minimum(sizes[0] / sizes, _WIDEST)
    p_parts, q_parts, mass_error, furthest = [], [], 0.0, 0.0
    for column, width in zip(shifts.T, widths.tolist(), strict=True):
        low, high = min(column.min(), 0.0) - reach, max(column.max(), 0.0) + reach
        ends = np.linspace(low, high, math.ceil((high - low) / width) + 1)
        masses, off = normal_masses(ends, np.append(0.0, column))
        p_parts.append(masses[1:])
        q_parts.append(masses[0])
        mass_error += off
        furthest = max(furthest, float(high - low))
    p = np.zeros((p_parts[0].shape[1], math.prod(x.shape[1] for x in p_parts[1:])))
    for start in range(0, count, _ROWS):
        rows = slice(start, start + _ROWS)
        others = np.ones((len(p_parts[0][rows]), 1))
        for part in p_parts[1:]:
            products = others[:, :, np.newaxis] * part[rows, np.newaxis, :]
            others = products.reshape(len(others), -1)
        p += p_parts[0][rows].T @ others
    q = functools.reduce(np.multiply.outer, q_parts)
    mass_error += (count + 16) * floats.UNIT_ROUNDOFF
    # Exponents of densities are off by the errors' products with what they are of.
    off = covariance_error * dimensions * furthest**2
    off += shift_error * dimensions * furthest
    if off > _LARGEST_ERROR:
        return None
    return _grouped(p.ravel() / count, q.ravel(), mass_error + floats.raised(off))


def normal_masses(ends: FloatArray, shifts: FloatArray) -> tuple[FloatArray, float]:
    """Returns (k, n) masses of N(shift, 1) between n + 1 ends, and their error.

    Args:
        ends: (n + 1,) increasing.
        shifts: (k,) shifts.
    """
    places = ends - shifts[:, np.newaxis]
    # By the nearer tail, so that no digit is lost. The error of the larger one counts.
    tails = special.ndtr(-np.abs(places))
    same = (places[:, :-1] < 0) == (places[:, 1:] < 0)
    apart = np.abs(np.diff(tails, axis=1))
    masses = np.where(same, apart, 1 - tails[:, :-1] - tails[:, 1:])
    sizes = np.where(same, np.maximum(tails[:, :-1], tails[:, 1:]), 1.0)
    away = np.minimum(np.abs(places[:, :-1]), np.abs(places[:, 1:]))
    # A place is off by a rounding of its ends.
    each = (
        2 * normal_cells.tail_error(away) + 8 * (1 + away) ** 2 * floats.UNIT_ROUNDOFF
    )
    each *= sizes / np.maximum(masses, floats.TINY)
    likely = masses > floats.TINY
    return np.where(likely, masses, 0.0), float(each[likely].max(initial=0.0))


def _grouped(
    p: FloatArray, q: FloatArray, error: float
) -> dominating_pair.DominatingPair:
    """Returns the pair of outputs, those with nearly one ratio together.

    Args:
        p: (n,) their probabilities under P,
        q: and under Q.
        error: Bound on the relative error of any of these.
    """
    likely = np.minimum(p, q) > _LEAST_CELL
    p, q = p[likely], q[likely]
    groups = np.floor(np.log(p / q) / _RATIO_CELL).astype(np.int64)
    groups -= groups.min()
    numbers = np.bincount(groups)
    occupied = numbers > 0
    p = sums.gather_quickly(groups, p)[occupied]
    q = sums.gather_quickly(groups, q)[occupied]
    error += (int(numbers.max()) + 8) * floats.UNIT_ROUNDOFF
    return dominating_pair.DominatingPair(
        p / q,
        q,
        infinity_mass=0.0,
        zero_mass=0.0,
        bound=Bound.LOWER,
        mass_error=error,
        ratio_error=2 * error + 4 * floats.UNIT_ROUNDOFF,
    )


def _shifts(gram: FloatArray, weights: FloatArray, *, error: float) -> FloatArray:
    """Returns (b,) shifts of Σ w_i g_i over its deviation, rounded down.

    Args:
        gram: (b, b) inner products, at least 0.
        weights: (b,) at least 0, not all of them 0.
        error: Bound on the relative error of any product.
    """
    means = gram @ weights
    # Sums of positive terms; the root halves the error of what is below it.
    rounding = 2 * error + (4 * len(gram) + 16) * floats.UNIT_ROUNDOFF
    found = means / np.sqrt(weights @ means)
    return np.asarray(found * (1 - rounding))
