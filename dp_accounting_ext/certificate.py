"""Certified bounds on the ε or δ of a composition, on both sides."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import math

from dp_accounting_ext import composition
from dp_accounting_ext import constructions
from dp_accounting_ext import dominating_pair
from dp_accounting_ext import loss_distribution
from dp_accounting_ext.mechanisms import gaussian

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Counts = Mapping[constructions.Construction, int]
LossDistribution = loss_distribution.LossDistribution

# Of δ, what tails may hold: this much of it moves ε by less than 1e-6 of it.
_TAIL_SHARE = 1e-6
_FIRST_GUESS = 1e-8
_SMALLEST_GUESS = 1e-270


def _tail_mass(counts: Counts, delta: float) -> float:
    """Returns the tail that each law may have: a power of ten, so laws are reused."""
    copies = max(sum(counts.values()), 1)
    exponent = math.floor(
        math.log10(max(delta, _SMALLEST_GUESS) * _TAIL_SHARE / copies)
    )
    return max(10.0**exponent, gaussian.SMALLEST_TAIL_MASS * 1e4)


def _mean(counts: Counts) -> float:
    """Returns m for which N(m, 1) against N(0, 1) dominates the composition."""
    return math.sqrt(sum(n * c.gaussian_precision() for c, n in counts.items()))


def _is_gaussian(counts: Counts) -> bool:
    """Tells whether that pair is the composition's own."""
    return bool(counts) and all(c.is_gaussian() for c in counts)


class Certificate:
    """Bounds for a composition, laws of which are made when they are asked for.

    Args:
        upper: What is composed, for the upper bound.
        lower: What is composed, for the lower bound; a part of it will do.
        interval: Largest loss interval of an upper bound, in nats. Lower bounds
            choose their own.
        others: Upper bounds of further losses in each direction.
    """

    def __init__(
        self,
        upper: Counts,
        lower: Counts,
        interval: float,
        others: Mapping[Direction, Sequence[LossDistribution]] | None = None,
    ) -> None:
        self._upper = upper
        self._lower = lower
        self._interval = interval
        self._others = others or {}

    def upper_epsilon(self, delta: float) -> float:
        """Returns an upper bound on ε at δ in (0, 1), in nats."""
        unamplified = math.inf
        if not self._others:
            # Closed, so it holds where a ratio does not fit a float.
            unamplified = gaussian.epsilon(_mean(self._upper), delta, Bound.UPPER)
            if _is_gaussian(self._upper):
                return unamplified
        tail_mass = _tail_mass(self._upper, delta)
        remove = self._upper_profile(Direction.REMOVE, tail_mass).epsilon(delta)
        # The other direction matters only where a quick bound does not rule it out.
        add = self._upper_profile(Direction.ADD, tail_mass, math.inf).epsilon(delta)
        if add > remove:
            add = min(add, self._upper_profile(Direction.ADD, tail_mass).epsilon(delta))
        return min(max(remove, add), unamplified)

    def lower_epsilon(self, delta: float) -> float:
        """Returns a lower bound on ε at δ in (0, 1), in nats."""
        if _is_gaussian(self._lower):
            return gaussian.epsilon(_mean(self._lower), delta, Bound.LOWER)
        tail_mass = _tail_mass(self._lower, delta)
        return max(
            self._lower_profile(direction, tail_mass).epsilon(delta)
            for direction in Direction
        )

    def upper_delta(self, epsilon: float) -> float:
        """Returns an upper bound on δ at finite ε."""
        unamplified = 1.0
        if not self._others:
            unamplified = gaussian.delta(_mean(self._upper), epsilon, Bound.UPPER)
            if _is_gaussian(self._upper):
                return unamplified
        return min(
            unamplified,
            self._at_its_own_tail(
                lambda guess: max(
                    self._upper_profile(
                        direction, _tail_mass(self._upper, guess)
                    ).delta(epsilon)
                    for direction in Direction
                )
            ),
        )

    def lower_delta(self, epsilon: float) -> float:
        """Returns a lower bound on δ at finite ε."""
        if _is_gaussian(self._lower):
            return gaussian.delta(_mean(self._lower), epsilon, Bound.LOWER)
        return self._at_its_own_tail(
            lambda guess: max(
                self._lower_profile(direction, _tail_mass(self._lower, guess)).delta(
                    epsilon
                )
                for direction in Direction
            )
        )

    def _at_its_own_tail(self, delta_at: Callable[[float], float]) -> float:
        """Returns δ from laws whose tails are small beside it.

        Each answer is certain; one that is no larger than its tails allow for is
        asked again of laws with smaller tails.
        """
        guess = _FIRST_GUESS
        while True:
            delta = delta_at(guess)
            if delta >= guess or guess <= _SMALLEST_GUESS:
                return delta
            guess = max(guess**2, _SMALLEST_GUESS)

    def _upper_profile(
        self, direction: Direction, tail_mass: float, interval: float | None = None
    ) -> composition.Composition:
        laws = [
            loss_distribution.from_pair(pair, direction, number)
            for construction, count in self._upper.items()
            for pair, number in construction.dominating(count, tail_mass)
        ]
        laws += self._others.get(direction, ())
        return composition.Composition(laws, interval or self._interval)

    def _lower_profile(
        self, direction: Direction, tail_mass: float
    ) -> composition.Composition:
        laws = [
            law
            for construction, count in self._lower.items()
            for law in construction.dominated(count, direction, tail_mass)
        ]
        return composition.Composition(laws, math.inf)
