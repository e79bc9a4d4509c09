"""Certified bounds on the ε or δ of a composition, or of the worst of several."""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import memory
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import gaussian

Counts = Mapping[interface.Mechanism, int]

# Tuning: compute lower bounds for at most this many scenarios, those with the largest
# upper bounds. Stop early once the bracket is narrow. (24 records in two fixed batches:
# the bracket of the first scenario alone has a width of 14 %.)
_MOST_LOWERS = 8
# A limit: the memory, in bytes, of profiles and of curves that are kept for further
# questions. A group of hundreds of records has as many splits, each with some 5 MB.
MOST_KEPT = 128 << 20
_ALL = slice(None)
# From losses of this size on, in nats, the ratios of samples may not fit a float.
_HUGE = floats.LARGEST_EXPONENT / 2


class PrivacyBounds:
    """Bounds for one composition, computed when they are asked for.

    Compositions are cached; caching never changes an answer.

    Args:
        counts: The mechanisms that are composed, with the number of runs of each.
        interval: The accountant's value discretization interval: the smaller it is, the
            tighter are the bounds.
        directions: The directions whose larger profile is asked for.
        routes: Which of the compositions that bound what was composed are used.
    """

    def __init__(
        self,
        counts: Counts,
        interval: float,
        directions: Sequence[Direction] = tuple(Direction),
        *,
        routes: slice = _ALL,
    ) -> None:
        self._counts = counts
        self._interval = interval
        self._routes = routes
        self._cells = accuracy.cells_of_interval(interval)
        claims = interface.claims_of(counts)
        mean = floats.raised(math.sqrt(claims.gaussian_precision), by=1e-15)
        self._dominating = _Gaussian(mean, Bound.UPPER)
        self._largest = claims.loss
        self._probability_of_more = claims.probability_of_more
        self._directions = directions
        if claims.is_symmetric:
            self._directions = [Direction.REMOVE]
        # Whether no run has an infinite loss.
        self._is_finite = all(
            min(claim.gaussian_precision, claim.largest_loss) < math.inf
            for claim in (part.claims() for part in counts)
        )
        self._routed: dict[Bound, list[_Composed | _Gaussian]] = {}
        # Ratios may be too large for a float: then samples gain nothing.
        likely = min(claims.loss, claims.gaussian_precision / 2)
        self._is_huge = likely > _HUGE

    @functools.cached_property
    def rough(self) -> "PrivacyBounds":
        """The bounds by the last, quickest route alone, with the fewest cells."""
        last = slice(-1, None)
        return PrivacyBounds(self._counts, math.inf, self._directions, routes=last)

    @functools.cached_property
    def has_lower(self) -> bool:
        """Whether a lower bound is known of any of the mechanisms."""
        parts = compositions.flatten(self._counts, Bound.LOWER)
        return any(part.basis(Bound.LOWER) != interface.NOTHING for part in parts)

    def upper_epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on ε at (n,) δ in [0, 1), in nats."""
        epsilons = np.where(
            deltas >= self._probability_of_more, self._largest, math.inf
        )
        open_ = np.flatnonzero((deltas > 0) & (epsilons > 0))
        if open_.size:
            asked = deltas[open_]
            for composed in self._composed(Bound.UPPER):
                epsilons[open_] = np.minimum(epsilons[open_], composed.epsilons(asked))
            epsilons[open_] = self._at_most_gaussian(asked, epsilons[open_])
        if epsilons.max(initial=0.0) > _HUGE and self._unsampled is not None:
            epsilons = np.minimum(epsilons, self._unsampled.upper_epsilons(deltas))
        return epsilons

    @functools.cached_property
    def _unsampled(self) -> "PrivacyBounds | None":
        """The bounds without samples, where ratios may be too large for a float."""
        if not self._is_huge:
            return None
        counts = compositions.unsampled(self._counts)
        if counts == dict(self._counts):
            return None
        return PrivacyBounds(
            counts, self._interval, self._directions, routes=self._routes
        )

    def lower_epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) lower bounds on ε at (n,) δ in [0, 1), in nats."""
        # ε is nonincreasing in δ, so that a larger δ gives a lower bound.
        deltas = np.maximum(deltas, accuracy.LEVELS[-1][0])
        bounds = [composed.epsilons(deltas) for composed in self._composed(Bound.LOWER)]
        return functools.reduce(np.maximum, bounds)

    def upper_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε, in nats, which may be infinite."""
        deltas = self._dominating.deltas(epsilons)
        if self._is_finite:
            deltas[epsilons == math.inf] = 0.0
        if math.isfinite(self._largest):
            by_claims = np.where(
                epsilons >= self._largest, self._probability_of_more, 1.0
            )
            deltas = np.minimum(deltas, by_claims)
        # A bound below the smallest δ of all levels stays, as no profile is accurate
        # there. At an infinite ε the profile is its sink, which may be less than one.
        is_asked = (deltas >= accuracy.LEVELS[-1][0]) & (epsilons < math.inf)
        is_asked |= np.isinf(epsilons) & (deltas == 1)
        open_ = np.flatnonzero(is_asked & (deltas > 0))
        if open_.size:
            for composed in self._composed(Bound.UPPER):
                deltas[open_] = np.minimum(
                    deltas[open_], composed.deltas(epsilons[open_])
                )
        if epsilons.max(initial=0.0) > _HUGE and self._unsampled is not None:
            deltas = np.minimum(deltas, self._unsampled.upper_deltas(epsilons))
        return deltas

    def lower_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) lower bounds on δ at (n,) ε, which may be infinite."""
        # δ is nonincreasing in ε. At this ε, δ is one up to 4e-18.
        epsilons = np.maximum(epsilons, -40.0)
        bounds = [composed.deltas(epsilons) for composed in self._composed(Bound.LOWER)]
        return functools.reduce(np.maximum, bounds)

    def _composed(self, bound: Bound) -> "list[_Composed | _Gaussian]":
        """Returns the compositions that bound what was composed; the best counts."""
        if bound not in self._routed:
            self._routed[bound] = []
            for parts in compositions.routes(self._counts, bound)[self._routes]:
                noise = compositions.single_gaussian(parts)
                self._routed[bound].append(
                    _Composed(parts, bound, self._directions, self._cells)
                    if noise is None
                    else _Gaussian(noise.mean, bound)
                )
        return self._routed[bound]

    def _at_most_gaussian(self, deltas: FloatArray, epsilons: FloatArray) -> FloatArray:
        """Returns the smaller of (n,) ε and those of the Gaussian that dominates."""
        mean = self._dominating.mean
        if math.isinf(mean) or not mean:
            return np.minimum(epsilons, mean)
        # A comparison of δ shows where the search for ε would find a smaller ε.
        is_less = np.isinf(epsilons) | (self._dominating.deltas(epsilons) <= deltas)
        epsilons[is_less] = self._dominating.epsilons(deltas[is_less])
        return epsilons


@dataclasses.dataclass(frozen=True)
class _Gaussian:
    """The bounds of a single Gaussian mechanism, by their closed forms.

    Attributes:
        mean: The distance of the two normal laws, in standard deviations; 0 or inf for
            a mechanism that releases nothing, or everything.
        bound: The side of the bound.
    """

    mean: float
    bound: Bound

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) bounds on ε at (n,) δ > 0, for a finite mean above 0."""
        return interface.each(
            lambda delta: gaussian.epsilon(self.mean, delta, self.bound), deltas
        )

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) bounds on δ at (n,) ε, which may be infinite."""
        if math.isinf(self.mean):
            return np.ones(epsilons.shape)
        if not self.mean:
            return np.maximum(-np.expm1(np.minimum(epsilons, 0.0)), 0.0)
        return interface.each(
            lambda epsilon: gaussian.delta(self.mean, epsilon, self.bound), epsilons
        )


@dataclasses.dataclass(frozen=True, eq=False)
class _Composed:
    """The profiles of one composition, which are computed when they are asked for.

    Attributes:
        parts: The mechanisms that are composed, none of which has parts, with counts.
        bound: The side of the bound.
        directions: The directions whose larger profile is the bound.
        cells: The number of cells in a scale.
    """

    parts: Counts
    bound: Bound
    directions: Sequence[Direction]
    cells: int

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) bounds on ε at (n,) δ > 0."""
        bounds = np.zeros(deltas.shape)
        open_ = np.arange(deltas.size)
        for level, (smallest_delta, _) in enumerate(accuracy.LEVELS):
            if not open_.size:
                break
            # For a δ below the smallest δ of the level, the answer at the latter is a
            # lower bound on ε. Including it makes ε monotone in δ.
            asked = np.maximum(deltas[open_], smallest_delta)
            for one_way in self._profiles_at(level):
                bounds[open_] = np.maximum(bounds[open_], one_way.epsilons(asked))
            open_ = open_[deltas[open_] < smallest_delta]
        if self.bound is Bound.UPPER:
            bounds[open_] = math.inf
        return bounds

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) bounds on δ at (n,) ε, which may be infinite."""
        is_upper = self.bound is Bound.UPPER
        bounds = np.full(epsilons.shape, 1.0 if is_upper else 0.0)
        best = np.minimum if is_upper else np.maximum
        # No finite loss is larger than this.
        epsilons = np.minimum(epsilons, 1e300)
        open_ = np.arange(epsilons.size)
        for level, (smallest_delta, _) in enumerate(accuracy.LEVELS):
            if not open_.size:
                break
            both_ways = [
                one_way.deltas(epsilons[open_]) for one_way in self._profiles_at(level)
            ]
            bounds[open_] = best(bounds[open_], functools.reduce(np.maximum, both_ways))
            open_ = open_[bounds[open_] < smallest_delta]
        return bounds

    def _profiles_at(self, level: int) -> tuple[profile.Profile, ...]:
        """Returns the profiles of a level of `accuracy.LEVELS` in all directions."""
        return _PROFILES.get((self, level), functools.partial(self._made, level))

    def _made(self, level: int) -> tuple[profile.Profile, ...]:
        accurate = accuracy.Accuracy.of_level(level, self.cells)
        composed = compositions.losses(self.parts, self.bound, accurate)
        return tuple(composed.losses(way).profile(way) for way in self.directions)


_PROFILES: memory.Memory[tuple[profile.Profile, ...]] = memory.Memory(MOST_KEPT)


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
        uppers = self._uppers(PrivacyBounds.upper_epsilons, np.array([delta]))
        return int(np.argmax(uppers[:, 0]))

    def upper_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) upper bounds on δ at (n,) ε."""
        return np.asarray(self._upper_deltas(epsilons).max(axis=0))

    def epsilon_bounds(self, deltas: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and upper bounds on ε at (n,) δ in [0, 1), in nats."""
        return self._bounds(
            self._uppers(PrivacyBounds.upper_epsilons, deltas),
            lambda bounds, chosen: bounds.lower_epsilons(deltas[chosen]),
        )

    def delta_bounds(self, epsilons: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and upper bounds on δ at (n,) ε."""
        lower, upper = self._bounds(
            self._upper_deltas(epsilons),
            lambda bounds, chosen: bounds.lower_deltas(epsilons[chosen]),
        )
        return np.where(lower < floats.SMALLEST_MASS, 0.0, lower), upper

    def _upper_deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (s, n) upper bounds, none of them a subnormal number."""
        uppers = self._uppers(PrivacyBounds.upper_deltas, epsilons)
        return np.where(uppers > 0, np.maximum(uppers, floats.SMALLEST_MASS), uppers)

    def _uppers(
        self, upper_of: Callable[..., FloatArray], asked: FloatArray
    ) -> FloatArray:
        """Returns (s, n) upper bounds of s scenarios, the largest of them tight."""
        first, *others = self.scenarios
        uppers = [upper_of(first, asked)]
        worst = uppers[0]
        for scenario in others:
            bounds = upper_of(scenario.rough, asked)
            open_ = np.flatnonzero(bounds > worst)
            if open_.size:
                tight = upper_of(scenario, asked[open_])
                bounds[open_] = np.minimum(bounds[open_], tight)
            uppers.append(bounds)
            worst = np.maximum(worst, bounds)
        return np.array(uppers)

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
        with_lower = [n for n, bounds in enumerate(self.scenarios) if bounds.has_lower]
        order = np.argsort(-uppers[with_lower], axis=0, kind="stable")[:_MOST_LOWERS]
        for numbers in np.array(with_lower, dtype=int)[order]:
            for number in with_lower:
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
