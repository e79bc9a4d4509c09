"""Sums of independent variables on a multiplicative grid.

A law sits on the points origin · e^{step·i}. The sum of two such points
x_i + y_j, relative to x_i, depends on d = j − i alone, and so do the output cell
it falls in and its place within that cell. All pairs with one output cell
form a run of diagonals, and a run is one window sum of y's masses, so that a
sum costs about 2 ln 2 / step vector passes instead of one a diagonal.

Only positive terms are added: masses keep their relative accuracy far into
both tails, where a Fourier transform has only noise.

Source:
    https://arxiv.org/abs/2602.17284, Algorithms 3, 4 and 5 (with mean-preserving
    splitting and grouping in the place of rounding).
"""

from collections.abc import Iterator
import dataclasses
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import sums

FloatArray = npt.NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53

_LARGEST_EXPONENT = 709.0

_FILTER = 10
_LONGEST_RUN = 16


@dataclasses.dataclass(frozen=True)
class GeometricLaw:
    """A non-negative random variable on a multiplicative grid.

    Attributes:
        origin: The lowest grid point.
        step: Logarithm of the ratio of neighbouring grid points.
        masses: (n,) probability in each cell.
        excess: (n,) mass times (mean of the cell / grid point − 1), for a
            lower bound, whose atoms sit at their cells' means; None for an
            upper bound, whose atoms sit on the grid points.
        zero_mass: Probability of the value zero.
        lost_mean: Expectation that was moved to infinity.
        mass_error: Bound on the relative error of every mass.
        ratio_error: Bound on the relative error of every place.
    """

    origin: float
    step: float
    masses: FloatArray
    excess: FloatArray | None = None
    zero_mass: float = 0.0
    lost_mean: float = 0.0
    mass_error: float = 0.0
    ratio_error: float = 0.0

    def grid(self) -> FloatArray:
        """Returns the (n,) grid points; those that no float holds, which are empty,
        are the largest there is.
        """
        exponents = math.log(self.origin) + self.step * np.arange(self.masses.size)
        grid: FloatArray = np.exp(np.minimum(exponents, _LARGEST_EXPONENT))
        return grid

    def places(self) -> FloatArray:
        """Returns where the atoms sit: grid points, or means of cells."""
        grid = self.grid()
        if self.excess is None:
            return grid
        occupied = self.masses > 0
        grid[occupied] *= 1 + self.excess[occupied] / self.masses[occupied]
        return grid


def from_atoms(
    places: FloatArray, masses: FloatArray, step: float, *, grouped: bool
) -> GeometricLaw:
    """Returns atoms on a multiplicative grid that starts at the lowest positive one.

    Args:
        places: (n,) non-negative places, not all zero, in any order.
        masses: (n,) their masses.
        step: Logarithm of the ratio of neighbouring grid points.
        grouped: Whether to group each cell at its mean (lower bound), or to split
            each atom between its cell's ends (upper bound).

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 6.
    """
    positive = places > 0
    zero_mass = float(masses[~positive].sum())
    masses = masses[positive]
    logs = np.log(places[positive])
    lowest, largest = float(logs.min()), float(np.abs(logs).max())
    cells = np.floor((logs - lowest) / step).astype(np.int64)
    above = np.maximum(np.expm1(logs - lowest - step * cells), 0.0)
    size = int(cells.max()) + 2
    if grouped:
        gathered = sums.gather(cells, masses, size)
        excess = sums.gather(cells, above * masses, size)
    else:
        raised = np.minimum(above / math.expm1(step), 1.0) * masses
        gathered = sums.gather(cells, masses - raised, size)
        gathered += sums.gather(cells + 1, raised)
        excess = None
    return GeometricLaw(
        origin=math.exp(lowest),
        step=step,
        masses=gathered,
        excess=excess,
        zero_mass=zero_mass,
        mass_error=8 * UNIT_ROUNDOFF,
        # Logarithms and the grid's exponents are off by their own rounding.
        ratio_error=(16 + 16 * largest) * UNIT_ROUNDOFF,
    )


class _Diagonals(NamedTuple):
    """Consecutive diagonals, and where the sums on them are.

    A run is as many of them as share an output cell.
    """

    lowest: int  # The first diagonal.
    places: FloatArray  # (n,) place over the cell's grid point, less one.
    quotients: FloatArray  # (n,) the smaller summand over the cell's grid point.
    starts: list[int]  # (k + 1,) where runs begin, and the end of the last.
    cells: list[int]  # (k,) the cell of each run.

    def between(self, first: int, last: int) -> "_Diagonals":
        """Returns runs first, …, last − 1 alone."""
        begin, end = self.starts[first], self.starts[last]
        return _Diagonals(
            self.lowest + begin,
            self.places[begin:end],
            self.quotients[begin:end],
            [start - begin for start in self.starts[first : last + 1]],
            self.cells[first:last],
        )


def _diagonals(
    big: float, small: float, step: float, out_step: float, lowest: int, highest: int
) -> _Diagonals:
    """Returns the diagonals from `lowest` to `highest`, at least one.

    Diagonal d holds the sums big + small·e^{step·d}, relative to big + small.
    """
    # All in logarithms: the quotient of two origins need not fit a float.
    gap = math.log(small) - math.log(big)
    total = float(np.logaddexp(0.0, gap))
    exponents = gap + step * np.arange(lowest, highest + 1)
    position = (np.logaddexp(0.0, exponents) - total) / out_step
    cells = np.floor(position)
    ends = np.flatnonzero(np.diff(cells)) + 1
    return _Diagonals(
        lowest,
        np.expm1(out_step * (position - cells)),
        np.exp(exponents - total - out_step * cells),
        [0, *ends.tolist(), cells.size],
        [int(cell) for cell in cells[np.append(0, ends)]],
    )


@dataclasses.dataclass
class _Sums:
    """Sums over windows of values v that end at each of some indices.

    With l the distance from a window's last index and w its width.
    """

    totals: FloatArray  # Σ v
    leads: FloatArray  # Σ v (e^{−step·l} − e^{−step·(w − 1)})
    lags: FloatArray  # Σ v (1 − e^{−step·l})

    def padded(self, start: int, stop: int) -> "_Sums":
        """Returns a copy of those that end at start, …, stop − 1, zeros beyond."""
        return _Sums(
            *(
                np.append(each[start:stop], np.zeros(max(stop - max(start, each.size), 0)))
                for each in (self.totals, self.leads, self.lags)
            )
        )

    def prepend(
        self, older: "_Sums", start: int, step: float, width: int, more: int
    ) -> None:
        """Makes these windows longer by what is just before them.

        Args:
            older: Sums of windows that end at 0, 1, …
            start: Where the first of these windows ends.
            step: The grid's step.
            width: Width of these windows.
            more: Width of the older ones.
        """
        self.leads += (
            math.exp(-step * (width - 1)) * -math.expm1(-step * more)
        ) * self.totals
        low = max(start, width)
        high = min(start + self.totals.size, width + older.totals.size)
        if low >= high:
            return
        own, its = slice(low - start, high - start), slice(low - width, high - width)
        decay, gap = math.exp(-step * width), -math.expm1(-step * width)
        self.leads[own] += decay * older.leads[its]
        self.lags[own] += decay * older.lags[its]
        self.lags[own] += gap * older.totals[its]
        self.totals[own] += older.totals[its]


class _Windows:
    """Sums of `values` over windows that end at any index from 0, of any width.

    Built by doubling, so that nothing is ever subtracted.
    """

    def __init__(self, values: FloatArray, step: float, widest: int) -> None:
        self._step = step
        nothing = np.zeros_like(values)
        self._levels = [_Sums(values, nothing, nothing)]
        for level in range(widest.bit_length() - 1):
            width = 1 << level
            recent = self._levels[-1].padded(0, values.size + 2 * width - 1)
            recent.prepend(self._levels[-1], 0, step, width, width)
            self._levels.append(recent)

    def window(self, start: int, stop: int, width: int) -> _Sums:
        """Returns the sums of windows that end at start, …, stop − 1."""
        parts = [k for k in range(width.bit_length()) if width >> k & 1]
        found = self._levels[parts[0]].padded(start, stop)
        covered = 1 << parts[0]
        for level in parts[1:]:
            older = self._levels[level]
            found.prepend(older, start, self._step, covered, 1 << level)
            covered += 1 << level
        return found


class _Filters:
    """Weighted sums of few consecutive `values`, with zeros at either end."""

    def __init__(self, values: FloatArray, longest: int) -> None:
        nothing = np.zeros(longest)
        self._longest = longest
        self._values = np.concatenate([nothing, values, nothing])

    def sums(self, start: int, stop: int, weights: FloatArray) -> FloatArray:
        """Returns Σ_k weights_k values_{i + k} for i = start, …, stop − 1."""
        found: FloatArray | None = None
        for first in range(0, weights.size, _FILTER):
            part = weights[first : first + _FILTER]
            begin = start + first + self._longest
            inside = self._values[begin : begin + stop - start + part.size - 1]
            more: FloatArray = np.correlate(inside, part)
            found = more if found is None else np.add(found, more, out=more)
        assert found is not None
        return found


@dataclasses.dataclass
class _Output:
    """Masses and excesses being gathered; cell m is stored at m − lowest_cell."""

    lowest_cell: int
    masses: FloatArray
    excess: FloatArray | None

    def add(
        self, target: FloatArray, cell: int, stride: int, values: FloatArray
    ) -> None:
        start = cell - self.lowest_cell
        target[start : start + stride * (values.size - 1) + 1 : stride] += values


@dataclasses.dataclass(frozen=True)
class _Half:
    """All pairs (i, j) of a larger x_i and a smaller y_j with j − i ≤ highest."""

    big: GeometricLaw
    small: GeometricLaw
    refinement: int
    factor: float  # How often each pair counts.

    @property
    def out_step(self) -> float:
        return self.big.step / self.refinement

    def diagonals(self, highest: int) -> tuple[_Diagonals, _Diagonals] | None:
        """Returns those of long runs, and those of short ones."""
        highest = min(highest, self.small.masses.size - 1)
        lowest = 1 - self.big.masses.size
        if highest < lowest:
            return None
        found = _diagonals(
            self.big.origin,
            self.small.origin,
            self.big.step,
            self.out_step,
            lowest,
            highest,
        )
        long = np.flatnonzero(np.diff(found.starts) > _LONGEST_RUN)
        far = int(long[-1]) + 1 if long.size else 0
        return found.between(0, far), found.between(far, len(found.cells))

    def overlap(self, first: int, last: int) -> tuple[int, int]:
        """Returns the i, from and to, for which i + first, …, i + last has any j."""
        return (
            max(0, -last),
            min(self.big.masses.size, self.small.masses.size - first),
        )


def _stencils(
    diagonals: _Diagonals, cell_width: float
) -> Iterator[tuple[int, int, FloatArray]]:
    """Yields cells, and the first of the diagonals with a share in each, and the shares.

    The shares of a run's high end and those of the next run's low end meet in one
    cell, most often.
    """
    starts = np.array(diagonals.starts)
    high = np.minimum(diagonals.places / cell_width, 1.0)
    # Run by run the low shares, then the high ones: what meets is a slice.
    shares = np.empty(2 * high.size)
    each = np.arange(high.size)
    widths = np.diff(starts)
    shares[each + np.repeat(starts[:-1], widths)] = 1 - high
    shares[each + np.repeat(starts[1:], widths)] = high
    previous: tuple[int, int, int] | None = None
    for cell, start, stop in zip(
        diagonals.cells, diagonals.starts, diagonals.starts[1:], strict=False
    ):
        begin, first = 2 * start, start
        if previous is not None:
            above, first_above, begin_above = previous
            if above == cell:
                begin, first = begin_above, first_above
            else:
                yield above, diagonals.lowest + first_above, shares[begin_above:begin]
        yield cell, diagonals.lowest + first, shares[begin : start + stop]
        previous = cell + 1, start, start + stop
    if previous is not None:
        cell, first, begin = previous
        yield cell, diagonals.lowest + first, shares[begin:]


def _split_near(out: _Output, half: _Half, diagonals: _Diagonals) -> None:
    """Adds the pairs of short runs, split between their cells' ends."""
    filters = _Filters(half.small.masses, 2 * _LONGEST_RUN)
    masses = half.factor * half.big.masses
    for cell, first, shares in _stencils(diagonals, math.expm1(half.out_step)):
        start, stop = half.overlap(first, first + shares.size - 1)
        found = filters.sums(start + first, stop + first, shares)
        found *= masses[start:stop]
        out.add(out.masses, half.refinement * start + cell, half.refinement, found)


def _group_near(out: _Output, half: _Half, diagonals: _Diagonals) -> None:
    """Adds the pairs of short runs, grouped in their cells."""
    big, small = half.big, half.small
    assert small.excess is not None and big.excess is not None
    assert out.excess is not None
    filters = _Filters(small.masses, _LONGEST_RUN)
    excess_filters = _Filters(small.excess, _LONGEST_RUN)
    masses, big_excess = half.factor * big.masses, half.factor * big.excess
    ones = np.ones(_LONGEST_RUN)
    share = math.log(big.origin) - math.log(big.origin + small.origin)
    for cell, begin, end in zip(
        diagonals.cells, diagonals.starts, diagonals.starts[1:], strict=False
    ):
        first = diagonals.lowest + begin
        start, stop = half.overlap(first, diagonals.lowest + end - 1)
        ends = start + first, stop + first
        totals = filters.sums(*ends, ones[: end - begin])
        excess = filters.sums(*ends, diagonals.places[begin:end])
        excess += excess_filters.sums(*ends, diagonals.quotients[begin:end])
        excess *= masses[start:stop]
        moved = math.exp(share - half.out_step * cell) * big_excess[start:stop]
        moved *= totals
        excess += moved
        totals *= masses[start:stop]
        index = half.refinement * start + cell
        out.add(out.masses, index, half.refinement, totals)
        out.add(out.excess, index, half.refinement, excess)


class _Run(NamedTuple):
    """Diagonals first, …, last, whose shares are those of few numbers."""

    first: int
    last: int
    cell: int
    lower_weight: float  # Share of the last diagonal that goes to the cell's low end.
    upper_weight: float  # Share of the first diagonal that goes to its high end.
    slope: float  # y / (cell's width) at the last diagonal.


def _runs(diagonals: _Diagonals, step: float, cell_width: float) -> list[_Run]:
    runs = []
    for cell, begin, end in zip(
        diagonals.cells, diagonals.starts, diagonals.starts[1:], strict=False
    ):
        weight = float(diagonals.places[end - 1]) / cell_width
        slope = float(diagonals.quotients[end - 1]) / cell_width
        # Each share from the others, so that masses and the mean are conserved.
        spread = slope * -math.expm1(-step * (end - 1 - begin))
        upper_weight = max(weight - spread, 0.0)
        lower_weight = max(1 - upper_weight - spread, 0.0)
        first, last = diagonals.lowest + begin, diagonals.lowest + end - 1
        runs.append(_Run(first, last, cell, lower_weight, upper_weight, slope))
    return runs


def _add_far(out: _Output, half: _Half, diagonals: _Diagonals) -> None:
    """Adds the pairs of long runs, by window sums."""
    big, small = half.big, half.small
    cell_width = math.expm1(half.out_step)
    runs = _runs(diagonals, big.step, cell_width)
    widest = max(run.last - run.first + 1 for run in runs)
    windows = _Windows(small.masses, big.step, widest)
    excess_windows = None
    if small.excess is not None:
        excess_windows = _Windows(small.excess, big.step, widest)
    masses = half.factor * big.masses
    log_share = math.log(big.origin) - math.log(big.origin + small.origin)
    for run in runs:
        start, stop = half.overlap(run.first, run.last)
        width = run.last - run.first + 1
        ends = start + run.last, stop + run.last
        found = windows.window(*ends, width)
        weights = masses[start:stop]
        index = half.refinement * start + run.cell
        high = run.upper_weight * found.totals + run.slope * found.leads
        if excess_windows is None:
            low = run.lower_weight * found.totals + run.slope * found.lags
            out.add(out.masses, index, half.refinement, weights * low)
            out.add(out.masses, index + 1, half.refinement, weights * high)
            continue
        assert big.excess is not None and out.excess is not None
        moved = excess_windows.window(*ends, width)
        decayed = moved.leads + math.exp(-big.step * (width - 1)) * moved.totals
        share = half.factor * math.exp(log_share - half.out_step * run.cell)
        excess = weights * cell_width * (high + run.slope * decayed)
        excess += share * big.excess[start:stop] * found.totals
        out.add(out.masses, index, half.refinement, weights * found.totals)
        out.add(out.excess, index, half.refinement, excess)


def _add_half(out: _Output, half: _Half, highest: int) -> None:
    """Adds to `out` all pairs (i, j) with j − i ≤ highest."""
    diagonals = half.diagonals(highest)
    if diagonals is None:
        return
    far, near = diagonals
    if far.cells:
        _add_far(out, half, far)
    if half.small.excess is None:
        _split_near(out, half, near)
    else:
        _group_near(out, half, near)


def _add_with_zero(
    out: _Output, law: GeometricLaw, total: float, refinement: int, factor: float
) -> None:
    """Adds `law`, which met a zero of the other summand with mass `factor`."""
    if factor == 0:
        return
    out_step = law.step / refinement
    position = (math.log(law.origin) - math.log(total)) / out_step
    cell = math.floor(position)
    above = math.expm1(out_step * (position - cell))
    if out.excess is None:
        weight = above / math.expm1(out_step)
        out.add(out.masses, cell, refinement, factor * (1 - weight) * law.masses)
        out.add(out.masses, cell + 1, refinement, factor * weight * law.masses)
        return
    assert law.excess is not None
    out.add(out.masses, cell, refinement, factor * law.masses)
    moved = above * law.masses + (1 + above) * law.excess
    out.add(out.excess, cell, refinement, factor * moved)


def _output_for(x: GeometricLaw, y: GeometricLaw, refinement: int) -> _Output:
    """Returns an empty output that holds every cell of x + y, x, and y.

    Source: Algorithm 5 (range renormalization) of arXiv:2602.17284.
    """
    out_step = x.step / refinement
    total = x.origin + y.origin
    least = min(x.origin, y.origin) if x.zero_mass or y.zero_mass else total
    lowest = math.floor((math.log(least) - math.log(total)) / out_step) - 1
    size = refinement * (max(x.masses.size, y.masses.size) - 1) + 3 - lowest
    excess = None if x.excess is None else np.zeros(size)
    return _Output(lowest, np.zeros(size), excess)


def convolve(x: GeometricLaw, y: GeometricLaw, refinement: int = 1) -> GeometricLaw:
    """Returns the law of X + Y on a grid with step / refinement.

    An upper bound (`excess` is None) splits every sum between the two grid
    points around it, which keeps the mean and makes the sum larger in the
    convex order; a lower bound groups all sums of a cell at their mean, which
    makes it smaller.

    Args:
        x: First law, n atoms.
        y: Second law, m atoms, with the same step and kind of bound.
        refinement: How many times finer the grid of the sum is.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 4.
    """
    out = _output_for(x, y, refinement)
    total = x.origin + y.origin
    if y is x:
        _add_half(out, _Half(x, x, refinement, 2.0), -1)
        out.add(out.masses, 0, refinement, x.masses * x.masses)
        if out.excess is not None and x.excess is not None:
            out.add(out.excess, 0, refinement, x.masses * x.excess)
    else:
        highest = math.floor((math.log(x.origin) - math.log(y.origin)) / x.step)
        _add_half(out, _Half(x, y, refinement, 1.0), highest)
        _add_half(out, _Half(y, x, refinement, 1.0), -highest - 1)
    _add_with_zero(out, x, total, refinement, y.zero_mass)
    _add_with_zero(out, y, total, refinement, x.zero_mass)
    terms = x.masses.size + y.masses.size + 64
    exponents = abs(math.log(x.origin)) + abs(math.log(y.origin))
    origin = math.exp(math.log(total) + x.step / refinement * out.lowest_cell)
    rounding = (16 + 4 * exponents) * UNIT_ROUNDOFF + math.ulp(origin) / origin
    return GeometricLaw(
        origin=origin,
        step=x.step / refinement,
        masses=out.masses,
        excess=out.excess,
        zero_mass=x.zero_mass * y.zero_mass,
        lost_mean=x.lost_mean + y.lost_mean,
        mass_error=x.mass_error + y.mass_error + terms * UNIT_ROUNDOFF,
        ratio_error=max(x.ratio_error, y.ratio_error) + rounding,
    )
