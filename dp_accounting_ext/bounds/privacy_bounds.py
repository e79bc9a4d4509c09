"""Certified bounds on the ε or δ of a composition, or of the worst of several."""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import composed_losses
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import gaussian

Accuracy = accuracy.Accuracy
Counts = Mapping[interface.Mechanism, int]
Question = Callable[[profile.Profile, FloatArray], FloatArray]
# A function of the mean of a Gaussian mechanism, an argument, and the side of the
# bound.
ClosedForm = Callable[[float, float, Bound], float]
_CLOSED_FORMS: Mapping[Question, ClosedForm] = {
    profile.Profile.epsilons: gaussian.epsilon,
    profile.Profile.deltas: gaussian.delta,
}

# Tuning: compute lower bounds for at most this many scenarios, those with the largest
# upper bounds. Stop early once the bracket is narrow. (24 records in two fixed batches:
# the bracket of the first scenario alone has a width of 14 %.)
_MOST_LOWERS = 8
# Tuning: a profile that need not be tight has at most so many losses. One is kept for
# each split of a group of hundreds of records, whose pairs may have 100,000 atoms.
_ROUGH_LOSSES = 1 << 11


class PrivacyBounds:
    """Bounds for one composition, computed when they are asked for.

    Compositions are cached; caching never changes an answer.

    Args:
        counts: The mechanisms that are composed, with the number of runs of each.
        interval: The accountant's value discretization interval: the smaller it is, the
            tighter are the bounds.
    """

    def __init__(self, counts: Counts, interval: float) -> None:
        self._counts = counts
        self._cells = accuracy.cells_of_interval(interval)
        claims = interface.claims_of(counts)
        # The mean of a Gaussian mechanism that dominates the composition, or inf.
        self._mean = floats.raised(math.sqrt(claims.gaussian_precision), by=1e-15)
        self._largest = claims.loss
        self._probability_of_more = claims.probability_of_more
        self._directions = list(Direction)
        if claims.is_symmetric:
            self._directions = [Direction.REMOVE]
        # Whether no run has an infinite loss.
        self._is_finite = all(
            min(known.gaussian_precision, known.largest_loss) < math.inf
            for known in (part.claims() for part in counts)
        )
        self._flat: dict[Bound, list[dict[interface.Mechanism, int]]] = {}
        self._profiles: dict[tuple[int, Bound, int, bool], list[profile.Profile]] = {}

    def _alternatives(self, bound: Bound) -> list[dict[interface.Mechanism, int]]:
        """Returns compositions each of which bounds what was composed.

        From above the smallest of their bounds counts, from below the largest.
        """
        if bound not in self._flat:
            first = compositions.flatten(self._counts, bound)
            other = compositions.flatten(self._counts, bound, other=True)
            self._flat[bound] = [first] if other == first else [first, other]
        return self._flat[bound]

    @functools.cached_property
    def has_lower(self) -> bool:
        """Whether a lower bound is known of any of the mechanisms."""
        bases = (
            part.basis(Bound.LOWER)
            for parts in self._alternatives(Bound.LOWER)
            for part in parts
        )
        return any(basis != interface.NOTHING for basis in bases)

    def upper_epsilons(
        self, deltas: FloatArray, enough: FloatArray | None = None
    ) -> FloatArray:
        """Returns (n,) upper bounds on ε at (n,) δ in [0, 1), in nats.

        Args:
            deltas: (n,) δ.
            enough: (n,) values of ε. Bounds below these need not be tight.
        """
        found = np.where(deltas >= self._probability_of_more, self._largest, math.inf)
        is_asked = deltas > 0
        parts = self._alternatives(Bound.UPPER)[0]
        closed = _closed(parts, gaussian.epsilon, deltas[is_asked], Bound.UPPER)
        if closed is not None:
            found[is_asked] = np.minimum(found[is_asked], closed)
            return found
        open_ = np.flatnonzero(is_asked)
        for open_, rough, number in self._tries(found, is_asked, enough):
            asked = deltas[open_], Bound.UPPER, rough, number
            found[open_] = np.minimum(found[open_], self._composed_epsilons(*asked))
        found[open_] = self._at_most_gaussian(deltas[open_], found[open_])
        return found

    def lower_epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) lower bounds on ε at (n,) δ in [0, 1), in nats."""
        # ε is nonincreasing in δ, so that a larger δ gives a lower bound.
        deltas = np.maximum(deltas, accuracy.LEVELS[-1][0])
        parts = self._alternatives(Bound.LOWER)[0]
        closed = _closed(parts, gaussian.epsilon, deltas, Bound.LOWER)
        if closed is not None:
            return closed
        return self._composed_epsilons(deltas, Bound.LOWER)

    def upper_deltas(
        self, epsilons: FloatArray, enough: FloatArray | None = None
    ) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε, which may be infinite.

        Args:
            epsilons: (n,) ε, in nats.
            enough: (n,) values of δ. Bounds below these need not be tight.
        """
        found = self._gaussian_deltas(epsilons)
        if self._is_finite:
            found[epsilons == math.inf] = 0.0
        if math.isfinite(self._largest):
            known = np.where(epsilons >= self._largest, self._probability_of_more, 1.0)
            found = np.minimum(found, known)
        is_asked = (found >= accuracy.LEVELS[-1][0]) & (epsilons < self._largest)
        is_asked |= np.isinf(epsilons) & (found == 1)
        parts = self._alternatives(Bound.UPPER)[0]
        closed = _closed(parts, gaussian.delta, epsilons[is_asked], Bound.UPPER)
        if closed is not None:
            found[is_asked] = np.minimum(found[is_asked], closed)
            return found
        for open_, rough, number in self._tries(found, is_asked, enough):
            asked = epsilons[open_], Bound.UPPER, rough, number
            found[open_] = np.minimum(found[open_], self._composed_deltas(*asked))
        return found

    def lower_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) lower bounds on δ at (n,) ε, which may be infinite."""
        # δ is nonincreasing in ε. At this ε, δ is one up to 4e-18.
        epsilons = np.maximum(epsilons, -40.0)
        parts = self._alternatives(Bound.LOWER)[0]
        closed = _closed(parts, gaussian.delta, epsilons, Bound.LOWER)
        if closed is not None:
            return closed
        return self._composed_deltas(epsilons, Bound.LOWER)

    def _tries(
        self, found: FloatArray, is_asked: BoolArray, enough: FloatArray | None
    ) -> Iterator[tuple[IndexArray, bool, int | None]]:
        """Yields what is to be computed to lower (n,) upper bounds.

        Rough laws come first. What they bound by at most `enough` needs no fine laws.

        Args:
            found: The bounds, which whoever asks lowers after each try.
            is_asked: Where bounds are asked for.
            enough: Bounds below these need not be tight.

        Yields:
            The places where bounds are to be lowered; whether by rough laws; and the
            index of the only alternative to use, or None for all.
        """
        open_ = np.flatnonzero(is_asked)
        tries: list[tuple[bool, int | None]] = [(False, None)]
        if enough is not None:
            # If a mechanism has two upper bounds, the second is quicker to compute.
            numbers = range(len(self._alternatives(Bound.UPPER)))[::-1]
            tries = [(rough, number) for rough in (True, False) for number in numbers]
        for rough, number in tries:
            if enough is not None:
                open_ = open_[found[open_] > enough[open_]]
            if open_.size:
                yield open_, rough, number

    def _composed_epsilons(
        self,
        deltas: FloatArray,
        bound: Bound,
        rough: bool = False,
        alternative: int | None = None,
    ) -> FloatArray:
        """Returns (n,) bounds on ε at (n,) δ > 0 from the laws of compositions."""
        found = np.zeros(deltas.shape)
        open_ = np.arange(deltas.size)
        for level, (least, _) in enumerate(accuracy.LEVELS):
            if not open_.size:
                break
            # For a δ below the smallest δ of the level, the answer at the latter is a
            # lower bound on ε. Including it makes ε monotone in δ.
            asked = np.maximum(deltas[open_], least)
            question = profile.Profile.epsilons
            read = self._read(bound, level, rough, question, asked, alternative)
            found[open_] = np.maximum(found[open_], read)
            open_ = open_[deltas[open_] < least]
        if bound is Bound.UPPER:
            found[open_] = math.inf
        return found

    def _composed_deltas(
        self,
        epsilons: FloatArray,
        bound: Bound,
        rough: bool = False,
        alternative: int | None = None,
    ) -> FloatArray:
        """Returns (n,) bounds on δ at (n,) ε from the laws of compositions."""
        is_upper = bound is Bound.UPPER
        found = np.full(epsilons.shape, 1.0 if is_upper else 0.0)
        best = np.minimum if is_upper else np.maximum
        # No finite loss is larger than this.
        epsilons = np.minimum(epsilons, 1e300)
        open_ = np.arange(epsilons.size)
        for level, (least, _) in enumerate(accuracy.LEVELS):
            if not open_.size:
                break
            asked = epsilons[open_]
            question = profile.Profile.deltas
            read = self._read(bound, level, rough, question, asked, alternative)
            found[open_] = best(found[open_], read)
            open_ = open_[found[open_] < least]
        return found

    def _read(
        self,
        bound: Bound,
        level: int,
        rough: bool,
        question: Question,
        asked: FloatArray,
        alternative: int | None,
    ) -> FloatArray:
        """Returns the answers of one level: the larger direction, and the best bound.

        Args:
            bound: The side of the bound.
            level: The index of the level.
            rough: Whether laws need not be tight.
            question: The function of a profile and of `asked` that gives the answers.
            asked: (n,) arguments of the question.
            alternative: The index of the only alternative to use, or None for all.
        """
        best = np.minimum if bound is Bound.UPPER else np.maximum
        answers = []
        for number, parts in enumerate(self._alternatives(bound)):
            if alternative not in (None, number):
                continue
            closed = _closed(parts, _CLOSED_FORMS[question], asked, bound)
            if closed is None:
                profiles = self._profiles_of(number, bound, level, rough)
                each_way = [question(each, asked) for each in profiles]
                closed = functools.reduce(np.maximum, each_way)
            answers.append(closed)
        found: FloatArray = functools.reduce(best, answers)
        return found

    def _profiles_of(
        self, number: int, bound: Bound, level: int, rough: bool
    ) -> list[profile.Profile]:
        """Returns the profiles of an alternative, in both directions."""
        key = number, bound, level, rough
        if key not in self._profiles:
            cells = accuracy.ROUGH_CELLS if rough else self._cells
            parts = self._alternatives(bound)[number]
            accurate = Accuracy.of_level(level, cells)
            composed = composition_of(parts, bound, accurate)
            profiles = [
                composed.losses(direction).profile(direction)
                for direction in self._directions
            ]
            if rough:
                profiles = [each.with_losses(_ROUGH_LOSSES) for each in profiles]
            self._profiles[key] = profiles
        return self._profiles[key]

    def _at_most_gaussian(self, deltas: FloatArray, found: FloatArray) -> FloatArray:
        """Returns the smaller of (n,) ε and those of the Gaussian that dominates."""
        if math.isinf(self._mean) or not self._mean:
            return np.minimum(found, self._mean)
        # A comparison of δ shows where the search for ε would find a smaller ε.
        less = np.isinf(found) | (self._gaussian_deltas(found) <= deltas)
        found[less] = interface.each(
            lambda delta: gaussian.epsilon(self._mean, delta, Bound.UPPER), deltas[less]
        )
        return found

    def _gaussian_deltas(self, epsilons: FloatArray) -> FloatArray:
        if math.isinf(self._mean):
            return np.ones(epsilons.shape)
        if not self._mean:
            return np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
        return interface.each(
            lambda epsilon: gaussian.delta(self._mean, epsilon, Bound.UPPER), epsilons
        )


def _closed(
    parts: Counts, function: ClosedForm, asked: FloatArray, bound: Bound
) -> FloatArray | None:
    """Returns (n,) values in closed form if all parts together are one Gaussian."""
    noise = next(iter(parts)).gaussian_noise if parts else None
    if sum(parts.values()) != 1 or noise is None:
        return None
    mean = 1 / noise
    return interface.each(lambda each: function(mean, each, bound), asked)


def composition_of(
    parts: Counts, bound: Bound, accuracy: Accuracy
) -> composed_losses.ComposedLosses:
    """Returns the composition of mechanisms, from pairs with small enough tails."""
    parts = compositions.in_small_steps(parts, bound)
    share = accuracy.tail_mass / max(sum(parts.values()), 1)
    # Rounded to a power of ten, so that cached pairs can be used again.
    tail = max(10.0 ** math.floor(math.log10(share)), floats.SMALLEST_MASS)
    made = [
        (functools.partial(interface.pairs_of, part, bound, Accuracy(tail)), count)
        for part, count in parts.items()
    ]
    return composed_losses.ComposedLosses(made, bound, accuracy)


@dataclasses.dataclass(frozen=True, eq=False)
class WorstPrivacyBounds:
    """The largest bounds on ε or δ over several scenarios, one of which is true.

    Attributes:
        scenarios: The bounds of at least one scenario. It is faster if large ones come
            first, since smaller ones then need not be tight.
    """

    scenarios: Sequence[PrivacyBounds]

    def upper_epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on ε at (n,) δ in [0, 1), in nats."""
        return np.asarray(
            self._uppers(PrivacyBounds.upper_epsilons, deltas).max(axis=0)
        )

    def worst(self, delta: float) -> int:
        """Returns the index of the scenario with the largest upper bound on ε at δ."""
        found = self._uppers(PrivacyBounds.upper_epsilons, np.array([delta]))
        return int(np.argmax(found[:, 0]))

    def upper_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε."""
        return np.asarray(self._upper_deltas(epsilons).max(axis=0))

    def epsilon_bounds(self, deltas: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and upper bounds on ε at (n,) δ in [0, 1), in nats."""
        return self._bounds(
            self._uppers(PrivacyBounds.upper_epsilons, deltas),
            lambda each, chosen: each.lower_epsilons(deltas[chosen]),
        )

    def delta_bounds(self, epsilons: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and upper bounds on δ at (n,) ε."""
        lower, upper = self._bounds(
            self._upper_deltas(epsilons),
            lambda each, chosen: each.lower_deltas(epsilons[chosen]),
        )
        return np.where(lower < floats.SMALLEST_MASS, 0.0, lower), upper

    def _upper_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (s, n) upper bounds, none of them a subnormal number."""
        found = self._uppers(PrivacyBounds.upper_deltas, epsilons)
        return np.where(found > 0, np.maximum(found, floats.SMALLEST_MASS), found)

    def _uppers(
        self, upper_of: Callable[..., FloatArray], asked: FloatArray
    ) -> FloatArray:
        """Returns (s, n) upper bounds of s scenarios, the largest of them tight."""
        found = [upper_of(self.scenarios[0], asked)]
        worst = found[0]
        for scenario in self.scenarios[1:]:
            found.append(upper_of(scenario, asked, worst))
            worst = np.maximum(worst, found[-1])
        return np.array(found)

    def _bounds(
        self,
        uppers: FloatArray,
        lower_of: Callable[[PrivacyBounds, IntArray], FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Returns bounds on the largest value; any scenario gives a lower bound.

        Args:
            uppers: (s, n) upper bounds of s scenarios.
            lower_of: The function of a scenario and of some indices of questions that
                gives lower bounds.
        """
        lower, upper = np.zeros(uppers.shape[1]), uppers.max(axis=0)
        known = [n for n, each in enumerate(self.scenarios) if each.has_lower]
        order = np.argsort(-uppers[known], axis=0, kind="stable")[:_MOST_LOWERS]
        for numbers in np.array(known, dtype=int)[order]:
            for number in known:
                scenario = self.scenarios[number]
                is_wide = lower < np.minimum(0.999 * upper, uppers[number])
                chosen = np.flatnonzero(is_wide & (numbers == number))
                if chosen.size:
                    below = lower_of(scenario, chosen)
                    lower[chosen] = np.maximum(lower[chosen], below)
        return in_order(lower, upper), upper


def in_order(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Returns (n,) lower bounds after checking that none is above its upper bound.

    Raises:
        ArithmeticError: If a lower bound is above its upper bound. One of the two is
            then wrong, and no answer is better than a bound that may be too small.
    """
    crossed = np.flatnonzero(lower > upper)
    if crossed.size:
        first = crossed[0]
        raise ArithmeticError(
            f"A lower bound, {float(lower[first])}, is above the upper one, "
            f"{float(upper[first])}: one is wrong. Please report what was composed."
        )
    return lower
