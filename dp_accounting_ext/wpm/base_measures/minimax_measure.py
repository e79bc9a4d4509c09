"""The base measure with the least worst-case cost, by cutting planes."""

import math
from typing import Any

import numpy as np

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.base_measures import cutting_planes
from dp_accounting_ext.wpm.base_measures import landmarks
from dp_accounting_ext.wpm.base_measures import measure_result
from dp_accounting_ext.wpm.base_measures import mirror_descent
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.base_measures import uniform_measure
from dp_accounting_ext.wpm.costs import dense_cost

_MOST_ROUNDS = 100
_ROUNDING = 1e-13
# Tuning: numbers in the tangents of a round, and the fewest tangents.
_ADDED, _FEWEST_ADDED = 1 << 22, 32


def minimax_base_measure(
    cost: Any,
    epsilon: float,
    *,
    relative_gap: float = 1e-7,
    mirror_descent_steps: int | None = None,
) -> measure_result.MeasureResult:
    """Returns the base measure with the least worst-case cost.

    Each φ_i is the maximum over τ of functions that are linear in the measure. A
    linear program knows some of them; its optimum names those it lacks, and the
    combination of them that its duals give proves a lower bound. No private mechanism
    at all has a smaller worst case.

    Args:
        cost: (k, k_v) costs, or a `TransportCost`; public.
        epsilon: The privacy parameter ε.
        relative_gap: Stop where the lower bound is this share below the value.
        mirror_descent_steps: To compare with: this many steps of the paper's own
            search, which is far from the optimum after thousands. None for the
            linear programs.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Theorem 3.4.
    """
    costs, privacy = dense_cost.as_cost(cost), checks.epsilon(epsilon)
    if mirror_descent_steps is not None:
        return mirror_descent.mirror_descent_base_measure(
            costs, privacy, mirror_descent_steps
        )
    # HiGHS has absolute tolerances: costs of about one keep them out of sight.
    sample = costs.rows(landmarks.choose(costs).inputs)
    scale = max(float(sample.max()), np.finfo(float).tiny)
    points = point_costs.PointCosts(costs, privacy)
    start = uniform_measure.uniform_base_measure(costs, privacy).base_measure
    most = best = math.exp(privacy / 2) * start
    cuts = cutting_planes.Cuts(costs.shape[1], privacy, np.ones(1))
    added = max(_FEWEST_ADDED, _ADDED // costs.shape[1])
    value, lower, rounds = math.inf, 0.0, 0
    while rounds < _MOST_ROUNDS:
        rounds += 1
        worst = points.values(most) / scale
        if float(worst.max()) < value:
            value, best = float(worst.max()), most
        if value - lower <= relative_gap * value + _ROUNDING:
            break
        rows = np.flatnonzero(worst > lower)
        rows = rows[np.argsort(-worst[rows], kind="stable")][:added]
        thresholds, slopes = points.tangents(most, rows)
        cuts.add(thresholds / scale, slopes / scale, np.zeros(rows.size, dtype=np.intp))
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
