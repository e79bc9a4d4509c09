"""From Rényi divergences to ε and δ."""

from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.kernel import floats
from dp_accounting_ext.renyi import divergence

FloatArray = divergence.FloatArray

# Certified: roundings of a conversion, relative to the terms that are added up.
_ROUNDING = 64 * floats.UNIT_ROUNDOFF


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
        elif order > 1 and target_delta > 0:
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
    # A larger ε has no larger δ, and the products of this one with orders fit.
    logs = log_deltas(alpha, rdp, np.array(min(target_epsilon, 1e150)))
    # What is less is no full float.
    found = np.exp(np.maximum(logs, -floats.LARGEST_EXPONENT))
    found[rdp == 0] = 0.0
    is_infinite = np.isinf(alpha) | math.isinf(target_epsilon)
    found[is_infinite & (rdp <= target_epsilon) & (rdp < math.inf)] = 0.0
    place = int(np.argmin(found))
    return float(found[place]), float(orders[place])


def log_deltas(
    orders: FloatArray, curve: FloatArray, epsilons: FloatArray
) -> FloatArray:
    """Returns (…, n) logarithms of bounds on δ, one for each order, rounded up.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        epsilons: (…, 1) finite ε ≥ 0.

    Source:
        As of `epsilon`.
    """
    # What does not fit says nothing.
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        variations = np.log(_square_of_variation(curve)) / 2
        variations += _ROUNDING * (1 + np.abs(variations))
        slopes = orders - 1
        constants = slopes * (curve + np.log1p(-1 / orders)) - np.log(orders)
        sizes = slopes * (curve - np.log1p(-1 / orders)) + np.log(orders)
        constants += _ROUNDING * (1 + sizes)
        exponents = constants - slopes * (1 - _ROUNDING) * epsilons
        found: FloatArray = np.fmin(np.fmin(exponents, variations), 0.0)
    return found


def _square_of_variation(rdp: FloatArray) -> FloatArray:
    """Returns bounds on the square of the total variation, of any order's divergence.

    By the inequalities of Pinsker, and of Bretagnolle and Huber.
    """
    return np.asarray(np.minimum(-np.expm1(-rdp), rdp / 2) * (1 + _ROUNDING))
