"""A base measure learned from public users, under a cap on the worst case."""

from collections.abc import Callable
import dataclasses
import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm.base_measures import cutting_planes
from dp_accounting_ext.wpm.base_measures import measure_result
from dp_accounting_ext.wpm.base_measures import minimax_measure
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.base_measures import uniform_measure
from dp_accounting_ext.wpm.costs import dense_cost
from dp_accounting_ext.wpm.costs import transport_cost
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections.exact import exact_projection

FloatArray = npt.NDArray[np.float64]

# Between the best measure so far and the program's: nearer to the first, the search
# does not swing from corner to corner.
_STEP = 0.3
_TINY = 1e-300


def learn_base_measure(
    cost: Any,
    epsilon: float,
    public_distributions: Any,
    worst_case: float | None = None,
    *,
    relative_gap: float = 1e-2,
    max_rounds: int = 60,
    time_limit: float | None = None,
    progress: Callable[[int, float], None] | None = None,
) -> measure_result.MeasureResult:
    """Returns the base measure with the least mean cost of public users.

    The mean cost and the worst case are convex in the measure. The dual prices of the
    users' projections are their tangents, which a linear program minimises.

    Args:
        cost: (k, k_v) costs, or a `TransportCost`; public.
        epsilon: The privacy parameter ε.
        public_distributions: (n, k) distributions of users whose data are public, and
            who are not among those to be protected.
        worst_case: Limit of the worst-case cost, in the unit of the costs, at least
            the minimax one. None for no limit, and then inputs unlike the public
            ones may fare as badly as can be.
        relative_gap: Stop where the lower bound is this share below the mean cost.
        max_rounds: Stop then in any case.
        time_limit: Stop after the round in which so many seconds of CPU are spent;
            None for no limit.
        progress: Called after each round with its number and the relative gap.

    Returns:
        The measure, the mean cost and a lower bound of it under the same limit.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
    """
    costs, privacy = dense_cost.as_cost(cost), checks.epsilon(epsilon)
    users = private_rows.read(
        "public_distributions", public_distributions, costs.shape[0]
    )
    if not len(users):
        raise ValueError("public_distributions must have a row. Found none.")
    seconds = math.inf
    if time_limit is not None:
        seconds = fields.real_number("time_limit", time_limit)
    begin = time.process_time()
    search = _Search(costs, privacy, users, _limit(worst_case, costs, privacy))
    lower, rounds = 0.0, 0
    while rounds < max_rounds:
        rounds += 1
        search.evaluate()
        if progress is not None:
            progress(rounds, (search.value - lower) / max(search.value, _TINY))
        if search.value - lower <= relative_gap * search.value:
            break
        if time.process_time() - begin >= seconds:
            break
        program = search.cuts.solve()
        if program is None:
            break
        search.move(program[0])
        lower = max(lower, program[1])
    return measure_result.MeasureResult(
        math.exp(-privacy / 2) * search.best,
        search.value,
        min(lower, search.value),
        rounds,
        search.value - lower <= relative_gap * search.value,
    )


@dataclasses.dataclass(frozen=True)
class _Limit:
    """A cap on the worst case, and a measure y = βm that keeps it."""

    cap: float
    most: FloatArray


def _limit(
    cap: float | None, cost: transport_cost.TransportCost, epsilon: float
) -> _Limit:
    scale = math.exp(epsilon / 2)
    if cap is None:
        start = uniform_measure.uniform_base_measure(cost, epsilon)
        return _Limit(math.inf, scale * start.base_measure)
    limit = fields.real_number("worst_case", cap)
    best = minimax_measure.minimax_base_measure(cost, epsilon)
    if limit < best.value:
        raise ValueError(
            f"worst_case must be at least the minimax cost {best.value:.9g}. "
            f"Found {cap}."
        )
    return _Limit(limit, scale * best.base_measure)


class _Search:
    """The measures tried, the best of them, and the tangents there."""

    def __init__(
        self,
        cost: transport_cost.TransportCost,
        epsilon: float,
        users: private_rows.PrivateRows,
        limit: _Limit,
    ) -> None:
        self._cost, self._users, self._limit = cost, users, limit
        self._least_share = math.exp(-epsilon)
        self._points = point_costs.PointCosts(cost, epsilon)
        weights = np.full(len(users), 1 / len(users))
        self.cuts = cutting_planes.Cuts(cost.shape[1], epsilon, weights, limit.cap)
        self.best, self.value = limit.most, math.inf
        self._tried = limit.most

    def evaluate(self) -> None:
        """Adds the users' tangents at the measure that is being tried."""
        allowed = ldp_polytope.LdpPolytope(self._least_share * self._tried, self._tried)
        solver = exact_projection.make_solver(self._cost, allowed)
        costs = []
        for place in range(len(self._users)):
            inputs, masses = self._users.row(place)
            found = solver.solve(inputs, masses)
            costs.append(float(found.values[0]))
            intercept, slopes = self._tangent(
                masses, self._cost.rows(inputs), found.prices[0], allowed
            )
            self.cuts.add(np.array([intercept]), slopes[np.newaxis], np.array([place]))
        value = float(np.mean(costs))
        if value < self.value:
            self.best, self.value = self._tried, value

    def move(self, target: FloatArray) -> None:
        """Tries the measure some way from the best one to the program's."""
        tried = self.best + _STEP * (target - self.best)
        if math.isfinite(self._limit.cap):
            self._add_worst_cases(target)
            tried = self._pulled(tried)
        self._tried = tried

    def _tangent(
        self,
        masses: FloatArray,
        cost: FloatArray,
        prices: FloatArray,
        allowed: ldp_polytope.LdpPolytope,
    ) -> tuple[float, FloatArray]:
        """Returns the intercept and the slopes, in y, of the dual at its prices.

        The least g·q over the polytope is the maximum over τ of
        τ + Σ_j [e^{−ε}(g_j − τ)₊ − (τ − g_j)₊] y_j.
        """
        nearest = float(masses @ (cost - prices).min(axis=1))
        filled = ldp_polytope.cheapest(prices, allowed) > allowed.lower
        threshold = float(prices[filled].max()) if filled.any() else prices.min()
        excess = prices - threshold
        slopes = np.where(excess > 0, self._least_share * excess, excess)
        return nearest + float(threshold), slopes

    def _add_worst_cases(self, most: FloatArray) -> None:
        rows = np.flatnonzero(self._points.values(most) > self._limit.cap)
        if rows.size:
            self.cuts.add_capped(*self._points.tangents(most, rows))

    def _pulled(self, most: FloatArray) -> FloatArray:
        """Returns the measure, drawn towards one that keeps the cap until it does."""
        share = 1.0
        while share > 1e-6:
            mixed = self._limit.most + share * (most - self._limit.most)
            if float(self._points.values(mixed).max()) <= self._limit.cap:
                return mixed
            share *= 0.8
        return self._limit.most
