"""Pairs of what is known by its Rényi divergences alone.

Divergences of at most r(α) at orders α bound the profile at every κ: δ is at most the
least conversion. The profile is convex, so it lies below the convex minorant of that
bound as well; and that is a profile, the one of the pair made here.
"""

from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import profile_pairs

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]
Values = Sequence[float] | FloatArray

# Tuning: orders a factor 1.023 apart, so that δ = 1e-25 is at most 1 % too large.
ORDERS = tuple(float(1 + x) for x in np.geomspace(1e-3, 1e9, 1201))
_POINTS = 3000
_MOST_AT_ONCE = 256
_LARGEST_LOSS = 690.0  # Certified: beyond, a ratio leaves the range of floats.
_BISECTIONS = 60
_SMALLEST_REACH = 1e-14
_SMALLEST_LOG_MASS = -640.0  # Certified: beyond, a mass leaves the range of floats.
# Certified: of an exponent of e, whose terms add up to at most so many times 1 + |e|.
_ROUNDING = 64 * dominating_pair.UNIT_ROUNDOFF


def log_delta(
    orders: Sequence[float], values: Values, epsilons: FloatArray
) -> FloatArray:
    """Returns (n,) logarithms of an upper bound on δ at ε ≥ 0.

    The least over the orders of the conversion, and of what the total variation is at
    most by Pinsker's and by Bretagnolle and Huber's inequality.

    Args:
        orders: (k,) orders above 1.
        values: (k,) bounds on the divergences in either direction; inf where unknown.
        epsilons: (n,) ε, in nats.

    Source:
        Canonne et al. 2020, https://arxiv.org/abs/2004.00010, Proposition 12 (the
        conversion).
    """
    known = np.isfinite(values)
    alpha, bounds = np.asarray(orders)[known], np.asarray(values)[known]
    if not alpha.size:
        return np.zeros(epsilons.size)
    constants = (alpha - 1) * (bounds + np.log1p(-1 / alpha)) - np.log(alpha)
    sizes = (alpha - 1) * (bounds - np.log1p(-1 / alpha)) + np.log(alpha)
    least = float(bounds.min())
    variation = min(-math.expm1(-least), least / 2) * (1 + _ROUNDING)
    found = np.full(
        epsilons.size, 0.5 * math.log(variation) if variation > 0 else -math.inf
    )
    found += _ROUNDING * (1 + np.abs(found)) if variation > 0 else 0.0
    for start in range(0, epsilons.size, _MOST_AT_ONCE):
        part = slice(start, start + _MOST_AT_ONCE)
        moved = epsilons[part, np.newaxis] * (alpha - 1)
        exponents = constants - moved + _ROUNDING * (1 + sizes + moved)
        found[part] = np.minimum(found[part], exponents.min(axis=1))
    capped: FloatArray = np.minimum(found, 0.0)
    return capped


def dominating_pair_of(
    orders: Sequence[float], values: Values, *, tail_mass: float
) -> dominating_pair.DominatingPair:
    """Returns an upper pair of a mechanism that is known by its Rényi divergences.

    Args:
        orders: (k,) orders above 1.
        values: (k,) bounds on the divergences in either direction; inf where unknown.
        tail_mass: Probability that may be moved to either sink.

    Guarantees:
        Where the profile is asked it is at least the least conversion, and at most a
        chord of it: it is checked at every atom, by sums of positive terms.

    Source:
        https://arxiv.org/abs/2106.08567, Proposition 11 (profiles that belong to a
        pair); the conversion as in `log_delta`.
    """
    reach = _reach(orders, values, math.log(tail_mass))
    epsilons = np.linspace(0.0, reach, _POINTS)
    deltas = np.exp(log_delta(orders, values, epsilons))
    if deltas[0] == 0:
        return dominating_pair.identity_pair(Bound.UPPER)
    return profile_pairs.symmetric(np.exp(epsilons), deltas)


def _reach(orders: Sequence[float], values: Values, goal: float) -> float:
    """Returns the ε from which on ln δ is at most a goal, or the largest there is."""

    def reached(epsilon: float) -> bool:
        found = float(log_delta(orders, values, np.array([epsilon]))[0])
        return found <= goal or found - epsilon <= _SMALLEST_LOG_MASS

    low, high = 0.0, _LARGEST_LOSS
    if not reached(high):
        return high
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if reached(middle) else (middle, high)
    return max(high, _SMALLEST_REACH)
