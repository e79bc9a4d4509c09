"""Noise around random shifts: what mixtures of any noise have in common."""

import dataclasses

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

Shifts = tuple[tuple[float, float], ...]

# A limit of time and memory.
MOST_SHIFTS = 4096


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
        """Returns a bound on the relative error of any weight.

        Two are a probability and the rest: three roundings for each of up to 16 samples
        one within another, and a few before. More come from logarithms of up to 700,
        with a few for each step from the mode.
        """
        number = len(self.shifts)
        roundings = {1: 0, 2: 64}.get(number, 4096 + 16 * number)
        return roundings * floats.UNIT_ROUNDOFF


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


def split(masses: FloatArray, excess: FloatArray, span: FloatArray) -> FloatArray:
    """Returns (n + 1,) masses at the ends of (n,) cells, which keep the cells' means.

    Args:
        masses: (n,) Q-masses of the cells.
        excess: (n,) by how much the mean of each is above its lower end,
        span: (n,) and its upper end is: where that is none, the lower end has all.
    """
    share = np.divide(excess, span, out=np.zeros_like(masses), where=span > 0)
    raised = np.clip(share, 0.0, 1.0) * masses
    at_ends = np.append(masses - raised, 0.0)
    at_ends[1:] += raised
    return at_ends


def lower_pair(
    ratios: FloatArray, masses: FloatArray, mass_error: float, ratio_error: float
) -> dominating_pair.DominatingPair:
    """Returns the lower bound of cells grouped at their means, but for those without.

    Args:
        ratios: (n,) means of the ratio under Q, in any order.
        masses: (n,) Q-masses.
        mass_error: Bound on the relative error of any mass.
        ratio_error: Bound on the relative error of any ratio.
    """
    order = np.argsort(ratios, kind="stable")
    kept = order[masses[order] > 0]
    return dominating_pair.DominatingPair(
        ratios[kept],
        masses[kept],
        0.0,
        0.0,
        Bound.LOWER,
        mass_error,
        ratio_error,
    )
