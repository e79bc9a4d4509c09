"""Random allocation on an additive lattice: Fourier powers and a few large ratios.

The mean of t ratios has a narrow bulk and a long tail, in which one ratio (or
two) alone is large. A threshold is set that a sum has one ratio in a thousand above;
these are the large ratios. Without them the sum is light-tailed: one Fourier power
on a fine lattice, tilted. With one of them it is that sum (of t − 1 ratios) plus the
large ratio, convolved directly on lattices as coarse as the ratio is large; with
several, a convolution on a multiplicative grid. The law is the mixture of these parts,
each split (upper bound) or grouped (lower bound) on its own grid.
"""

from collections.abc import Sequence
import dataclasses
import itertools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.amplification import ordinary_sums
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import geometric
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import exact_means

Bound = dominating_pair.Bound
Summand = additive_window.Summand
FloatArray = npt.NDArray[np.float64]

# Certified: what has more is lost. The lattice's partial sums lack no more copies.
_MOST_LARGE = lattice.MOST_LEFT_OUT
# Certified, of a mean offset: masses and moments are gathered (2 units each), with
# their quotient and its products with masses and weights.
_OFFSET_ERROR = 16 * floats.UNIT_ROUNDOFF

# Tuning. In brackets: gap and time for half of it, and twice, over what they are for
# σ = 1, t = 1000 at δ = 1e-6.
_WITHOUT_LARGE = 1.1  # Points of a sum without large ratios, as they are all it costs.
# What a coarser law adds to the spread, over what its copies' cells do, about.
_COARSEST_SHARE = 0.1
_COARSER = 4  # The stride of a law that large ratios join.
# Cells in a standard deviation with one large ratio, over the points; with several,
# which are rarer, the same in steps of the multiplicative grid.
_CELLS_WITH_ONE = 1 / 96
_STEPS_WITH_SEVERAL = 1 / 7000
_FINEST_STEP, _COARSEST_STEP = 0.001, 0.05  # Of that grid, whatever the deviation.
# Sets of two large ratios, in tails, below which their grid is coarser.
_USUAL_WITH_TWO = 5e5


@dataclasses.dataclass(frozen=True)
class _Part:
    """One part of a mixture: atoms, and bounds on their relative errors."""

    places: FloatArray
    masses: FloatArray
    mass_error: float
    ratio_error: float

    @classmethod
    def of(cls, atoms: ordinary_sums.LatticeAtoms, halvings: int = 0) -> "_Part":
        # Each mass is a sum of so many terms, and a group's mean a quotient of two.
        # Halving adds up to three masses; moments of means, which may cancel by a third.
        error = 4 * (atoms.masses.size + 4 + 4 * halvings) * floats.UNIT_ROUNDOFF
        place_error = 0.0 if atoms.moments is None else error
        return cls(atoms.places(), atoms.masses, error, place_error)


def mean_of(
    summands: Sequence[Summand], window: additive_window.Window, *, points: int
) -> dominating_pair.DominatingPair:
    """Returns the law of the weighted mean of independent ratios.

    Args:
        summands: The ratios, their numbers of copies and weights; all upper or
            all lower bounds.
        window: From `additive_window.window_of`, for summands with about the same law.
        points: Number of lattice points in the window, about.

    Returns:
        The pair whose Z is Σ weight · Z_i / Σ weight.

    Source:
        https://arxiv.org/abs/2602.17284, section 5.
    """
    if math.isinf(window.threshold):
        points = round(_WITHOUT_LARGE * points)
    return _Mean(summands, window, points).pair()


class _Mean:
    """One computation of `mean_of`."""

    def __init__(
        self,
        summands: Sequence[Summand],
        window: additive_window.Window,
        points: int,
    ) -> None:
        self._summands = summands
        self._counts = [summand.count for summand in summands]
        self._window = window
        self._points = points
        self._bound = summands[0].pair.bound
        self._total = sum(s.count * s.weight for s in summands)
        self._lost = 0.0
        self._zero = 0.0
        self._large = [self._large_ratios(summand) for summand in summands]
        self._most = self._most_large()
        self._fine = ordinary_sums.OrdinarySums(
            summands, window, points, left_out=self._most
        )
        self._large_sums: dict[tuple[int, ...], geometric.GeometricLaw] = {}

    def _large_ratios(self, summand: Summand) -> tuple[FloatArray, FloatArray]:
        places = summand.places()
        large = places > self._window.threshold
        return places[large], summand.pair.masses[large]

    def pair(self) -> dominating_pair.DominatingPair:
        """Returns the mixture over the number of large ratios."""
        ordinary = self._fine.law(self._counts, stride=self._stride())
        parts = [_Part.of(ordinary), *self._with_large_ratios()]
        places = np.concatenate([part.places for part in parts])
        masses = np.concatenate([part.masses for part in parts])
        infinity = sum(
            s.count * s.weight * s.pair.infinity_mass for s in self._summands
        )
        zero = 0.0
        if self._bound is Bound.UPPER:
            infinity += self._lost + self._fine.lost
            zero = self._zero + self._fine.zero
            zero += float(masses[places <= 0].sum())
        kept = np.flatnonzero((masses > 0) & (places > 0))
        # Each part is sorted.
        kept = kept[np.argsort(places[kept], kind="stable")]
        mass_error = sum(s.count * s.pair.mass_error for s in self._summands)
        mass_error += self._fine.mass_error()
        mass_error += max(part.mass_error for part in parts)
        ratio_error = max(s.pair.ratio_error for s in self._summands)
        ratio_error += max(part.ratio_error for part in parts)
        ratio_error += self._fine.place_error
        if self._bound is Bound.LOWER:
            # Masses count as exact; offsets in a group and their sums do not.
            ratio_error += _OFFSET_ERROR * self._fine.spread()
        pair = dominating_pair.DominatingPair(
            places[kept] / self._total,
            masses[kept],
            infinity_mass=infinity / self._total,
            zero_mass=zero,
            bound=self._bound,
            mass_error=mass_error,
            ratio_error=ratio_error + 16 * floats.UNIT_ROUNDOFF,
        )
        return exact_means.settled(pair)

    def _stride(self) -> int:
        """Returns how coarse the sum may be beside what its copies' cells cost."""
        copies = sum(self._counts)
        return 1 << max(int(math.log2(_COARSEST_SHARE * copies) / 2), 0)

    def _expected_ways(self, way: Sequence[int]) -> float:
        """Returns the expected number of sets of copies that are all large.

        Args:
            way: How many copies of each summand are in such a set.
        """
        mass = 1.0
        each = zip(way, self._counts, self._large, strict=True)
        for number, count, (_, masses) in each:
            mass *= math.comb(count, number) * float(masses.sum()) ** number
        return floats.raised(mass)

    def _ways(self, total: int) -> list[tuple[int, ...]]:
        """Returns the ways to share a number of large ratios among the summands."""
        ranges = [range(min(total, count) + 1) for count in self._counts]
        return [way for way in itertools.product(*ranges) if sum(way) == total]

    def _expected(self, total: int) -> float:
        """Returns the expected number of sets of so many copies, all large."""
        return sum(self._expected_ways(way) for way in self._ways(total))

    def _most_large(self) -> int:
        """Returns how many large ratios a sum may have that is not lost."""
        if not any(masses.size for _, masses in self._large):
            return 0
        for total in range(2, _MOST_LARGE + 1):
            if self._expected(total) < self._window.tail_mass:
                return total - 1
        return _MOST_LARGE

    def _with_large_ratios(self) -> list[_Part]:
        """Returns the sums with one large ratio, with two, …; the rest is lost."""
        if not any(masses.size for _, masses in self._large):
            return []
        parts: list[_Part] = []
        # Given that more copies are large, the others have the usual mean.
        largest = max(
            sums.dot(places, masses) / float(masses.sum())
            for places, masses in self._large
            if masses.size
        )
        more = self._most + 1
        self._zero = self._expected(more)
        self._lost = floats.raised(self._zero * (more * largest + self._total))
        for total in range(1, more):
            for way in self._ways(total):
                if total == 1:
                    parts += self._with_one(way.index(1), way)
                elif self._expected_ways(way) > 0:
                    parts.append(self._with_several(way))
        return parts

    def _rest(self, way: Sequence[int]) -> ordinary_sums.LatticeAtoms:
        counts = [c - number for c, number in zip(self._counts, way, strict=True)]
        return self._fine.law(counts, self._expected_ways(way), _COARSER)

    def _with_one(self, which: int, way: Sequence[int]) -> list[_Part]:
        """Returns the sums with one large ratio, a part for each octave of it."""
        places, masses = self._large[which]
        if places.size == 0:
            return []
        rest = self._rest(way)
        cells = max(_CELLS_WITH_ONE * self._points, 1.0)
        finest = max(self._window.deviation / cells, rest.step)

        def of(
            atoms: ordinary_sums.LatticeAtoms, step: float
        ) -> ordinary_sums.LatticeAtoms:
            places, masses = atoms.places(), atoms.masses
            return ordinary_sums.LatticeAtoms.of(places, masses, step, self._bound)

        weights = self._counts[which] * masses
        bounds = places[0] * 2.0 ** np.arange(1, 1 + math.log2(places[-1] / places[0]))
        begin, parts = 0, []
        coarse = of(rest, finest)
        for octave, end in enumerate([*places.searchsorted(bounds), places.size]):
            own = slice(begin, end)
            begin = end
            if octave:
                # Ratios far above the bulk need no cells as fine as it does.
                coarse = coarse.halved()
            if not places[own].size:
                continue
            widest = float(np.ptp(places[own])) / self._points
            fit = coarse if widest <= coarse.step else of(rest, widest)
            large = ordinary_sums.LatticeAtoms.of(
                places[own], weights[own], fit.step, self._bound
            )
            parts.append(_Part.of(large.convolved(fit), halvings=octave))
        return parts

    def _with_several(self, way: tuple[int, ...]) -> _Part:
        """Returns the sums with several large ratios, on a multiplicative grid."""
        rest, total = self._rest(way), sum(way)
        law = self._on_grid(rest.places(), rest.masses, total)
        law = geometric.convolve(self._sum_of_large(way), law)
        sets = math.prod(
            math.comb(count, number)
            for count, number in zip(self._counts, way, strict=True)
        )
        # The large ratios are positive: no such sum is zero.
        return _Part(law.places(), sets * law.masses, law.mass_error, law.ratio_error)

    def _on_grid(
        self, places: FloatArray, masses: FloatArray, total: int
    ) -> geometric.GeometricLaw:
        """Returns atoms on the multiplicative grid for sums of so many large ratios."""
        grouped = self._bound is Bound.LOWER
        step = self._grid_step(total)
        return geometric.from_atoms(places, masses, step, grouped=grouped)

    def _grid_step(self, total: int) -> float:
        """Returns a grid step that is fine beside the ordinary sum's deviation.

        The rarer it is that so many ratios are large, the coarser: an error is of the
        order of the step squared, and half of it costs four times as much.
        """
        reach = self._window.high + 2 * self._window.threshold
        step = self._window.deviation / (_STEPS_WITH_SEVERAL * self._points * reach)
        usual = _USUAL_WITH_TWO * self._window.tail_mass
        if total > 2:
            usual = max(usual, self._expected(2))
        rarity = max(usual / self._expected(total), 1.0)
        return min(
            max(step, _FINEST_STEP) * math.sqrt(math.sqrt(rarity)), _COARSEST_STEP
        )

    def _sum_of_large(self, way: tuple[int, ...]) -> geometric.GeometricLaw:
        """Returns the law of a sum of large ratios alone, so many of each summand."""
        if way not in self._large_sums:
            total = sum(way)
            which = next(index for index, number in enumerate(way) if number)
            fewer = tuple(n - (i == which) for i, n in enumerate(way))
            if total == 1:
                self._large_sums[way] = self._on_grid(*self._large[which], 2)
                return self._large_sums[way]
            one = tuple(int(index == which) for index in range(len(way)))
            law = self._regridded(self._sum_of_large(one), total)
            same = fewer == one and total == 2
            others = law if same else self._regridded(self._sum_of_large(fewer), total)
            self._large_sums[way] = geometric.convolve(others, law)
        return self._large_sums[way]

    def _regridded(
        self, law: geometric.GeometricLaw, total: int
    ) -> geometric.GeometricLaw:
        """Returns a sum of large ratios on the grid for sums of so many."""
        if law.step == self._grid_step(total):
            return law
        found = self._on_grid(law.places(), law.masses, total)
        return dataclasses.replace(
            found,
            mass_error=found.mass_error + law.mass_error,
            ratio_error=found.ratio_error + law.ratio_error,
        )
