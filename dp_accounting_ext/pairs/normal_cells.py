"""Cells of a normal variable, with their probabilities for several means."""

from collections.abc import Sequence
import dataclasses

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Certified: `floats.normal_tail_error` is assumed up to this many standard deviations.
FURTHEST = 37.0
# Tuning: the number of cells.
_CELLS = 2048


@dataclasses.dataclass(frozen=True)
class NormalCells:
    """Cells of the noise of one step, and their probabilities.

    Attributes:
        ends: (n + 1,) ends of the cells.
        masses: (k, n) probabilities of the cells under N(shift, 1), one row per shift.
        above: (k,) upper bounds on the probabilities above the last end.
        mass_error: A bound on the relative error of any mass.
    """

    ends: FloatArray
    masses: FloatArray
    above: FloatArray
    mass_error: float

    @classmethod
    def of(cls, shifts: Sequence[float], low: float, high: float) -> "NormalCells":
        """Returns cells between two values. Masses are differences of the nearer tails.

        Args:
            shifts: (k,) shifts, none more than `FURTHEST` away from either end.
            low: The beginning of the first cell.
            high: The end of the last cell.
        """
        ends = np.linspace(low, high, _CELLS + 1)
        places = ends - np.array(shifts)[:, np.newaxis]
        below, above = special.ndtr(places), special.ndtr(-places)
        is_above = places[:, :-1] > 0
        masses = np.where(is_above, -np.diff(above), np.diff(below))
        sizes = np.where(
            is_above, above[:, :-1] + above[:, 1:], below[:, :-1] + below[:, 1:]
        )
        furthest = np.maximum(np.abs(places[:, :-1]), np.abs(places[:, 1:]))
        # The argument of a tail probability was rounded.
        rounded = 2 * (1 + furthest) * furthest * floats.UNIT_ROUNDOFF
        errors = (floats.normal_tail_error(furthest) + rounded) * sizes / masses
        error = float(errors.max()) + 16 * floats.UNIT_ROUNDOFF
        return cls(ends, masses, floats.raised(1.0) * above[:, -1], error)
