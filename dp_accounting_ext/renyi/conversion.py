"""From Rényi divergences to ε and δ."""

from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.renyi import divergence

FloatArray = divergence.FloatArray

# Certified: roundings of a conversion, relative to the terms that are added up.
_ROUNDING = 16 * 2.0**-53
# Certified: above the exponents of numbers that are no full floats.
_LEAST_EXPONENT = -700.0
# Certified: a larger ε has no larger δ, and the products of this one with orders fit.
_LARGEST_EPSILON = 1e150
# Tuning: below it the conversion is worth nothing.
_LEAST_ORDER = 1.01


def epsilon(
    orders: Sequence[float], curve: Sequence[float] | FloatArray, target_delta: float
) -> tuple[float, float]:
    """Returns ε at δ, rounded up, and the order that gives it.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        target_delta: δ ≥ 0.

    Source:
        https://arxiv.org/abs/2004.00010, Proposition 12; ε = 0 where the total
        variation is at most δ, by Pinsker's or by Bretagnolle and Huber's inequality.
    """
    best = math.inf, 0.0
    variations = _square_of_variation(np.asarray(curve, np.float64)).tolist()
    for order, rdp, variation in zip(orders, curve, variations, strict=True):
        if target_delta**2 * (1 - _ROUNDING) >= variation:
            if target_delta or rdp == 0:
                best = min(best, (0.0, order))
        elif math.isinf(order):
            best = min(best, (rdp, order))
        elif order > _LEAST_ORDER and target_delta > 0:
            spread = math.log1p(-1 / order)
            tail = (math.log(target_delta) + math.log(order)) / (order - 1)
            rounding = _ROUNDING * (rdp - spread + abs(tail) + 1 / (order - 1))
            best = min(best, (rdp + spread - tail + rounding, order))
    return max(best[0], 0.0), best[1]


def delta(
    orders: Sequence[float], curve: Sequence[float] | FloatArray, target_epsilon: float
) -> tuple[float, float]:
    """Returns δ at ε, rounded up, and the order that gives it.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        target_epsilon: ε ≥ 0, inf included.

    Source:
        As of `epsilon`.
    """
    alpha, rdp = np.asarray(orders, np.float64), np.asarray(curve, np.float64)
    found = np.sqrt(_square_of_variation(rdp)) * (1 + _ROUNDING)
    if target_epsilon == math.inf:
        found = np.where(rdp < math.inf, 0.0, found)
    else:
        found[np.isinf(alpha) & (rdp <= target_epsilon)] = 0.0
        known = (alpha > _LEAST_ORDER) & (alpha < math.inf) & (rdp < math.inf)
        alpha, bounds, slope = alpha[known], rdp[known], alpha[known] - 1
        target = min(target_epsilon, _LARGEST_EPSILON)
        # What does not fit says nothing.
        with np.errstate(over="ignore", invalid="ignore"):
            gaps = bounds - target + np.log1p(-1 / alpha)
            sizes = slope * (bounds + target + 1 / slope) + np.log(alpha)
            exponents = slope * gaps - np.log(alpha) + _ROUNDING * sizes
            converted = np.exp(np.clip(exponents, _LEAST_EXPONENT, 0.0))
        found[known] = np.fmin(found[known], converted)
    place = int(np.argmin(found))
    return min(float(found[place]), 1.0), float(orders[place])


def _square_of_variation(rdp: FloatArray) -> FloatArray:
    """Returns bounds on the square of the total variation, of any order's divergence.

    By the inequalities of Pinsker, and of Bretagnolle and Huber.
    """
    return np.asarray(np.minimum(-np.expm1(-rdp), rdp / 2) * (1 + _ROUNDING))
