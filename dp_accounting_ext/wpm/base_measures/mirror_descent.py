"""The paper's search for the minimax base measure, for comparison."""

import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext import validation
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.base_measures import measure_result
from dp_accounting_ext.wpm.base_measures import worst_case


def mirror_descent_base_measure(
    cost: npt.ArrayLike, epsilon: float, steps: int
) -> measure_result.MeasureResult:
    """Returns the mean of the iterates of mirror descent on the worst-case cost.

    It is the reference that `minimax_base_measure` is measured against, which is
    exact in a few rounds.

    Args:
        cost: (k, k_v) costs, public.
        epsilon: The privacy parameter ε.
        steps: The number T of steps.

    Returns:
        The mean measure, its value, and the value less the paper's bound
        (β D / α) sqrt(2 (1 + log k) / T), D the largest cost, k the number of outputs.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition G.1.
    """
    costs, privacy = checks.cost(cost), checks.epsilon(epsilon)
    number = validation.positive_integer("steps", steps)
    size, largest = costs.shape[1], max(float(costs.max()), np.finfo(float).tiny)
    least, most = math.exp(-privacy / 2), math.exp(privacy / 2)
    pace = math.sqrt(2 * (1 + math.log(size)) / number)
    points = worst_case.PointCosts(costs, privacy)
    current = np.full(size, most / size)
    total = np.zeros(size)
    for _ in range(number):
        total += current
        scaled = most * current
        row = np.array([np.argmax(points.values(scaled))])
        thresholds = points.thresholds(scaled)[row]
        slope = most * points.slopes(thresholds, row)[0]
        current = current * np.exp(-pace / (most * largest) * slope)
        mass = float(current.sum())
        current *= min(max(mass, least), most) / mass
    mean = total / number
    value = worst_case.worst_case_cost(mean, costs, privacy)
    bound = most / least * largest * pace
    return measure_result.MeasureResult(
        mean, value, max(value - bound, 0.0), number, False
    )
