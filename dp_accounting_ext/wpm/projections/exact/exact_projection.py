"""The exact projection of one user, by the algorithm that suits it."""

import dataclasses
import enum

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.costs import line_cost
from dp_accounting_ext.wpm.costs import transport_cost
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.entropic import newton_projection
from dp_accounting_ext.wpm.projections.entropic import regularized_problem
from dp_accounting_ext.wpm.projections.exact import column_generation
from dp_accounting_ext.wpm.projections.exact import interior_point
from dp_accounting_ext.wpm.projections.exact import line_projection
from dp_accounting_ext.wpm.projections.exact import price_box
from dp_accounting_ext.wpm.projections.exact import shortest_paths

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

_TINY = float(np.finfo(float).tiny)
# Tuning. On a line all outputs beyond two inputs are as near to the one as to the
# other, but for a constant: boxes of prices are never small, so the sweep is taken.
# Above so many inputs Newton's equations cost more than the program they spare.
_MOST_BOX_INPUTS = 400
# Chains of outputs are searched for in a matrix of the outputs. Of 170 random problems
# with 10 to 100 inputs and outputs, those that end within so many rounds do so in 1/40
# to 1/1 of the interior point method's time.
_MOST_CHAINED_OUTPUTS, _MOST_CHAIN_ROUNDS = 100, 16
# The interior point method takes all pairs, and a matrix of the inputs.
_MOST_PAIRS, _MOST_INPUTS = 40_000, 150
_LEAST_BOX_OUTPUTS = 1000
# A linear program of so many arcs or more is worth the entropic projection at this
# share of the largest cost, whose prices name its arcs.
_WORTH_PRICES, _MOST_PRICED_INPUTS = 8000, 150
_REGULARIZATION, _PRICE_GAP, _PRICE_STEPS = 0.0075, 0.05, 40


class Algorithm(enum.Enum):
    """How an exact projection is computed."""

    KNAPSACK = "one input: the outputs are filled in the order of their costs"
    SLOPE_TRICK = "distances on a line: one sweep"
    SHORTEST_PATHS = "very small: chains of outputs, else through the middle"
    INTERIOR_POINT = "small: steps through the middle of all plans"
    PRICE_BOX = "few inputs: prices of the inputs"
    COLUMN_GENERATION = "a linear program that grows by arcs"


def choose_algorithm(
    cost: transport_cost.TransportCost, num_inputs: int, num_outputs: int
) -> Algorithm:
    """Returns what is fastest.

    Args:
        cost: What mass costs to move.
        num_inputs: How many inputs hold mass.
        num_outputs: How many outputs may.
    """
    if num_inputs == 1:
        return Algorithm.KNAPSACK
    if isinstance(cost, line_cost.LineCost) and cost.order == 1:
        return Algorithm.SLOPE_TRICK
    if num_outputs <= _MOST_CHAINED_OUTPUTS and num_inputs <= _MOST_INPUTS:
        return Algorithm.SHORTEST_PATHS
    if num_inputs * num_outputs <= _MOST_PAIRS and num_inputs <= _MOST_INPUTS:
        return Algorithm.INTERIOR_POINT
    few = num_inputs <= _MOST_BOX_INPUTS
    if few and num_outputs >= max(_LEAST_BOX_OUTPUTS, 2 * num_inputs):
        return Algorithm.PRICE_BOX
    return Algorithm.COLUMN_GENERATION


@dataclasses.dataclass(frozen=True)
class ExactSolver:
    """Projects users exactly, for one cost and polytope.

    Attributes:
        cost: What mass costs to move.
        polytope: The allowed distributions.
        outputs: Those that may hold mass.
        order: The same, near ones near one another.
    """

    cost: transport_cost.TransportCost
    polytope: ldp_polytope.LdpPolytope
    outputs: IndexArray
    order: IndexArray

    def solve(self, inputs: IndexArray, masses: FloatArray) -> solution.Solution:
        """Returns the exact projection of one user.

        Args:
            inputs: (s,) the inputs that hold mass.
            masses: (s,) their positive masses.

        Returns:
            A solution of one row.

        Raises:
            SolverError: If the linear program behind it fails.
        """
        algorithm = choose_algorithm(self.cost, inputs.size, self.outputs.size)
        if algorithm is Algorithm.SLOPE_TRICK:
            assert isinstance(self.cost, line_cost.LineCost)
            return line_projection.solve(inputs, masses, self.cost, self.polytope)
        whole = self.cost.rows(inputs)
        few = self.outputs.size < self.polytope.upper.size
        rows = np.ascontiguousarray(whole[:, self.outputs]) if few else whole
        inner = self.polytope.of(self.outputs)
        if algorithm is Algorithm.KNAPSACK:
            found = _solve_point(rows[0], inner)
        elif algorithm is Algorithm.SHORTEST_PATHS:
            found = _solve_by_chains(masses, rows, inner)
        elif algorithm is Algorithm.INTERIOR_POINT:
            found = _solve_inside(masses, rows, inner)
        elif algorithm is Algorithm.PRICE_BOX:
            found = _solve_in_boxes(masses, rows, inner, self.order)
        else:
            found = _solve_by_columns(masses, rows, inner)
        if not few:
            return found
        distribution = np.zeros(self.polytope.upper.size)
        distribution[self.outputs] = found.distributions[0]
        prices = duality.complete_prices(found.prices[0], whole, self.outputs)
        return dataclasses.replace(
            found,
            distributions=distribution[np.newaxis],
            prices=prices[np.newaxis],
        )


def make_solver(
    cost: transport_cost.TransportCost, polytope: ldp_polytope.LdpPolytope
) -> ExactSolver:
    """Returns the solver of a cost and a polytope."""
    # No output holds more than everything, and a bound beyond it loses digits.
    polytope = ldp_polytope.LdpPolytope(polytope.lower, np.minimum(polytope.upper, 1.0))
    outputs = np.flatnonzero(polytope.upper > 0)
    numbers = np.cumsum(polytope.upper > 0) - 1
    near = cost.near_order()
    order = numbers[near[polytope.upper[near] > 0]]
    return ExactSolver(cost, polytope, outputs, order)


def _solve_in_boxes(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    order: IndexArray,
) -> solution.Solution:
    """By prices; where these do not get there, by column generation."""
    try:
        return price_box.solve(price_box.Problem(masses, cost, polytope), order)
    except (linear_program.SolverError, np.linalg.LinAlgError):
        return _solve_by_columns(masses, cost, polytope)


def _solve_by_chains(
    masses: FloatArray, cost: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> solution.Solution:
    """Along few chains of outputs; where these do not suffice, through the middle."""
    try:
        found = shortest_paths.solve(masses, cost, polytope, _MOST_CHAIN_ROUNDS)
    except linear_program.SolverError:
        return _solve_inside(masses, cost, polytope)
    return found if found.converged[0] else _solve_inside(masses, cost, polytope)


def _solve_inside(
    masses: FloatArray, cost: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> solution.Solution:
    """Through the middle of all plans; where that proves too little, by columns."""
    try:
        found = interior_point.project(masses, cost, polytope)
    except linear_program.SolverError:
        return _solve_by_columns(masses, cost, polytope)
    return found if found.converged[0] else _solve_by_columns(masses, cost, polytope)


def _solve_by_columns(
    masses: FloatArray, cost: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> solution.Solution:
    """By column generation, from arcs that the entropic projection's prices name."""
    if masses.size > _MOST_PRICED_INPUTS or cost.size < _WORTH_PRICES:
        return column_generation.solve(masses, cost, polytope)
    strength = _REGULARIZATION * float(cost.max()) or 1.0
    bounds = ldp_polytope.LdpPolytope(np.maximum(polytope.lower, _TINY), polytope.upper)
    problem = regularized_problem.Problem(masses, cost / strength, bounds)
    start = regularized_problem.row_prices(problem, np.log(bounds.upper))
    try:
        proof, _, _ = newton_projection.project(
            problem, start, _PRICE_GAP, _PRICE_STEPS
        )
    except np.linalg.LinAlgError:
        return column_generation.solve(masses, cost, polytope)
    reduced = problem.cost - proof.prices
    reduced -= regularized_problem.row_prices(problem, proof.prices)[:, np.newaxis]
    return column_generation.solve(masses, cost, polytope, reduced)


def _solve_point(
    cost: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> solution.Solution:
    """All mass on one input: a knapsack, whose prices are the costs."""
    found = ldp_polytope.cheapest(cost, polytope)
    return solution.one_user(found, cost, float(cost @ found), 1, True)
