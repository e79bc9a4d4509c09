"""From Rényi divergences to ε and δ.

Let Z = dP/dQ under Q, which has mean 1. Let ρ be a bound on the divergence of order α,
so that M = e^{(α − 1) ρ} bounds the mean of Z^α. Two functions of Z are at least (Z −
κ)₊ for every Z, and bounds on their means are known:

    (1 − 1/α)^{α − 1} κ^{1 − α} Z^α / α,    of mean (…) M;
    (Z^α − 1 − α (Z − 1)) / (α (w − 1)),    of mean (M − 1) / (α (w − 1)),

The second one holds for any w > 1, with κ = (1 − 1/α) (w^{α / (α − 1)} − 1) / (w − 1).
At Z = 1, where the record changes nothing, the second function is zero but the first is
not. So the second one is better if the record rarely takes part: M is then near 1, and
M − 1 small compared with δ.
"""

from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Certified: the rounding error of a conversion, relative to the sizes of its terms.
_ROUNDING = 64 * floats.UNIT_ROUNDOFF
# Tuning: at a smaller ε, κ − 1 is lost to rounding. Newton's method needs this many
# steps for all digits of log z.
_SMALLEST_EPSILON, _NEWTON_STEPS = 1e-12, 4
# Products of orders and losses up to this limit do not overflow.
_MOST = 1e150


def epsilon(
    orders: Sequence[float], curve: Sequence[float] | FloatArray, target_delta: float
) -> tuple[float, float]:
    """Returns ε at δ, rounded up, and the order that gives it.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        target_delta: δ ≥ 0.

    Source:
        https://arxiv.org/abs/2004.00010, Proposition 12; docs/mathematics.md, "From
        Rényi divergences to ε"; ε = 0 where the total variation is at most δ, by
        Pinsker's or by Bretagnolle and Huber's inequality.
    """
    best = math.inf, 0.0
    alpha, values = np.asarray(orders, np.float64), np.asarray(curve, np.float64)
    variations = _square_of_variation(values).tolist()
    others = [math.inf] * len(variations)
    if target_delta > 0:
        others = _epsilons_of_excess(alpha, values, target_delta).tolist()
    for order, rdp, variation, other in zip(
        orders, curve, variations, others, strict=True
    ):
        if target_delta**2 * (1 - _ROUNDING) >= variation:
            if target_delta or rdp == 0:
                best = min(best, (0.0, order))
        elif math.isinf(order):
            best = min(best, (rdp, order))
        elif order > 1 and target_delta > 0:
            spread = math.log1p(-1 / order)
            tail = (math.log(target_delta) + math.log(order)) / (order - 1)
            rounding = _ROUNDING * (rdp - spread + abs(tail) + 1 / (order - 1))
            best = min(best, (rdp + spread - tail + rounding, order), (other, order))
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
        As for `epsilon`.
    """
    alpha, rdp = np.asarray(orders, np.float64), np.asarray(curve, np.float64)
    # A larger ε has no larger δ, and the products of this one with orders fit.
    limited = min(target_epsilon, _MOST)
    logs = np.fmin(
        log_deltas(alpha, rdp, np.array(limited)),
        _log_deltas_of_excess(alpha, rdp, limited),
    )
    # A smaller δ would be subnormal, and lose digits.
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
        https://arxiv.org/abs/2004.00010, Proposition 12, and the total variation.
    """
    # Terms that do not fit a float give no bound.
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
    """Returns bounds on the squared total variation, from divergences of any order.

    They are the inequalities of Pinsker and of Bretagnolle and Huber.
    """
    return np.asarray(np.minimum(-np.expm1(-rdp), rdp / 2) * (1 + _ROUNDING))


def _log_kappa(slopes: FloatArray, log_z: FloatArray) -> FloatArray:
    """Returns log κ of the second function, for w = e^{slope · log z}.

    It is convex in log z, and its derivative is between 1/2 and 1.

    Args:
        slopes: (n,) α − 1, positive.
        log_z: (n,) log z, positive.
    """
    # log((e^{αy} − 1) / (e^{(α − 1)y} − 1)), without exponentials that overflow.
    ratio = np.expm1(-(slopes + 1) * log_z) / np.expm1(-slopes * log_z)
    found: FloatArray = log_z + np.log(ratio) - np.log1p(1 / slopes)
    return found


def _epsilons_of_excess(
    orders: FloatArray, curve: FloatArray, target_delta: float
) -> FloatArray:
    """Returns the second function's (n,) bounds on ε at a δ > 0, rounded up.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        target_delta: δ > 0.
    """
    found = np.full(orders.shape, math.inf)
    says, moment = _of_use(orders, curve)
    order, moment, slope = orders[says], moment[says], orders[says] - 1
    log_excess = moment + np.log(-np.expm1(-moment))
    log_delta = math.log(target_delta)
    log_w_less_one = log_excess - np.log(order) - log_delta
    sizes = 1 + moment + np.abs(log_excess) + np.log(order) + abs(log_delta)
    log_w = np.logaddexp(0.0, log_w_less_one + _ROUNDING * sizes)
    log_z = log_w / slope * (1 + _ROUNDING)
    kept = (log_z > floats.SMALLEST_MASS) & (log_z < _MOST)
    log_z, slope = log_z[kept], slope[kept]
    rounding = _ROUNDING * (1 + log_z + np.log1p(1 / slope))
    found[np.flatnonzero(says)[kept]] = _log_kappa(slope, log_z) + rounding
    return found


def _of_use(orders: FloatArray, curve: FloatArray) -> tuple[BoolArray, FloatArray]:
    """Returns (n,) whether log M is positive and does not overflow, and (n,) log M."""
    slopes = orders - 1
    with np.errstate(over="ignore", invalid="ignore"):
        moments = slopes * curve
        return (moments > 0) & (moments < _MOST) & (slopes < _MOST), moments


def _log_deltas_of_excess(
    orders: FloatArray, curve: FloatArray, epsilon: float
) -> FloatArray:
    """Returns the second function's (n,) bounds on log δ at an ε, rounded up.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        epsilon: A finite ε ≥ 0.
    """
    found = np.full(orders.shape, math.inf)
    if not _SMALLEST_EPSILON < epsilon < _MOST:
        return found
    says, moment = _of_use(orders, curve)
    order, moment, slope = orders[says], moment[says], orders[says] - 1
    spread = np.log1p(1 / slope)
    # A start above the root: log κ is at least half of log z, and at least log z minus
    # the spread.
    log_z = np.minimum(2 * epsilon, epsilon + spread)
    for _ in range(_NEWTON_STEPS):
        above = _log_kappa(slope, log_z) - epsilon
        terms = [a / -np.expm1(-a * log_z) for a in (order, slope)]
        growth = np.clip(terms[0] - terms[1], 0.5, 1.0)
        log_z = np.maximum(log_z - above / growth, epsilon)
    # The result is at the root or below it, whatever the steps have found.
    rounding = _ROUNDING * (1 + log_z + spread)
    above = _log_kappa(slope, log_z) - epsilon + rounding
    log_z -= 2 * np.maximum(above, 0.0)
    kept = log_z > 0
    order, moment = order[kept], moment[kept]
    log_w = slope[kept] * log_z[kept]
    log_excess = moment + np.log(-np.expm1(-moment))
    rest = np.log(-np.expm1(-log_w))
    sizes = 1 + moment + np.abs(log_excess) + np.log(order) + log_w - rest
    logs = log_excess - np.log(order) - log_w - rest
    found[np.flatnonzero(says)[kept]] = logs + _ROUNDING * sizes
    return found
