"""Certified bounds on the ε or δ of a composition, on both sides."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import itertools
import math

from dp_accounting_ext.composition import large_losses
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import gaussian_mixture
from dp_accounting_ext.pairs import neyman_pearson

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Counts = Mapping[interface.Mechanism, int]

# Of δ, what tails may hold: this much of it moves ε by less than 1e-6 of it.
_TAIL_SHARE = 1e-6
_FIRST_GUESS = 1e-8
_LARGE = 1e-3
_ABOVE_LOWER = (1.001, 1.1, 2.0, 10.0, 1e3, 1e6)
_SMALLEST_GUESS = 1e-270
# Of any two datasets δ is at least 1 − e^ε, here one but for 4e-18.
_LOWEST_EPSILON = -40.0


class PrivacyBounds:
    """Bounds for a composition, pairs of which are made when they are asked for.

    Args:
        counts: What is composed, and how often.
        interval: Largest loss interval of an upper bound, in nats. Lower bounds
            choose their own.
    """

    def __init__(self, counts: Counts, interval: float) -> None:
        self._interval = interval
        self._parts = {bound: compositions.flatten(counts, bound) for bound in Bound}
        reduced = compositions.flatten(counts, Bound.UPPER, reduced=True)
        # Each dominates what is composed: the least of both is a bound.
        self._alternatives = [self._parts[Bound.UPPER]]
        if reduced != self._parts[Bound.UPPER]:
            self._alternatives.append(reduced)
        self._precision = math.fsum(
            n * part.gaussian_precision() for part, n in counts.items()
        )
        self._largest_loss = interface.largest_loss_of(counts)
        self._directions = list(Direction)
        if all(part.is_symmetric() for part in counts):
            self._directions = [Direction.REMOVE]

    def upper_epsilon(self, delta: float) -> float:
        """Returns an upper bound on ε at δ in [0, 1), in nats."""
        if delta <= 0:
            return self._largest_loss
        noise = self._gaussian(Bound.UPPER)
        if self._has_closed_form(Bound.UPPER) and not noise:
            exact = neyman_pearson.epsilon(self._closed_form_delta, delta, Bound.UPPER)
            return min(self._largest_loss, self._unamplified_epsilon(delta), exact)
        # Closed, so they hold where a ratio does not fit a float.
        simple = min(self._largest_loss, self._unamplified_epsilon(delta))
        if noise or not self._parts[Bound.UPPER]:
            return simple
        remove = self._least_epsilon(Direction.REMOVE, delta)
        if Direction.ADD not in self._directions:
            return min(remove, simple)
        # The other direction matters only where a quick bound does not rule it out.
        add = self._profile(Bound.UPPER, Direction.ADD, delta, math.inf).epsilon(delta)
        if add > remove:
            add = min(add, self._least_epsilon(Direction.ADD, delta))
        return min(max(remove, add), simple)

    def _least_epsilon(self, direction: Direction, delta: float) -> float:
        """Returns the least upper bound on ε of one direction."""
        return min(
            self._profile(Bound.UPPER, direction, delta, parts=parts).epsilon(delta)
            for parts in self._alternatives
        )

    def lower_epsilon(self, delta: float) -> float:
        """Returns a lower bound on ε at δ in [0, 1), in nats."""
        delta = max(delta, _SMALLEST_GUESS)  # A larger δ has no larger ε.
        noise = self._gaussian(Bound.LOWER)
        if noise:
            return gaussian.epsilon(1 / noise, delta, Bound.LOWER)
        if self._has_closed_form(Bound.LOWER):
            return neyman_pearson.epsilon(self._closed_form_delta, delta, Bound.LOWER)
        return max(
            self._profile(Bound.LOWER, direction, delta).epsilon(delta)
            for direction in self._directions
        )

    def upper_delta(self, epsilon: float) -> float:
        """Returns an upper bound on δ at ε, which may be infinite."""
        if epsilon == math.inf:
            return self._infinite_delta(Bound.UPPER)
        if epsilon >= self._largest_loss:
            return 0.0
        if epsilon < _LOWEST_EPSILON:
            return 1.0
        simple = self._unamplified_delta(epsilon)
        if simple < _SMALLEST_GUESS:
            return simple
        if self._has_closed_form(Bound.UPPER):
            return min(simple, self._closed_form_delta(epsilon, Bound.UPPER))
        return min(simple, self._at_its_own_tail(epsilon))

    def lower_delta(self, epsilon: float, upper: float) -> float:
        """Returns a lower bound on δ at ε, which may be infinite.

        Args:
            epsilon: In nats.
            upper: An upper bound on the same δ, 1 if none is known: the nearer it
                is, the better are the tails chosen.
        """
        epsilon = max(epsilon, _LOWEST_EPSILON)
        if epsilon == math.inf:
            return self._infinite_delta(Bound.LOWER)
        if epsilon >= self._largest_loss:
            return 0.0
        if self._has_closed_form(Bound.LOWER):
            return self._closed_form_delta(epsilon, Bound.LOWER)
        if self._unamplified_delta(epsilon) < _SMALLEST_GUESS:
            return 0.0
        guess = _FIRST_GUESS
        while guess > max(upper, _SMALLEST_GUESS):
            guess = _smaller(guess)
        delta = self._delta(Bound.LOWER, epsilon, guess)
        if delta < guess:
            delta = max(delta, self._delta(Bound.LOWER, epsilon, _smaller(guess)))
        return delta

    def _infinite_delta(self, bound: Bound) -> float:
        """Returns a bound on the probability of an infinite loss."""
        chances = []
        for direction in self._directions:
            sinks = [
                (self._sink(part, bound, direction), count)
                for part, count in self._parts[bound].items()
            ]
            chances.append(sums.probability_of_any(sinks))
        rounding = 1e-9 if bound is Bound.UPPER else -1e-9
        return min(max(chances, default=0.0) * (1 + rounding), 1.0)

    @staticmethod
    def _sink(part: interface.Mechanism, bound: Bound, direction: Direction) -> float:
        """Returns a bound on the probability of an infinite loss of one run."""
        if math.isfinite(part.gaussian_precision()) or part.largest_loss() < math.inf:
            return 0.0
        pairs = interface.pairs_of(part, bound, _SMALLEST_GUESS)
        pair = pairs.of(direction)
        if direction is Direction.REMOVE:
            return pair.infinity_mass
        return pair.zero_mass

    def _has_closed_form(self, bound: Bound) -> bool:
        """Tells whether the composition is one run of what has one."""
        parts = self._parts[bound]
        if sum(parts.values()) != 1:
            return False
        return (
            next(iter(parts)).closed_form_delta(0.0, Direction.REMOVE, bound)
            is not None
        )

    def _closed_form_delta(self, epsilon: float, bound: Bound) -> float:
        """Returns δ of a composition that is one run of what has a closed form."""
        part = next(iter(self._parts[bound]))
        deltas = [
            part.closed_form_delta(epsilon, way, bound) for way in self._directions
        ]
        return max(delta for delta in deltas if delta is not None)

    def _gaussian(self, bound: Bound) -> float | None:
        """Returns the noise multiplier of a composition that is one Gaussian."""
        parts = self._parts[bound]
        if sum(parts.values()) == 1:
            part = next(iter(parts))
            if isinstance(part, additive_noise.Gaussian):
                return part.noise_multiplier
        return None

    def _unamplified_epsilon(self, delta: float) -> float:
        """Returns ε of the Gaussian that dominates the composition, if any does."""
        if math.isinf(self._precision):
            return math.inf
        mean = floats.raised(math.sqrt(self._precision), by=1e-15)
        return gaussian.epsilon(mean, delta, Bound.UPPER) if mean else 0.0

    def _unamplified_delta(self, epsilon: float) -> float:
        if math.isinf(self._precision):
            return 1.0
        mean = floats.raised(math.sqrt(self._precision), by=1e-15)
        if not mean:
            return max(0.0, -math.expm1(min(epsilon, 0.0)))
        return gaussian.delta(mean, epsilon, Bound.UPPER)

    def _delta(self, bound: Bound, epsilon: float, guess: float) -> float:
        """Returns δ from pairs whose tails are small beside a guess of it."""
        upper = bound is Bound.UPPER
        choices = self._alternatives if upper else [self._parts[bound]]
        return max(
            min(
                self._profile(bound, direction, guess, parts=parts).delta(epsilon)
                for parts in choices
            )
            for direction in self._directions
        )

    def _at_its_own_tail(self, epsilon: float) -> float:
        """Returns an upper bound on δ from pairs whose tails are small beside it.

        Each answer is certain; one that is no larger than its tails allow for is
        asked again of pairs with smaller tails.
        """
        guess, best = _FIRST_GUESS, 1.0
        for attempt in itertools.count(1):
            best = min(best, self._delta(Bound.UPPER, epsilon, guess))
            # A tail's lump may make it far too large: once more, then.
            doubtful = best > _LARGE and attempt == 1
            if (best >= guess and not doubtful) or guess <= _SMALLEST_GUESS:
                break
            guess = _smaller(guess)
        if best > _LARGE:
            return self._where_epsilon_is_enough(epsilon, best)
        return best

    def _where_epsilon_is_enough(self, epsilon: float, bound: float) -> float:
        """Returns a δ no larger than an upper bound, at which ε is certainly enough.

        Where a law has a heavy tail the search for ε at δ is often tight although the
        profile at ε is not: any δ whose ε is at most the one asked for is a bound.
        """
        lower = self.lower_delta(epsilon, bound)
        for factor in _ABOVE_LOWER:
            delta = factor * lower
            if not 0 < delta < min(bound, 1.0):
                break
            if self.upper_epsilon(delta) <= epsilon:
                return delta
        return bound

    def _profile(
        self,
        bound: Bound,
        direction: Direction,
        delta: float,
        interval: float | None = None,
        *,
        parts: Counts | None = None,
    ) -> large_losses.Composition:
        parts = self._parts[bound] if parts is None else parts
        tail_mass = _tail_mass(sum(parts.values()), delta)
        laws: Sequence[loss_distribution.LossDistribution] = [
            loss_distribution.from_pair(
                interface.pairs_of(part, bound, tail_mass).of(direction),
                direction,
                count,
            )
            for part, count in parts.items()
        ]
        if bound is Bound.LOWER:
            interval = math.inf
        return large_losses.Composition(laws, interval or self._interval)


def _tail_mass(copies: int, delta: float) -> float:
    """Returns the tail each pair may have: a power of ten, so pairs are reused."""
    share = max(delta, _SMALLEST_GUESS) * _TAIL_SHARE / max(copies, 1)
    exponent = math.floor(math.log10(share))
    return max(10.0**exponent, gaussian_mixture.SMALLEST_TAIL_MASS * 1e4)


def _smaller(guess: float) -> float:
    return max(guess**2, _SMALLEST_GUESS)


class WorstOf:
    """The largest of several bounds: of scenarios one of which is the case.

    Args:
        bounds: At least one.
    """

    def __init__(self, bounds: Sequence[PrivacyBounds]) -> None:
        self._scenarios = bounds

    def upper_epsilon(self, delta: float) -> float:
        """Returns an upper bound on ε at δ in [0, 1), in nats."""
        return float(max(each.upper_epsilon(delta) for each in self._scenarios))

    def upper_delta(self, epsilon: float) -> float:
        """Returns an upper bound on δ at finite ε."""
        return float(max(each.upper_delta(epsilon) for each in self._scenarios))

    def epsilon_bounds(self, delta: float) -> tuple[float, float]:
        """Returns a lower and an upper bound on ε at δ in [0, 1), in nats."""
        uppers = [each.upper_epsilon(delta) for each in self._scenarios]
        return self._bounds(uppers, lambda each, _: each.lower_epsilon(delta))

    def delta_bounds(self, epsilon: float) -> tuple[float, float]:
        """Returns a lower and an upper bound on δ at finite ε."""
        uppers = [each.upper_delta(epsilon) for each in self._scenarios]
        return self._bounds(
            uppers, lambda each, upper: each.lower_delta(epsilon, upper)
        )

    def _bounds(
        self,
        uppers: Sequence[float],
        lower_of: Callable[[PrivacyBounds, float], float],
    ) -> tuple[float, float]:
        """Returns bounds on the largest: below it is any scenario that has a bound."""
        upper = float(max(uppers))
        order = sorted(range(len(uppers)), key=lambda i: -uppers[i])
        lowers = (lower_of(self._scenarios[i], uppers[i]) for i in order)
        lower = next((float(lower) for lower in lowers if lower > 0), 0.0)
        return min(lower, upper), upper
