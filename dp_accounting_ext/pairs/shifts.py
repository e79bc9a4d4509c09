"""Noise around random shifts: what mixtures of any noise have in common."""

import dataclasses

from dp_accounting_ext.kernel import floats

Shifts = tuple[tuple[float, float], ...]

# A limit of time and memory.
MOST_SHIFTS = 4096

# Certified (docs/guarantees.md, "Neyman–Pearson"): relative errors of weights. Two are
# a probability and the rest; more come from logarithms, with an error at the mode and
# one for each step from it.
_TWO_WEIGHTS = 4 * floats.UNIT_ROUNDOFF
_WEIGHTS = 4e-13
_WEIGHTS_STEP = 1e-15


@dataclasses.dataclass(frozen=True)
class Mixture:
    """Symmetric noise around a random shift: (shift, weight); weights sum to one."""

    shifts: Shifts

    def lowest(self) -> float:
        """Returns the lowest shift."""
        return min(shift for shift, _ in self.shifts)

    def highest(self) -> float:
        """Returns the highest shift."""
        return max(shift for shift, _ in self.shifts)

    def weight_error(self) -> float:
        """Returns a bound on the relative error of any weight."""
        number = len(self.shifts)
        if number == 1:
            return 0.0
        return _TWO_WEIGHTS if number == 2 else _WEIGHTS + number * _WEIGHTS_STEP


def check_order(p: Mixture, q: Mixture) -> None:
    """Checks that no shift of P is below a shift of Q, zero in between.

    Raises:
        ValueError: If a shift of P is negative, or one of Q positive.
    """
    if p.lowest() < 0 or q.highest() > 0:
        raise ValueError(
            "Shifts of P must be at least 0, those of Q at most 0. "
            f"Found {p.lowest()} and {q.highest()}."
        )
