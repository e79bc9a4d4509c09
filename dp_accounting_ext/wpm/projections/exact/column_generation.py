"""The exact projection, as a transport problem solved by column generation.

Each output takes between αm_j and βm_j. A linear program knows only the arcs from
inputs to their nearest outputs and back, and those of one feasible plan; the
program's dual prices name the arcs that it lacks. The lower bound that these prices
prove ends the search.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.exact import transport_plan

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# HiGHS has absolute tolerances: masses in units of 1e-5 and costs of at most 100 keep
# them out of sight.
_MASS_SCALE = 1e5
_COST_SCALE = 1e2
_LEAST_COST = 1e-290
# Tuning: outputs of each input and inputs of each output in the first program,
# without prices and with them.
_NEAREST, _NEAREST_REDUCED = (8, 8), (3, 2)
_ADDED = 4
# Of programs of so many arcs in all: some minutes. What is best then is certified too.
_MOST_ROUNDS, _MOST_ARCS = 200, 4_000_000
_RELATIVE_GAP = 1e-11
_ROUNDING = 1e-14


@dataclasses.dataclass(frozen=True)
class _Plan:
    """An optimal plan on some arcs, with the dual prices of the program.

    Attributes:
        amounts: (arcs,) masses moved.
        potentials: (k,) duals f of the inputs.
        prices: (k_v,) duals g of the outputs.
    """

    amounts: FloatArray
    potentials: FloatArray
    prices: FloatArray


def solve(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    reduced: FloatArray | None = None,
) -> solution.Solution:
    """Returns the exact projection of one user.

    Rounds of linear programs, each with the arcs that the last one lacked.

    Args:
        masses: (s,) positive masses.
        cost: (s, n) costs.
        polytope: The allowed distributions, of positive upper bounds.
        reduced: (s, n) costs less good prices of inputs and outputs, to begin with
            fewer arcs; None if no prices are known.

    Returns:
        A solution of one row; not converged, but feasible and with prices that bound
        it, where the programs were too many or too large.

    Raises:
        SolverError: If the solver fails.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I; the demand edges are variables
        with bounds.
    """
    arcs = _first_arcs(masses, cost, polytope, reduced)
    rounding = _ROUNDING * float(cost.max())
    best_bound, best_prices = -np.inf, np.zeros(polytope.upper.size)
    converged, rounds, worked = False, 0, 0
    while rounds < _MOST_ROUNDS and worked <= _MOST_ARCS:
        rounds, worked = rounds + 1, worked + arcs.size
        plan = _solve_on_arcs(masses, cost, polytope, arcs)
        value, distribution = transport_plan.feasible(
            masses, cost, *np.divmod(arcs, cost.shape[1]), plan.amounts
        )
        bound = duality.lower_bound(masses, plan.prices, cost, polytope)
        if bound > best_bound:
            best_bound, best_prices = bound, plan.prices
        converged = value - best_bound <= _RELATIVE_GAP * value + rounding
        if converged:
            break
        known, arcs = arcs.size, np.union1d(arcs, _missing_arcs(plan, cost))
        if arcs.size == known:
            break
    distribution = ldp_polytope.nearest(distribution, polytope)
    return solution.one_user(distribution, best_prices, value, rounds, converged)


def _first_arcs(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    reduced: FloatArray | None,
) -> IndexArray:
    """Arcs i·k_v + j between near ones, and those of a plan that is feasible."""
    size = cost.shape[1]
    near = cost if reduced is None else reduced
    few = _NEAREST if reduced is None else _NEAREST_REDUCED
    inputs, outputs = _least_of_rows(near, few[0])
    turned, back = _least_of_rows(near.T, few[1])
    middle = np.full(size, 1 / size)
    corner = _corner_arcs(masses, ldp_polytope.nearest(middle, polytope))
    return np.unique(
        np.concatenate([inputs * size + outputs, back * size + turned, corner])
    )


def _least_of_rows(values: FloatArray, count: int) -> tuple[IndexArray, IndexArray]:
    """Returns the rows and columns of the least few values of every row."""
    rows, columns = values.shape
    if count >= columns:
        found = np.broadcast_to(np.arange(columns), values.shape)
    else:
        found = np.argpartition(values, count - 1, axis=1)[:, :count]
    return np.repeat(np.arange(rows), found.shape[1]), found.ravel()


def _corner_arcs(masses: FloatArray, demands: FloatArray) -> IndexArray:
    """Arcs of the north-west corner plan: both margins laid along one line."""
    left, right = np.cumsum(masses), np.cumsum(demands)
    starts = np.sort(np.concatenate([[0.0], left[:-1], right[:-1]]))
    inputs = np.minimum(np.searchsorted(left, starts, side="right"), left.size - 1)
    outputs = np.minimum(np.searchsorted(right, starts, side="right"), right.size - 1)
    # Rounding at a tie may skip an arc: its neighbours make up for it.
    inputs = np.concatenate([inputs, inputs[1:]])
    outputs = np.concatenate([outputs, outputs[:-1]])
    return np.asarray(inputs * demands.size + outputs)


def _missing_arcs(plan: _Plan, cost: FloatArray) -> IndexArray:
    """Returns the arcs of the most negative reduced costs, by rows and columns."""
    reduced = cost - plan.potentials[:, np.newaxis] - plan.prices
    inputs, outputs = _least_of_rows(reduced, _ADDED)
    turned, near = _least_of_rows(reduced.T, _ADDED)
    rows, columns = np.append(inputs, near), np.append(outputs, turned)
    useful = reduced[rows, columns] < -_ROUNDING * cost.max()
    return np.asarray((rows * cost.shape[1] + columns)[useful])


def _solve_on_arcs(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    arcs: IndexArray,
) -> _Plan:
    """Returns the optimal plan on some arcs.

    The program's variables are the arcs' amounts and the outputs' masses; its rows
    say that inputs are emptied and that outputs hold what arrives.
    """
    inputs, outputs = np.divmod(arcs, cost.shape[1])
    rows, columns = cost.shape
    largest = float(cost.max())
    scale = _COST_SCALE / largest if largest > _LEAST_COST else 1.0
    held = np.arange(columns)
    matrix = sparse.csc_array(
        (
            np.concatenate([np.ones(2 * arcs.size), -np.ones(columns)]),
            (
                np.concatenate([inputs, rows + outputs, rows + held]),
                np.concatenate([np.tile(np.arange(arcs.size), 2), arcs.size + held]),
            ),
        ),
        shape=(rows + columns, arcs.size + columns),
    )
    bounds = np.zeros((arcs.size + columns, 2))
    bounds[: arcs.size, 1] = np.inf
    bounds[arcs.size :, 0] = _MASS_SCALE * polytope.lower
    bounds[arcs.size :, 1] = _MASS_SCALE * polytope.upper
    found = linear_program.solve(
        np.concatenate([scale * cost[inputs, outputs], np.zeros(columns)]),
        matrix,
        np.concatenate([_MASS_SCALE * masses, np.zeros(columns)]),
        bounds,
        equal=True,
    )
    moved = np.maximum(found.variables[: arcs.size] / _MASS_SCALE, 0.0)
    return _Plan(moved, found.duals[:rows] / scale, found.duals[rows:] / scale)
