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

import dataclasses
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import sums

FloatArray = npt.NDArray[np.float64]

UNIT_ROUNDOFF = 2.0**-53

_LARGEST_EXPONENT = 709.0


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


class _Run(NamedTuple):
    """Consecutive diagonals whose sums share an output cell."""

    first: int
    last: int
    cell: int
    lower_weight: float  # Share of the last diagonal that goes to the cell's low end.
    upper_weight: float  # Share of the first diagonal that goes to its high end.
    slope: float  # y / (cell's width) at the last diagonal.


class _Sums(NamedTuple):
    """Sums over windows of values v that end at each of some indices.

    With l the distance from a window's last index and w its width.
    """

    totals: FloatArray  # Σ v
    leads: FloatArray  # Σ v (e^{−step·l} − e^{−step·(w − 1)})
    lags: FloatArray | None  # Σ v (1 − e^{−step·l}), where it is needed.

    def between(self, start: int, stop: int) -> "_Sums":
        """Returns the sums at some of the indices."""
        lags = None if self.lags is None else self.lags[start:stop]
        return _Sums(self.totals[start:stop], self.leads[start:stop], lags)

    def joined(self, older: "_Sums", step: float, width: int, whole: int) -> "_Sums":
        """Returns the sums of windows of a width, with those just before them.

        Args:
            older: Sums of the windows before these.
            step: The grid's step.
            width: Width of these windows.
            whole: Width of both together.
        """
        decay, gap = math.exp(-step * width), -math.expm1(-step * width)
        reach = math.exp(-step * (width - 1)) * -math.expm1(-step * (whole - width))
        leads = self.leads + (decay * older.leads + reach * self.totals)
        lags = None
        if self.lags is not None and older.lags is not None:
            lags = self.lags + (decay * older.lags + gap * older.totals)
        return _Sums(self.totals + older.totals, leads, lags)


class _Windows:
    """Sums of `values` over windows that end at every index, of any width.

    Built by doubling, so that nothing is ever subtracted.
    """

    def __init__(
        self,
        values: FloatArray,
        step: float,
        before: int,
        widest: int,
        *,
        lagging: bool,
    ) -> None:
        self._step = step
        self._before = before
        totals = np.concatenate([np.zeros(before), values, np.zeros(widest)])
        nothing = np.zeros_like(totals)
        self._levels = [_Sums(totals, nothing, nothing if lagging else None)]
        for level in range(widest.bit_length() - 1):
            width = 1 << level
            size = self._levels[-1].totals.size
            recent = self._levels[-1].between(width, size)
            older = self._levels[-1].between(0, size - width)
            self._levels.append(recent.joined(older, step, width, 2 * width))

    def window(self, start: int, stop: int, width: int) -> _Sums:
        """Returns the sums of windows that end at start, …, stop − 1."""
        found: _Sums | None = None
        covered = 0
        for level, whole in enumerate(self._levels):
            if not width >> level & 1:
                continue
            joined = covered + (1 << level)
            # The first of these windows ends where the first that fits does.
            place = start + self._before + 1 - joined
            part = whole.between(place, place + stop - start)
            if found is None:
                found = part
            else:
                found = found.joined(part, self._step, covered, joined)
            covered = joined
        assert found is not None
        return found


def _runs(
    big: float, small: float, step: float, out_step: float, lowest: int, highest: int
) -> list[_Run]:
    """Returns the runs of diagonals from `lowest` to `highest`.

    Diagonal d holds the sums big + small·e^{step·d}, relative to big + small.
    """
    if highest < lowest:
        return []
    diagonals = np.arange(lowest, highest + 1)
    # All in logarithms: the quotient of two origins need not fit a float.
    gap = math.log(small) - math.log(big)
    total = float(np.logaddexp(0.0, gap))
    exponents = gap + step * diagonals
    position = (np.logaddexp(0.0, exponents) - total) / out_step
    cells = np.floor(position)
    ends = np.append(np.flatnonzero(np.diff(cells)), diagonals.size - 1)
    width = math.expm1(out_step)
    runs, first = [], lowest
    for end in ends:
        cell, last = int(cells[end]), int(diagonals[end])
        weight = math.expm1(out_step * (float(position[end]) - cell)) / width
        slope = math.exp(float(exponents[end]) - total - out_step * cell) / width
        # Each share from the others, so that masses and the mean are conserved.
        spread = slope * -math.expm1(-step * (last - first))
        upper_weight = max(weight - spread, 0.0)
        lower_weight = max(1 - upper_weight - spread, 0.0)
        runs.append(_Run(first, last, cell, lower_weight, upper_weight, slope))
        first = last + 1
    return runs


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


def _add_half(
    out: _Output,
    big: GeometricLaw,
    small: GeometricLaw,
    refinement: int,
    highest: int,
    factor: float,
) -> None:
    """Adds to `out` all pairs (i, j) with j − i ≤ highest, `factor` times."""
    n_big, n_small = big.masses.size, small.masses.size
    highest = min(highest, n_small - 1)
    lowest = -(n_big - 1)
    out_step = big.step / refinement
    log_share = math.log(big.origin) - math.log(big.origin + small.origin)
    runs = _runs(big.origin, small.origin, big.step, out_step, lowest, highest)
    if not runs:
        return
    widest = max(run.last - run.first + 1 for run in runs)
    upper = small.excess is None
    windows = _Windows(small.masses, big.step, n_big, widest, lagging=upper)
    excess_windows = None
    if small.excess is not None:
        excess_windows = _Windows(small.excess, big.step, n_big, widest, lagging=False)
    cell_width = math.expm1(out_step)
    for run in runs:
        # Only the i for which the window [i + first, i + last] meets 0..n_small − 1.
        start, stop = max(0, -run.last), min(n_big, n_small - run.first)
        width = run.last - run.first + 1
        end_low, end_high = start + run.last, stop + run.last
        totals, leads, lags = windows.window(end_low, end_high, width)
        weights = big.masses[start:stop] * factor
        index = refinement * start + run.cell
        high = run.upper_weight * totals + run.slope * leads
        if lags is not None:
            low = run.lower_weight * totals + run.slope * lags
            out.add(out.masses, index, refinement, weights * low)
            out.add(out.masses, index + 1, refinement, weights * high)
            continue
        assert big.excess is not None
        assert out.excess is not None and excess_windows is not None
        moved = excess_windows.window(end_low, end_high, width)
        decayed = moved.leads + math.exp(-big.step * (width - 1)) * moved.totals
        share = math.exp(log_share - out_step * run.cell)
        excess = weights * cell_width * (high + run.slope * decayed)
        excess += big.excess[start:stop] * (factor * share) * totals
        out.add(out.masses, index, refinement, weights * totals)
        out.add(out.excess, index, refinement, excess)


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
        _add_half(out, x, x, refinement, -1, 2.0)
        out.add(out.masses, 0, refinement, x.masses * x.masses)
        if out.excess is not None and x.excess is not None:
            out.add(out.excess, 0, refinement, x.masses * x.excess)
    else:
        highest = math.floor((math.log(x.origin) - math.log(y.origin)) / x.step)
        _add_half(out, x, y, refinement, highest, 1.0)
        _add_half(out, y, x, refinement, -highest - 1, 1.0)
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
