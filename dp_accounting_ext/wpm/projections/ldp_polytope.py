"""The distributions q with αm ≤ q ≤ βm, and bounds on the cost of reaching them.

Here α = e^{−ε/2} and β = e^{ε/2}. Weights and distributions may be batches; the last
axis runs over the outputs.
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray

_TINY = float(np.finfo(float).tiny)
# The error of the sum with which Newton's method ends.
_ENOUGH = 1e-10


@dataclasses.dataclass(frozen=True)
class LdpPolytope:
    """The distributions between two bounds.

    Attributes:
        lower: (k_v,) the least mass αm_j of every output.
        upper: (k_v,) the most mass βm_j of every output.
    """

    lower: FloatArray
    upper: FloatArray

    def of(self, outputs: IndexArray) -> "LdpPolytope":
        """Returns the bounds of some outputs."""
        return LdpPolytope(self.lower[outputs], self.upper[outputs])

    def capped(self) -> "LdpPolytope":
        """Returns the same with bounds of at most one, as larger ones lose digits."""
        return LdpPolytope(self.lower, np.minimum(self.upper, 1.0))


@dataclasses.dataclass(frozen=True, repr=False)
class Solution:
    """The solved projection of one user.

    Attributes:
        distribution: (k_v,) a member of the polytope, up to rounding.
        prices: (k_v,) dual prices of the outputs.
        value: The cost of a feasible plan.
        rounds: The number of linear programs that were solved, at least one.
    """

    distribution: FloatArray
    prices: FloatArray
    value: float
    rounds: int


def from_base_measure(base_measure: FloatArray, epsilon: float) -> LdpPolytope:
    """Returns the polytope of (k_v,) masses m_j with αΣm ≤ 1 ≤ βΣm.

    Source:
        https://arxiv.org/abs/2605.10015, Definition 2.2.
    """
    return LdpPolytope(
        math.exp(-epsilon / 2) * base_measure, math.exp(epsilon / 2) * base_measure
    )


def cheapest(prices: FloatArray, polytope: LdpPolytope) -> FloatArray:
    """Returns the q of the polytope with the least g·q, for (…, k_v) prices g.

    A fractional knapsack: outputs are filled in the order of their prices.
    """
    order = np.argsort(prices, axis=-1, kind="stable")
    room = max(1 - float(polytope.lower.sum()), 0.0)
    # With bounds far above one, all digits of the difference would cancel.
    widths = np.minimum(polytope.upper - polytope.lower, room)[order]
    left = room - (np.cumsum(widths, axis=-1) - widths)
    added = np.empty(order.shape)
    np.put_along_axis(added, order, np.clip(left, 0.0, widths), axis=-1)
    return np.minimum(polytope.lower + added, polytope.upper)


def lower_bound(
    masses: FloatArray,
    prices: FloatArray,
    cost: FloatArray,
    polytope: LdpPolytope,
) -> float:
    """Returns a lower bound of the cost of moving (s,) masses μ into the polytope.

    It is Σ_i μ_i min_j (C_ij − g_j) + min over q of g·q, for (s, k_v) costs C and any
    (k_v,) prices g. The optimal dual makes it tight.

    Guarantees:
        No plan costs less, by weak duality, whatever the prices.
    """
    # Row by row, as a second matrix of this size would take much memory.
    nearest = [(row - prices).min() for row in cost]
    return float(masses @ nearest + prices @ cheapest(prices, polytope))


def largest_prices(
    cost: FloatArray, inner: FloatArray, prices: FloatArray
) -> FloatArray:
    """Returns the largest prices for which every input's nearest output is as near.

    Those of all outputs, of (s, k_v) costs, are found from those of some, of (s, n)
    costs. They prove a lower bound that is at least as large.
    """
    nearest = (inner - prices).min(axis=1, keepdims=True)
    return np.asarray((cost - nearest).min(axis=0))


def level(
    prices: FloatArray, cheapest: FloatArray, polytope: LdpPolytope
) -> FloatArray:
    """Returns the price up to which `cheapest` holds more than the least masses."""
    filled = np.where(cheapest > polytope.lower, prices, -np.inf)
    return np.asarray(np.maximum(filled.max(axis=-1), prices.min(axis=-1)))


def nearest(distributions: FloatArray, polytope: LdpPolytope) -> FloatArray:
    """Returns members of the polytope near distributions that are outside by rounding.

    The mass that clipping adds or removes is compensated in proportion to the room.
    """
    clipped = _between(distributions, polytope)
    missing = 1 - clipped.sum(axis=-1, keepdims=True)
    room = np.where(missing > 0, polytope.upper - clipped, clipped - polytope.lower)
    total = np.maximum(room.sum(axis=-1, keepdims=True), _TINY)
    return _between(clipped + room * (missing / total), polytope)


def _between(values: FloatArray, polytope: LdpPolytope) -> FloatArray:
    """Returns values clipped to bounds, several times faster than NumPy's clip."""
    return np.minimum(np.maximum(values, polytope.lower), polytope.upper)


def kl_projection(
    weights: FloatArray, factors: FloatArray, polytope: LdpPolytope, steps: int
) -> tuple[FloatArray, FloatArray]:
    """Returns the distributions q of the polytope with the least KL(q | s).

    They are q = clip(z s, αm, βm) with a sum of one, which is piecewise linear in z: by
    Newton's method within brackets, from (n,) factors z on. A row whose sum is reached
    stays as it is; sums may differ from one after the last step. Weights s are positive
    and (n, k_v). The new factors are returned, too.

    Source:
        https://arxiv.org/abs/2605.10015, Lemma 4.2.
    """
    low, high = np.zeros(factors.size), np.full(factors.size, np.inf)
    for _ in range(steps):
        scaled = weights * factors[:, np.newaxis]
        laws = _between(scaled, polytope)
        missing = 1 - laws.sum(axis=1)
        unsolved = np.abs(missing) > _ENOUGH
        if not unsolved.any():
            break
        slopes = (weights * (laws == scaled)).sum(axis=1)
        low = np.where(missing > 0, factors, low)
        high = np.where(missing < 0, factors, high)
        with np.errstate(all="ignore"):
            tried = factors + missing / slopes
            middle = np.where(low > 0, np.sqrt(low) * np.sqrt(high), high / 4)
            middle = np.where(np.isinf(high), 4 * factors, middle)
        inside = (tried > low) & (tried < high)
        factors = np.where(unsolved, np.where(inside, tried, middle), factors)
    return laws, factors
