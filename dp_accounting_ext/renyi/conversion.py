"""From Rényi divergences to ε and δ."""

from collections.abc import Sequence
import math

from dp_accounting_ext.renyi import divergence

FloatArray = divergence.FloatArray

# Certified: roundings of a conversion, relative to the terms that are added up.
_ROUNDING = 16 * 2.0**-53
# Certified: above the exponents of numbers that are no full floats.
_LEAST_EXPONENT = -700.0
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
        variation is at most δ by the inequality of Bretagnolle and Huber.
    """
    best = math.inf, 0.0
    for order, rdp in zip(orders, curve, strict=True):
        # δ² ≥ 1 − e^{−D}, of any D above that of order one.
        if target_delta**2 * (1 - _ROUNDING) >= -math.expm1(-rdp) * (1 + _ROUNDING):
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
    best = math.inf, 0.0
    for order, rdp in zip(orders, curve, strict=True):
        found = math.sqrt(-math.expm1(-rdp)) * (1 + _ROUNDING)
        if rdp < math.inf and target_epsilon == math.inf:
            found = 0.0
        elif math.isinf(order):
            found = 0.0 if rdp <= target_epsilon else found
        elif order > _LEAST_ORDER and rdp < math.inf:
            gap, slope = rdp - target_epsilon + math.log1p(-1 / order), order - 1
            size = slope * (rdp + target_epsilon + 1 / slope) + math.log(order)
            exponent = slope * gap - math.log(order) + _ROUNDING * size
            found = min(found, math.exp(min(max(exponent, _LEAST_EXPONENT), 0.0)))
        best = min(best, (found, order))
    return min(best[0], 1.0), best[1]
