"""Sums of independent variables on a multiplicative grid.

A law sits on the points origin · e^{step·i}. The sum of two such points
x_i + y_j, relative to x_i, depends on d = j − i alone, and so do the output cell
it falls in and its place within that cell. All pairs with one output cell
form a run of diagonals. Within a cell shares are linear in y_j, so that a window
of y's masses may be moved to the window's two ends, its mean kept, and a run is
two numbers a point: a sum costs some 2 ln 2 / step vector passes instead of one a
diagonal. Windows are made by doubling, for a few widths; a run is one or two.

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

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import sums

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]

UNIT_ROUNDOFF = floats.UNIT_ROUNDOFF

_LARGEST_EXPONENT = 709.0
_MANY_RUNS = 4  # Tuning: a window of its own costs as much as so many passes.


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


def movement(law: GeometricLaw, mass_error: float) -> float:
    """Bounds how far, relatively, rounded sums move the mean of a group.

    A group's place is its grid point times one and a quotient of two sums: moved by
    twice their error, times its distance from the grid point over itself.
    """
    if law.excess is None:
        return 0.0
    occupied = law.masses > 0
    excess = law.excess[occupied]
    share = excess / (law.masses[occupied] + excess)
    return 2 * mass_error * float(share.max(initial=0.0))


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
    law = GeometricLaw(
        origin=math.exp(lowest),
        step=step,
        masses=gathered,
        excess=excess,
        zero_mass=zero_mass,
        mass_error=8 * UNIT_ROUNDOFF,
        # Logarithms and the grid's exponents are off by their own rounding.
        ratio_error=(16 + 16 * largest) * UNIT_ROUNDOFF,
    )
    moved = movement(law, law.mass_error)
    return dataclasses.replace(law, ratio_error=law.ratio_error + moved)


class _Windows:
    """Windows of values on the grid, each value moved to the two ends of its window.

    A value between two grid points is split between them, and keeps its mean. A
    window is made of two neighbours: what is at the ends where they meet is split
    again. Nothing is ever subtracted.
    """

    def __init__(self, values: FloatArray, step: float) -> None:
        """Takes (k, n) values, k kinds of them at each of n points."""
        self._step = step
        self._known = {1: np.stack([values, np.zeros_like(values)])}

    def of(self, width: int, most: int) -> FloatArray:
        """Returns (2 k, m) values at the lower, then at the upper ends.

        Column e is of the window e − width + 1, …, e; outside of the n points
        all values are zero.

        Args:
            width: One of `_widths`, no less than in the call before.
            most: How many columns are needed of this width and those to come.
        """
        ends = self._ends(width, most)
        # What wider ones are not made of goes: fresh memory costs more than the sums.
        for narrow in [each for each in self._known if 1 < each < width / 2]:
            del self._known[narrow]
        _, kinds, size = ends.shape
        return ends.reshape(2 * kinds, size)

    def _ends(self, width: int, most: int) -> FloatArray:
        if width not in self._known:
            newer = width - 1
            if newer not in self._known:
                newer = 1 << newer.bit_length() - 1
            self._known[width] = self._joined(newer, width - newer, most)
        return self._known[width]

    def _joined(self, width: int, more: int, most: int) -> FloatArray:
        """Returns windows of a width with those just before them."""
        newer, older = self._ends(width, most), self._ends(more, most)
        size = min(most, older.shape[-1] + width)
        own, its = min(size, newer.shape[-1]), max(size - width, 0)
        both = np.zeros((*newer.shape[:2], size))
        both[..., :own] = newer[..., :own]
        lower, upper = both
        share = self._share(width - 1, width + more - 1)
        upper += share * lower
        # Each share from the other, so that masses are conserved.
        lower *= 1 - share
        lower[:, width:] += older[0, :, :its]
        share = self._share(width, width + more - 1)
        upper[:, width:] += share * older[1, :, :its]
        lower[:, width:] += (1 - share) * older[1, :, :its]
        return both

    def _share(self, distance: int, whole: int) -> float:
        """Returns what goes to the upper end, so many points away, of a window."""
        share = math.exp(-self._step * distance)
        share *= math.expm1(-self._step * (whole - distance))
        return share / math.expm1(-self._step * whole)


def _widths(runs: IntArray) -> IntArray:
    """Returns the widths of windows: what many runs have, 2^k and 3 · 2^k."""
    common = np.flatnonzero(np.bincount(runs) >= _MANY_RUNS)
    powers = 1 << np.arange(int(runs.max()).bit_length())
    return np.unique(np.concatenate([common, powers, 3 * powers]))


class _Runs(NamedTuple):
    """Diagonals of one of `_widths`, whose sums share an output cell, by width.

    `places` are those of sums, over the cell's grid point, less one; `quotients`
    are the smaller summands over it. Both are linear in the smaller summand, so
    that those of the first and the last diagonal are enough.
    """

    ends: IntArray  # (k, 2) The first diagonal of each run, and the last.
    cells: IntArray  # (k,)
    places: FloatArray  # (k, 2) At the first diagonal, and at the last.
    quotients: FloatArray  # (k, 2)
    shares: FloatArray  # (k,) The larger summand over the cell's grid point.


def _runs(
    big: float, small: float, step: float, out_step: float, lowest: int, highest: int
) -> _Runs:
    """Returns the runs of diagonals from `lowest` to `highest`, at least one.

    Diagonal d holds the sums big + small·e^{step·d}, relative to big + small.
    """
    # All in logarithms: the quotient of two origins need not fit a float.
    gap = math.log(small) - math.log(big)
    total = float(np.logaddexp(0.0, gap))
    exponents = gap + step * np.arange(lowest, highest + 1)
    position = (np.logaddexp(0.0, exponents) - total) / out_step
    cells = np.floor(position)
    ends = _in_widths(np.append(np.flatnonzero(np.diff(cells)), cells.size - 1))
    points = cells[ends]
    return _Runs(
        lowest + ends,
        points[:, 0].astype(np.int64),
        np.expm1(out_step * (position[ends] - points)),
        np.exp(exponents[ends] - total - out_step * points),
        np.exp(math.log(big) - math.log(big + small) - out_step * points[:, 0]),
    )


def _in_widths(lasts: IntArray) -> IntArray:
    """Returns (k, 2) first and last indices of runs, each cut to `_widths`.

    Args:
        lasts: The last index of each run, the first of which starts at 0.
    """
    starts = np.append(0, lasts[:-1] + 1)
    left = lasts + 1 - starts
    widths = _widths(left)
    parts = []
    while left.size:
        width = widths[np.searchsorted(widths, left, side="right") - 1]
        parts.append(np.stack([starts, starts + width - 1], 1))
        starts, left = (each[left > width] for each in (starts + width, left - width))
    ends = np.concatenate(parts)
    return ends[np.argsort(ends[:, 1] - ends[:, 0], kind="stable")]


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


def _weights(runs: _Runs, cell_width: float, *, grouped: bool) -> FloatArray:
    """Returns what each run does with masses, and excesses, at its windows' ends.

    Args:
        runs: k runs.
        cell_width: Of the output's cells, over their grid points.
        grouped: Whether cells are grouped.

    Returns:
        (k, 2, 2) shares of the low and of the high end of a cell; or (k, 3, 4)
        the mass, the excess that the smaller summand makes, and the share that
        the larger one's own excess has, from (mass, excess) at the first diagonal
        and at the last.
    """
    if not grouped:
        high = np.minimum(runs.places / cell_width, 1.0)
        return np.stack([1 - high, high], 1)
    weights = np.zeros((runs.cells.size, 3, 2, 2))
    weights[:, 0, :, 0] = 1.0
    weights[:, 1, :, 0] = runs.places
    weights[:, 1, :, 1] = runs.quotients
    weights[:, 2, :, 0] = runs.shares[:, np.newaxis]
    return weights.reshape(-1, 3, 4)


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
    lowest, highest = 1 - n_big, min(highest, n_small - 1)
    if highest < lowest:
        return
    out_step = big.step / refinement
    runs = _runs(big.origin, small.origin, big.step, out_step, lowest, highest)
    kinds = [small.masses] if small.excess is None else [small.masses, small.excess]
    windows = _Windows(np.stack(kinds), big.step)
    masses = factor * big.masses
    excess = None if big.excess is None else factor * big.excess
    weights = _weights(runs, math.expm1(out_step), grouped=excess is not None)
    # Of narrower windows, all columns that they or wider ones are asked for.
    columns = n_big + np.maximum.accumulate(runs.ends[::-1, 1])[::-1]
    for (first, last), cell, most, weight in zip(
        runs.ends.tolist(), runs.cells.tolist(), columns.tolist(), weights, strict=True
    ):
        # Only the i for which the window [i + first, i + last] meets 0..n_small − 1.
        start, stop = max(0, -last), min(n_big, n_small - first)
        ends = windows.of(last - first + 1, most)
        found = weight @ ends[:, start + last : stop + last]
        index = refinement * start + cell
        found[0] *= masses[start:stop]
        found[1] *= masses[start:stop]
        out.add(out.masses, index, refinement, found[0])
        if excess is None:
            out.add(out.masses, index + 1, refinement, found[1])
        else:
            assert out.excess is not None
            found[2] *= excess[start:stop]
            found[1] += found[2]
            out.add(out.excess, index, refinement, found[1])


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
        refinement: How many times finer the grid of the sum is; a power of two, so
            that its step is exact.

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
    # A cell gets two terms a run, of which there are half as many as diagonals; a
    # mass is rounded seven times whenever its window doubles.
    terms = x.masses.size + y.masses.size + 64
    exponents = abs(math.log(x.origin)) + abs(math.log(y.origin))
    origin = math.exp(math.log(total) + x.step / refinement * out.lowest_cell)
    # Shares are off by 16 units of a window's width, and windows halve.
    widths = 32 * min(x.step / refinement, 1.0)
    rounding = (16 + 4 * exponents + widths) * UNIT_ROUNDOFF
    rounding += math.ulp(origin) / origin
    summing = terms * UNIT_ROUNDOFF
    law = GeometricLaw(
        origin=origin,
        step=x.step / refinement,
        masses=out.masses,
        excess=out.excess,
        zero_mass=x.zero_mass * y.zero_mass,
        lost_mean=x.lost_mean + y.lost_mean,
        mass_error=x.mass_error + y.mass_error + summing,
        ratio_error=max(x.ratio_error, y.ratio_error) + rounding,
    )
    moved = movement(law, summing)
    return dataclasses.replace(law, ratio_error=law.ratio_error + moved)
