"""Cells of a normal variable, with the masses of it and of others that are shifted."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# Certified: so far out `tail_error` is assumed, in deviations.
FURTHEST = 37.0
# Tuning.
_CELLS = 2048


def tail_error(away: Any) -> Any:
    """Returns what scipy.special.ndtr errs by so many deviations out, relatively.

    It is assumed, and asked for in a test (docs/guarantees.md, "Assumptions").
    """
    return (32 + 4 * away**2) * floats.UNIT_ROUNDOFF


@dataclasses.dataclass(frozen=True)
class NormalCells:
    """Cells of the noise of one step.

    Attributes:
        ends: (n + 1,) their ends.
        masses: (k, n) probabilities of N(shift, 1) in them, a row for each shift.
        above: (k,) bounds on the probabilities above the last end.
        mass_error: Bound on the relative error of any mass.
    """

    ends: FloatArray
    masses: FloatArray
    above: FloatArray
    mass_error: float

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
        # The argument of a tail is off by a rounding of it.
        rounded = 2 * (1 + furthest) * furthest * floats.UNIT_ROUNDOFF
        errors = (tail_error(furthest) + rounded) * sizes / masses
        error = float(errors.max()) + 16 * floats.UNIT_ROUNDOFF
        return cls(ends, masses, floats.raised(1.0) * above[:, -1], error)
