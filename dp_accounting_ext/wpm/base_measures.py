"""Public base measures of a private draw: uniform, minimax, and learned.

The worst-case cost and the mean cost of public users are convex in the measure. The
cutting-plane method minimises them: a linear program minimises the maximum of the
tangents found so far, and each round adds tangents at its optimum. In these programs
measures are scaled to y = βm, with β = e^{ε/2}, so that 0 ≤ y ≤ 1 and 1 ≤ Σy ≤ e^ε.
"""

from collections.abc import Callable
import dataclasses
import math
from typing import Any
from typing import NamedTuple

import numpy as np
from scipy import sparse

from dp_accounting_ext import displays
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm import worst_cases
from dp_accounting_ext.wpm.projections import certified_projection
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_programs

# These are for the search for the uniform measure: the relative gap at which it ends,
# that at which it has converged, and the largest number of rounds.
_TOLERANCE = 1e-13
_CONVERGED = 1e-9
_MOST_HALVINGS = 100
# In cutting planes, a gap of this share of the largest cost is attributed to rounding.
_ROUNDING = 1e-13
# These are for the search for the minimax measure: the relative gap at which it ends,
# its most rounds, and, which is tuning, the most tangents that a round adds.
_MINIMAX_GAP, _MOST_ROUNDS, _TANGENTS = 1e-7, 100, 64
# These are for the search for the learned measure. Tangents are added at a measure
# between the best one so far and the optimum of the program, at this share of the way,
# so that the search does not oscillate.
_STEP = 0.3
_USER_GAP = 1e-9

# The objective at a measure y, and intercepts, slopes and functions of tangents there.
Tangents = tuple[float, FloatArray, FloatArray, IndexArray]


@dataclasses.dataclass(frozen=True, repr=False)
class MeasureResult(displays.Displayed):
    """Represents a base measure with a certificate of its objective.

    Attributes:
        base_measure: (k_v,) masses m.
        value: The objective of the measure: its worst-case cost, or its mean cost for
            public users.
        lower_bound: A lower bound on the objective of every allowed measure.
        iterations: The number of rounds of the search.
        converged: Whether the gap is at most the tolerance.
    """

    base_measure: FloatArray
    value: float
    lower_bound: float
    iterations: int
    converged: bool

    @property
    def gap(self) -> float:
        """The difference of the value and the lower bound."""
        return self.value - self.lower_bound

    def _display(self) -> displays.Table:
        masses = self.base_measure
        rows = [
            ("outputs", str(masses.size)),
            ("mass", f"{float(masses.sum()):.6g}"),
            ("least, largest mass", f"{masses.min():.6g}, {masses.max():.6g}"),
            ("value", f"{self.value:.6g}"),
            ("above the least, at most", f"{self.gap:.2g}"),
        ]
        found_by = f"base measure, {self.iterations} rounds"
        title = found_by + ", not converged" * (not self.converged)
        return displays.Table(title, ("", "value"), rows)


def uniform_base_measure(cost: Any, epsilon: float) -> MeasureResult:
    """Returns the uniform base measure with the least worst-case cost.

    Args:
        cost: (k, k_v) costs, or a `TransportCost`.
        epsilon: The privacy parameter ε.

    Returns:
        The measure, its worst-case cost, and a lower bound on that of every uniform
        measure. If there are more than 10^7 pairs of inputs and outputs, the measure is
        the best one for a selection of the inputs, and for a metric the cost is an
        upper bound.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.
    """
    transport_cost, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
    landmarks, radius = worst_cases.choose_landmarks(transport_cost)
    largest_mass, value, lower, rounds = _best_scale(
        transport_cost.rows(landmarks), privacy
    )
    measure = np.full(transport_cost.shape[1], largest_mass * math.exp(-privacy / 2))
    if math.isinf(radius):
        value = worst_cases.worst_case_cost(measure, transport_cost, privacy)
    else:
        value = worst_cases.bound_nearby(value, radius, transport_cost)
    converged = value - lower <= _CONVERGED * value
    return MeasureResult(measure, value, min(lower, value), rounds, converged)


class _Tangent(NamedTuple):
    """A tangent of the worst-case cost as a function of y, at one y, the place."""

    place: float
    value: float
    slope: float


def _best_scale(rows: FloatArray, epsilon: float) -> tuple[float, float, float, int]:
    """Returns the best common upper bound y on the mass of every output.

    It minimises the worst-case cost over the given inputs, which is a convex function
    of y: a maximum of lines. An interval is halved. The lines that attain the maximum
    at its two ends intersect at a lower bound.

    Returns:
        The bound y, its worst-case cost, a lower bound on that of every y, and the
        number of rounds.
    """
    size = rows.shape[1]
    ordered = np.sort(rows, axis=1)
    sums = np.cumsum(ordered, axis=1)
    ratio, free = math.exp(-epsilon), -math.expm1(-epsilon)

    def tangent(largest: float) -> _Tangent:
        # Each output has its least mass. The rest fills the cheapest outputs in turn.
        rest = 1 - ratio * largest * size
        full = min(max(int(rest / (free * largest)), 0), size - 1)
        last = ordered[:, full]
        filled = ratio * sums[:, -1] + free * (sums[:, full] - last)
        values = largest * filled + last * (rest - full * free * largest)
        worst = int(np.argmax(values))
        slope = filled[worst] - last[worst] * (ratio * size + free * full)
        return _Tangent(largest, float(values[worst]), float(slope))

    left, right = tangent(1 / size), tangent(min(1.0, math.exp(epsilon) / size))
    best, lower, rounds = min(left, right, key=lambda end: end.value), -math.inf, 0
    if left.slope >= 0 or right.slope <= 0:
        lower = best.value  # The optimum is at an end.
    while best.value - lower > _TOLERANCE * best.value and rounds < _MOST_HALVINGS:
        rounds += 1
        middle = tangent((left.place + right.place) / 2)
        best = min(best, middle, key=lambda end: end.value)
        left, right = (middle, right) if middle.slope < 0 else (left, middle)
        rise = left.value - right.value + right.slope * (right.place - left.place)
        lower = left.value + left.slope * rise / (right.slope - left.slope)
    return best.place, best.value, min(lower, best.value), rounds


def minimax_base_measure(cost: Any, epsilon: float) -> MeasureResult:
    """Returns the base measure with the least worst-case cost.

    The worst-case cost is the maximum over the inputs i of φ_i, the cost of the
    projection of input i. Each φ_i is the maximum over τ of functions that are linear
    in the measure. A linear program has some of these functions, and those that attain
    φ_i at its optimum are added. Its dual variables give a combination of the functions
    that proves a lower bound. No private mechanism has a smaller worst case.

    Args:
        cost: (k, k_v) costs, or a `TransportCost`; public.
        epsilon: The privacy parameter ε.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Theorem 3.4.
    """
    transport_cost, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
    inputs = np.arange(transport_cost.shape[0])

    def tangents(upper: FloatArray) -> Tangents:
        worst = worst_cases.point_costs(upper, transport_cost, privacy, inputs)
        rows = np.argsort(-worst, kind="stable")[:_TANGENTS]
        planes = worst_cases.tangents(transport_cost.rows(rows), upper, privacy)
        return float(worst.max()), *planes, np.zeros(rows.size, dtype=np.intp)

    return _cutting_planes(
        transport_cost, privacy, np.ones(1), tangents, _MINIMAX_GAP, _MOST_ROUNDS
    )


def learn_base_measure(
    cost: Any,
    epsilon: float,
    public_distributions: Any,
    *,
    relative_gap: float = 1e-2,
    max_rounds: int = 60,
) -> MeasureResult:
    """Returns the base measure with the least mean cost of public users.

    The mean cost is convex in the measure. The dual prices of the users' projections
    give its tangents, whose maximum a linear program minimises. Inputs unlike the
    public ones may have very large costs. A mixture with another measure, such as the
    minimax one, bounds them: its worst-case cost is at most the mixture of the two.

    Args:
        cost: (k, k_v) costs, or a `TransportCost`; public.
        epsilon: The privacy parameter ε.
        public_distributions: (n, k) distributions of users whose data are public, and
            who are not among those to be protected.
        relative_gap: Stop where the lower bound is this share below the mean cost.
        max_rounds: The largest number of rounds.

    Returns:
        The measure, the mean cost and a lower bound of it.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.
    """
    transport_cost, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
    users = private_rows.read(
        "public_distributions", public_distributions, transport_cost.shape[0]
    )
    if not len(users):
        raise ValueError("public_distributions must have a row. Found none.")

    def tangents(upper: FloatArray) -> Tangents:
        allowed = ldp_polytope.LdpPolytope(math.exp(-privacy) * upper, upper)
        solver = certified_projection.ExactSolver(transport_cost, allowed, _USER_GAP)
        values, nearest, prices = [], [], []
        for place in range(len(users)):
            inputs, masses = users.row(place)
            solved = solver.solve(inputs, masses)
            values.append(solved.value)
            prices.append(solved.prices)
            reduced = transport_cost.rows(inputs) - solved.prices
            nearest.append(masses @ reduced.min(axis=1))
        thresholds, slopes = worst_cases.tangents(np.array(prices), upper, privacy)
        intercepts, owners = np.array(nearest) + thresholds, np.arange(len(users))
        return float(np.mean(values)), intercepts, slopes, owners

    weights = np.full(len(users), 1 / len(users))
    return _cutting_planes(
        transport_cost, privacy, weights, tangents, relative_gap, max_rounds, _STEP
    )


def _cutting_planes(
    cost: costs.TransportCost,
    epsilon: float,
    weights: FloatArray,
    tangents: Callable[[FloatArray], Tangents],
    relative_gap: float,
    most_rounds: int,
    step: float = 1.0,
) -> MeasureResult:
    """Returns the measure with the least weighted sum of functions of it.

    `tangents` is called with a measure y. The next y is at the share `step` of the way
    from the best one to the optimum of the program.
    """
    # HiGHS has absolute tolerances, which are negligible for costs of about one.
    sample = cost.rows(worst_cases.choose_landmarks(cost)[0])
    scale = max(float(sample.max()), np.finfo(float).tiny)
    start = uniform_base_measure(cost, epsilon).base_measure
    tried = best = math.exp(epsilon / 2) * start
    most_mass, earlier = min(float(cost.shape[1]), math.exp(epsilon)), []
    value, lower, rounds, converged = math.inf, 0.0, 0, False
    while rounds < most_rounds:
        rounds += 1
        reached, intercepts, slopes, functions = tangents(tried)
        if reached / scale < value:
            value, best = reached / scale, tried
        converged = value - lower <= relative_gap * value + _ROUNDING
        if converged:
            break
        earlier.append((intercepts / scale, slopes / scale, functions))
        cuts = map(np.concatenate, zip(*earlier, strict=True))
        try:
            target, bound = _least_sum(weights, most_mass, *cuts)
        except linear_programs.SolverError:
            break
        tried = best + step * (target - best)
        lower = max(lower, bound)
    measure = math.exp(-epsilon / 2) * best
    lower = min(lower, value)
    return MeasureResult(measure, scale * value, scale * lower, rounds, converged)


def _least_sum(
    weights: FloatArray,
    most_mass: float,
    intercepts: FloatArray,
    slopes: FloatArray,
    functions: IndexArray,
) -> tuple[FloatArray, float]:
    """Returns the y with the least weighted sum of functions, and a proven lower bound.

    A function is the largest of its tangents c + a·y; `functions` says whose a tangent
    is. The sum of y is from one to `most_mass`.
    """
    (count, size), number = slopes.shape, weights.size
    levels = sparse.csc_array(
        (-np.ones(count), (np.arange(count), functions)), shape=(count, number)
    )
    total = sparse.csc_array([np.append(np.ones(size), np.zeros(number))])
    tangents = sparse.hstack([sparse.csc_array(slopes), levels])
    variables, duals = linear_programs.solve(
        np.append(np.zeros(size), weights),
        sparse.vstack([tangents, total, -total], format="csc"),
        np.concatenate([-intercepts, [most_mass, -1.0]]),
        [(0.0, 1.0)] * size + [(None, None)] * number,
        equal=False,
    )
    # The solver's y, with its sum and its entries within the limits.
    clipped = np.clip(variables[:size], 0.0, 1.0)
    mass = min(max(float(clipped.sum()), 1.0), most_mass)
    # Shares of tangents that sum to the weights of their functions prove the bound.
    shares = np.maximum(-duals[:count], 0.0)
    sums = np.bincount(functions, shares, minlength=number)
    bound = -math.inf
    if (sums > 0).all():
        shares *= (weights / sums)[functions]
        # A knapsack: one unit of mass is required, and more is added if it lowers it.
        order = np.sort(shares @ slopes)
        room = np.clip(most_mass - np.arange(size), 0.0, 1.0)
        bound = float(order[0] + np.minimum(order[1:], 0.0) @ room[1:])
        bound += float(shares @ intercepts)
    return clipped * (mass / clipped.sum()), bound
