"""Compositions whose tail one large loss makes, which no tilt shows.

A tilt shows where a sum is likely under it. Where the chance of a loss falls more slowly
than any exponential (one of many steps, and a rare one tells much), every tilt shows
the bulk or the largest losses, and nothing between. So losses beyond a place that the
runs pass with a probability of about the root of δ are taken apart: a composition has
none of them, or one, or more, which is rarer than δ. With none, and beside the one, the
sum is light-tailed.

    δ(ε) = δ of the runs without + Σ_i n_i · δ of one large loss and n_i − 1 without
           + at most the chance of two

is exact but for the last term, as each tuple of losses is in one of the parts.
"""

from collections.abc import Callable
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
LossDistribution = loss_distribution.LossDistribution

# Tuning. Over the root of δ: how likely a run with a large loss is.
_LARGE = 1e-3
# How far Chernoff's bound at ε is above δ, in nats, where one large loss makes it.
_HEAVY = 12.0
_TRIES = 12  # Of the search for ε, and
_CLOSE = 1e-7  # how near its ends may be, relatively.


class Composition:
    """The composition of privacy losses in one direction, heavy-tailed ones too.

    Args:
        laws: All upper or all lower bounds.
        interval: The loss interval, in nats, at most.

    Guarantees:
        `delta` and `epsilon` are on the side of `laws`, whatever the interval.
    """

    def __init__(self, laws: Sequence[LossDistribution], interval: float) -> None:
        self._laws = laws
        self._interval = interval
        self._whole = composed_loss.ComposedLoss(laws, interval)

    def delta(self, epsilon: float) -> float:
        """Returns a certified δ at ε, in nats."""
        delta = self._whole.delta(epsilon)
        if not self._whole.is_heavy(epsilon, delta, _HEAVY):
            return delta
        return self._better(delta, self._apart(epsilon, delta))

    def epsilon(self, delta: float) -> float:
        """Returns a certified ε ≥ 0 at δ in (0, 1), in nats."""
        epsilon = self._whole.epsilon(delta)
        if not epsilon < math.inf or not self._laws:
            return epsilon
        # Where one large loss makes the tail, it alone makes nearly all of ε.
        place = max(epsilon, *(self._of_one(law, delta) for law in self._laws))
        if not place or not self._whole.is_heavy(place, delta, _HEAVY):
            return epsilon
        return self._better(epsilon, self._search(place, delta))

    def _of_one(self, law: LossDistribution, delta: float) -> float:
        """Returns about ε of one run at its share of δ; 0 where it is infinite."""
        one = dataclasses.replace(law, count=1)
        epsilon = self._composed([one]).epsilon(delta / law.count)
        return epsilon if epsilon < math.inf else 0.0

    def _better(self, first: float, second: float) -> float:
        upper = self._laws[0].bound is Bound.UPPER
        return min(first, second) if upper else max(first, second)

    def _apart(self, epsilon: float, about: float) -> float:
        """Returns δ at ε with large losses apart, fit for a δ of about so much."""
        parts = [_split(law, _LARGE * math.sqrt(about)) for law in self._laws]
        bulks = [bulk for bulk, _, _ in parts]
        total = self._delta_of(bulks, epsilon)
        for index, (bulk, large, _) in enumerate(parts):
            if large is None:
                continue
            others = [*bulks[:index], *bulks[index + 1 :]]
            if bulk.count > 1:
                others.append(dataclasses.replace(bulk, count=bulk.count - 1))
            total += bulk.count * self._delta_of([*others, large], epsilon)
        if self._laws[0].bound is Bound.LOWER:
            return floats.lowered(total)
        chance = floats.raised(sum(b.count * chance for b, _, chance in parts))
        return min(floats.raised(total + chance**2 / 2), 1.0)

    def _composed(self, laws: Sequence[LossDistribution]) -> composed_loss.ComposedLoss:
        return composed_loss.ComposedLoss(laws, self._interval)

    def _delta_of(self, laws: Sequence[LossDistribution], epsilon: float) -> float:
        return self._composed(laws).delta(epsilon)

    def _search(self, start: float, delta: float) -> float:
        """Returns ε at δ, on its side: every one is checked by its own δ."""
        upper = self._laws[0].bound is Bound.UPPER

        def excess(epsilon: float) -> float:
            found = self._apart(epsilon, delta)
            return math.log(found / delta) if found > 0 else -math.inf

        return _root(excess, start, upper=upper)


def _split(
    law: LossDistribution, chance: float
) -> tuple[LossDistribution, LossDistribution | None, float]:
    """Returns a law without large losses, they alone, and one run's chance of them."""
    above = np.cumsum(law.masses[::-1])[::-1] * law.count
    first = int(np.searchsorted(-above, -chance, side="right"))
    first = max(first, 1)
    if first >= law.losses.size:
        return law, None, 0.0
    bulk = dataclasses.replace(
        law, losses=law.losses[:first], masses=law.masses[:first]
    )
    large = dataclasses.replace(
        law,
        losses=law.losses[first:],
        masses=law.masses[first:],
        infinity_mass=0.0,
        count=1,
    )
    # An infinite loss is the bulk's; two large ones are rarer than their squared rate.
    return bulk, large, floats.raised(float(large.masses.sum()))


def _root(excess: Callable[[float], float], start: float, *, upper: bool) -> float:
    """Returns where a decreasing function is zero, nearly: from above, or from below.

    Args:
        excess: The function; only places where it was evaluated are returned.
        start: A place, positive.
        upper: Whether it must be ≤ 0 at the result, or ≥ 0.

    Returns:
        Such a place; inf (upper) or 0 (lower) where none was found.
    """
    low, high = 0.0, math.inf
    at_low = at_high = math.nan
    place = start
    for _ in range(_TRIES):
        value = excess(place)
        if value >= 0:
            low, at_low = place, value
        if value <= 0:
            high, at_high = place, value
        if math.isfinite(high) and high - low <= _CLOSE * high:
            break
        place = _next(low, at_low, high, at_high)
    return high if upper else low


def _next(low: float, at_low: float, high: float, at_high: float) -> float:
    """Returns where to look between two places, or beyond the one that is known."""
    if math.isinf(high):
        return 1.5 * low
    if not at_low > 0 or math.isinf(at_high):
        return (low + high) / 2 if low else high / 1.5
    share = at_low / (at_low - at_high)
    # Away from the ends, or the search stays on one side.
    return low + min(max(share, 0.02), 0.98) * (high - low)
