"""Random allocation on an additive lattice: Fourier powers and a few jumps.

The mean of t ratios has a narrow bulk and a long tail, in which one ratio (or
two) alone is large. So ratios above a threshold, of which a run expects one in
a thousand, are jumps. Without jumps the sum is light-tailed: one Fourier power
on a fine lattice, tilted. With m jumps it is that sum (of t − m ratios) plus m
jumps, convolved directly on lattices as coarse as the jumps are large. The
parts make a mixture, and each is split (upper bound) or grouped (lower bound)
on its own lattice.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft
from scipy import optimize

from dp_accounting_ext import dominating_pair
from dp_accounting_ext.kernels import geometric
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

_SAFETY = 1 + 1e-9  # Covers the rounding of bounds that are not tight anyway.
_SKETCH_SIZE = 2048
_LARGEST_RELATIVE_NOISE = 1e-6
_JUMP_RATE = 1e-3  # Expected number of jumps in a sum.
_MOST_JUMPS = lattice.MOST_LEFT_OUT
_SHORTEST_JUMP = 6.0  # In standard deviations of the sum without jumps.
_ROOM = 3.0  # Size of the circle over the size of the window.
_JUMP_CELLS = 1 / 64  # Lattice cells in a standard deviation, over the points.
_JUMP_STEPS = 1 / 4096  # The same for sums with several jumps: rarer, so coarser.
_FINEST_JUMP_STEP, _COARSEST_JUMP_STEP = 0.001, 0.05
_NEAR_THE_END = 0.01  # Share of the sum's range.
_TILT_SPACING = 6.0  # Between neighbouring tilts' centres, in standard deviations.
_TILT_CHANGES = (15.0, 30.0, 60.0, 120.0)  # For Chernoff bounds; over the circle.
_LARGEST_TILT = 0.7  # Over the tilt that centres the sum on the end of the window.


@dataclasses.dataclass(frozen=True)
class Summand:
    """`count` independent copies of weight · Z, Z the ratio of a pair."""

    pair: dominating_pair.DominatingPair
    count: int
    weight: float = 1.0

    def places(self) -> FloatArray:
        """(n,) values of one copy."""
        return self.weight * self.pair.ratios

    def mean(self) -> float:
        """Returns the expectation of one copy, infinite ratios aside."""
        return self.weight * float(self.pair.p_masses.sum())


def negligible_zero(summand: Summand, tail_mass: float) -> bool:
    """Tells whether a sum with a zero among its copies may count as zero itself."""
    return summand.count * summand.pair.zero_mass <= 10 * tail_mass


@dataclasses.dataclass(frozen=True)
class _Atoms:
    """Masses at lattice points, or at the means of lattice cells.

    Attributes:
        step: The lattice step.
        start: Lattice index of the first mass.
        masses: (n,) masses.
        moments: (n,) mass times offset of the mean from the lattice point, in
            units of the variable; None for an upper bound.
    """

    step: float
    start: int
    masses: FloatArray
    moments: FloatArray | None

    @classmethod
    def of(
        cls, places: FloatArray, masses: FloatArray, step: float, bound: Bound
    ) -> "_Atoms":
        """Splits masses between lattice points, or groups them at the nearest."""
        if places.size == 0:
            moments = None if bound is Bound.UPPER else np.zeros(1)
            return cls(step, 0, np.zeros(1), moments)
        positions = places / step
        if bound is Bound.LOWER:
            cells = np.rint(positions).astype(np.int64)
            start = int(cells.min())
            size = int(cells.max()) - start + 1
            offsets = (positions - cells) * step * masses
            return cls(
                step,
                start,
                sums.gather(cells - start, masses, size),
                sums.gather(cells - start, offsets, size),
            )
        cells = np.floor(positions).astype(np.int64)
        start = int(cells.min())
        size = int(cells.max()) - start + 2
        raised = positions - cells
        out = sums.gather(cells - start, (1 - raised) * masses, size)
        out += sums.gather(cells - start + 1, raised * masses, size)
        return cls(step, start, out, None)

    def convolved(self, other: "_Atoms") -> "_Atoms":
        """Returns the law of the sum, directly: all terms are positive."""
        masses = np.convolve(self.masses, other.masses)
        moments = None
        if self.moments is not None and other.moments is not None:
            moments = np.convolve(self.moments, other.masses)
            moments += np.convolve(self.masses, other.moments)
        return _Atoms(self.step, self.start + other.start, masses, moments)

    def places(self) -> FloatArray:
        """(n,) where the masses are."""
        indices = self.start + np.arange(self.masses.size, dtype=np.float64)
        places = indices * self.step
        if self.moments is not None:
            occupied = self.masses > 0
            places[occupied] += self.moments[occupied] / self.masses[occupied]
        return places


@dataclasses.dataclass(frozen=True)
class _Part:
    """One part of a mixture: atoms, and bounds on their relative errors."""

    places: FloatArray
    masses: FloatArray
    mass_error: float
    ratio_error: float

    @classmethod
    def of(cls, atoms: _Atoms) -> "_Part":
        error = 4 * atoms.masses.size * lattice.UNIT_ROUNDOFF
        return cls(atoms.places(), atoms.masses, error, 0.0)


class _Sketch:
    """A few thousand atoms that stand for a law where no certificate is needed."""

    def __init__(
        self, summands: Sequence[Summand], threshold: float, tail_mass: float
    ) -> None:
        self._counts = [summand.count for summand in summands]
        self._laws = []
        for summand in summands:
            ordinary = summand.places() <= threshold
            places = summand.places()[ordinary]
            masses = summand.pair.masses[ordinary]
            chunks = np.linspace(0, places.size, _SKETCH_SIZE, False).astype(int)
            starts = np.unique(chunks)
            totals = np.add.reduceat(masses, starts)
            means = np.add.reduceat(masses * places, starts)
            kept = totals > 0
            self._laws.append((means[kept] / totals[kept], totals[kept]))
            if not negligible_zero(summand, tail_mass):
                law = self._laws.pop()
                self._laws.append(
                    (np.append(0.0, law[0]), np.append(summand.pair.zero_mass, law[1]))
                )

    def mean_and_deviation(self) -> tuple[float, float]:
        mean = variance = 0.0
        for count, (places, masses) in zip(self._counts, self._laws, strict=True):
            law_mean = sums.dot(places, masses) / float(masses.sum())
            mean += count * law_mean
            spread = (places - law_mean) ** 2
            variance += count * sums.dot(spread, masses) / float(masses.sum())
        return mean, math.sqrt(variance)

    def ends(self) -> tuple[float, float]:
        """Returns the least and the largest sum."""
        return (
            sum(
                c * float(p[0])
                for c, (p, _) in zip(self._counts, self._laws, strict=True)
            ),
            sum(
                c * float(p[-1])
                for c, (p, _) in zip(self._counts, self._laws, strict=True)
            ),
        )

    def exponent(self, tilt: float, target: float) -> tuple[float, float]:
        """Returns ln E e^{tilt (S − target)} and its slope."""
        total, slope = -tilt * target, -target
        for count, (places, masses) in zip(self._counts, self._laws, strict=True):
            exponents = tilt * places
            largest = float(exponents.max())
            weights = masses * np.exp(exponents - largest)
            moment = float(weights.sum())
            total += count * (largest + math.log(moment))
            slope += count * sums.dot(weights, places) / moment
        return total, slope

    def saddle(self, target: float) -> tuple[float, float]:
        """Returns the tilt that centres S on target, and Chernoff's exponent there."""
        mean, deviation = self.mean_and_deviation()
        sign = 1.0 if target > mean else -1.0
        end = sign * abs(target - mean) / deviation**2
        for _ in range(200):
            if self.exponent(end, target)[1] * sign >= 0:
                break
            end *= 2.0
        else:
            return end, -math.inf
        tilt = optimize.brentq(
            lambda x: self.exponent(x, target)[1], 0.0, end, xtol=1e-3 * abs(end)
        )
        return float(tilt), self.exponent(float(tilt), target)[0]

    def quantile(self, goal: float, sign: float) -> tuple[float, float]:
        """Returns where Chernoff's exponent is about `goal`, and the tilt there.

        One search over the tilt: the saddle point of each tilt is known.
        """
        _, deviation = self.mean_and_deviation()

        def exponent(log_tilt: float) -> float:
            tilt = sign * math.exp(log_tilt)
            saddle = self.exponent(tilt, 0.0)[1]
            return self.exponent(tilt, saddle)[0] - goal

        mean, _ = self.mean_and_deviation()
        end = self.ends()[sign > 0]
        low = high = math.log(math.sqrt(-2 * goal) / deviation)
        while exponent(low) < 0:
            low -= 1.0
        while exponent(high) >= 0:
            tilt = sign * math.exp(high)
            if abs(self.exponent(tilt, 0.0)[1] - end) < _NEAR_THE_END * abs(end - mean):
                # Even the end is not so rare.
                return end, tilt
            high += 1.0
        tilt = sign * math.exp(optimize.brentq(exponent, low, high, xtol=0.01))
        return self.exponent(tilt, 0.0)[1], tilt


@dataclasses.dataclass(frozen=True)
class Window:
    """What part of the line a sum needs, and how to reach it.

    Attributes:
        tail_mass: Probability that may be outside, on either side.
        threshold: Ratios (times their weight) above it are jumps.
        low: Lower end of the sum of ordinary ratios.
        high: Its upper end.
        deviation: Its standard deviation.
        tilts: Tilts at which it is computed, increasing.
        lowering: Tilt that centres it on low.
        raising: Tilt that centres it on high.
    """

    tail_mass: float
    threshold: float
    low: float
    high: float
    deviation: float
    tilts: tuple[float, ...]
    lowering: float
    raising: float


def window_of(summands: Sequence[Summand], tail_mass: float) -> Window:
    """Returns a window outside which the sum has about tail_mass, on either side.

    Nothing is certified here: what lies outside is bounded anew by `mean_of`.
    """
    threshold = jump_threshold(summands)
    sketch = _Sketch(summands, threshold, tail_mass)
    _, deviation = sketch.mean_and_deviation()
    goal = math.log(tail_mass)
    low, lowering = sketch.quantile(goal, -1.0)
    high, raising = sketch.quantile(goal, 1.0)
    pieces = max(1, math.ceil(_LARGEST_TILT * math.sqrt(-2 * goal) / _TILT_SPACING))
    steps = _LARGEST_TILT * np.arange(1, pieces + 1) / pieces
    tilts = [*(lowering * steps[::-1]), 0.0, *(raising * steps)]
    return Window(
        tail_mass=tail_mass,
        threshold=threshold,
        low=max(low, 0.0),
        high=high,
        deviation=deviation,
        tilts=tuple(float(tilt) for tilt in tilts),
        lowering=lowering,
        raising=raising,
    )


def bulk_deviation(summands: Sequence[Summand], threshold: float) -> float:
    """Returns the standard deviation of the sum of ratios up to a threshold."""
    variance = 0.0
    for summand in summands:
        ordinary = summand.places() <= threshold
        places, masses = summand.places()[ordinary], summand.pair.masses[ordinary]
        mean = sums.dot(places, masses)
        variance += summand.count * sums.dot((places - mean) ** 2, masses)
    return math.sqrt(variance)


def jump_threshold(summands: Sequence[Summand]) -> float:
    """Returns where jumps begin: a sum has about `_JUMP_RATE` of them."""
    places = np.concatenate([s.places() for s in summands])
    rates = np.concatenate([s.count * s.pair.masses for s in summands])
    order = np.argsort(places)[::-1]
    expected = np.cumsum(rates[order])
    last = int(np.searchsorted(expected, _JUMP_RATE))
    if last == 0:
        return math.inf
    threshold = float(places[order[min(last, order.size - 1)]])
    # Jumps that hardly leave the bulk need no care.
    reach = float(places[order[0]]) - min(summand.mean() for summand in summands)
    if reach < _SHORTEST_JUMP * bulk_deviation(summands, threshold):
        return math.inf
    return threshold


def mean_of(
    summands: Sequence[Summand], window: Window, *, points: int
) -> dominating_pair.DominatingPair:
    """Returns the law of the weighted mean of independent ratios.

    Args:
        summands: The ratios, their numbers of copies and weights; all upper or
            all lower bounds.
        window: From `window_of`, for summands with about the same law.
        points: Number of lattice points in the window.

    Returns:
        The pair whose Z is Σ weight · Z_i / Σ weight.

    Source:
        https://arxiv.org/abs/2602.17284, section 5.
    """
    return _Mean(summands, window, points).pair()


class _Mean:
    """One computation of `mean_of`."""

    def __init__(
        self, summands: Sequence[Summand], window: Window, points: int
    ) -> None:
        self._summands = summands
        self._counts = [summand.count for summand in summands]
        self._window = window
        self._points = points
        self._bound = summands[0].pair.bound
        self._total = sum(s.count * s.weight for s in summands)
        self._step = (window.high - window.low) / points
        self._first = max(0, math.floor(window.low / self._step))
        self._last = math.ceil(window.high / self._step) + 1
        size = max(math.ceil(_ROOM * (self._last - self._first)), 16)
        self._size = fft.next_fast_len(size, real=True)
        self._lost = 0.0
        self._zero = 0.0
        self._place_error = 0.0
        self._factors = [self._factor(summand) for summand in summands]
        self._jumps = [self._jump_atoms(summand) for summand in summands]
        self._jump_sums: dict[tuple[int, ...], geometric.GeometricLaw] = {}
        changes = [change / self._size for change in _TILT_CHANGES]
        self._sums = [
            lattice.TiltedSum(self._factors, tilt * self._step, self._size, changes)
            for tilt in window.tilts
        ]

    def _factor(self, summand: Summand) -> lattice.Factor:
        """Returns the ordinary ratios on the lattice."""
        places, masses = summand.places(), summand.pair.masses
        if not negligible_zero(summand, self._window.tail_mass):
            places = np.append(0.0, places)
            masses = np.append(summand.pair.zero_mass, masses)
        elif self._bound is Bound.UPPER:
            # Such a sum goes to zero, and what it had of the mean to infinity.
            mass = summand.count * summand.pair.zero_mass * _SAFETY
            self._zero += mass
            self._lost += mass * self._total * _SAFETY
        ordinary = places <= self._window.threshold
        places, masses = places[ordinary], masses[ordinary]
        # A ratio this large alone takes the sum out of the window.
        cap = self._window.high - self._window.low + summand.mean()
        if self._bound is Bound.UPPER:
            self._lost += summand.count * sums.dot(
                np.maximum(places - cap, 0.0), masses
            )
            places = np.minimum(places, cap)
        else:
            places, masses = places[places <= cap], masses[places <= cap]
        atoms = _Atoms.of(places, masses, self._step, self._bound)
        moments = None if atoms.moments is None else atoms.moments / self._step
        return lattice.Factor(atoms.start, atoms.masses, summand.count, moments)

    def _jump_atoms(self, summand: Summand) -> tuple[FloatArray, FloatArray]:
        places = summand.places()
        jumps = places > self._window.threshold
        return places[jumps], summand.pair.masses[jumps]

    def pair(self) -> dominating_pair.DominatingPair:
        """Returns the mixture over the number of jumps."""
        parts = [_Part.of(self._ordinary(self._counts)), *self._jumping()]
        places = np.concatenate([part.places for part in parts])
        masses = np.concatenate([part.masses for part in parts])
        infinity = sum(
            s.count * s.weight * s.pair.infinity_mass for s in self._summands
        )
        zero = 0.0
        if self._bound is Bound.UPPER:
            infinity += self._lost
            zero = self._zero + float(masses[places <= 0].sum())
        kept = np.flatnonzero((masses > 0) & (places > 0))
        kept = kept[np.argsort(places[kept], kind="stable")]
        mass_error = sum(s.count * s.pair.mass_error for s in self._summands)
        mass_error += max(tilted.mass_error() for tilted in self._sums)
        mass_error += max(part.mass_error for part in parts)
        ratio_error = max(s.pair.ratio_error for s in self._summands)
        ratio_error += max(part.ratio_error for part in parts)
        return dominating_pair.DominatingPair(
            places[kept] / self._total,
            masses[kept],
            infinity_mass=infinity / self._total,
            zero_mass=zero,
            bound=self._bound,
            mass_error=mass_error,
            ratio_error=ratio_error + self._place_error + 16 * lattice.UNIT_ROUNDOFF,
        )

    def _ordinary(self, counts: Sequence[int], weight: float = 1.0) -> _Atoms:
        """Returns the sum of ordinary ratios, `counts` of each summand.

        Args:
            counts: Copies of each summand.
            weight: Bound on the mass of what the sum is convolved with after.
        """
        if self._bound is Bound.UPPER:
            return self._upper_ordinary(counts, weight)
        return self._lower_ordinary(counts)

    def _indices_for(self, counts: Sequence[int]) -> IndexArray:
        """Returns the lattice indices of the window, moved by the copies left out."""
        moved = sum(
            (summand.count - count) * round(summand.mean() / self._step)
            for summand, count in zip(self._summands, counts, strict=True)
        )
        first = max(self._first - moved, 0)
        return np.arange(first, self._last - moved + 1, dtype=np.int64)

    def _beyond(self, counts: Sequence[int], tilt: float, index: int) -> float:
        """Bounds the mass at an index or beyond it, on the tilt's side (Chernoff)."""
        extreme = -1 if tilt > 0 else 0
        end = sum(
            count * float(factor.indices[extreme])
            for count, factor in zip(counts, self._factors, strict=True)
        )
        if (index - end) * tilt > 0:
            return 0.0
        tilt *= self._step
        exponent = -tilt * index
        for count, factor in zip(counts, self._factors, strict=True):
            exponent += count * factor.tilted(tilt)[0]
        return math.exp(min(exponent, 0.0)) * _SAFETY

    def _upper_ordinary(self, counts: Sequence[int], weight: float) -> _Atoms:
        """Returns masses raised by their noise; the rest goes to the sinks."""
        indices = self._indices_for(counts)
        first, last = int(indices[0]), int(indices[-1])
        values = [tilted.masses(counts, first) for tilted in self._sums]
        masses = np.zeros(indices.size)
        for value, own in zip(values, lattice.owned(values, indices), strict=True):
            raised = np.maximum(value.values[own], 0.0) + value.noise
            masses[own] = raised * value.scale(indices[own])
        # What lies above the window goes to its end and to infinity.
        above = self._beyond(counts, self._window.raising, last + 1)
        masses[-1] += above
        tilt = self._window.raising * self._step
        mean = sum(
            count * sums.dot(factor.tilted(tilt)[1], factor.indices)
            for count, factor in zip(counts, self._factors, strict=True)
        )
        self._lost += weight * above * mean * self._step * _SAFETY
        # What lies below it goes to its start and to zero.
        if first > 0:
            below = self._beyond(counts, self._window.lowering, first - 1)
            masses[0] += below
            self._zero += weight * below
        return _Atoms(self._step, first, masses, None)

    def _lower_ordinary(self, counts: Sequence[int]) -> _Atoms:
        """Returns the masses, lowered by their noise, at places that are certain.

        Grouping by the sum of the lattice indices is a conditional expectation.
        """
        indices = self._indices_for(counts)
        first = int(indices[0])
        values = [tilted.masses(counts, first) for tilted in self._sums]
        masses = np.zeros(indices.size)
        moments = np.zeros(indices.size)
        for tilted, value, own in zip(
            self._sums, values, lattice.owned(values, indices), strict=True
        ):
            if own.size == 0:
                continue
            ends = indices[own[[0, -1]]]
            folded = tilted.folded_mass(counts, int(ends[0]), int(ends[1]))
            noise = value.noise + folded
            own = own[value.values[own] * _LARGEST_RELATIVE_NOISE > noise]
            if own.size == 0:
                continue
            offset = tilted.moments(counts, first)
            offset_noise = offset.noise + folded * tilted.largest_offset()
            mass = value.values[own]
            shift = offset.values[own] / mass
            error = (offset_noise + np.abs(shift) * noise) / (mass - noise)
            place = indices[own] + shift
            certain = error < _LARGEST_RELATIVE_NOISE * place
            own, mass, shift = own[certain], mass[certain], shift[certain]
            relative = error[certain] / place[certain]
            self._place_error = max(self._place_error, float(relative.max(initial=0)))
            masses[own] = (mass - noise) * value.scale(indices[own])
            moments[own] = masses[own] * shift * self._step
        return _Atoms(self._step, first, masses, moments)

    def _jump_mass(self, jumping: Sequence[int]) -> float:
        """Returns the expected number of ways in which some copies jump."""
        mass = _SAFETY
        for number, count, (_, masses) in zip(
            jumping, self._counts, self._jumps, strict=True
        ):
            mass *= math.comb(count, number) * float(masses.sum()) ** number
        return mass

    def _ways(self, jumping: int) -> list[tuple[int, ...]]:
        """Returns the ways to share a number of jumps among the summands."""
        ranges = [range(min(jumping, count) + 1) for count in self._counts]
        return [way for way in itertools.product(*ranges) if sum(way) == jumping]

    def _jumping(self) -> list[_Part]:
        """Returns the sums with one jump, two jumps, …; what has more is lost."""
        if not any(masses.size for _, masses in self._jumps):
            return []
        parts: list[_Part] = []
        for jumping in range(1, _MOST_JUMPS + 1):
            ways = self._ways(jumping)
            mass = sum(self._jump_mass(way) for way in ways)
            if jumping > 1 and mass < self._window.tail_mass:
                # Given that these copies jump, all others keep their mean.
                largest = max(
                    sums.dot(places, masses) / float(masses.sum())
                    for places, masses in self._jumps
                    if masses.size
                )
                self._zero += mass
                self._lost += mass * (jumping * largest + self._total) * _SAFETY
                break
            for way in ways:
                if jumping == 1:
                    parts += self._one_jump(way.index(1), way)
                elif self._jump_mass(way) > 0:
                    parts.append(self._many_jumps(way))
        return parts

    def _rest(self, way: Sequence[int]) -> _Atoms:
        counts = [c - number for c, number in zip(self._counts, way, strict=True)]
        return self._ordinary(counts, self._jump_mass(way))

    def _one_jump(self, which: int, way: Sequence[int]) -> list[_Part]:
        """Returns the sums with one jump, a part for each octave of the jump."""
        places, masses = self._jumps[which]
        if places.size == 0:
            return []
        rest = self._rest(way)
        cells = max(_JUMP_CELLS * self._points, 1.0)
        finest = max(self._window.deviation / cells, self._step)
        octaves = np.floor(np.log2(places / places[0])).astype(int)
        parts = []
        for octave in np.unique(octaves):
            step = finest * 2.0**octave
            own = octaves == octave
            weights = self._counts[which] * masses[own]
            jump = _Atoms.of(places[own], weights, step, self._bound)
            coarse = _Atoms.of(rest.places(), rest.masses, step, self._bound)
            parts.append(_Part.of(jump.convolved(coarse)))
        return parts

    def _many_jumps(self, way: tuple[int, ...]) -> _Part:
        """Returns the sums with several jumps, on a multiplicative grid."""
        rest = self._rest(way)
        grouped = self._bound is Bound.LOWER
        law = geometric.from_atoms(
            rest.places(), rest.masses, self._jump_step(), grouped=grouped
        )
        law = geometric.convolve(self._sum_of_jumps(way), law)
        sets = math.prod(
            math.comb(count, number)
            for count, number in zip(self._counts, way, strict=True)
        )
        # A jump more than nothing: no such sum is zero.
        return _Part(law.places(), sets * law.masses, law.mass_error, law.ratio_error)

    def _jump_step(self) -> float:
        """Returns a grid step that is fine beside the ordinary sum's deviation."""
        reach = self._window.high + 2 * self._window.threshold
        step = self._window.deviation / (_JUMP_STEPS * self._points * reach)
        return min(max(step, _FINEST_JUMP_STEP), _COARSEST_JUMP_STEP)

    def _sum_of_jumps(self, way: tuple[int, ...]) -> geometric.GeometricLaw:
        """Returns the law of a sum of jumps alone, so many of each summand."""
        if way not in self._jump_sums:
            which = next(index for index, number in enumerate(way) if number)
            places, masses = self._jumps[which]
            grouped = self._bound is Bound.LOWER
            step = self._jump_step()
            law = geometric.from_atoms(places, masses, step, grouped=grouped)
            fewer = tuple(n - (i == which) for i, n in enumerate(way))
            if any(fewer):
                law = geometric.convolve(self._sum_of_jumps(fewer), law)
            self._jump_sums[way] = law
        return self._jump_sums[way]
