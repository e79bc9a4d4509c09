"""Certified bounds on the ε or δ of a composition, on both sides."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.bounds import levels
from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import large_losses
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.pairs import gaussian_mixture
from dp_accounting_ext.pairs import neyman_pearson

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Counts = Mapping[interface.Mechanism, int]
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]
Loss = large_losses.HeavyTailedLoss
Question = Callable[[Loss, FloatArray], FloatArray]
Simple = anchors.SimpleBound
Look = Callable[[Simple, FloatArray], FloatArray]

# Two bounds that meet may cross by rounding: so far, relatively and at all.
_CROSSING, _LEAST_CROSSING = 1e-6, 1e-12
# Of δ, what tails may hold: this much of it moves ε by less than 1e-6 of it.
_TAIL_SHARE = 1e-6
# Tuning: of scenarios the first few, by their upper bounds, are bounded from below, and
# more where these leave a bracket wide. (24 records in two fixed batches: one of 14 %.)
_MOST_LOWERS, _MORE_LOWERS = 2, 8
_NARROW = 0.99
# Tuning: points of the noise, for pairs that need not be tight. Half and twice it:
# groups of 128 take as long.
_ROUGH_POINTS = 1 << 12
# Tuning: of more different mechanisms each has fewer points than it would have: so many
# in all, but some. With half of these brackets of 60 are 10 % wider; 2000 with twice
# the fewest move ε by 5e-7 of it, for 1.4 times the time.
_MANY = 50
_POINTS_IN_ALL = 1 << 20
_FEW_POINTS = 1 << 13
# Of any two datasets δ is at least 1 − e^ε, here one but for 4e-18.
_LOWEST_EPSILON = -40.0


class _Laws(Sequence[loss_distribution.LossDistribution]):
    """The losses of some mechanisms in one direction, made when they are asked for.

    So many mechanisms take no more memory than their pairs are kept in.
    """

    def __init__(
        self,
        parts: Counts,
        bound: Bound,
        direction: Direction,
        tail_mass: float,
        *,
        rough: bool = False,
    ) -> None:
        self._parts = list(parts.items())
        # None for as many as are good for anything.
        self._points = _ROUGH_POINTS if rough else None
        if bound is Bound.UPPER and len(parts) > _MANY and not rough:
            self._points = max(_POINTS_IN_ALL // len(parts), _FEW_POINTS)
        self._bound = bound
        self._direction = direction
        self._tail_mass = tail_mass

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, place: Any) -> Any:
        part, count = self._parts[place]
        pair = self._pairs(part).of(self._direction)
        return loss_distribution.from_pair(pair, self._direction, count)

    def infinity_of_duals(self) -> float:
        """Returns how likely an infinite loss is with P and Q exchanged.

        One where the other direction has pairs of its own, or a look costs too much.
        """
        if len(self._parts) > _MANY:
            return 1.0
        chances = []
        for part, count in self._parts:
            pairs = self._pairs(part)
            if pairs.add is not pairs.remove:
                return 1.0
            chances.append((pairs.remove.zero_mass, count))
        return sums.probability_of_any(chances)

    def _pairs(self, part: interface.Mechanism) -> dominating_pair.DirectedPairs:
        if self._points:
            return interface.rough_pairs_of(part, self._tail_mass, self._points)
        return interface.pairs_of(part, self._bound, self._tail_mass)


class PrivacyBounds:
    """Bounds for a composition, pairs of which are made when they are asked for.

    It remembers what it composed. Answers do not depend on that.

    Args:
        counts: What is composed, and how often.
        interval: Largest loss interval of an upper bound, in nats. Lower bounds
            choose their own.
    """

    def __init__(self, counts: Counts, interval: float) -> None:
        self._counts = counts
        self._interval = interval
        self._precision = math.fsum(
            n * part.gaussian_precision() for part, n in counts.items()
        )
        self._largest, self._chance_of_more = interface.chance_of_more_in(counts)
        self._directions = list(Direction)
        if all(part.is_symmetric() for part in counts):
            self._directions = [Direction.REMOVE]
        self._losses: dict[tuple[Bound, Direction, int, int, bool], Loss] = {}
        self._duals: dict[int, Simple] = {}
        self._flat: dict[Bound, list[dict[interface.Mechanism, int]]] = {}

    def _alternatives(self, bound: Bound) -> list[dict[interface.Mechanism, int]]:
        """Returns compositions each of which bounds what is composed.

        The least of their bounds does from above, and the largest from below.
        """
        if bound not in self._flat:
            first = compositions.flatten(self._counts, bound)
            other = compositions.flatten(self._counts, bound, other=True)
            self._flat[bound] = [first] if other == first else [first, other]
        return self._flat[bound]

    def _parts(self, bound: Bound) -> dict[interface.Mechanism, int]:
        """Returns the first of them."""
        return self._alternatives(bound)[0]

    @functools.cached_property
    def _total_variation(self) -> float:
        return interface.total_variation_of(self._counts)

    def upper_epsilons(
        self, deltas: FloatArray, enough: FloatArray | None = None
    ) -> FloatArray:
        """Returns (n,) upper bounds on ε at (n,) δ in [0, 1), in nats.

        Args:
            deltas: (n,) δ.
            enough: (n,) ε below which a bound need not be a good one.
        """
        if enough is not None and enough.any():
            found = self._rough_epsilons(deltas, enough)
            open_ = np.flatnonzero(found > enough)
            if open_.size:
                found[open_] = self.upper_epsilons(deltas[open_])
            return found
        if deltas.size == 1:
            quick = self._upper_epsilon(float(deltas[0]))
            if quick is not None:
                return np.array([quick])
        found = np.where(deltas >= self._chance_of_more, self._largest, math.inf)
        positive = deltas > 0
        found[positive & (deltas >= self._total_variation)] = 0.0
        open_ = np.flatnonzero(positive & (deltas < self._total_variation))
        if self._has_closed_form(Bound.UPPER):
            exact = self._closed_form_epsilons(deltas[open_], Bound.UPPER)
            found[open_] = np.minimum(found[open_], exact)
        elif self._parts(Bound.UPPER):
            for level, here in anchors.grouped(levels.enough_for(deltas[open_])):
                asked = open_[here]
                composed = self._upper_epsilons(level, deltas[asked])
                found[asked] = np.minimum(found[asked], composed)
        # Closed, so they hold where a ratio does not fit a float.
        found[open_] = self._unamplified_epsilons(deltas[open_], found[open_])
        return found

    def _rough_epsilons(self, deltas: FloatArray, enough: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on ε at (n,) δ, where that is easy, or more."""
        # Closed, and all there is where a ratio does not fit a float.
        found = np.where(self._unamplified_deltas(enough) <= deltas, enough, math.inf)
        open_ = np.flatnonzero((found > enough) & (enough > 0) & (deltas > 0))
        found[open_] = self._roughly(
            levels.enough_for(deltas[open_]),
            deltas[open_],
            Loss.epsilons,
            Simple.epsilons,
            enough[open_],
        )
        return found

    def _rough_deltas(self, epsilons: FloatArray, enough: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε, where that is easy, or more."""
        found = np.ones(epsilons.shape)
        asked = np.flatnonzero((enough > 0) & (epsilons >= 0) & np.isfinite(epsilons))
        found[asked] = self._unamplified_deltas(epsilons[asked])
        open_ = asked[found[asked] > enough[asked]]
        found[open_] = self._roughly(
            levels.enough_for(enough[open_]),
            epsilons[open_],
            Loss.deltas,
            Simple.deltas,
            enough[open_],
        )
        return found

    def _roughly(
        self,
        numbers: IndexArray,
        asked: FloatArray,
        question: Question,
        look: Look,
        enough: FloatArray,
    ) -> FloatArray:
        """Returns (n,) upper bounds, none of them better than `enough` asks for.

        Simple ones where these do, else those of a rough composition. One that is above
        `enough` may be of the first direction alone, and then is no bound.

        Args:
            numbers: (n,) levels.
            asked: (n,) δ, or ε.
            question: What is asked.
            look: The same of simple bounds.
            enough: (n,) bounds that are good enough, positive.
        """

        def simple(loss: Loss, here: FloatArray) -> FloatArray:
            return look(loss.simple, here)

        def roughly(loss: Loss, here: FloatArray) -> FloatArray:
            return question(loss.roughly, here)

        alternatives = range(len(self._alternatives(Bound.UPPER)))
        worst = np.zeros(asked.shape)
        for level, way in itertools.product(np.unique(numbers), self._directions):
            open_ = np.flatnonzero((numbers == level) & (worst <= enough))
            found = np.full(open_.shape, math.inf)
            # What one composition rules out no other is made for.
            for number, ask in itertools.product(alternatives, (simple, roughly)):
                again = np.flatnonzero(found > enough[open_])
                if again.size:
                    loss = self._loss(Bound.UPPER, way, int(level), number, rough=True)
                    answers = ask(loss, asked[open_[again]])
                    found[again] = np.minimum(found[again], answers)
            worst[open_] = np.maximum(worst[open_], found)
        return worst

    def _upper_epsilons(self, level: int, deltas: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on ε at (n,) δ of one level."""
        return self._worst(level, deltas, Loss.epsilons, Simple.epsilons)

    def _upper_deltas(self, level: int, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε, from the pairs of one level."""
        return self._worst(level, epsilons, Loss.deltas, Simple.deltas)

    def _worst(
        self, level: int, asked: FloatArray, question: Question, look: Look
    ) -> FloatArray:
        """Returns the larger answers of both directions, each the least that is known.

        The second direction is looked at where none rules it out: at first one that the
        first direction's laws tell.
        """
        if question is Loss.epsilons and len(self._parts(Bound.UPPER)) > _MANY:
            composed_loss.prepare(
                [self._loss(Bound.UPPER, way, level).whole for way in self._directions],
                asked,
            )
        first, *others = self._directions
        worst = self._least(first, level, asked, question)
        for direction in others:
            open_ = np.flatnonzero(look(self._dual(level), asked) > worst)
            if open_.size:
                second = self._loss(Bound.UPPER, direction, level)
                open_ = open_[look(second.simple, asked[open_]) > worst[open_]]
            if open_.size:
                roughly = question(second.roughly, asked[open_])
                open_ = open_[roughly > worst[open_]]
            if open_.size:
                least = self._least(direction, level, asked[open_], question)
                worst[open_] = np.maximum(worst[open_], least)
        return worst

    def _dual(self, level: int) -> Simple:
        """Returns what bounds the second direction, from the laws of the first."""
        if level not in self._duals:
            first = self._directions[0]
            sink = self._laws(Bound.UPPER, first, level).infinity_of_duals()
            whole = self._loss(Bound.UPPER, first, level).whole
            self._duals[level] = whole.simple_dual(sink)
        return self._duals[level]

    def _least(
        self,
        direction: Direction,
        level: int,
        asked: FloatArray,
        question: Question,
    ) -> FloatArray:
        """Returns the least answers of the compositions that dominate this one."""
        answers = [
            question(self._loss(Bound.UPPER, direction, level, number), asked)
            for number in range(len(self._alternatives(Bound.UPPER)))
        ]
        least: FloatArray = functools.reduce(np.minimum, answers)
        return least

    def lower_epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) lower bounds on ε at (n,) δ in [0, 1), in nats."""
        deltas = np.maximum(
            deltas, levels.SMALLEST_DELTA
        )  # A larger δ has no larger ε.
        found = [
            self._lower_epsilons(number, deltas)
            for number in range(len(self._alternatives(Bound.LOWER)))
        ]
        return np.asarray(np.max(found, axis=0))

    def _lower_epsilons(self, number: int, deltas: FloatArray) -> FloatArray:
        """Returns (n,) lower bounds from one of the compositions below this one."""
        if number == 0 and self._has_closed_form(Bound.LOWER):
            return self._closed_form_epsilons(deltas, Bound.LOWER)
        found = np.empty(deltas.shape)
        for level, here in anchors.grouped(levels.enough_for(deltas)):
            found[here] = np.max(
                [
                    self._loss(Bound.LOWER, way, level, number).epsilons(deltas[here])
                    for way in self._directions
                ],
                axis=0,
            )
        return found

    def upper_deltas(
        self, epsilons: FloatArray, enough: FloatArray | None = None
    ) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε, which may be infinite.

        Args:
            epsilons: (n,) ε, in nats.
            enough: (n,) δ below which a bound need not be a good one.
        """
        if enough is not None and enough.any():
            found = self._rough_deltas(epsilons, enough)
            open_ = np.flatnonzero(found > enough)
            if open_.size:
                found[open_] = self.upper_deltas(epsilons[open_])
            return found
        if epsilons.size == 1:
            quick = self._upper_delta(float(epsilons[0]))
            if quick is not None:
                return np.array([quick])
        found = np.ones(epsilons.shape)
        beyond = epsilons >= self._largest
        if beyond.any():
            rest = self._chance_of_more
            if math.isinf(self._largest):
                rest = self._infinite_delta(Bound.UPPER)
            found[beyond] = rest
        asked = ~beyond & (epsilons >= _LOWEST_EPSILON)
        found[asked] = self._unamplified_deltas(epsilons[asked])
        least = asked & (epsilons >= 0)
        found[least] = np.minimum(found[least], self._total_variation)
        open_ = np.flatnonzero(asked & (found >= levels.SMALLEST_DELTA))
        if self._has_closed_form(Bound.UPPER):
            exact = self._closed_form_deltas(epsilons[open_], Bound.UPPER)
        else:
            exact = self._at_their_own_level(epsilons[open_])
        found[open_] = np.minimum(found[open_], exact)
        return found

    def _known(self, level: int) -> list[Loss]:
        """Returns the composed losses of a level that are there, in order.

        None where the first is not, or another composition may tell more.
        """
        each = [
            self._losses.get((Bound.UPPER, way, level, 0, False))
            for way in self._directions
        ]
        if each[0] is None or len(self._alternatives(Bound.UPPER)) > 1:
            return []
        return [loss for loss in each if loss is not None]

    def _upper_epsilon(self, delta: float) -> float | None:
        """Returns what `upper_epsilons` does at one δ, as `_upper_delta` does."""
        mean = self._mean()
        if not (mean and self._losses and 0 < delta < self._total_variation):
            return None
        level = int(levels.enough_for(np.array(delta)))
        found = self._larger(level, delta, Loss.epsilon, Simple.epsilon)
        if found is None:
            return None
        if delta >= self._chance_of_more:
            found = min(found, self._largest)
        if mean < math.inf and gaussian.delta(mean, found, Bound.UPPER) <= delta:
            found = min(found, gaussian.epsilon(mean, delta, Bound.UPPER))
        return found

    def _upper_delta(self, epsilon: float) -> float | None:
        """Returns what `upper_deltas` does at one ε, to the last digit, in less time.

        Where all it reads is there, nothing is infinite and one direction rules out
        the other; else None.
        """
        mean = self._mean()
        if not (mean and self._losses and 0 <= epsilon < self._largest):
            return None
        least = self._total_variation
        if mean < math.inf:
            least = min(least, gaussian.delta(mean, epsilon, Bound.UPPER))
        if least < levels.SMALLEST_DELTA:
            return None
        best, level = 1.0, levels.FIRST
        while level >= 0:
            each = self._known(level)
            if len(each) < len(self._directions):
                return None
            log = max(float(loss.about(epsilon)) for loss in each)
            guess = float(np.exp(min(log, 0.0))) * levels.SURELY_MORE
            if levels.is_asked(level, guess):
                found = self._larger(level, epsilon, Loss.delta, Simple.delta)
                if found is None:
                    return None
                best = min(best, found)
                guess = found
            level = levels.next_one(level, guess)
        return min(best, least)

    def _larger(
        self,
        level: int,
        asked: float,
        question: Callable[[Loss, float], float | None],
        look: Callable[[Simple, float], float],
    ) -> float | None:
        """Returns what `_worst` does of one question, if all that it needs is there."""
        each = self._known(level)
        worst = question(each[0], asked) if each else None
        if worst is None or len(self._directions) == 1:
            return worst
        if look(self._dual(level), asked) <= worst:
            return worst
        if len(each) == 1:
            return None
        if look(each[1].simple, asked) <= worst:
            return worst
        roughly = question(each[1].roughly, asked)
        if roughly is None or roughly <= worst:
            return None if roughly is None else worst
        other = question(each[1], asked)
        return None if other is None else max(worst, other)

    def lower_deltas(self, epsilons: FloatArray, uppers: FloatArray) -> FloatArray:
        """Returns (n,) lower bounds on δ at (n,) ε, which may be infinite.

        Args:
            epsilons: In nats.
            uppers: (n,) upper bounds on the same δ, 1 if none is known: the nearer
                they are, the better are the tails chosen.
        """
        epsilons = np.maximum(epsilons, _LOWEST_EPSILON)
        found = np.zeros(epsilons.shape)
        infinite = epsilons == math.inf
        if infinite.any():
            found[infinite] = self._infinite_delta(Bound.LOWER)
        asked = ~infinite & ((epsilons < self._largest) | (self._chance_of_more > 0))
        if self._has_closed_form(Bound.LOWER):
            found[asked] = self._closed_form_deltas(epsilons[asked], Bound.LOWER)
            return found
        asked &= uppers >= levels.SMALLEST_DELTA
        asked[asked] = (
            self._unamplified_deltas(epsilons[asked]) >= levels.SMALLEST_DELTA
        )
        numbers = levels.enough_for(uppers)
        for level, least in enumerate(levels.LEVELS):
            here = asked & (numbers == level)
            if not here.any():
                continue
            deltas = [
                self._loss(Bound.LOWER, way, level, number).deltas(epsilons[here])
                for way in self._directions
                for number in range(len(self._alternatives(Bound.LOWER)))
            ]
            found[here] = np.maximum(found[here], np.max(deltas, axis=0))
            # Once more with smaller tails.
            lacking = here & (found < least / levels.FORGIVEN)
            numbers[lacking & (numbers == levels.enough_for(uppers))] += 1
        return found

    def _at_their_own_level(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on δ from pairs whose tails are small beside it.

        Each answer is certain; one that is no larger than its tails allow for is
        asked again of pairs with smaller tails.
        """
        best = np.ones(epsilons.shape)
        numbers = np.full(epsilons.shape, levels.FIRST)
        open_ = np.arange(epsilons.size)
        while open_.size:
            for level, here in anchors.grouped(numbers[open_]):
                here = open_[here]
                guesses = self._about(level, epsilons[here])
                asked = levels.is_asked(level, guesses)
                found = self._upper_deltas(level, epsilons[here[asked]])
                best[here[asked]] = np.minimum(best[here[asked]], found)
                guesses[asked] = found
                numbers[here] = levels.following(level, guesses)
            open_ = open_[numbers[open_] >= 0]
        return best

    def _about(self, level: int, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) guesses at δ, none of which is certainly too small."""
        logs = [
            self._loss(Bound.UPPER, way, level).about(epsilons)
            for way in self._directions
        ]
        guesses: FloatArray = np.exp(np.minimum(np.max(logs, axis=0), 0.0))
        return guesses * levels.SURELY_MORE

    def _infinite_delta(self, bound: Bound) -> float:
        """Returns a bound on the probability of an infinite loss."""
        chances = []
        for direction in self._directions:
            sinks = [
                (self._sink(part, bound, direction), count)
                for part, count in self._parts(bound).items()
            ]
            chances.append(sums.probability_of_any(sinks))
        rounding = 1e-9 if bound is Bound.UPPER else -1e-9
        return min(max(chances, default=0.0) * (1 + rounding), 1.0)

    @staticmethod
    def _sink(part: interface.Mechanism, bound: Bound, direction: Direction) -> float:
        """Returns a bound on the probability of an infinite loss of one run."""
        if math.isfinite(part.gaussian_precision()) or part.largest_loss() < math.inf:
            return 0.0
        pairs = interface.pairs_of(part, bound, levels.SMALLEST_DELTA)
        pair = pairs.of(direction)
        if direction is Direction.REMOVE:
            return pair.infinity_mass
        return pair.zero_mass

    def _has_closed_form(self, bound: Bound) -> bool:
        """Tells whether the composition is one run of what has one."""
        parts = self._parts(bound)
        if sum(parts.values()) != 1:
            return False
        return (
            next(iter(parts)).closed_form_delta(0.0, Direction.REMOVE, bound)
            is not None
        )

    def _closed_form_delta(self, epsilon: float, bound: Bound) -> float:
        """Returns δ of a composition that is one run of what has a closed form."""
        part = next(iter(self._parts(bound)))
        deltas = [
            part.closed_form_delta(epsilon, way, bound) for way in self._directions
        ]
        return max(delta for delta in deltas if delta is not None)

    def _closed_form_deltas(self, epsilons: FloatArray, bound: Bound) -> FloatArray:
        part = next(iter(self._parts(bound)))
        each = [
            part.closed_form_deltas(epsilons, way, bound) for way in self._directions
        ]
        known = [deltas for deltas in each if deltas is not None]
        return np.asarray(functools.reduce(np.maximum, known))

    def _closed_form_epsilons(self, deltas: FloatArray, bound: Bound) -> FloatArray:
        part = next(iter(self._parts(bound)))
        many = part.closed_form_epsilons(deltas, bound)
        if many is not None:
            return many

        def epsilon(delta: float) -> float:
            known = part.closed_form_epsilon(delta, bound)
            if known is not None:
                return known
            return neyman_pearson.epsilon(self._closed_form_delta, delta, bound)

        return _each(epsilon, deltas)

    def _mean(self) -> float:
        """Returns the mean of the Gaussian that dominates the composition, or inf."""
        return floats.raised(math.sqrt(self._precision), by=1e-15)

    def _unamplified_epsilons(
        self, deltas: FloatArray, found: FloatArray
    ) -> FloatArray:
        """Returns (n,) ε at (n,) δ, no more than of the Gaussian that dominates.

        Args:
            deltas: δ.
            found: (n,) other upper bounds on ε.
        """
        mean = self._mean()
        if math.isinf(mean):
            return found
        if not mean:
            return np.zeros(found.shape)
        uppers = found.copy()
        for place, (delta, other) in enumerate(
            zip(deltas.tolist(), found.tolist(), strict=True)
        ):
            # One δ tells whether a search would find less.
            if gaussian.delta(mean, other, Bound.UPPER) <= delta:
                own = gaussian.epsilon(mean, delta, Bound.UPPER)
                uppers[place] = min(other, own)
        return uppers

    def _unamplified_deltas(self, epsilons: FloatArray) -> FloatArray:
        mean = self._mean()
        if math.isinf(mean):
            return np.ones(epsilons.shape)
        if not mean:
            return np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
        return _each(
            lambda epsilon: gaussian.delta(mean, epsilon, Bound.UPPER), epsilons
        )

    def _loss(
        self,
        bound: Bound,
        direction: Direction,
        level: int,
        alternative: int = 0,
        rough: bool = False,
    ) -> Loss:
        """Returns the composed loss whose tails are small beside δ of a level.

        Args:
            bound: Its side.
            direction: Its direction.
            level: The number of the level.
            alternative: The number of the composition that bounds this one.
            rough: Whether pairs will do that are made in a moment.
        """
        key = bound, direction, level, alternative, rough
        if key not in self._losses:
            ways = [direction]
            if len(self._alternatives(bound)[alternative]) > _MANY:
                ways = self._directions  # What two laws are made of is made once.
            self._compose(ways, bound, level, alternative, rough)
        return self._losses[key]

    def _laws(
        self,
        bound: Bound,
        direction: Direction,
        level: int,
        alternative: int = 0,
        rough: bool = False,
    ) -> _Laws:
        """Returns what `_loss` is composed of."""
        parts = self._alternatives(bound)[alternative]
        tail_mass = _tail_mass(sum(parts.values()), float(levels.LEVELS[level]))
        return _Laws(parts, bound, direction, tail_mass, rough=rough)

    def _compose(
        self,
        ways: Sequence[Direction],
        bound: Bound,
        level: int,
        alternative: int,
        rough: bool,
    ) -> None:
        delta = float(levels.LEVELS[level])
        interval = self._interval if bound is Bound.UPPER and not rough else math.inf
        each = [self._laws(bound, way, level, alternative, rough) for way in ways]
        surveys = composed_loss.surveys(each, delta)
        for way, laws, survey in zip(ways, each, surveys, strict=True):
            loss = Loss(laws, interval, delta, survey)
            self._losses[bound, way, level, alternative, rough] = loss


def _each(function: Callable[[float], float], values: FloatArray) -> FloatArray:
    """Returns the (n,) values of a function of a number."""
    return np.array([function(value) for value in values.tolist()], dtype=np.float64)


def _tail_mass(copies: int, delta: float) -> float:
    """Returns the tail each pair may have: a power of ten, so pairs are reused."""
    share = max(delta, levels.SMALLEST_DELTA) * _TAIL_SHARE / max(copies, 1)
    exponent = math.floor(math.log10(share))
    return max(10.0**exponent, gaussian_mixture.SMALLEST_TAIL_MASS * 1e4)


class WorstOf:
    """The largest of several bounds: of scenarios one of which is the case.

    Args:
        bounds: At least one, best in an order in which they fall: what is smaller
            than those before costs less.
    """

    def __init__(self, bounds: Sequence[PrivacyBounds]) -> None:
        self._scenarios = bounds

    def upper_epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on ε at (n,) δ in [0, 1), in nats."""
        return np.asarray(
            self._uppers(PrivacyBounds.upper_epsilons, deltas).max(axis=0)
        )

    def upper_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε."""
        return np.asarray(
            self._uppers(PrivacyBounds.upper_deltas, epsilons).max(axis=0)
        )

    def epsilon_bounds(self, deltas: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and upper bounds on ε at (n,) δ in [0, 1), in nats."""
        return self._bounds(
            self._uppers(PrivacyBounds.upper_epsilons, deltas),
            lambda each, chosen, _: each.lower_epsilons(deltas[chosen]),
        )

    def delta_bounds(self, epsilons: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and upper bounds on δ at (n,) ε."""
        return self._bounds(
            self._uppers(PrivacyBounds.upper_deltas, epsilons),
            lambda each, chosen, upper: each.lower_deltas(epsilons[chosen], upper),
        )

    def _uppers(
        self,
        upper_of: Callable[[PrivacyBounds, FloatArray, FloatArray], FloatArray],
        asked: FloatArray,
    ) -> FloatArray:
        """Returns (s, n) upper bounds of s scenarios, good ones on the largest."""
        found: list[FloatArray] = []
        worst = np.zeros(asked.shape)
        for scenario in self._scenarios:
            found.append(upper_of(scenario, asked, worst))
            worst = np.maximum(worst, found[-1])
        return np.array(found)

    def _bounds(
        self,
        uppers: FloatArray,
        lower_of: Callable[[PrivacyBounds, IndexArray, FloatArray], FloatArray],
    ) -> tuple[FloatArray, FloatArray]:
        """Returns bounds on the largest: below it is any scenario that has a bound.

        Args:
            uppers: (s, n) upper bounds of s scenarios.
            lower_of: From a scenario, the numbers of some questions and its upper
                bounds there to lower ones.
        """
        lower, upper = np.zeros(uppers.shape[1]), uppers.max(axis=0)
        ranked = np.argsort(-uppers, axis=0, kind="stable")[:_MORE_LOWERS]
        for rank, numbers in enumerate(ranked):
            is_asked = rank < _MOST_LOWERS or lower < _NARROW * upper
            for number, scenario in enumerate(self._scenarios):
                open_ = is_asked & (numbers == number) & (lower < uppers[number])
                chosen = np.flatnonzero(open_)
                if chosen.size:
                    below = lower_of(scenario, chosen, uppers[number, chosen])
                    lower[chosen] = np.maximum(lower[chosen], below)
        return in_order(lower, upper), upper


def in_order(lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Returns (n,) lower bounds, none above its upper one by a little rounding.

    Raises:
        ArithmeticError: If one is above it by more. Then one of the two is wrong, and
            no answer is better than a bound that may be too small.
    """
    crossed = np.flatnonzero(lower > upper * (1 + _CROSSING) + _LEAST_CROSSING)
    if crossed.size:
        first = crossed[0]
        raise ArithmeticError(
            f"A lower bound, {float(lower[first])}, is above the upper one, "
            f"{float(upper[first])}: one is wrong. Please report what was composed."
        )
    return np.minimum(lower, upper)
