"""The uniform base measure of the best scale."""

import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.base_measures import measure_result

FloatArray = npt.NDArray[np.float64]

_TOLERANCE = 1e-13
_MOST_ROUNDS = 300


def uniform_base_measure(
    cost: npt.ArrayLike, epsilon: float
) -> measure_result.MeasureResult:
    """Returns the uniform base measure with the least worst-case cost.

    The worst case is a convex function of the scale, a maximum of lines. The lines at
    both ends of an interval meet at a lower bound; where they meet, or now and then
    in the middle, the next line is taken.

    Args:
        cost: (k, k_v) costs.
        epsilon: The privacy parameter ε.

    Returns:
        The measure, its worst-case cost and a lower bound of that of uniform ones.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
    """
    costs, privacy = checks.cost(cost), checks.epsilon(epsilon)
    search = _Lines(costs, privacy)
    size = costs.shape[1]
    left, right = 1 / size, min(1.0, math.exp(privacy) / size)
    best = min((search.line(end)[0], end) for end in (left, right))
    lower, rounds = search.lower_bound(left, right), 0
    while best[0] - lower > _TOLERANCE * best[0] and rounds < _MOST_ROUNDS:
        rounds += 1
        middle = (left + right) / 2 if rounds % 3 == 0 else search.meet(left, right)
        if not left < middle < right:
            break
        value, slope = search.line(middle)
        best = min(best, (value, middle))
        left, right = (middle, right) if slope < 0 else (left, middle)
        lower = max(lower, search.lower_bound(left, right))
    found = np.full(size, best[1] * math.exp(-privacy / 2))
    converged = best[0] - lower <= 1e-9 * best[0]
    lower = min(lower, best[0])
    return measure_result.MeasureResult(found, best[0], lower, rounds, converged)


class _Lines:
    """The worst-case cost as a function of the most mass y of every output."""

    def __init__(self, cost: FloatArray, epsilon: float) -> None:
        self._sorted = np.sort(cost, axis=1)
        self._sums = np.cumsum(self._sorted, axis=1)
        self._least, self._free = math.exp(-epsilon), -math.expm1(-epsilon)

    def line(self, most: float) -> tuple[float, float]:
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

    def meet(self, left: float, right: float) -> float:
        """Returns where the lines at two places meet, between them."""
        (low, falling), (high, rising) = self.line(left), self.line(right)
        if falling >= 0 or rising <= 0:
            return left if falling >= 0 else right
        return left + (high - low - rising * (right - left)) / (falling - rising)

    def lower_bound(self, left: float, right: float) -> float:
        """Returns a lower bound over an interval that has the optimum in it."""
        value, slope = self.line(left)
        return value + slope * (self.meet(left, right) - left)
