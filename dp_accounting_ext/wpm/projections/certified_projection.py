"""Projections with certificates, for one user or for a batch of users.

The exact projection of a user is a sweep of a line (`line_sweep`) if costs are
distances on a line. Otherwise the dual prices f of the inputs determine it. Output j
receives its mass from the input with the least C_ij − f_i. It holds its least mass if
this number is positive, and its most mass if it is negative. The dual objective is
concave in f, and is computed for all outputs in one pass.

Each linear program is for groups of outputs, with their mean costs. Its plan, divided
among the members of the groups in proportion to their bounds, is a plan for all
outputs. So it gives an upper bound on the cost, and its prices a lower bound. The
search ends when the bounds meet. Otherwise groups are divided by the prices, into
outputs that have the same input and are at the same bound.

Each program is solved by column generation. An arc is a variable: the mass moved from
an input to an output. The first program has only the arcs between near inputs and
outputs, and those of one feasible plan. Each round adds arcs of negative reduced cost.
"""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext import displays
from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm.projections import entropic
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import line_sweep
from dp_accounting_ext.wpm.projections import linear_programs

# All of these are tuning, as the prices of a solution prove its lower bound. They are
# the number of groups in the first program, for each input and at least; the number of
# first arcs of each output or input, the number that a round may add for each input and
# output, and the number of rounds.
_GROUPS_OF_INPUT, _FEWEST_GROUPS = 4, 500
_EACH, _ADDED, _MOST_ROUNDS = 6, 3, 20
_ROUNDING = 1e-14
# A gap of at most this share of the largest cost is attributed to rounding.
_SMALL = 1e-13
# Certified: a bound on the rounding error of two scalar products, whose weights sum to
# about one.
_ERROR = 8 * floats.UNIT_ROUNDOFF


@dataclasses.dataclass(frozen=True, repr=False)
class ProjectionResult(displays.Displayed):
    """Represents a projection with its certificate; arrays for a batch.

    None of it is private: privacy is that of one draw from the distribution.

    Attributes:
        distribution: (k_v,) or (n, k_v), the projection.
        value: The cost of a plan that moves the input to the projection.
        lower_bound: A lower bound on the cost of moving the input into the polytope.
        iterations: The number of rounds of the solver.
        converged: Whether the gap between the two is at most the tolerance.
    """

    distribution: FloatArray
    value: FloatArray | float
    lower_bound: FloatArray | float
    iterations: IntArray | int
    converged: BoolArray | bool

    @property
    def gap(self) -> FloatArray | float:
        """The difference of the value and the lower bound."""
        return self.value - self.lower_bound

    def _display(self) -> displays.Table:
        values, gaps = np.atleast_1d(self.value), np.atleast_1d(self.gap)
        rows = [
            ("distributions", str(values.size)),
            ("outputs", str(self.distribution.shape[-1])),
            ("largest cost", f"{values.max(initial=0.0):.6g}"),
            ("above the least, at most", f"{gaps.max(initial=0.0):.2g}"),
        ]
        title = "projection, as private as its input"
        return displays.Table(title, ("", "value"), rows)


def project(
    mu: Any,
    cost: Any,
    base_measure: npt.ArrayLike,
    epsilon: float,
    *,
    relative_gap: float = 1e-6,
    regularization: float | None = None,
    iterations: int = 40,
) -> ProjectionResult:
    """Returns the member of the polytope that is cheapest to reach from μ.

    The result is not private, nor is its certificate. To release one draw, use a
    mechanism.

    Args:
        mu: (k,) distribution, or (n, k) for a batch; counts, or a sparse matrix.
        cost: (k, k_v) costs d(x_i, v_j)^p, or a `TransportCost`.
        base_measure: (k_v,) masses m with e^{−ε/2} ≤ Σm ≤ e^{ε/2}.
        epsilon: The privacy parameter ε.
        relative_gap: The largest allowed excess of the projection's cost over the least
            cost, as a share of it. With regularization it decides `converged` alone.
        regularization: None for the exact projection; or λ > 0, in the unit of costs,
            for Algorithm 1. It is faster for many places.
        iterations: The number of passes of Algorithm 1.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or λ below 1/600 of the largest
            cost.
        SolverError: If the linear program behind an exact projection fails.

    Guarantees:
        `value` and `lower_bound` enclose, up to rounding, the cost of the
        distribution and the least cost of all, also with regularization.

    Source:
        https://arxiv.org/abs/2605.10015, Section 4.
    """
    privacy = checks.epsilon(epsilon)
    gap = fields.inner_probability("relative_gap", relative_gap)
    transport_cost = costs.as_cost(cost)
    size = transport_cost.shape[1]
    measure = checks.base_measure(base_measure, size, privacy)
    users = private_rows.read("mu", mu, transport_cost.shape[0])
    allowed = ldp_polytope.from_base_measure(measure, privacy)
    passes = fields.positive_integer("iterations", iterations)
    if regularization is None:
        exact = ExactSolver(transport_cost, allowed, gap)
        solutions = [exact.solve(*users.row(user)) for user in range(len(users))]
    else:
        fast = entropic.EntropicSolver(transport_cost, allowed, regularization, passes)
        solutions = fast.certified(users)
    values, bounds, met = np.zeros(len(solutions)), np.zeros(len(solutions)), []
    for user, solution in enumerate(solutions):
        inputs, masses = users.row(user)
        rows = transport_cost.rows(inputs)
        values[user] = solution.value
        bounds[user] = _lower_bound(solution.prices, masses, rows, allowed)
        slack = gap * solution.value + _SMALL * float(rows.max())
        met.append(solution.value - bounds[user] <= slack)
    laws = np.array([solution.distribution for solution in solutions]).reshape(
        len(solutions), size
    )
    rounds = np.array([solution.rounds for solution in solutions], dtype=np.int64)
    certificates = values, bounds, rounds, np.array(met, dtype=np.bool_)
    if users.is_batch:
        return ProjectionResult(laws, *certificates)
    return ProjectionResult(laws[0], *(numbers[0].item() for numbers in certificates))


def _lower_bound(
    prices: FloatArray,
    masses: FloatArray,
    rows: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> float:
    """Returns the lower bound that a solution's prices prove."""
    bound = ldp_polytope.lower_bound(masses, prices, rows, polytope)
    # Large prices cancel up to rounding, and no cost is negative.
    excess = max(float(np.abs(prices).max()) - float(rows.max()), 0.0)
    return max(bound - _ERROR * (prices.size + masses.size) * excess, 0.0)


class ExactSolver:
    """Projects users exactly, for one cost and polytope.

    The relative gap is the largest allowed one between the cost of a plan and the lower
    bound by its prices, as a share of the cost.
    """

    def __init__(
        self,
        cost: costs.TransportCost,
        polytope: ldp_polytope.LdpPolytope,
        relative_gap: float,
    ) -> None:
        self._cost, self._gap, self._polytope = cost, relative_gap, polytope.capped()
        self._places = cost.places_on_line()
        self._outputs = np.flatnonzero(polytope.upper > 0)

    def solve(self, inputs: IndexArray, masses: FloatArray) -> ldp_polytope.Solution:
        """Returns the exact projection of one user: (s,) inputs, and their masses."""
        if self._places is not None:
            of_inputs, of_outputs = self._places
            return line_sweep.solve(
                of_inputs[inputs], masses, of_outputs, self._polytope
            )
        inner = self._polytope.of(self._outputs)
        rows_of_all = self._cost.rows(inputs)
        rows = rows_of_all[:, self._outputs]
        solution = by_groups(masses, rows, inner, self._gap)
        distribution = np.zeros(rows_of_all.shape[1])
        distribution[self._outputs] = solution.distribution
        prices = ldp_polytope.largest_prices(rows_of_all, rows, solution.prices)
        return dataclasses.replace(solution, distribution=distribution, prices=prices)


def by_groups(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
) -> ldp_polytope.Solution:
    """Returns the projection of a user with (s,) masses, by programs of groups.

    Costs are (s, n). Upper bounds of the polytope are positive, and the smaller of one
    and a common multiple of the lower bounds. If no group can be divided further, the
    gap may be larger.
    """
    size, rounding = cost.shape[1], _ROUNDING * (float(cost.max()) or 1.0)
    # All outputs of a group have bounds in the same proportion.
    capped = np.where(polytope.upper < 1, 0.0, polytope.lower)
    proportions = np.unique(capped, return_inverse=True)[1]
    # The first groups are rings around inputs.
    ranks = np.empty(size, dtype=np.intp)
    ranks[np.lexsort((cost.min(axis=0), cost.argmin(axis=0)))] = np.arange(size)
    num_rings = min(max(_GROUPS_OF_INPUT * masses.size, _FEWEST_GROUPS), size)
    numbers = proportions * size + ranks * num_rings // size
    best, bound, guess, rounds = np.inf, -np.inf, np.zeros(masses.size), 0
    gap = np.inf
    while True:
        rounds += 1
        groups = np.unique(numbers, return_inverse=True)[1]
        means, inner = _means(cost, polytope, groups)
        solution = by_columns(masses, means, inner, relative_gap / 2, guess)
        if solution.value < best:
            shares = polytope.upper / inner.upper[groups]
            best, law = solution.value, solution.distribution[groups] * shares
        guess = (means - solution.prices).min(axis=1)
        reduced = cost - guess[:, np.newaxis]
        owners, dual = reduced.argmin(axis=0), reduced.min(axis=0)
        cheapest = ldp_polytope.cheapest(dual, polytope)
        proven = float(masses @ guess + dual @ cheapest)
        if proven > bound:
            bound, prices = proven, dual
        last_gap, gap = gap, best - bound
        if inner.upper.size == size or gap <= relative_gap * best + rounding:
            break
        is_above = dual > ldp_polytope.level(dual, cheapest, polytope)
        numbers = 2 * (groups * masses.size + owners) + is_above
        if gap > last_gap / 2 or np.unique(numbers).size == inner.upper.size:
            numbers = np.arange(size)
    law = ldp_polytope.nearest(law, polytope)
    return ldp_polytope.Solution(law, prices, best, rounds)


def _means(
    cost: FloatArray, polytope: ldp_polytope.LdpPolytope, groups: IndexArray
) -> tuple[FloatArray, ldp_polytope.LdpPolytope]:
    """Returns the (s, g) mean costs of groups of outputs, and the sums of bounds."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    weights = polytope.upper[order]
    lower = np.add.reduceat(polytope.lower[order], starts)
    upper = np.add.reduceat(weights, starts)
    means = np.empty((len(cost), starts.size))
    for row, mean in zip(cost, means, strict=True):
        np.divide(np.add.reduceat(row[order] * weights, starts), upper, out=mean)
    return means, ldp_polytope.LdpPolytope(lower, upper)


def by_columns(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
    guess: FloatArray | float = 0.0,
) -> ldp_polytope.Solution:
    """Returns the projection of a user with (s,) masses and (s, n) costs.

    The first arcs are chosen by a guess of the (s,) prices of the inputs. If no arc is
    left to add, or the limit of rounds is reached, the gap may be larger.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I; the demand edges are variables
        with bounds.
    """
    arcs = _first_arcs(masses, cost - np.reshape(guess, (-1, 1)), polytope)
    rounding, bound = _ROUNDING * float(cost.max()), -np.inf
    limit, rounds = _ADDED * sum(cost.shape), 0
    while rounds < _MOST_ROUNDS:
        rounds += 1
        plan, potentials = linear_programs.cheapest_plan(arcs, masses, cost, polytope)
        reduced = cost - plan.prices
        cheapest = ldp_polytope.cheapest(plan.prices, polytope)
        proven = float(masses @ reduced.min(axis=1) + plan.prices @ cheapest)
        if proven > bound:
            bound, prices = proven, plan.prices
        if plan.value - bound <= relative_gap * plan.value + rounding:
            break
        reduced -= potentials[:, np.newaxis]
        more_arcs = np.union1d(arcs, _arcs_to_add(reduced.ravel(), limit))
        if more_arcs.size == arcs.size:
            break
        arcs = more_arcs
    law = ldp_polytope.nearest(plan.distribution, polytope)
    return ldp_polytope.Solution(law, prices, plan.value, rounds)


def _arcs_to_add(reduced: FloatArray, limit: int) -> IndexArray:
    """Returns arcs whose reduced cost is below the absolute value of the least one."""
    arcs = np.flatnonzero(reduced < -float(reduced.min()))
    if arcs.size <= limit:
        return arcs
    return np.asarray(arcs[np.argpartition(reduced[arcs], limit)[:limit]])


def _first_arcs(
    masses: FloatArray, reduced: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> IndexArray:
    """Returns arcs i·n + j of a feasible plan, and those of near inputs and outputs.

    Each output has some, or each input, whichever are more.
    """
    axis = int(reduced.shape[0] > reduced.shape[1])
    last = min(_EACH, np.size(reduced, axis)) - 1
    near = np.take(np.argpartition(reduced, last, axis), np.arange(last + 1), axis)
    all_arcs = np.arange(reduced.size).reshape(reduced.shape)
    middle = ldp_polytope.nearest(
        np.full(reduced.shape[1], 1 / reduced.shape[1]), polytope
    )
    return np.union1d(
        np.take_along_axis(all_arcs, near, axis), _corner_arcs(masses, middle)
    )


def _corner_arcs(masses: FloatArray, demands: FloatArray) -> IndexArray:
    """Returns the arcs of the north-west corner plan, a feasible plan."""
    left, right = np.cumsum(masses), np.cumsum(demands)
    starts = np.sort(np.concatenate([[0.0], left[:-1], right[:-1]]))
    inputs = np.minimum(np.searchsorted(left, starts, side="right"), left.size - 1)
    outputs = np.minimum(np.searchsorted(right, starts, side="right"), right.size - 1)
    # Rounding at a tie may skip an arc, which its neighbors replace.
    inputs = np.concatenate([inputs, inputs[1:]])
    outputs = np.concatenate([outputs, outputs[:-1]])
    return np.asarray(inputs * demands.size + outputs)
