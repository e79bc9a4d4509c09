"""Pairs of what is known by its Rényi divergences alone.

Divergences of at most r(α) at orders α bound the profile at every κ: δ is at most the
least conversion. The profile is convex, so it lies below the convex minorant of that
bound as well; and that is a profile, the one of the pair made here.
"""

from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.pairs import dominating_pair

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
    corners = _corners(np.exp(epsilons), deltas)
    return _symmetric_pair(np.exp(epsilons)[corners], deltas[corners])


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


def _corners(kappas: FloatArray, deltas: FloatArray) -> npt.NDArray[np.int64]:
    """Returns the indices of the corners, at κ ≥ 1, of a convex minorant.

    The function goes on below 1 as the profile of two datasets exchanged does, with
    the inverse of every corner for a corner. From the inverse of the first corner to
    itself it is a line, no steeper than the next.

    Args:
        kappas: (n,) places, increasing from 1.
        deltas: (n,) values there, decreasing.
    """
    corners: list[int] = []

    def slope(i: int, j: int) -> float:
        return float((deltas[j] - deltas[i]) / (kappas[j] - kappas[i]))

    for place in range(kappas.size):
        while len(corners) > 1 and slope(corners[-2], corners[-1]) >= slope(
            corners[-1], place
        ):
            corners.pop()
        corners.append(place)
    first = 0
    while first + 1 < len(corners):
        here = corners[first]
        if slope(here, corners[first + 1]) >= -(1 - deltas[here]) / (kappas[here] + 1):
            break
        first += 1
    return np.array(corners[first:], dtype=np.int64)


def _symmetric_pair(
    kappas: FloatArray, deltas: FloatArray
) -> dominating_pair.DominatingPair:
    """Returns a pair, the same both ways, whose profile is nowhere below corners.

    Args:
        kappas: (n,) places of the corners, increasing from 1 or more.
        deltas: (n,) values there, of a convex function.
    """
    slopes = np.append(np.diff(deltas) / np.diff(kappas), 0.0)
    before = np.append(-(1 - deltas[0]) / (kappas[0] + 1), slopes[:-1])
    masses = np.maximum(slopes - before, 0.0)
    twins = (kappas * masses)[::-1]
    ratios = np.concatenate([1 / kappas[::-1], kappas])
    masses = np.concatenate([twins, masses])
    sink = float(deltas[-1])
    # The check: what the atoms give, by sums of positive terms, where lines meet.
    above = np.cumsum(masses[:0:-1])[::-1]
    found = sink + np.append(np.cumsum((np.diff(ratios) * above)[::-1])[::-1], 0.0)
    goals = np.concatenate([1 - (1 - deltas[::-1]) / kappas[::-1], deltas])
    whole = sink + float((masses * ratios).sum())
    lacking = max(float((goals / found).max()) - 1, 1 / whole - 1, 0.0)
    rounding = 8 * (ratios.size + 16) * dominating_pair.UNIT_ROUNDOFF
    return dominating_pair.DominatingPair(
        ratios,
        masses,
        infinity_mass=sink,
        zero_mass=sink,
        bound=Bound.UPPER,
        mass_error=lacking + rounding,
        ratio_error=rounding,
    )
