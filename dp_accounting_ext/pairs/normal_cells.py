"""Cells of a normal variable, with the masses of it and of others that are shifted."""

from collections.abc import Sequence
import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]

_UNIT = floats.UNIT_ROUNDOFF
# Certified (docs/guarantees.md, "Assumptions"): ndtr up to so many deviations, and its
# relative error, in units of rounding, at zero and as it grows with the square; and of
# what is made of a mass.
FURTHEST, _NDTR, _NDTR_GROWTH, _MASS = 37.0, 32.0, 4.0, 16
# Tuning.
_CELLS = 2048


@dataclasses.dataclass(frozen=True)
class NormalCells:
    """Cells of the noise of one step.

    Attributes:
        ends: (n + 1,) their ends.
        masses: (k, n) probabilities of N(shift, 1) in them, a row for each shift.
        above: (k,) bounds on the probabilities above the last end.
        error: Bound on the relative error of any mass.
    """

    ends: FloatArray
    masses: FloatArray
    above: FloatArray
    error: float

    @classmethod
    def of(cls, shifts: Sequence[float], low: float, high: float) -> "NormalCells":
        """Returns cells between two values, by differences of the nearer tails.

        Args:
            shifts: (k,) shifts, none more than `FURTHEST` away from either end.
            low: Where the first cell begins.
            high: Where the last one ends.
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
        errors = (_NDTR + _NDTR_GROWTH * furthest**2) * sizes / masses
        # The argument of a tail is off by a rounding of it.
        errors += 2 * (1 + furthest) * furthest * sizes / masses
        error = (float(errors.max()) + _MASS) * _UNIT
        return cls(ends, masses, floats.raised(1.0) * above[:, -1], error)
