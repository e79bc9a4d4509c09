"""The base measure with the least worst-case cost, by cutting planes."""

import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.base_measures import cutting_planes
from dp_accounting_ext.wpm.base_measures import measure_result
from dp_accounting_ext.wpm.base_measures import uniform_measure
from dp_accounting_ext.wpm.base_measures import worst_case

_MOST_ROUNDS = 100
_ROUNDING = 1e-13


def minimax_base_measure(
    cost: npt.ArrayLike, epsilon: float, *, relative_gap: float = 1e-7
) -> measure_result.MeasureResult:
    """Returns the base measure with the least worst-case cost.

    Each φ_i is the maximum over τ of functions that are linear in the measure. A
    linear program knows some of them; its optimum names those it lacks, and the
    combination of them that its duals give proves a lower bound. No private mechanism
    at all has a smaller worst case.

    Args:
        cost: (k, k_v) costs, public.
        epsilon: The privacy parameter ε.
        relative_gap: Stop where the lower bound is this share below the value.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Theorem 3.4.
    """
    costs, privacy = checks.cost(cost), checks.epsilon(epsilon)
    scale = max(float(costs.max()), np.finfo(float).tiny)
    costs = costs / scale
    points = worst_case.PointCosts(costs, privacy)
    start = uniform_measure.uniform_base_measure(costs, privacy).base_measure
    most = best = math.exp(privacy / 2) * start
    cuts = cutting_planes.Cuts(costs.shape[1], privacy, np.ones(1))
    value, lower, rounds = math.inf, 0.0, 0
    while rounds < _MOST_ROUNDS:
        rounds += 1
        worst = points.values(most)
        if float(worst.max()) < value:
            value, best = float(worst.max()), most
        if value - lower <= relative_gap * value + _ROUNDING:
            break
        rows = np.flatnonzero(worst > lower)
        thresholds = points.thresholds(most)[rows]
        slopes = points.slopes(thresholds, rows)
        cuts.add(thresholds, slopes, np.zeros(rows.size, dtype=np.intp))
        program = cuts.solve()
        if program is None:
            break
        most, bound = program
        lower = max(lower, bound)
    return measure_result.MeasureResult(
        math.exp(-privacy / 2) * best,
        scale * value,
        scale * min(lower, value),
        rounds,
        value - lower <= relative_gap * value + _ROUNDING,
    )
