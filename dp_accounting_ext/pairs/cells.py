"""Pairs from cells, in each of which the ratio lies between two known values."""

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]


def upper_atoms(
    edges: FloatArray, masses: FloatArray, share: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns (n + 1,) ratios and masses: each cell split between its ends.

    Args:
        edges: (n + 1,) ratios at the ends of the cells, increasing.
        masses: (n,) Q-masses of the cells.
        share: (n,) share of each mass that moves up, which keeps the cell's mean.
    """
    raised = np.minimum(share, 1.0) * masses
    split = np.zeros(edges.size)
    split[1:] += raised
    split[:-1] += masses - raised
    return edges, split


def lower_pair(
    ratios: FloatArray, masses: FloatArray, mass_error: float, ratio_error: float
) -> dominating_pair.DominatingPair:
    """Returns the lower bound of cells grouped at their means.

    Args:
        ratios: (n,) means of the ratio under Q, in any order.
        masses: (n,) Q-masses.
        mass_error: Bound on the relative error of any mass.
        ratio_error: Bound on the relative error of any ratio.
    """
    order = np.argsort(ratios, kind="stable")
    ratios, masses = ratios[order], masses[order]
    kept = (masses > floats.SMALLEST_MASS) & (ratios * masses > floats.SMALLEST_MASS)
    return dominating_pair.DominatingPair(
        ratios[kept],
        masses[kept],
        0.0,
        0.0,
        dominating_pair.Bound.LOWER,
        mass_error,
        ratio_error,
    )
