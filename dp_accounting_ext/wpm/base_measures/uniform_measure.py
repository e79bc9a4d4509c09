"""The uniform base measure of the best scale."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.base_measures import landmarks
from dp_accounting_ext.wpm.base_measures import measure_result
from dp_accounting_ext.wpm.costs import dense_cost
from dp_accounting_ext.wpm.costs import transport_cost

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

_TOLERANCE = 1e-13
_CONVERGED = 1e-9
_MOST_ROUNDS = 300
# Tuning: costs that are sorted and kept, those looked at together, the first inputs
# that are looked at where there are more, and how many are added in a round.
_KEPT = 10**7
_TOGETHER = 1 << 21
_FIRST = 8
_ADDED = 4


def uniform_base_measure(cost: Any, epsilon: float) -> measure_result.MeasureResult:
    """Returns the uniform base measure with the least worst-case cost.

    The worst case is a convex function of the scale, a maximum of lines. Rows of the
    inputs that are worst at one scale are kept, and others looked at once in a while;
    of more than 3·10^7 pairs of inputs and outputs only those of landmarks.

    Args:
        cost: (k, k_v) costs, or a `TransportCost`.
        epsilon: The privacy parameter ε.

    Returns:
        The measure, its worst-case cost and a lower bound of that of uniform ones.
        From landmarks, the cost is an upper bound for a metric, and else infinite.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
    """
    costs, privacy = dense_cost.as_cost(cost), checks.epsilon(epsilon)
    inputs, outputs = costs.shape
    if inputs * outputs <= _KEPT:
        found = _Search(costs.matrix(), privacy).best()
        return _result(found, found[1], outputs, privacy)
    chosen = landmarks.choose(costs)
    everything = landmarks.few_enough(costs)
    candidates = np.arange(inputs) if everything else chosen.inputs
    known, rounds = chosen.inputs[:_FIRST], 0
    while True:
        best = _Search(costs.rows(known), privacy).best()
        values = _values(costs, candidates, best[0], privacy)
        worst = candidates[np.argsort(-values)[:_ADDED]]
        rounds += 1
        new = np.setdiff1d(worst, known)
        slack = _CONVERGED * best[1] / 2
        if values.max() <= best[1] + slack or not new.size or rounds >= _MOST_ROUNDS:
            break
        known = np.append(known, new)
    value = max(float(values.max()), best[1])
    if not everything:
        order = costs.metric_order
        value = (
            math.inf
            if order is None
            else landmarks.bound_everywhere(value, chosen, order)
        )
    return _result((best[0], best[1], best[2], rounds), value, outputs, privacy)


def _result(
    found: tuple[float, float, float, int], value: float, size: int, epsilon: float
) -> measure_result.MeasureResult:
    most, _, lower, rounds = found
    lower = min(lower, value)
    return measure_result.MeasureResult(
        np.full(size, most * math.exp(-epsilon / 2)),
        value,
        lower,
        rounds,
        value - lower <= _CONVERGED * value,
    )


def _values(
    cost: transport_cost.TransportCost, inputs: IndexArray, most: float, epsilon: float
) -> FloatArray:
    """Returns (n,) what inputs cost where every output holds at most so much."""
    size = cost.shape[1]
    least, free = math.exp(-epsilon), -math.expm1(-epsilon)
    left = 1 - least * most * size
    full = min(max(int(left / (free * most)), 0), size - 1)
    step = max(1, _TOGETHER // size)
    parts = []
    for begin in range(0, inputs.size, step):
        rows = cost.rows(inputs[begin : begin + step])
        total = rows.sum(axis=1)
        rows.partition(full, axis=1)
        filled = least * total + free * rows[:, :full].sum(axis=1)
        parts.append(most * filled + rows[:, full] * (left - full * free * most))
    return np.concatenate(parts)


class _Search:
    """The worst-case cost as a function of the most mass y of every output."""

    def __init__(self, cost: FloatArray, epsilon: float) -> None:
        self._sorted = np.sort(cost, axis=1)
        self._sums = np.cumsum(self._sorted, axis=1)
        self._least, self._free = math.exp(-epsilon), -math.expm1(-epsilon)
        self._ends = 1 / cost.shape[1], min(1.0, math.exp(epsilon) / cost.shape[1])

    def best(self) -> tuple[float, float, float, int]:
        """Returns the best y, its value, a lower bound of all values, and rounds.

        The lines at both ends of an interval meet at a lower bound; where they meet,
        or now and then in the middle, the next line is taken.
        """
        left, right = self._ends
        found = min((self._line(end)[0], end) for end in (left, right))
        lower, rounds = self._lower_bound(left, right), 0
        while found[0] - lower > _TOLERANCE * found[0] and rounds < _MOST_ROUNDS:
            rounds += 1
            middle = (left + right) / 2 if rounds % 3 == 0 else self._meet(left, right)
            if not left < middle < right:
                break
            value, slope = self._line(middle)
            found = min(found, (value, middle))
            left, right = (middle, right) if slope < 0 else (left, middle)
            lower = max(lower, self._lower_bound(left, right))
        return found[1], found[0], min(lower, found[0]), rounds

    def _line(self, most: float) -> tuple[float, float]:
        """Returns the value at y, and the slope of a line below that attains it."""
        size = self._sorted.shape[1]
        left = 1 - self._least * most * size
        full = min(max(int(left / (self._free * most)), 0), size - 1)
        last = self._sorted[:, full]
        before = self._sums[:, full] - last
        filled = self._least * self._sums[:, -1] + self._free * before
        values = most * filled + last * (left - full * self._free * most)
        worst = int(np.argmax(values))
        slopes = filled - last * (self._least * size + self._free * full)
        return float(values[worst]), float(slopes[worst])

    def _meet(self, left: float, right: float) -> float:
        """Returns where the lines at two places meet, between them."""
        (low, falling), (high, rising) = self._line(left), self._line(right)
        if falling >= 0 or rising <= 0:
            return left if falling >= 0 else right
        return left + (high - low - rising * (right - left)) / (falling - rising)

    def _lower_bound(self, left: float, right: float) -> float:
        """Returns a lower bound over an interval that has the optimum in it."""
        value, slope = self._line(left)
        return value + slope * (self._meet(left, right) - left)
