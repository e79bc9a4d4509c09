"""What a base measure costs for the worst input, which is a single point.

Measures are scaled here to y = βm, the most mass of each output: then 1 ≤ Σy ≤ e^ε,
no entry need exceed one, and all numbers keep the size of the costs at any ε.
"""

import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


class PointCosts:
    """Costs φ_i of the projections of single points, for many measures.

    Args:
        cost: (k, k_v) costs.
        epsilon: The privacy parameter ε.
    """

    def __init__(self, cost: FloatArray, epsilon: float) -> None:
        self._cost = cost
        self._order = np.argsort(cost, axis=1, kind="stable")
        self._sorted = np.take_along_axis(cost, self._order, axis=1)
        self._least_share = math.exp(-epsilon)
        self._free_share = -math.expm1(-epsilon)

    def values(self, most: FloatArray) -> FloatArray:
        """Returns (k,) the cost of moving each input, a single point.

        Every output holds its least mass e^{−ε} y_j; the rest fills the nearest
        outputs up to y_j, one after the other.

        Args:
            most: (k_v,) most masses y = βm.

        Source:
            https://arxiv.org/abs/2605.10015, Theorem 3.5.
        """
        filled, _ = self._fill(most)
        least = self._least_share * (self._cost @ most)
        return np.asarray(least + (filled * self._sorted).sum(axis=1))

    def thresholds(self, most: FloatArray) -> FloatArray:
        """Returns (k,) costs τ_i of the last outputs that get more than their least."""
        _, last = self._fill(most)
        return np.asarray(self._sorted[np.arange(last.size), last])

    def slopes(self, thresholds: FloatArray, rows: npt.NDArray[np.intp]) -> FloatArray:
        """Returns (rows, k_v) slopes of τ + Σ_j [e^{−ε}(C − τ)₊ − (τ − C)₊] y_j.

        Each is a lower bound of its φ_i, linear in y, and equal to it where τ is the
        threshold.

        Args:
            thresholds: (rows,) any τ.
            rows: (rows,) which inputs.
        """
        excess = self._cost[rows] - thresholds[:, np.newaxis]
        return np.where(excess > 0, self._least_share * excess, excess)

    def _fill(self, most: FloatArray) -> tuple[FloatArray, npt.NDArray[np.intp]]:
        widths = self._free_share * most[self._order]
        before = np.cumsum(widths, axis=1) - widths
        left = 1 - self._least_share * most.sum()
        last = np.maximum((before < left).sum(axis=1) - 1, 0)
        return np.clip(left - before, 0.0, widths), last


def worst_case_cost(
    base_measure: FloatArray, cost: FloatArray, epsilon: float
) -> float:
    """Returns the largest cost of a projection onto the measure's polytope.

    Args:
        base_measure: (k_v,) masses m.
        cost: (k, k_v) costs.
        epsilon: The privacy parameter ε.

    Returns:
        W_p to the power p. The worst input is a single point, as the projection of
        a mixture costs at most the mixture of its points' projections.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition B.2.
    """
    most = math.exp(epsilon / 2) * base_measure
    return float(PointCosts(cost, epsilon).values(most).max())
