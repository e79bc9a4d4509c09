"""What a projection is checked by: bounds that need no trust in a solver."""

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import ldp_polytope

FloatArray = npt.NDArray[np.float64]


def lower_bound(
    masses: FloatArray,
    prices: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> float:
    """Returns a lower bound of the cost of moving μ into the polytope.

    Args:
        masses: (k,) the distribution μ.
        prices: (k_v,) any prices g of the outputs; the optimal dual makes it tight.
        cost: (k, k_v) costs.
        polytope: The allowed distributions q of the outputs.

    Returns:
        Σ_i μ_i min_j (C_ij − g_j) + min over q of g·q.

    Guarantees:
        No plan costs less, by weak duality, whatever the prices.
    """
    rows = np.flatnonzero(masses)
    nearest = (cost[rows] - prices).min(axis=1)
    cheapest = ldp_polytope.cheapest(prices, polytope)
    return float(masses[rows] @ nearest + prices @ cheapest)


def complete_prices(
    prices: FloatArray,
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> FloatArray:
    """Returns prices in which outputs that hold nothing have one that costs nothing.

    Args:
        prices: (k_v,) prices of the outputs that may hold something.
        masses: (k,) the distribution μ.
        cost: (k, k_v) costs.
        polytope: The allowed distributions.

    Returns:
        The same, with the greatest prices of the other outputs that leave the
        nearest output of every input as near.
    """
    empty = polytope.upper <= 0
    if not empty.any():
        return prices
    rows = np.flatnonzero(masses)
    nearest = (cost[np.ix_(rows, ~empty)] - prices[~empty]).min(axis=1)
    completed = prices.copy()
    completed[empty] = (cost[np.ix_(rows, empty)] - nearest[:, np.newaxis]).min(axis=0)
    return completed
