"""The joint law of two sums over the steps of a random allocation.

It is computed as a product of powers of transforms, on a lattice in the plane.
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.amplification import step_laws
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums
from dp_accounting_ext.kernel import tilted_sums

# Tuning, all of these constants.
# Rounding to the lattice grows with the root of t. With these numbers it costs about
# 5e-4 of ε, up to 4000 steps.
_ROWS_PER_ROOT, _MOST_ROWS = 400.0, 1 << 14  # Of fine rows, over the root of t.
_COARSE_ROWS = 1024
_MOST_COLUMNS, _MOST_CELLS = 192, 1 << 21
_OUTSIDE = 16.0  # A window leaves out e^−16 of a tilted law at either end.
_DEVIATIONS = 9.0  # The second sum is rarely so many above its mean.
# The width of a column of V, times the root of t, that is narrow enough.
_WIDTH = 0.1

# Certified: the largest tilt of a coarse row, so that all of its fine rows fit a float.
_STEEPEST_ROW = 50.0
_LARGEST_INDEX = 2.0**52  # Certified: floats hold all integers up to it.
# Certified: many times the relative error of sums of tens of thousands of shares.
_SPLIT_ERROR = 1e-10


@dataclasses.dataclass(frozen=True)
class Grid:
    """A lattice in the plane for two sums, around the center of their tilted law.

    The lattice is a torus, so sums beyond it return at its other end.

    Attributes:
        tilt: The tilt, per nat of the first sum.
        changes: (2,) positive changes of the tilt for Chernoff's bounds, upwards and
            downwards.
        low: Lower end of the window of the first sum.
        row_step: Height of a fine row, in nats.
        column_step: Width of a column.
        rows: Number of fine rows of the torus.
        columns: Number of columns of the torus.
        height: Number of fine rows in a coarse row.
        is_even: Whether a mass is split between rows such that the mean of the first
            sum is kept. Otherwise that of e^{−L} is kept.
    """

    tilt: float
    changes: FloatArray
    low: float
    row_step: float
    column_step: float
    rows: int
    columns: int
    height: int
    is_even: bool = False

    @classmethod
    def of(
        cls,
        sums_of_step: tuple[FloatArray, FloatArray],
        laws: step_laws.Laws,
        tilt: float,
        *,
        largest_second: float = 0.0,
        merged: int = 1,
    ) -> "Grid":
        """Returns a grid for a law, tilted a little less than to its saddle point.

        Args:
            sums_of_step: (n,) terms of a step's outputs in either sum.
            laws: (n,) masses of steps, with counts.
            tilt: The tilt of the saddle point.
            largest_second: If positive, splits keep the mean of the first sum, and this
                is the largest value of the second sum that has a column.
            merged: The number of columns that are merged into one.
        """
        tilt *= step_laws.EASED
        first, second = sums_of_step
        low, high, changes = step_laws.window(first, laws, tilt, _OUTSIDE)
        count = sum(count for _, count in laws)
        height = math.ceil(_ROWS_PER_ROOT * math.sqrt(count) / _COARSE_ROWS)
        rows = min(height * _COARSE_ROWS, _MOST_ROWS)
        columns = min(_MOST_COLUMNS, _MOST_CELLS // rows) // merged
        width = largest_second
        if not width:
            _, tilted = step_laws.tilted_laws(laws, tilt * first)
            middle = step_laws.mean(tilted, second)
            # This is the variance of V, with what rounding to columns adds to it.
            variance = step_laws.mean(tilted, second**2) + 2 * middle**2 / columns
            width = middle + _DEVIATIONS * math.sqrt(variance)
            enough = math.ceil(width * math.sqrt(count) / _WIDTH)
            columns = min(max(enough, 1), columns)
        return cls(
            tilt=tilt,
            changes=changes,
            low=low,
            # The torus is larger than the window by an eighth, so that sums which go
            # round it are at least this far beyond the ends.
            row_step=1.125 * (high - low) / rows,
            column_step=width / columns,
            rows=rows,
            columns=columns,
            height=rows // _COARSE_ROWS,
            is_even=largest_second > 0,
        )

    @property
    def coarse_step(self) -> float:
        """Height of a coarse row, in nats."""
        return self.row_step * self.height

    def holds(self, sums_of_step: tuple[FloatArray, FloatArray], count: int) -> bool:
        """Returns whether the sums of `count` steps and the rows' tilts fit floats."""
        steps = self.row_step, self.column_step
        if not min(steps) > 0 or self.tilt * self.coarse_step > _STEEPEST_ROW:
            return False
        indices = (
            float(np.abs(terms).max()) / step
            for terms, step in zip(sums_of_step, steps, strict=True)
        )
        return count * max(indices) < _LARGEST_INDEX

    def factor(
        self,
        sums_of_step: tuple[FloatArray, FloatArray],
        masses: FloatArray,
        count: int,
    ) -> tilted_sums.Factor:
        """Returns the law of the terms of `count` equal steps in both sums.

        Masses below `floats.SMALLEST_MASS` are raised to it.
        """
        first, second = sums_of_step
        rows, row_shares = self._shares(first / self.row_step, self.row_step)
        columns, column_shares = tilted_sums.even_shares(second / self.column_step)
        cells = np.broadcast_arrays(rows[:, np.newaxis], columns[np.newaxis])
        shared = row_shares[:, np.newaxis] * column_shares[np.newaxis]
        weights = np.maximum((shared * masses).ravel(), floats.SMALLEST_MASS)
        used = ((shared > 0) & (masses > 0)).ravel()
        factor = tilted_sums.Factor(
            cells[0].ravel()[used], cells[1].ravel()[used], weights[used], count
        )
        self._check(factor, sums_of_step, masses)
        return factor

    def _check(
        self,
        factor: tilted_sums.Factor,
        sums_of_step: tuple[FloatArray, FloatArray],
        masses: FloatArray,
    ) -> None:
        """Checks that splitting kept the total mass and the mean of either sum.

        Raises:
            MassError: If one of them has changed.
        """
        first, second = sums_of_step
        rows = self.row_step * factor.rows.astype(np.float64)
        columns = self.column_step * factor.columns.astype(np.float64)
        if not self.is_even:
            # The mean of e^{−L} is kept. It is divided by its largest value.
            smallest = float(first.min())
            first, rows = np.exp(smallest - first), np.exp(smallest - rows)
        for name, before, after in (
            ("masses of a step", np.ones_like(first), np.ones_like(rows)),
            ("means of a step's first sum", first, rows),
            ("means of a step's second sum", second, columns),
        ):
            size = sums.dot(masses, np.abs(before)) + factor.masses.size * floats.TINY
            conservation.check_total(
                name,
                sums.dot(factor.masses, after),
                sums.dot(masses, before),
                _SPLIT_ERROR * size,
            )

    def _shares(
        self, positions: FloatArray, step: float
    ) -> tuple[IntArray, FloatArray]:
        """Returns the rows around (n,) positions, with shares of their masses."""
        if self.is_even:
            return tilted_sums.even_shares(positions)
        return tilted_sums.shares(positions, step)

    def tent(self) -> FloatArray:
        """Returns the weights of fine rows in a coarse one, as `TiltedSum.masses` does.

        They are the shares of a fine row's mass if it is split between coarse rows.
        """
        offsets = np.arange(self.height) / self.height
        _, (lower, upper) = self._shares(offsets, self.coarse_step)
        weights = np.concatenate([upper[1:], lower])
        conservation.check_total(
            "shares of fine rows",
            float(weights.sum()),
            self.height,
            _SPLIT_ERROR * self.height,
        )
        return weights


class Window:
    """The joint law of two sums in a window, with masses rounded up.

    Args:
        grid: The lattice.
        factors: The laws of the terms.
        num_steps: The number of steps, which the counts of the factors must add up to.

    Raises:
        MassError: If the counts do not add up, or if masses were lost.

    Attributes:
        rows: (m,) values of the first sum, one for each coarse row.
        columns: (n,) values of the second sum, no larger than the true ones.
        masses: (m, n) masses of the rows and columns.
        mass_error: Bound on the relative error of the masses, besides that of the
            factors.
        is_tilted: Whether the masses below the first row are left out.
    """

    def __init__(
        self, grid: Grid, factors: list[tilted_sums.Factor], num_steps: int
    ) -> None:
        terms = sum(factor.count for factor in factors)
        conservation.check_total("terms of a law", terms, num_steps, 0.0)
        self._grid = grid
        self._law = tilted_sums.TiltedSum(
            factors, grid.tilt * grid.row_step, (grid.rows, grid.columns)
        )
        first = math.floor(grid.low / grid.coarse_step)
        self.masses = self._law.masses(grid.tent(), first, height=grid.height)
        rows = first + np.arange(self.masses.shape[0], dtype=np.float64)
        self.rows: FloatArray = grid.coarse_step * rows
        columns = np.arange(grid.columns, dtype=np.float64)
        self.columns: FloatArray = grid.column_step * columns
        self.mass_error = self._law.mass_error
        self.is_tilted = grid.tilt != 0
        self._last_fine_row = int(rows[-1]) * grid.height

    @classmethod
    def of(
        cls,
        grid: Grid,
        sums_of_step: tuple[FloatArray, FloatArray],
        laws: step_laws.Laws,
    ) -> "Window | None":
        """Returns the window of a grid, or None if its indices fit no float.

        Args:
            grid: The lattice.
            sums_of_step: (n,) terms of a step's outputs in either sum.
            laws: (n,) masses of steps, with counts.
        """
        count = sum(count for _, count in laws)
        if not grid.holds(sums_of_step, count):
            return None
        factors = [grid.factor(sums_of_step, masses, count) for masses, count in laws]
        return cls(grid, factors, count)

    def mass_above(self, least_tilt: float = 0.0) -> float:
        """Returns a bound on the mass above the last row, by Chernoff's bound.

        Args:
            least_tilt: The smallest tilt, per nat, that may be used.
        """
        tilts = self._grid.tilt + np.append(0.0, self._grid.changes)
        tilts = tilts[tilts >= least_tilt] * self._grid.row_step
        return self._law.mass_above(self._last_fine_row, tilts.tolist())
