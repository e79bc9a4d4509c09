"""Sums of ratios none of which is large: tilted Fourier powers on one lattice."""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import fft

from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.kernels import tilted_masses
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# A group whose relative noise is larger is dropped.
_LARGEST_RELATIVE_NOISE = 0.1

# Tuning. In brackets: gap and time for half of it, and twice, over what they are for
# σ = 1, t = 1000 at δ = 1e-6.
_ROOM = 3  # Size of the circle over that of the window. (7 and 0.95, 1 and 1.3.)
# Changes of the tilt times the circle's size, for Chernoff bounds. (The same.)
_TILT_CHANGES = (15.0, 30.0, 60.0, 120.0)
# A window's tilt is that of the copies as they are. What rounding left below them, of
# masses near the tail, weighs much under it, and little under a part of it.
_EASED_TILTS = (1.0, 0.7, 0.5, 0.35, 0.2)
_WIDEST_STRIDE = 8  # Of a law, in lattice steps. (Its kinks are no wider than that.)
_FEWEST_POINTS = 4096  # Of a lattice that is made coarser.
# Noise of all of a law without a tilt, in tails, up to which no other tilt is asked.
# (30: the same gaps in both directions, a third more time. 1e5: at δ = 1e-10 and σ = .8
# the other direction is 1.3 times wider.)
_LEAST_NOISE = 3e3
# The same of its upper end, where sums are expected to have so many large ratios, or
# more. (With any large ratios, δ = 1e-11 and σ = 3, t = 300: 12 times wider.)
_MANY_LARGE, _LEAST_BESIDE_LARGE = 3e-4, 1e11
# The relative errors of places, tried in turn until others cost the middle no more.
_PLACE_ERRORS = (1e-13, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7)


@dataclasses.dataclass(frozen=True)
class LatticeAtoms:
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
    ) -> "LatticeAtoms":
        """Splits masses between lattice points, or groups them at the nearest."""
        positions = places / step
        nearest = np.rint if bound is Bound.LOWER else np.floor
        cells = nearest(positions).astype(np.int64)
        start = int(cells.min())
        cells -= start
        above = positions - (cells + start)
        if bound is Bound.LOWER:
            gathered = sums.gather(cells, masses)
            moments = sums.gather(cells, above * step * masses)
            return cls(step, start, gathered, moments)
        split = sums.gather(cells, (1 - above) * masses, int(cells.max()) + 2)
        split[1:] += sums.gather(cells, above * masses)
        return cls(step, start, split, None)

    def convolved(self, other: "LatticeAtoms") -> "LatticeAtoms":
        """Returns the law of the sum, directly: all terms are positive."""
        masses = np.convolve(self.masses, other.masses)
        moments = None
        if self.moments is not None and other.moments is not None:
            moments = np.convolve(self.moments, other.masses)
            moments += np.convolve(self.masses, other.moments)
        return LatticeAtoms(self.step, self.start + other.start, masses, moments)

    def halved(self) -> "LatticeAtoms":
        """Returns the masses on a lattice of half as many points.

        Those between two of them are split to both, or grouped with the one below.
        """
        odd = self.start % 2
        size = (odd + self.masses.size + 1) // 2 + 1
        masses = np.zeros(2 * size)
        masses[odd : odd + self.masses.size] = self.masses
        even, between = masses[::2], masses[1::2]
        start, step = (self.start - odd) // 2, 2 * self.step
        if self.moments is None:
            split = even + 0.5 * between
            split[1:] += 0.5 * between[:-1]
            return LatticeAtoms(step, start, split, None)
        moments = np.zeros(2 * size)
        moments[odd : odd + self.masses.size] = self.moments
        moved = moments[::2] + (moments[1::2] + self.step * between)
        return LatticeAtoms(step, start, even + between, moved)

    def places(self) -> FloatArray:
        """(n,) where the masses are."""
        indices = np.arange(self.start, self.start + self.masses.size)
        places = self.step * indices.astype(np.float64)
        if self.moments is not None:
            occupied = self.masses > 0
            places[occupied] += self.moments[occupied] / self.masses[occupied]
        return places


def _split(stride: int) -> lattice.Stencil | None:
    """Returns how a mass is split between the multiples of a stride around it."""
    if stride == 1:
        return None
    shares = 1 - np.abs(np.arange(1 - stride, stride)) / stride
    return lattice.Stencil(stride, 1 - stride, shares)


def _grouped(stride: int) -> lattice.Stencil | None:
    """Returns how masses are grouped around the multiples of a stride."""
    if stride == 1:
        return None
    return lattice.Stencil(stride, -(stride // 2), np.ones(stride))


class OrdinarySums:
    """Sums of ordinary ratios, with all copies or without a few.

    What an upper bound sends to the sinks is gathered in `lost` and `zero`.

    Args:
        summands: The ratios; all upper or all lower bounds.
        window: What part of the sum's range the lattice covers.
        points: Number of lattice points in the window.
        left_out: How many copies of a summand a law may lack.

    Attributes:
        lost: Expectation of the sum that went to infinity.
        zero: Probability of the sum that went to zero.
        place_error: Bound on the relative error of any place.
        step: The lattice step.
    """

    def __init__(
        self,
        summands: Sequence[additive_window.Summand],
        window: additive_window.Window,
        points: int,
        *,
        left_out: int = lattice.MOST_LEFT_OUT,
    ) -> None:
        self._window = window
        self._left_out = left_out
        self._large = sum(
            summand.count
            * float(summand.pair.masses[summand.places() > window.threshold].sum())
            for summand in summands
        )
        self._made: list[lattice.TiltedSum] = []
        self._bound = summands[0].pair.bound
        self._total = sum(s.count * s.weight for s in summands)
        self.step = (window.high - window.low) / points
        self.lost = 0.0
        self.zero = 0.0
        self.place_error = 0.0
        self._factors = [self._factor(summand) for summand in summands]
        self._first, self._last = self._ends()
        room = _ROOM * (self._last - self._first)
        # Sums of neighbours need a size that their strides divide.
        self._widest = _WIDEST_STRIDE if room >= _ROOM * _FEWEST_POINTS else 1
        room = math.ceil(room / self._widest)
        self._size = self._widest * fft.next_fast_len(room, real=True)

    def _ends(self) -> tuple[int, int]:
        """Returns the lattice indices between which the sum is kept.

        Splitting moves each copy by up to a cell, so the end of a window that is the
        end of all sums is moved out to that of the lattice.
        """
        first = math.floor(self._window.low / self.step)
        last = math.ceil(self._window.high / self.step) + 1
        copies = sum(factor.count for factor in self._factors)
        bottom = sum(f.count * f.start for f in self._factors)
        top = sum(f.count * (f.start + f.masses.size - 1) for f in self._factors)
        if first - bottom <= copies:
            first = bottom
        if top - last <= copies:
            last = top
        return first, max(last, first + 1)

    @functools.cached_property
    def _plain(self) -> lattice.TiltedSum:
        """The sum without a tilt."""
        return self._under(0.0)

    @functools.cached_property
    def _lowering(self) -> list[lattice.TiltedSum]:
        """The sum under the tilts that do not raise it."""
        tilts = [tilt for tilt in self._window.tilts if tilt < 0]
        return [*(self._under(tilt) for tilt in tilts), self._plain]

    @functools.cached_property
    def _sums(self) -> list[lattice.TiltedSum]:
        """The sum under all tilts of the window."""
        raising = [tilt for tilt in self._window.tilts if tilt > 0]
        return [*self._lowering, *(self._under(tilt) for tilt in raising)]

    def _under(self, tilt: float) -> lattice.TiltedSum:
        changes = [change / self._size for change in _TILT_CHANGES]
        made = lattice.TiltedSum(
            self._factors,
            tilt * self.step,
            self._size,
            changes,
            left_out=self._left_out,
        )
        self._made.append(made)
        return made

    def _needed(self, counts: Sequence[int], weight: float) -> list[lattice.TiltedSum]:
        """Returns the sum under the tilts that show a law of so much weight.

        Without a tilt all of it, where its noise is about as little as the tails.
        Where sums with large ratios hide the upper end of those without, no tilt need
        show it.
        """
        points = self._last - self._first
        noise = weight * self._plain.noise(counts) * points
        if noise <= _LEAST_NOISE * self._window.tail_mass:
            return [self._plain]
        most = _LEAST_BESIDE_LARGE * self._window.tail_mass
        if self._large > _MANY_LARGE and noise <= most:
            return self._lowering
        return self._sums

    def mass_error(self) -> float:
        """Bounds the relative error of any law's masses, but for the ratios' own."""
        return max(tilted.mass_error() for tilted in self._made or [self._plain])

    def spread(self) -> float:
        """Bounds how far a group reaches from its index, relatively; at most 1."""
        reach = self._plain.largest_offset() + self._widest // 2
        return min(reach / self._first, 1.0) if self._first else 1.0

    def _factor(self, summand: additive_window.Summand) -> lattice.Factor:
        """Returns the ordinary ratios on the lattice."""
        places, masses = summand.places(), summand.pair.masses
        if not additive_window.negligible_zero(summand, self._window.tail_mass):
            places = np.append(0.0, places)
            masses = np.append(summand.pair.zero_mass, masses)
        elif self._bound is Bound.UPPER:
            # A sum with a zero in it counts as zero, and the mean it had as infinite.
            mass = floats.raised(summand.count * summand.pair.zero_mass)
            self.zero += mass
            self.lost += mass * self._total
        ordinary = places <= self._window.threshold
        places, masses = places[ordinary], masses[ordinary]
        # A ratio this large alone takes the sum out of the window.
        mean = sums.dot(places, masses) / float(masses.sum())
        cap = self._window.high - self._window.low + mean
        if self._bound is Bound.UPPER:
            excess = sums.dot(np.maximum(places - cap, 0.0), masses)
            self.lost += floats.raised(summand.count * excess)
            places = np.minimum(places, cap)
        else:
            places, masses = places[places <= cap], masses[places <= cap]
        atoms = LatticeAtoms.of(places, masses, self.step, self._bound)
        moments = None if atoms.moments is None else atoms.moments / self.step
        return lattice.Factor(atoms.start, atoms.masses, summand.count, moments)

    def law(
        self, counts: Sequence[int], weight: float = 1.0, stride: int = 1
    ) -> LatticeAtoms:
        """Returns the sum of ordinary ratios, `counts` of each summand.

        Args:
            counts: Copies of each summand.
            weight: Bound on the mass of what the sum is convolved with after.
            stride: How many lattice steps a step of the result has, a power of two.
        """
        stride = min(stride, self._widest)
        if self._bound is Bound.UPPER:
            return self._upper_ordinary(counts, weight, stride)
        return self._lower_ordinary(counts, weight, stride)

    def _indices_for(self, counts: Sequence[int], stride: int = 1) -> IndexArray:
        """Returns the lattice indices of the window, moved by the copies left out."""
        moved = sum(
            (factor.count - count) * round(factor.mean(0.0))
            for factor, count in zip(self._factors, counts, strict=True)
        )
        first = max(self._first - moved, 0)
        # With few copies left any window will do.
        last = max(self._last - moved, first + 1)
        return stride * np.arange(
            first // stride, -(-last // stride) + 1, dtype=np.int64
        )

    def _beyond(self, counts: Sequence[int], tilt: float, index: int) -> float:
        """Bounds the mass at an index or beyond it, on the tilt's side (Chernoff)."""
        extreme = -1 if tilt > 0 else 0
        end = sum(
            count * float(factor.indices[extreme])
            for count, factor in zip(counts, self._factors, strict=True)
        )
        if (index - end) * tilt > 0:
            return 0.0
        least = 0.0
        for share in _EASED_TILTS:
            eased = share * tilt * self.step
            exponent = -eased * index
            for count, factor in zip(counts, self._factors, strict=True):
                exponent += count * factor.tilted(eased).log_moment
            least = min(least, exponent)
            if least <= math.log(self._window.tail_mass):
                break
        return floats.raised(math.exp(least))

    def _upper_ordinary(
        self, counts: Sequence[int], weight: float, stride: int
    ) -> LatticeAtoms:
        """Returns masses raised by their noise; the rest goes to the sinks.

        Between two indices that the stride divides a mass is split: a larger law.
        """
        indices = self._indices_for(counts, stride)
        first, last = int(indices[0]), int(indices[-1])
        masses = tilted_masses.raised(
            self._needed(counts, weight), counts, indices, stencil=_split(stride)
        )
        # What lies above the window goes to its end and to infinity.
        above = self._beyond(counts, self._window.raising, last + 1)
        masses[-1] += above
        # The mean under all of the tilt is no less than that under a part of it.
        tilt = self._window.raising * self.step
        mean = sum(
            count * factor.mean(tilt)
            for count, factor in zip(counts, self._factors, strict=True)
        )
        self.lost += floats.raised(weight * above * mean * self.step)
        # What lies below it goes to its start and to zero.
        below = self._beyond(counts, self._window.lowering, first - 1)
        masses[0] += below
        self.zero += weight * below
        return LatticeAtoms(stride * self.step, first // stride, masses, None)

    def _lower_ordinary(
        self, counts: Sequence[int], weight: float, stride: int
    ) -> LatticeAtoms:
        """Returns the masses, lowered by their noise, at places that are certain.

        Grouping by the sum of the lattice indices, or by which multiple of the stride
        it is near, is a conditional expectation.
        """
        indices = self._indices_for(counts, stride)
        known = tilted_masses.LeastNoise(
            self._needed(counts, weight), counts, indices, stencil=_grouped(stride)
        )
        values, noise = known.values()
        clear = values * _LARGEST_RELATIVE_NOISE > noise
        values, noise = values[clear], noise[clear]
        offsets, offset_noise = (array[clear] for array in known.moments())
        shift = offsets / values
        error = (offset_noise + np.abs(shift) * noise) / (values - noise)
        place = indices[clear] + shift
        certain = error < _LARGEST_RELATIVE_NOISE * place
        kept = np.flatnonzero(clear)[certain]
        masses, moments, errors = np.zeros((3, indices.size))
        errors[kept] = error[certain] / place[certain]
        masses[kept] = known.lowered()[kept]
        moments[kept] = masses[kept] * shift[certain] * self.step
        self._settle(indices, masses, moments, errors)
        step = stride * self.step
        return LatticeAtoms(step, int(indices[0]) // stride, masses, moments)

    def _settle(
        self,
        indices: IndexArray,
        masses: FloatArray,
        moments: FloatArray,
        errors: FloatArray,
    ) -> None:
        """Makes uncertain places certain, at the cost of the one with most mass.

        An atom moved towards the middle, by as much as its place may be wrong, and
        the middle moved away from it, their mean kept, are less in the order. The
        middle moves by as much less as it has more mass: its place is a little less
        certain. What is too near to it to tell a side is dropped.

        Args:
            indices: (n,) lattice indices.
            masses: (n,) masses, which change where some are dropped.
            moments: (n,) masses times offsets, which change where places move.
            errors: (n,) bounds on the relative errors of the places.
        """
        if not masses.any():
            return
        offsets = np.divide(
            moments, masses, out=np.zeros_like(masses), where=masses > 0
        )
        places = indices * self.step + offsets
        middle = int(masses.argmax())
        reach = floats.raised(1.0) * (errors + 4 * floats.UNIT_ROUNDOFF) * places
        for allowed in _PLACE_ERRORS:
            uncertain = (errors > allowed) & (masses > 0)
            uncertain[middle] = False
            moved = 2 * sums.dot(reach[uncertain], masses[uncertain]) / masses[middle]
            if moved <= allowed * places[middle]:
                break
        apart = places - places[middle]
        doubt = floats.raised(moved + reach[middle])
        masses[uncertain & (np.abs(apart) <= 2 * reach + doubt)] = 0.0
        offsets -= np.where(uncertain, np.sign(apart) * reach, 0.0)
        moments[:] = masses * offsets
        kept = (masses > 0) & ~uncertain
        largest = float(errors[kept].max(initial=0.0))
        largest += floats.raised(float(moved / places[middle]))
        self.place_error = max(self.place_error, largest)
