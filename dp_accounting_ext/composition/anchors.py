"""At which tilts a composed loss is computed: fixed ones, whatever is asked.

An answer must not depend on what was asked before, and the thousandth question should
cost a look. So tilts are on a geometric grid that follows from the composed laws alone,
each for a stretch of ε, and what is computed for one question is there for the next.
Nothing here is certified but `Anchors.chernoff`: any tilt and window will do, good
ones make a bound tight.
"""

from collections.abc import Iterator
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Tuning, all of it.
# The tilts, over one over the deviation, and how many lie in a doubling.
_LEAST_TILT = 0.25
_LARGEST_TILT = 1024.0
_LARGEST_NEGATIVE = 64.0
_IN_A_DOUBLING = 2
_BEYOND = 4.0  # Those above the largest over it are for windows alone.
# Between two of them whose rates' roots are further apart lies another.
_WIDEST_STEP = 1.6
_REFINEMENTS = 14
# They end where the rate is that of δ, and so much more: see `_SINK_EXPONENT`.
_FURTHER_RATE = 25.0
# Share of the rate at ε that the tilt for it has, at most. The law tilted to a point
# has a tail beyond it as heavy as tilts allow, or is that point alone where it is the
# largest loss; a little less tilt has neither trouble, and noise enough to spare.
_EASE = 0.65
# Minus the logarithm of the tilted mass that may be outside a window:
_LOWER_EXPONENT = 45.0  # Of a lower bound.
_UPPER_EXPONENT = 28.0  # Below an upper one, less what folds.
_LEAST_EXPONENT = 6.0  # Below an upper one at least.
_FOLDED_EXPONENT = 16.0  # Above an upper one, what folds onto losses that are read.
# Minus the logarithm of the share of δ that is above an upper one, and so infinite.
_SINK_EXPONENT = 20.0
_DEVIATIONS_BELOW = 1.0  # How far below its stretch a composed loss is kept.
_LEAST_CENTRE = 0.1  # An ε near zero counts as so many deviations.
_LEAST_SPREAD = 1e-12  # A smaller deviation, over the largest loss, is rounding.
_MOST_ATOMS = 1024  # Of one law; of several together four times as many.
_FEWEST_ATOMS = 128
# Half of them will do for an ordinary δ; of 1e-129 a bracket was 57 % wide with them.
_ORDINARY = 1e-20
_OCTAVES = 4096  # More than there are.
# Certified: of a handful of numbers, relatively.
_ROUNDING = 1e-10


@dataclasses.dataclass(frozen=True)
class Group:
    """A few atoms that stand for a law: neighbours, split between their ends.

    So the moments of an upper law are no larger than theirs, and not by much smaller.

    Attributes:
        starts: (n,) the places in the law of the atoms.
        values: (n,) their losses.
        masses: (n,) their masses, positive.
        count: How often the law is composed.
    """

    starts: IndexArray
    values: FloatArray
    masses: FloatArray
    count: int

    @classmethod
    def of(
        cls,
        losses: FloatArray,
        masses: FloatArray,
        count: int,
        num_laws: int,
        delta: float = 0.0,
    ) -> "Group":
        """Returns the group of one of so many laws, for no less than some δ."""
        most = _MOST_ATOMS if delta < _ORDINARY else _MOST_ATOMS // 2
        most = max(min(most, 4 * _MOST_ATOMS // num_laws), _FEWEST_ATOMS)
        size = min(masses.size, most)
        starts = np.arange(size) * masses.size // size
        ends = np.append(starts[1:], masses.size - 1)
        widths = losses[ends] - losses[starts]
        sizes = np.diff(np.append(starts, masses.size))
        # Shares of what is in a cell, a sum of positive terms each: a rare loss that
        # is far from the others is as exact as they are.
        beyond = losses - np.repeat(losses[starts], sizes)
        before = np.repeat(widths, sizes) - beyond
        moved = np.add.reduceat(masses * beyond, starts)
        left = np.add.reduceat(masses * before, starts)
        has_width = widths > 0
        np.divide(moved, widths, out=moved, where=has_width)
        np.divide(left, widths, out=left, where=has_width)
        left[~has_width] = np.add.reduceat(masses, starts)[~has_width]
        split = np.append(left, 0.0)
        split[1:] += moved
        starts = np.append(starts, masses.size - 1)
        kept = split > 0
        return cls(starts[kept], losses[starts[kept]], split[kept], count)

    def cumulants(self, tilts: FloatArray) -> FloatArray:
        """Returns (3, m) ln E e^{tilt · loss} and its two derivatives."""
        largest = self.values[-1] if self.values.size else 0.0
        exponents = np.multiply.outer(tilts, self.values - largest)
        exponents += self._log_masses
        tops = exponents.max(axis=1)
        exponents -= tops[:, np.newaxis]
        weights = np.exp(exponents, out=exponents)
        # Too few for threads of their own.
        totals, means, squares = self._powers @ weights.T
        means /= totals
        variances = squares / totals - means**2
        values = tilts * largest + tops + np.log(totals)
        means += self.values[0]
        return self.count * np.array([values, means, np.maximum(variances, 0.0)])

    def variance(self) -> float:
        """Returns that of all copies, not tilted."""
        total, mean, square = self._powers @ self.masses
        return self.count * max(float(square / total - (mean / total) ** 2), 0.0)

    @functools.cached_property
    def _log_masses(self) -> FloatArray:
        return np.log(self.masses)

    @functools.cached_property
    def _powers(self) -> FloatArray:
        """(3, n) powers of the losses above the least one."""
        above = self.values - self.values[0]
        return np.array([np.ones(above.size), above, above**2])

    def tilted(self, tilt: float) -> FloatArray:
        """Returns (n,) masses under a tilt, of any sum."""
        exponents = tilt * self.values
        exponents -= exponents.max()
        return np.asarray(self.masses * np.exp(exponents))

    def negligible_below(self, tilt: float, share: float) -> int:
        """Returns where the law begins but for so small a share, tilted.

        The share is that of what lies below once it is raised to there: under a large
        tilt atoms that hide behind a higher one are no longer hidden as a part of it.
        """
        exponents = tilt * self.values
        exponents -= exponents.max()
        weights = np.exp(exponents)
        raised = np.append(0.0, np.cumsum(self.masses[:-1])) * weights
        total = float(np.dot(self.masses, weights))
        first = int(np.searchsorted(raised, share / self.count * total, side="right"))
        return int(self.starts[max(first - 1, 0)])


@dataclasses.dataclass(frozen=True)
class Place:
    """Where a composed loss is computed, and what for.

    Attributes:
        tilt: The tilt.
        low: Lower end of the window: between them the tilted law lies, nearly.
        high: Upper end.
        lowest: The lowest loss that is read.
        highest: The highest loss that is read.
        centre: The least ε that it is for, which tells how fine a lattice is needed.
        changes: Changes of the tilt with which Chernoff's bound gives the ends.
    """

    tilt: float
    low: float
    high: float
    lowest: float
    highest: float
    centre: float
    changes: tuple[float, ...]


def grouped(
    keys: IndexArray,
) -> Iterator[tuple[int, IndexArray | slice]]:
    """Yields the keys that there are, and where; in no time where there is one."""
    if keys.size == 1:
        yield int(keys[0]), slice(None)
        return
    for key in np.unique(keys).tolist():
        yield key, np.flatnonzero(keys == key)


class Anchors:
    """The tilts of a composed loss, and the stretches of ε that they are for.

    Args:
        groups: Of the laws that are composed.
        bound: Their side.
        most: The largest loss of the composition.
        delta: The least δ that matters.
    """

    def __init__(
        self, groups: Sequence[Group], bound: Bound, most: float, delta: float
    ) -> None:
        self._bound = bound
        self._most = most
        self.deviation = _deviation(groups)
        self._tilts = self._values = self._means = self._variances = np.zeros(0)
        self._set(groups, _grid(self.deviation))
        largest = math.sqrt(2 * (_FURTHER_RATE - math.log(delta)))
        for _ in range(_REFINEMENTS):
            steps = self._roots[1:] / np.maximum(self._roots[:-1], _LEAST_TILT)
            wide = (steps > _WIDEST_STEP) & (self._roots[:-1] < largest)
            wide = self._zero + np.flatnonzero(wide)
            if not wide.size:
                break
            left, right = self._tilts[wide], self._tilts[wide + 1]
            self._set(groups, np.maximum(np.sqrt(left * right), right / 64))
        # Where the rate is so much that the tilt is no larger than is wanted.
        goals = self._roots / math.sqrt(_EASE)
        starts = np.interp(goals, self._roots, self._centres, right=math.inf)
        starts[0] = -math.inf
        tilts = self._tilts[self._zero :]
        starts[tilts > tilts[-1] / _BEYOND] = math.inf
        self._starts = starts
        spreads = np.sqrt(self._variances[self._zero :])
        self._least = _LEAST_CENTRE * np.maximum(spreads, 1e-9 * self.deviation)
        values, means = self._values[self._zero :], self._means[self._zero :]
        self._log_deltas = self._saddle_points(values, tilts, means)

    def _set(self, groups: Sequence[Group], tilts: FloatArray) -> None:
        """Computes the cumulants under some tilts more."""
        more = np.sum([group.cumulants(tilts) for group in groups], axis=0)
        tilts = np.append(self._tilts, tilts)
        table = np.append([self._values, self._means, self._variances], more, axis=1)
        order = np.argsort(tilts)
        self._tilts = tilts[order]
        self._values, self._means, self._variances = table[:, order]
        self._zero = int(np.searchsorted(self._tilts, 0.0))
        at = slice(self._zero, None)
        gains = self._values[at] - self._values[self._zero]
        rates = np.maximum.accumulate(self._tilts[at] * self._means[at] - gains)
        # Close to a line, as for a Gaussian: the root of the rate over the mean.
        self._roots = np.sqrt(2 * rates)
        self._centres = np.maximum.accumulate(self._means[at])

    def _saddle_points(
        self, values: FloatArray, tilts: FloatArray, means: FloatArray
    ) -> FloatArray:
        """Returns (m,) ln δ at the means, by the saddle point."""
        spread = 0.5 * np.log(
            2 * math.pi * np.maximum(self._variances[self._zero :], 1e-200)
        )
        with np.errstate(divide="ignore"):
            prefactors = np.log(tilts) + np.log1p(tilts) + spread
        # Where the loss is almost constant there is no density to speak of.
        logs = values - tilts * means - np.maximum(prefactors, 0.0)
        decreasing: FloatArray = np.minimum.accumulate(logs)
        return decreasing

    def chernoff(self, error: float) -> tuple[FloatArray, FloatArray]:
        """Returns (m,) tilts t > 0 and c, so that certainly δ(ε) ≤ e^{c − t ε}.

        For upper laws, the infinite losses aside. With x = loss − ε, 1 − e^−x is at
        most e^{t x} t^t / (1 + t)^{1 + t}.

        Args:
            error: Bound on the relative error of a moment.
        """
        tilts = self._tilts[self._zero + 1 :]
        return tilts, _exponents(tilts, self._values[self._zero + 1 :] + error)

    def dual_chernoff(
        self, error: float, error_of_tilts: float
    ) -> tuple[FloatArray, FloatArray]:
        """Returns what `chernoff` does of the same two laws exchanged.

        The moment under a tilt t of minus the loss, where a mass is e^−loss of what it
        is, is the moment of the loss under −1 − t.

        Args:
            error: Bound on the relative error of a moment.
            error_of_tilts: And so much more, times 1 + t.
        """
        here = slice(int(self._tilts.searchsorted(-1.0)))
        tilts = -1 - self._tilts[here]
        moments = self._values[here] + error + (1 + tilts) * error_of_tilts
        return tilts, _exponents(tilts, moments)

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) ε at (n,) δ, about."""
        return np.interp(-np.log(deltas), -self._log_deltas, self._centres)

    def log_deltas(self, epsilons: FloatArray | float) -> FloatArray:
        """Returns (n,) ln δ at (n,) ε, about; −inf above the largest tilt's mean."""
        found = np.interp(epsilons, self._centres, self._log_deltas, right=-math.inf)
        return np.asarray(found)

    def keys(self, epsilons: FloatArray) -> IndexArray:
        """Returns (n,) numbers of the places that (n,) ε are read at."""
        tilts = self._starts.searchsorted(epsilons, side="right") - 1
        least = self._least[tilts]
        octaves = np.floor(np.log2(np.maximum(epsilons, least / 2) / least)) + 1
        keys: IndexArray = tilts * _OCTAVES + octaves.astype(np.int64)
        return keys

    def key(self, epsilon: float) -> int:
        """Returns what `keys` does at one ε."""
        tilt = int(self._starts.searchsorted(epsilon, side="right")) - 1
        least = float(self._least[tilt])
        octave = int(np.floor(np.log2(max(epsilon, least / 2) / least))) + 1
        return tilt * _OCTAVES + octave

    def place(self, key: int) -> Place:
        """Returns the place with a number."""
        number, octave = divmod(key, _OCTAVES)
        at = self._zero + number
        tilt, least = float(self._tilts[at]), float(self._least[number])
        deviation = least / _LEAST_CENTRE
        first = float(self._starts[number])
        last = math.inf
        if number + 1 < self._starts.size:
            last = float(self._starts[number + 1])
        last = min(last, math.ldexp(least, octave), self._most)
        if octave:
            first = max(first, math.ldexp(least, octave - 1))
        lowest = first - _DEVIATIONS_BELOW * deviation
        if self._bound is Bound.LOWER:
            low, high, changes = self._lower_window(at)
        else:
            low, high, changes = self._upper_window(at, max(lowest, -1e300), last)
        if number == 0 and not octave:
            lowest = low
        return Place(
            tilt,
            min(low, lowest),
            max(high, last),
            lowest,
            last + deviation,
            max(first, least),
            changes,
        )

    def _end(self, at: int, sign: int, exponent: float) -> tuple[float, float]:
        """Returns beyond what loss a tilted law has e^−exponent, and by what change."""
        others = np.flatnonzero((self._tilts - self._tilts[at]) * sign > 0)
        changes = self._tilts[others] - self._tilts[at]
        moments = self._values[others] - self._values[at] + exponent
        ends = sign * moments / np.abs(changes)
        best = int(np.argmin(sign * ends))
        return float(ends[best]), float(changes[best])

    def _lower_window(self, at: int) -> tuple[float, float, tuple[float, ...]]:
        """Returns the window of a lower bound, which loses what folds onto it."""
        low, below = self._end(at, -1, _LOWER_EXPONENT)
        high, above = self._end(at, 1, _LOWER_EXPONENT)
        return low, high, (below, above)

    def _upper_window(
        self, at: int, lowest: float, last: float
    ) -> tuple[float, float, tuple[float, ...]]:
        """Returns the window of an upper bound.

        What folds onto it counts too much, and little: what lies below folds onto the
        top, where tilting back makes it small.
        """
        tilt = float(self._tilts[at])
        # Above it the law, not tilted, has a negligible share of δ.
        rate = float(np.interp(last, self._centres, self._roots)) ** 2 / 2
        others = slice(self._zero + 1, None)
        # Rates are those of a law of mass one, and δ of small losses is no larger.
        moments = self._values[others] - self._values[self._zero]
        moments += rate + _SINK_EXPONENT - min(math.log(self.deviation), 0.0)
        ends = moments / self._tilts[others]
        best = int(np.argmin(ends))
        high, change = float(ends[best]), float(self._tilts[others][best]) - tilt
        folded = 0.7 * tilt * (high - float(self._means[at]))
        # At the far end of the stretch the tilt has a smaller share of the rate.
        here = float(self._roots[at - self._zero]) ** 2 / 2
        lacking = max(_EASE * rate - here, 0.0)
        exponent = max(_UPPER_EXPONENT + lacking - folded, _LEAST_EXPONENT)
        low, _ = self._end(at, -1, exponent)
        # What the tilted law has above it folds onto losses that are not read.
        room = max(lowest - low, 0.0)
        top = max(high, self._end(at, 1, _FOLDED_EXPONENT)[0] - room)
        return low, top, (change,)


@dataclasses.dataclass(frozen=True)
class SimpleBound:
    """Upper bounds at once, and not tight: δ(ε) ≤ sink + least of e^{c − t ε}.

    Attributes:
        tilts: (m,) t, positive; where there are none nothing is known,
        exponents: (m,) and c.
        sink: The probability of infinite losses.
    """

    tilts: FloatArray
    exponents: FloatArray
    sink: float

    @classmethod
    def trivial(cls) -> "SimpleBound":
        """Returns that of what nothing is known of."""
        return cls(np.zeros(0), np.zeros(0), 1.0)

    def epsilons(self, deltas: FloatArray) -> FloatArray:
        """Returns (n,) ε that are certainly no smaller than those of (n,) δ."""
        with np.errstate(divide="ignore", invalid="ignore"):
            logs = np.log(deltas - self.sink)
            ends = (self.exponents - logs[:, np.newaxis]) / self.tilts
        best = np.maximum(ends.min(axis=1, initial=math.inf), 0.0) * (1 + _ROUNDING)
        return np.where(np.isnan(best), math.inf, best)

    def epsilon(self, delta: float) -> float:
        """Returns what `epsilons` does at one δ."""
        rest = delta - self.sink
        if not self.tilts.size or rest <= 0:
            return math.inf
        ends = (self.exponents - float(np.log(rest))) / self.tilts
        return max(float(ends.min()), 0.0) * (1 + _ROUNDING)

    def deltas(self, epsilons: FloatArray) -> FloatArray:
        """Returns (n,) δ that are certainly no smaller than those of (n,) ε."""
        logs = self.exponents - np.multiply.outer(epsilons, self.tilts)
        chances = np.exp(logs.min(axis=1, initial=0.0)) * (1 + _ROUNDING)
        found: FloatArray = np.minimum(chances + self.sink, 1.0)
        return found

    def delta(self, epsilon: float) -> float:
        """Returns what `deltas` does at one ε."""
        log = float((self.exponents - epsilon * self.tilts).min(initial=0.0))
        return min(float(np.exp(log)) * (1 + _ROUNDING) + self.sink, 1.0)


def _deviation(groups: Sequence[Group]) -> float:
    """Returns the standard deviation of the composed loss, about."""
    variance = sum(group.variance() for group in groups)
    # The spread of losses that are equal but for rounding is no guide.
    largest = max(float(np.abs(group.values).max()) for group in groups)
    return max(math.sqrt(variance), _LEAST_SPREAD * largest, 1e-100)


def _exponents(tilts: FloatArray, moments: FloatArray) -> FloatArray:
    """Returns (m,) c so that δ(ε) ≤ e^{c − t ε}, of tilts t > 0 and their moments."""
    logs = np.log(tilts)
    factors = tilts * logs - (1 + tilts) * np.log1p(tilts)
    bounds: FloatArray = moments + factors + 1e-12 * (1 + tilts * np.abs(logs))
    return bounds


def few_chernoff(
    groups: Sequence[Group], error: float
) -> tuple[FloatArray, FloatArray]:
    """Returns what `Anchors.chernoff` does, of fewer tilts and in less time."""
    grid = _grid(_deviation(groups))
    tilts = -grid[grid < 0]  # Large ones of less use are not among them.
    moments = np.sum([group.cumulants(tilts)[0] for group in groups], axis=0)
    return tilts, _exponents(tilts, moments + error)


def _grid(deviation: float) -> FloatArray:
    """Returns the tilts to begin with, zero among them."""
    doublings = math.log2(_LARGEST_TILT / _LEAST_TILT)
    steps = np.arange(round(doublings * _IN_A_DOUBLING) + 1) / _IN_A_DOUBLING
    positive = _LEAST_TILT * 2.0**steps / deviation
    negative = -positive[positive <= _LARGEST_NEGATIVE * 1.01 / deviation]
    return np.concatenate([negative, [0.0], positive])
