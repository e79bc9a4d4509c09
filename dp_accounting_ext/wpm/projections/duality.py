"""What a projection is checked by: bounds that need no trust in a solver."""

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import ldp_polytope

FloatArray = npt.NDArray[np.float64]

# Tuning: costs that are looked at together, so that they stay in the cache.
_TOGETHER = 1 << 15


def lower_bound(
    masses: FloatArray,
    prices: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> float:
    """Returns a lower bound of the cost of moving μ into the polytope.

    Args:
        masses: (s,) masses of the distribution μ.
        prices: (k_v,) any prices g of the outputs; the optimal dual makes it tight.
        cost: (s, k_v) costs.
        polytope: The allowed distributions q of the outputs.

    Returns:
        Σ_i μ_i min_j (C_ij − g_j) + min over q of g·q.

    Guarantees:
        No plan costs less, by weak duality, whatever the prices.
    """
    step = max(1, _TOGETHER // prices.size)
    bound = float(prices @ ldp_polytope.cheapest(prices, polytope))
    for begin in range(0, len(cost), step):
        rows = slice(begin, begin + step)
        bound += float(masses[rows] @ (cost[rows] - prices).min(axis=1))
    return bound
