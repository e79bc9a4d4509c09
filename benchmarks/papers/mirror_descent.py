"""The paper's search for the minimax base measure, to compare with.

`wpm.minimax_base_measure` is exact in a few rounds.
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import worst_cases


def mirror_descent_base_measure(
    cost: Any, epsilon: float, steps: int
) -> tuple[npt.NDArray[np.float64], float, float]:
    """Returns the mean of the iterates of mirror descent on the worst-case cost.

    Args:
        cost: (k, k_v) costs.
        epsilon: The privacy parameter ε.
        steps: The number T of steps.

    Returns:
        The mean measure, its worst-case cost, and that less the paper's bound
        (β D / α) sqrt(2 (1 + log k) / T), D the largest cost, k the number of outputs.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition G.1.
    """
    paid = costs.as_cost(cost)
    size = paid.shape[1]
    largest = max(float(paid.matrix().max()), np.finfo(float).tiny)
    least, most = math.exp(-epsilon / 2), math.exp(epsilon / 2)
    pace = math.sqrt(2 * (1 + math.log(size)) / steps)
    every = np.arange(paid.shape[0])
    current = np.full(size, most / size)
    total = np.zeros(size)
    for _ in range(steps):
        total += current
        scaled = most * current
        reached = worst_cases.point_costs(scaled, paid, epsilon, every)
        row = paid.rows(reached.argmax())
        slope = most * worst_cases.tangents(row, scaled, epsilon)[1]
        current = current * np.exp(-pace / (most * largest) * slope)
        mass = float(current.sum())
        current *= min(max(mass, least), most) / mass
    mean = total / steps
    value = worst_cases.worst_case_cost(mean, paid, epsilon)
    return mean, value, max(value - most / least * largest * pace, 0.0)
