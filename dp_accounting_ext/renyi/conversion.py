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

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Certified: the rounding error of a conversion, relative to the sizes of its terms.
_ROUNDING = 64 * floats.UNIT_ROUNDOFF
# Tuning: the number of δ between which the profile that follows from divergences is
# taken to be a line, or a step.
POINTS = 1000
# Halvings after which ln δ has all its digits.
_HALVINGS = 64


def epsilon(
    orders: Sequence[float], curve: Sequence[float] | FloatArray, target_delta: float
) -> tuple[float, float]:
    """Returns ε at δ, rounded up, and the order that gives it.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        target_delta: δ ≥ 0.

    Source:
        As for `epsilons`.
    """
    candidates = epsilons(np.array(orders), np.array(curve), np.array(target_delta))
    place = int(np.argmin(candidates))
    best = float(candidates[place])
    return best, float(orders[place]) if best < math.inf else 0.0


def delta(
    orders: Sequence[float], curve: Sequence[float] | FloatArray, target_epsilon: float
) -> tuple[float, float]:
    """Returns δ at ε, rounded up, and the order that gives it.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        target_epsilon: ε ≥ 0, inf included.

    Source:
        As for `epsilons`.
    """
    alpha, rdp = np.array(orders, np.float64), np.array(curve, np.float64)
    # A smaller δ would be subnormal, and lose digits.
    low, high = np.full(alpha.size, -floats.LARGEST_EXPONENT), np.zeros(alpha.size)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        is_enough = epsilons(alpha, rdp, np.exp(middle)) <= target_epsilon
        low, high = np.where(is_enough, low, middle), np.where(is_enough, middle, high)
    candidates = np.exp(high)
    is_infinite = np.isinf(alpha) | math.isinf(target_epsilon)
    candidates[is_infinite & (rdp <= target_epsilon) & (rdp < math.inf)] = 0.0
    candidates[rdp == 0] = 0.0
    place = int(np.argmin(candidates))
    return float(candidates[place]), float(alpha[place])


def epsilons(orders: FloatArray, curve: FloatArray, deltas: FloatArray) -> FloatArray:
    """Returns (…, n) ε at δ, one for each order, rounded up; inf where none is known.

    Args:
        orders: (n,) orders α ≥ 1, inf included.
        curve: (n,) divergences.
        deltas: (…, 1) or (…, n) δ ≥ 0.

    Source:
        https://arxiv.org/abs/2004.00010, Proposition 12; docs/mathematics.md, "From
        Rényi divergences to ε"; ε = 0 where the total variation is at most δ, by
        Pinsker's or by Bretagnolle and Huber's inequality.
    """
    slopes = orders - 1
    # Terms that do not fit a float give no bound.
    with np.errstate(all="ignore"):
        log_deltas, spread = np.log(deltas), np.log1p(-1 / orders)
        tails = (log_deltas + np.log(orders)) / slopes
        rounding = _ROUNDING * (curve - spread + np.abs(tails) + 1 / slopes)
        of_moment = curve + spread - tails + rounding
        moments = slopes * curve
        excess = moments + np.log(-np.expm1(-moments))
        log_share = excess - np.log(orders) - log_deltas
        sizes = 1 + moments + np.abs(excess) + np.log(orders) + np.abs(log_deltas)
        log_w = np.logaddexp(0.0, log_share + _ROUNDING * sizes)
        log_z = log_w / slopes * (1 + _ROUNDING) + floats.SMALLEST_MASS
        # ln κ, without exponentials that overflow.
        ratio = np.expm1(-orders * log_z) / np.expm1(-slopes * log_z)
        of_excess = log_z + np.log(ratio) + spread
        of_excess += _ROUNDING * (1 + log_z - spread)
    best = np.fmin(of_moment, of_excess)
    best = np.where((orders > 1) & ~np.isnan(best), np.maximum(best, 0.0), math.inf)
    best = np.where(np.isinf(orders), curve, best)
    is_nothing = (deltas >= _variation(curve)) & ((deltas > 0) | (curve == 0))
    epsilons: FloatArray = np.where(is_nothing, 0.0, best)
    return epsilons


def _variation(rdp: FloatArray) -> FloatArray:
    """Returns bounds on the total variation, from divergences of any order.

    They are the inequalities of Pinsker and of Bretagnolle and Huber.
    """
    squared = np.minimum(-np.expm1(-rdp), rdp / 2)
    return np.minimum(np.sqrt(squared) * (1 + _ROUNDING), 1.0)
