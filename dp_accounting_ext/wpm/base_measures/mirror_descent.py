"""The paper's search for the minimax base measure, for comparison."""

import math

import numpy as np

from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm.base_measures import measure_result
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.costs import transport_cost


def mirror_descent_base_measure(
    cost: transport_cost.TransportCost, epsilon: float, steps: int
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
        TypeError: If the steps are no integer.
        ValueError: If they are fewer than one.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition G.1.
    """
    number = fields.positive_integer("mirror_descent_steps", steps)
    size = cost.shape[1]
    largest = max(float(cost.matrix().max()), np.finfo(float).tiny)
    least, most = math.exp(-epsilon / 2), math.exp(epsilon / 2)
    pace = math.sqrt(2 * (1 + math.log(size)) / number)
    points = point_costs.PointCosts(cost, epsilon)
    current = np.full(size, most / size)
    total = np.zeros(size)
    for _ in range(number):
        total += current
        scaled = most * current
        row = np.array([np.argmax(points.values(scaled))])
        slope = most * points.tangents(scaled, row)[1][0]
        current = current * np.exp(-pace / (most * largest) * slope)
        mass = float(current.sum())
        current *= min(max(mass, least), most) / mass
    mean = total / number
    value = point_costs.worst_case_cost(mean, cost, epsilon)
    bound = most / least * largest * pace
    return measure_result.MeasureResult(
        mean, value, max(value - bound, 0.0), number, False
    )
