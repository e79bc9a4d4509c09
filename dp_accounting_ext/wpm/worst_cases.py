"""The cost of a private draw for the worst input, which is a single point.

Measures are scaled here to y = βm, the most mass of each output. Then 1 ≤ Σy ≤ e^ε, no
entry need exceed one, and all numbers have the size of the costs, whatever ε is. If
there are too many pairs of inputs and outputs, only some inputs, the landmarks, are
examined.
"""

from collections.abc import Iterator
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm import costs

# Tuning: the number of costs that are sorted once and kept, and that of a block.
_KEPT = 1 << 22
_TOGETHER = 1 << 21
# Tuning: the largest number of pairs of inputs and outputs for which all inputs are
# examined, which takes about a second for points; and the fewest and the most
# landmarks.
MOST_PAIRS = 10**7
_FEWEST, _MOST = 16, 256


def choose_landmarks(cost: costs.TransportCost) -> tuple[IndexArray, float]:
    """Returns all inputs if they are few; otherwise landmarks that are far apart.

    The second value returned is the largest distance of an input from its nearest
    landmark.
    """
    inputs, outputs = cost.shape
    count = min(max(MOST_PAIRS // outputs, _FEWEST), inputs)
    if count == inputs:
        return np.arange(inputs), 0.0
    count = min(count, _MOST)
    if cost.metric_order is None:
        return np.linspace(0, inputs - 1, count).astype(np.intp), math.inf
    # The input that is furthest from any given one is at the rim.
    place = int(cost.between_inputs(0).argmax())
    found, nearest = [], np.full(inputs, np.inf)
    for _ in range(count):
        found.append(place)
        nearest = np.minimum(nearest, cost.between_inputs(place))
        place = int(nearest.argmax())
    return np.unique(found), float(nearest.max())


def bound_nearby(worst: float, radius: float, cost: costs.TransportCost) -> float:
    """Returns an upper bound on φ within a radius of inputs, from their largest φ.

    The p-th root of φ is a distance from the polytope, so that it changes from one
    input to another by at most their distance.
    """
    order = cost.metric_order or 1.0
    return float((worst ** (1 / order) + radius) ** order) if radius else worst


class PointCosts:
    """Costs φ_i of the projections of single points, for many measures."""

    def __init__(self, cost: costs.TransportCost, epsilon: float) -> None:
        self._cost = cost
        self._least_share = math.exp(-epsilon)
        self._free_share = -math.expm1(-epsilon)
        self._everything = np.arange(cost.shape[0])
        self._kept: tuple[FloatArray, IndexArray] | None = None
        if cost.shape[0] * cost.shape[1] <= _KEPT:
            rows = cost.matrix()
            self._kept = rows, np.argsort(rows, axis=1, kind="stable")

    def values(self, most: FloatArray, inputs: IndexArray | None = None) -> FloatArray:
        """Returns the costs φ_i of some inputs, or all, for (k_v,) most masses y = βm.

        Every output holds its least mass e^{−ε} y_j. The remaining mass fills the
        nearest outputs up to y_j, one after the other.

        Source:
            https://arxiv.org/abs/2605.10015, Theorem 3.5.
        """
        parts = []
        for rows, order in self._sorted(self._everything if inputs is None else inputs):
            filled, _ = self._fill(most, order)
            ordered = np.take_along_axis(rows, order, axis=1)
            least = self._least_share * (rows @ most)
            parts.append(least + (filled * ordered).sum(axis=1))
        return np.concatenate(parts)

    def tangents(
        self, most: FloatArray, inputs: IndexArray
    ) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) τ and (n, k_v) slopes of tangents at a measure.

        φ_i is at least τ + Σ_j [e^{−ε}(C_ij − τ)₊ − (τ − C_ij)₊] y_j for any τ, which
        is linear in y; it is equal where τ is the cost of the last output that gets
        more than its least mass.
        """
        thresholds, slopes = [], []
        for rows, order in self._sorted(inputs):
            _, last = self._fill(most, order)
            ordered = np.take_along_axis(rows, order, axis=1)
            found = ordered[np.arange(last.size), last]
            excess = rows - found[:, np.newaxis]
            thresholds.append(found)
            slopes.append(np.where(excess > 0, self._least_share * excess, excess))
        return np.concatenate(thresholds), np.concatenate(slopes)

    def _sorted(self, inputs: IndexArray) -> Iterator[tuple[FloatArray, IndexArray]]:
        """Yields rows of costs and their orders, few at a time."""
        if self._kept is not None:
            rows, order = self._kept
            whole = inputs is self._everything
            yield (rows, order) if whole else (rows[inputs], order[inputs])
            return
        step = max(1, _TOGETHER // self._cost.shape[1])
        for begin in range(0, inputs.size, step):
            rows = self._cost.rows(inputs[begin : begin + step])
            yield rows, np.argsort(rows, axis=1, kind="stable")

    def _fill(
        self, most: FloatArray, order: IndexArray
    ) -> tuple[FloatArray, IndexArray]:
        widths = self._free_share * most[order]
        before = np.cumsum(widths, axis=1) - widths
        left = 1 - self._least_share * most.sum()
        last = np.maximum((before < left).sum(axis=1) - 1, 0)
        return np.clip(left - before, 0.0, widths), last


def worst_case_cost(
    base_measure: FloatArray, cost: costs.TransportCost, epsilon: float
) -> float:
    """Returns the largest cost of a projection onto the measure's polytope.

    If there are too many pairs of inputs and outputs, it is computed for landmarks. For
    a metric, the result is then an upper bound that holds for the other inputs, too.
    It is W_p to the power p. The worst input is a single point, as the projection of
    a mixture costs at most the mixture of its points' projections.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition B.2.
    """
    inputs, radius = choose_landmarks(cost)
    if math.isinf(radius):
        inputs, radius = np.arange(cost.shape[0]), 0.0
    most = math.exp(epsilon / 2) * base_measure
    worst = float(PointCosts(cost, epsilon).values(most, inputs).max())
    return bound_nearby(worst, radius, cost)
