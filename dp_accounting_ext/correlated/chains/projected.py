"""Lower bounds for correlated ratios, from a few linear functions of the outputs.

Under Q the outputs are N(0, I). Under P they are N(m_i, I) for a random i. A linear
function of the outputs, scaled to variance one, is N(0, 1) under Q and N(s_i, 1) under
P. By data processing, the mechanism dominates this pair, in both directions. Let G be
the inner products of the m_i, and g_i = m_i · y. The function T = Σ w_i g_i has the
shifts s_i = (G w)_i / √(wᵀ G w).

Several such functions are scaled to independent coordinates, and cut into cells. The
cell is a function of the outputs, too.

Shifts on a line are rounded down: for s_i ≥ 0 the ratio Σ p_i e^{s_i x − s_i² / 2}
decreases in the convex order if the products s_i s_j decrease, by Kahane's inequality
(docs/matrix.md).
"""

from collections.abc import Sequence
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
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import profile_pairs

# Larger shifts are lowered to this one, as ratios hold losses of up to 690 nats.
_LARGEST_SHIFT = 32.0
# Shifts whose distance is below this share of the largest are merged.
_APART = 1e-6
# The number of iterations for the leading eigenvector of a Gram matrix. Any vector has
# a lower bound.
_ITERATIONS = 16
# Tuning, all of these constants.
# The largest number of eigenvectors. With a fourth one ε is 1 % higher, in ten times
# the time.
_DIMENSIONS = 3
# The width of cells in the direction of the first eigenvector, in standard deviations,
# and the largest multiple of it in other directions.
_CELL, _WIDEST = 0.25, 6.0
_RATIO_CELL = 0.003  # The width of cells of log ratios.

# A limit of time: eigenvectors are not used for more bins.
_MOST_BINS = 1024
# Smaller shares of the largest eigenvalue are not used, so that weights stay moderate.
_LEAST_EIGENVALUE = 1e-4
# A limit of memory: the number of shifts in a product of matrices.
_ROWS = 256
# Cells with smaller masses are left out. They are far above the masses below 1e-280
# that are left out on each line.
_LEAST_CELL = 1e-260
# The largest error of the logarithm of a density for which a projection is used.
_LARGEST_ERROR = 1e-4


def largest(
    bounds: Sequence[dominating_pair.DirectedPairs],
) -> dominating_pair.DirectedPairs:
    """Returns the pairs of the largest of several lower bounds, at each ε."""
    add = [dominating_pair.dual(pairs.add) for pairs in bounds]
    return dominating_pair.DirectedPairs(
        profile_pairs.largest_below([pairs.remove for pairs in bounds]),
        dominating_pair.dual(profile_pairs.largest_below(add)),
    )


def mixture_below(
    shifts: FloatArray,
    probabilities: FloatArray,
    *,
    tail_mass: float,
    probability_error: float = 0.0,
) -> dominating_pair.DominatingPair:
    """Returns a pair dominated by Σ probability · N(shift, 1) against N(0, 1).

    Args:
        shifts: (n,) shifts over the noise's standard deviation, at least 0, rounded
            down.
        probabilities: (n,) probabilities of the shifts, which sum to one.
        tail_mass: Probability that may be left out on either side.
        probability_error: Bound on the relative error of any of the probabilities,
            beyond a few thousand roundings.

    Returns:
        A pair for both directions.

    Raises:
        ValueError: If a shift is negative, or a probability is.
    """
    if not (shifts >= 0).all() or not (probabilities >= 0).all():
        raise ValueError(
            "shifts and probabilities must be at least 0. "
            f"Found {np.min(shifts)} and {np.min(probabilities)}."
        )
    shifts = np.minimum(shifts, _LARGEST_SHIFT)
    order = np.argsort(shifts, kind="stable")
    shifts, probabilities = _gathered(shifts[order], probabilities[order])
    law = tuple(zip(shifts.tolist(), probabilities.tolist(), strict=True))
    pair = gaussian.of_mixtures(law, ((0.0, 1.0),), Bound.LOWER, tail_mass=tail_mass)
    error = pair.ratio_error + probability_error
    return dataclasses.replace(pair, ratio_error=error)


def _gathered(
    shifts: FloatArray, probabilities: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns fewer shifts, each at most those that it replaces, with probabilities.

    A negligible probability is added to that of the next smaller shift. The lowest
    shift has a positive probability, so that no logarithm is that of zero.

    Args:
        shifts: (n,) increasing.
        probabilities: (n,) probabilities of the shifts.
    """
    near = shifts - _APART * shifts[-1:]
    starts = np.unique(np.searchsorted(shifts, near))
    shifts, probabilities = shifts[starts], np.add.reduceat(probabilities, starts)
    likely = probabilities >= floats.TINY
    likely[0] = True
    gathered = sums.gather(np.cumsum(likely) - 1, probabilities)
    return shifts[likely], np.maximum(gathered, floats.TINY)


def of_gram(
    gram: FloatArray, *, error: float, tail_mass: float
) -> list[dominating_pair.DominatingPair]:
    """Returns pairs dominated by the mean of b correlated ratios.

    They are the pairs of projections on a line, whose weights are all one or are G's
    leading eigenvector, and of the projection on the three leading eigenvectors.

    Args:
        gram: (b, b) inner products G, at least 0, positive on the diagonal.
        error: Bound on the relative error of any of them.
        tail_mass: Probability that may be left out of each pair.
    """
    bins = len(gram)
    probabilities = np.full(bins, 1 / bins)
    leading = np.ones(bins)
    for _ in range(_ITERATIONS):
        leading = gram @ leading
        leading /= leading.max()
    pairs = [
        mixture_below(
            _shifts(gram, weights, error=error), probabilities, tail_mass=tail_mass
        )
        for weights in (np.ones(bins), leading)
    ]
    several = _on_eigenvectors(gram, error, tail_mass) if bins <= _MOST_BINS else None
    return pairs if several is None else [*pairs, several]


def _on_eigenvectors(
    gram: FloatArray, error: float, tail_mass: float
) -> dominating_pair.DominatingPair | None:
    """Returns the lower pair of the outputs projected on leading eigenvectors.

    Args:
        gram: (n, n) inner products, positive semidefinite but for their error.
        error: Bound on the relative error of any of them.
        tail_mass: Probability that may be left out.

    Returns:
        The pair, or None if shifts are too large or too inaccurate, or if there is only
        one eigenvector.
    """
    values, vectors = np.linalg.eigh(gram)
    leading = np.flatnonzero(values > _LEAST_EIGENVALUE * values[-1])[-_DIMENSIONS:]
    if leading.size == 1:
        return None
    weights = vectors[:, leading[::-1]] / np.sqrt(values[leading[::-1]])
    # Whatever the weights are, the projection has means M and the covariance C = L Lᵀ.
    means = gram @ weights
    root = np.linalg.cholesky(weights.T @ means)
    shifts = np.linalg.solve(root, means.T).T
    # The error of C is at most this share of |W|ᵀ G |W|, and L⁻¹ is nearly the
    # identity.
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
        covariance_error: A bound on the sum of the distances of the covariance's
            entries from those of I.
        shift_error: Bound on the error of any shift.
        tail_mass: Probability that may be left out.

    Returns:
        The pair, or None if the errors are too large.
    """
    count, dimensions = shifts.shape
    reach = -float(special.ndtri(max(tail_mass / dimensions, floats.TINY)))
    # Among all boxes with this number of cells, these keep most of the squared shifts.
    sizes = np.sqrt((shifts**2).sum(axis=0))
    widths = _CELL * max(reach / 10, 1.0) * np.minimum(sizes[0] / sizes, _WIDEST)
    p_parts, q_parts, mass_error, furthest = [], [], 0.0, 0.0
    for column, width in zip(shifts.T, widths.tolist(), strict=True):
        low, high = min(column.min(), 0.0) - reach, max(column.max(), 0.0) + reach
        ends = np.linspace(low, high, math.ceil((high - low) / width) + 1)
        masses, error = normal_masses(ends, np.append(0.0, column))
        p_parts.append(masses[1:])
        q_parts.append(masses[0])
        mass_error += error
        furthest = max(furthest, float(high - low))
    p = np.zeros(
        (p_parts[0].shape[1], math.prod(masses.shape[1] for masses in p_parts[1:]))
    )
    for start in range(0, count, _ROWS):
        rows = slice(start, start + _ROWS)
        others = np.ones((len(p_parts[0][rows]), 1))
        for masses in p_parts[1:]:
            products = others[:, :, np.newaxis] * masses[rows, np.newaxis, :]
            others = products.reshape(len(others), -1)
        p += p_parts[0][rows].T @ others
    q = functools.reduce(np.multiply.outer, q_parts)
    mass_error += (count + 16) * floats.UNIT_ROUNDOFF
    # The error of the exponents of densities, which are bilinear in outputs and shifts.
    error = covariance_error * dimensions * furthest**2
    error += shift_error * dimensions * furthest
    if error > _LARGEST_ERROR:
        return None
    return _grouped(p.ravel() / count, q.ravel(), mass_error + floats.raised(error))


def normal_masses(ends: FloatArray, shifts: FloatArray) -> tuple[FloatArray, float]:
    """Returns (k, n) masses of N(shift, 1) between n + 1 ends, and their error.

    Args:
        ends: (n + 1,) increasing.
        shifts: (k,) shifts.
    """
    places = ends - shifts[:, np.newaxis]
    # From the nearer tails, so that no digits cancel. The error is that of the larger
    # one.
    tails = special.ndtr(-np.abs(places))
    is_on_one_side = (places[:, :-1] < 0) == (places[:, 1:] < 0)
    differences = np.abs(np.diff(tails, axis=1))
    masses = np.where(is_on_one_side, differences, 1 - tails[:, :-1] - tails[:, 1:])
    sizes = np.where(is_on_one_side, np.maximum(tails[:, :-1], tails[:, 1:]), 1.0)
    nearest = np.minimum(np.abs(places[:, :-1]), np.abs(places[:, 1:]))
    # Each place has the rounding error of its end.
    errors = 2 * floats.normal_tail_error(nearest)
    errors += 8 * (1 + nearest) ** 2 * floats.UNIT_ROUNDOFF
    errors *= sizes / np.maximum(masses, floats.TINY)
    likely = masses > floats.TINY
    return np.where(likely, masses, 0.0), float(errors[likely].max(initial=0.0))


def _grouped(
    p: FloatArray, q: FloatArray, error: float
) -> dominating_pair.DominatingPair:
    """Returns the pair of outputs, those with nearly equal ratios merged.

    Args:
        p: (n,) probabilities of the outputs under P.
        q: (n,) probabilities of the outputs under Q.
        error: A bound on the relative error of each probability.
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
    # All are sums of positive terms. The root halves the error of its argument.
    rounding = 2 * error + (4 * len(gram) + 16) * floats.UNIT_ROUNDOFF
    shifts = means / np.sqrt(weights @ means)
    return np.asarray(shifts * (1 - rounding))
