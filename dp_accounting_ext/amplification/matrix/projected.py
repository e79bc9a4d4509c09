"""Correlated ratios from below: what a linear function of the outputs tells.

Under Q the outputs are N(0, I), under P they are N(m_i, I) for a random i. Whoever sees
no more than one linear function of them sees N(0, 1) or N(s_i, 1), once it is scaled to
variance one. By data processing that pair is dominated by the mechanism's, in both
directions. With g_i = m_i · y and T = Σ w_i g_i, the shifts are (G w)_i / √(wᵀ G w), G
the inner products of the m_i.

Shifts are rounded down: of s ≥ 0 the ratio Σ p_i e^{s_i x − s_i² / 2} falls in the
convex order as the s_i s_j fall, by Kahane's inequality (docs/matrix.md).
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.pairs import gaussian_mixture

FloatArray = npt.NDArray[np.float64]

# A larger shift is lowered to it: ratios hold losses of up to 690 nats.
_LARGEST_SHIFT = 32.0
# Tuning: shifts that are nearer to each other than that, over the largest, are one.
_APART = 1e-6
# Tuning: steps towards the leading eigenvector of a Gram matrix.
_ITERATIONS = 16


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
        dominating_pair.Bound.LOWER,
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

    The weights of a projection are all one, or G's leading eigenvector: of a small
    variance the first is best, of a large one and many bands the second.

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
    return [
        mixture_below(_shifts(gram, weights, error=error), chances, tail_mass=tail_mass)
        for weights in (np.ones(bins), leading)
    ]


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
