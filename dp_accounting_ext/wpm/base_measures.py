"""Public measures that a private draw stays near: uniform, minimax, learned.

The worst case and the mean cost of public users are convex in the measure; linear
programs minimise what is known of them, one tangent at a time. Measures are scaled to
y = βm there: 0 ≤ y ≤ 1 and 1 ≤ Σy ≤ e^ε.
"""

from collections.abc import Callable
import dataclasses
import math
import time
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import sparse
from scipy import special

from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm import worst_cases
from dp_accounting_ext.wpm.projections import exact_projection
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# The uniform one.
_TOLERANCE = 1e-13
_CONVERGED = 1e-9
_MOST_UNIFORM_ROUNDS = 300
# Tuning: costs that are sorted and kept, those looked at together, the first inputs
# that are looked at where there are more, and how many are added in a round.
_KEPT = 10**7
_TOGETHER = 1 << 21
_FIRST = 8
_ADDED = 4
# The minimax one. Tuning: numbers in the tangents of a round, and the fewest tangents.
_MOST_ROUNDS = 100
_ROUNDING = 1e-13
_TANGENTS, _FEWEST_TANGENTS = 1 << 22, 32
# The learned one. Between the best measure so far and the program's: nearer to the
# first, the search does not swing from corner to corner.
_STEP = 0.3
_TINY = 1e-300
_USER_GAP = 1e-9


@dataclasses.dataclass(frozen=True)
class MeasureResult:
    """Represents a base measure with a certificate of its objective.

    Attributes:
        base_measure: (k_v,) masses m.
        value: Its objective: the worst-case cost, or the mean cost of public users.
        lower_bound: No allowed measure has less.
        iterations: Rounds of the search.
        converged: Whether the gap met the tolerance.
    """

    base_measure: FloatArray
    value: float
    lower_bound: float
    iterations: int
    converged: bool

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Returns the base measure, so that a result serves where one is asked for."""
        if copy is False:
            return np.asarray(self.base_measure, dtype=dtype)
        return np.array(self.base_measure, dtype=dtype)

    @property
    def gap(self) -> float:
        """The value above the lower bound."""
        return self.value - self.lower_bound


def uniform_base_measure(cost: Any, epsilon: float) -> MeasureResult:
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
    paid, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
    inputs, outputs = paid.shape
    everything = worst_cases.few_enough(paid)
    candidates = known = np.arange(inputs)
    if inputs * outputs > _KEPT:
        chosen = worst_cases.choose_landmarks(paid)
        candidates = candidates if everything else chosen.inputs
        known = chosen.inputs[:_FIRST]
    rounds, value = 0, math.inf
    while True:
        search = _UniformSearch(paid.rows(known), privacy)
        most, found, lower, steps = search.best()
        rounds += steps
        values = _values(paid, candidates, most, privacy)
        value = max(float(values.max()), found)
        new = np.setdiff1d(candidates[np.argsort(-values)[:_ADDED]], known)
        if value <= found * (1 + _CONVERGED / 2) or not new.size:
            break
        if rounds >= _MOST_UNIFORM_ROUNDS:
            break
        known = np.append(known, new)
    if not everything:
        order = paid.metric_order
        value = (
            math.inf
            if order is None
            else worst_cases.bound_everywhere(value, chosen, order)
        )
    lower = min(lower, value)
    return MeasureResult(
        np.full(outputs, most * math.exp(-privacy / 2)),
        value,
        lower,
        rounds,
        value - lower <= _CONVERGED * value,
    )


def _values(
    cost: costs.TransportCost, inputs: IndexArray, most: float, epsilon: float
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


class _UniformSearch:
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
        while (
            found[0] - lower > _TOLERANCE * found[0] and rounds < _MOST_UNIFORM_ROUNDS
        ):
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


def minimax_base_measure(
    cost: Any,
    epsilon: float,
    *,
    relative_gap: float = 1e-7,
) -> MeasureResult:
    """Returns the base measure with the least worst-case cost.

    Each φ_i is the maximum over τ of functions that are linear in the measure. A
    linear program knows some of them; its optimum names those it lacks, and the
    combination of them that its duals give proves a lower bound. No private mechanism
    at all has a smaller worst case.

    Args:
        cost: (k, k_v) costs, or a `TransportCost`; public.
        epsilon: The privacy parameter ε.
        relative_gap: Stop where the lower bound is this share below the value.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Theorem 3.4.
    """
    paid, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
    # HiGHS has absolute tolerances: costs of about one keep them out of sight.
    sample = paid.rows(worst_cases.choose_landmarks(paid).inputs)
    scale = max(float(sample.max()), np.finfo(float).tiny)
    points = worst_cases.PointCosts(paid, privacy)
    start = uniform_base_measure(paid, privacy).base_measure
    most = best = math.exp(privacy / 2) * start
    cuts = _Cuts(paid.shape[1], privacy, np.ones(1))
    added = max(_FEWEST_TANGENTS, _TANGENTS // paid.shape[1])
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
    return MeasureResult(
        math.exp(-privacy / 2) * best,
        scale * value,
        scale * min(lower, value),
        rounds,
        value - lower <= relative_gap * value + _ROUNDING,
    )


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
) -> MeasureResult:
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
    paid, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
    users = private_rows.read(
        "public_distributions", public_distributions, paid.shape[0]
    )
    if not len(users):
        raise ValueError("public_distributions must have a row. Found none.")
    seconds = math.inf
    if time_limit is not None:
        seconds = fields.real_number("time_limit", time_limit)
    begin = time.process_time()
    search = _LearnedSearch(paid, privacy, users, _limit(worst_case, paid, privacy))
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
    return MeasureResult(
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


def _limit(cap: float | None, cost: costs.TransportCost, epsilon: float) -> _Limit:
    scale = math.exp(epsilon / 2)
    if cap is None:
        start = uniform_base_measure(cost, epsilon)
        return _Limit(math.inf, scale * start.base_measure)
    limit = fields.real_number("worst_case", cap)
    best = minimax_base_measure(cost, epsilon)
    if limit < best.value:
        raise ValueError(
            f"worst_case must be at least the minimax cost {best.value:.9g}. "
            f"Found {cap}."
        )
    return _Limit(limit, scale * best.base_measure)


class _LearnedSearch:
    """The measures tried, the best of them, and the tangents there."""

    def __init__(
        self,
        cost: costs.TransportCost,
        epsilon: float,
        users: private_rows.PrivateRows,
        limit: _Limit,
    ) -> None:
        self._cost, self._users, self._limit = cost, users, limit
        self._least_share = math.exp(-epsilon)
        self._points = worst_cases.PointCosts(cost, epsilon)
        weights = np.full(len(users), 1 / len(users))
        self.cuts = _Cuts(cost.shape[1], epsilon, weights, limit.cap)
        self.best, self.value = limit.most, math.inf
        self._tried = limit.most

    def evaluate(self) -> None:
        """Adds the users' tangents at the measure that is being tried."""
        allowed = ldp_polytope.LdpPolytope(self._least_share * self._tried, self._tried)
        solver = exact_projection.make_solver(self._cost, allowed, _USER_GAP)
        values = []
        for place in range(len(self._users)):
            inputs, masses = self._users.row(place)
            found = solver.solve(inputs, masses)
            values.append(found.value)
            intercept, slopes = self._tangent(
                masses, self._cost.rows(inputs), found.prices, allowed
            )
            self.cuts.add(np.array([intercept]), slopes[np.newaxis], np.array([place]))
        value = float(np.mean(values))
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


class _Cuts:
    """Lower bounds c + a·y of convex functions, which are minimised in sum.

    Args:
        size: The number k_v of outputs.
        epsilon: The privacy parameter ε.
        weights: (functions,) weights of the functions in the sum.
        cap: A limit for functions beside the sum; they are bounded by `add_capped`.
    """

    def __init__(
        self, size: int, epsilon: float, weights: FloatArray, cap: float = math.inf
    ) -> None:
        self._most_mass = min(float(size), math.exp(epsilon))
        self._weights = weights
        self._cap = cap
        self._intercepts = np.zeros(0)
        self._slopes = np.zeros((0, size))
        # The function that a tangent bounds; one past the last for capped ones.
        self._functions = np.zeros(0, dtype=np.intp)

    def add(
        self, intercepts: FloatArray, slopes: FloatArray, functions: IndexArray
    ) -> None:
        """Adds a tangent c + a·y to each of some functions."""
        self._intercepts = np.append(self._intercepts, intercepts)
        self._slopes = np.concatenate([self._slopes, slopes])
        self._functions = np.append(self._functions, functions)

    def add_capped(self, intercepts: FloatArray, slopes: FloatArray) -> None:
        """Adds tangents that must stay below the cap."""
        capped = np.full(intercepts.size, self._weights.size)
        self.add(intercepts - self._cap, slopes, capped)

    def solve(self) -> tuple[FloatArray, float] | None:
        """Returns the y with the least sum, and a proven lower bound of the sum.

        None if the solver fails.
        """
        count, size = self._slopes.shape
        known = self._functions < self._weights.size
        shape = (count, self._weights.size)
        places = (np.flatnonzero(known), self._functions[known])
        levels = sparse.csc_array((-np.ones(known.sum()), places), shape=shape)
        total = sparse.csc_array(
            np.append(np.ones(size), np.zeros(self._weights.size))[np.newaxis]
        )
        tangents = sparse.hstack([sparse.csc_array(self._slopes), levels])
        try:
            found = linear_program.solve(
                np.append(np.zeros(size), self._weights),
                sparse.vstack([tangents, total, -total], format="csc"),
                np.concatenate([-self._intercepts, [self._most_mass, -1.0]]),
                [(0.0, 1.0)] * size + [(None, None)] * self._weights.size,
                equal=False,
            )
        except linear_program.SolverError:
            return None
        shares = np.maximum(-found.duals[:count], 0.0)
        return self._inside(found.variables[:size]), self._bound(shares)

    def _bound(self, shares: FloatArray) -> float:
        """Returns the least value of a sum of the tangents, a knapsack.

        A function's shares are first made to sum to its weight.
        """
        known = self._functions < self._weights.size
        owners = self._functions[known]
        sums = np.bincount(owners, shares[known], minlength=self._weights.size)
        if not (sums > 0).all():
            return -math.inf
        shares = shares.copy()
        shares[known] *= (self._weights / sums)[owners]
        order = np.sort(shares @ self._slopes)
        room = np.clip(self._most_mass - np.arange(order.size), 0.0, 1.0)
        # One unit of mass is needed; beyond it only what lowers the value is taken.
        least = float(order[0] + np.minimum(order[1:], 0.0) @ room[1:])
        return float(shares @ self._intercepts) + least

    def _inside(self, most: FloatArray) -> FloatArray:
        """Returns the solver's y with its sum and its entries within the limits."""
        clipped = np.clip(most, 0.0, 1.0)
        total = min(max(float(clipped.sum()), 1.0), self._most_mass)
        return np.asarray(clipped * (total / clipped.sum()))


def sphere_scale(dimension: int, epsilon: float, order: float) -> float:
    """Returns the scale of the optimal base measure on the unit sphere.

    Args:
        dimension: Of the sphere S^d, which lies in d + 1 coordinates.
        epsilon: The privacy parameter ε.
        order: The order p ≥ 1 of the Wasserstein distance, with Euclidean distances.

    Returns:
        α* such that α* times the uniform probability is optimal. It falls as p grows.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition H.1.
    """
    privacy = checks.epsilon(epsilon)
    place = _threshold(dimension, privacy, order)
    cap = float(special.betainc(dimension / 2, dimension / 2, place))
    least = math.exp(-privacy / 2)
    return 1 / (least + 2 * math.sinh(privacy / 2) * cap)


def sphere_worst_case(dimension: int, epsilon: float, order: float) -> float:
    """Returns W_p to the power p of the optimal mechanism on the unit sphere.

    The optimality condition says that it is the cost at the rim of the cap that has
    the upper density, (2 − 2t*)^{p/2}.

    Args:
        dimension: As for `sphere_scale`.
        epsilon: As for `sphere_scale`.
        order: As for `sphere_scale`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
    """
    place = _threshold(dimension, checks.epsilon(epsilon), order)
    return float((4 * place) ** (order / 2))


def _threshold(dimension: int, epsilon: float, order: float) -> float:
    """Returns x* = (1 − t*) / 2, where the optimality condition changes its sign.

    In x, caps are regularised incomplete beta functions: S = I_x(d/2, d/2) and
    U = H I_x((d + p)/2, d/2). Divided by 4^{p/2} e^{−ε/2}, the condition is
    (e^ε − 1)(x^{p/2} S − U') = h − x^{p/2}, with h = H / 4^{p/2} and U' = U / 4^{p/2}.
    The root is sought in log x, as it may be tiny.
    """
    half = fields.positive_integer("dimension", dimension) / 2
    power = fields.real_number("order", order) / 2
    if not 0.5 <= power < math.inf:
        raise ValueError(f"order must be at least 1 and finite. Found {order}.")
    whole = math.exp(special.betaln(half + power, half) - special.betaln(half, half))
    excess = math.expm1(epsilon)

    def condition(log_place: float) -> float:
        place = math.exp(log_place)
        cost = place**power
        cap = special.betainc(half, half, place)
        inside = whole * special.betainc(half + power, half, place)
        return float(excess * (cost * cap - inside) - (whole - cost))

    least = -1.0
    while condition(least) > 0:
        least *= 2
    return math.exp(optimize.brentq(condition, least, 0.0, xtol=1e-16, rtol=1e-15))
