"""Noise around random shifts: what mixtures of Gaussian and Laplace noise share.

The law of a shift is a tuple of (shift, weight). The weights sum to one, unless some of
their probability is left out.
"""

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

Shifts = tuple[tuple[float, float], ...]

# A limit of time and memory.
MOST_SHIFTS = 4096

# The law of noise that is not shifted.
UNSHIFTED = ((0.0, 1.0),)


def weight_error(law: Shifts) -> float:
    """Returns a bound on the relative error of any weight.

    Two weights are a probability and the rest to one: three roundings for each of up to
    16 nested samples, and a few before. More than two come from logarithms of up to
    700, with a few roundings for each step from the mode.
    """
    roundings = {1: 0, 2: 64}.get(len(law), 4096 + 16 * len(law))
    return roundings * floats.UNIT_ROUNDOFF


def check_order(p: Shifts, q: Shifts) -> None:
    """Checks that all shifts of P are at least zero, and all of Q at most zero.

    Raises:
        ValueError: If a shift of P is negative, or one of Q positive.
    """
    lowest, highest = min(p)[0], max(q)[0]
    if lowest < 0 or highest > 0:
        raise ValueError(
            "Shifts of P must be at least 0, those of Q at most 0. "
            f"Found {lowest} and {highest}."
        )


def split(masses: FloatArray, excess: FloatArray, span: FloatArray) -> FloatArray:
    """Returns (n + 1,) masses at the ends of (n,) cells that keep the cells' means.

    Args:
        masses: (n,) Q-masses of the cells.
        excess: (n,) distances of the mean of each cell from its lower end.
        span: (n,) widths of the cells. If one is zero the lower end gets all mass.
    """
    share = np.divide(excess, span, out=np.zeros_like(masses), where=span > 0)
    raised = np.clip(share, 0.0, 1.0) * masses
    at_ends = np.append(masses - raised, 0.0)
    at_ends[1:] += raised
    return at_ends


def lower_pair(
    ratios: FloatArray, masses: FloatArray, mass_error: float, ratio_error: float
) -> dominating_pair.DominatingPair:
    """Returns the lower pair of cells that are merged at their means.

    Args:
        ratios: (n,) means of the ratio under Q, in any order.
        masses: (n,) Q-masses. Cells without mass are left out.
        mass_error: A bound on the relative error of any mass.
        ratio_error: A bound on the relative error of any ratio.
    """
    by_ratio = np.argsort(ratios, kind="stable")
    order = by_ratio[masses[by_ratio] > 0]
    return dominating_pair.DominatingPair(
        ratios[order],
        masses[order],
        0.0,
        0.0,
        Bound.LOWER,
        mass_error,
        ratio_error,
    )
