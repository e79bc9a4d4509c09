"""The exact projection of a user, by linear programs that grow by the arcs they lack.

A program knows only the arcs from inputs to their nearest outputs and back, and those
of one feasible plan; its prices name the arcs that it lacks, and those that it need
not know any more. The lower bound that the prices prove ends the search.
"""

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections import transport_program

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# Tuning: outputs of each input and inputs of each output in the first program, and
# arcs for each of both that later ones have. Of programs of so many arcs in all: some
# minutes. What is best then is certified too.
_NEAREST, _EACH = 6, 6
_MOST_ROUNDS, _MOST_ARCS = 200, 4_000_000
_ROUNDING = 1e-14


def solve(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
) -> solution.Solution:
    """Returns the exact projection of one user.

    Args:
        masses: (s,) positive masses.
        cost: (s, n) costs.
        polytope: The allowed distributions, of positive upper bounds.
        relative_gap: Stop where plan and prices are this share of the cost apart.

    Returns:
        A solution; where the programs were too many or too large, a feasible one with
        prices that bound it from further away.

    Raises:
        SolverError: If the solver fails.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I; the demand edges are variables
        with bounds.
    """
    arcs = _first_arcs(masses, cost, polytope)
    rounding = _ROUNDING * float(cost.max())
    best_bound, best_prices = -np.inf, np.zeros(polytope.upper.size)
    last, rounds, worked = np.inf, 0, 0
    while rounds < _MOST_ROUNDS and worked <= _MOST_ARCS:
        rounds, worked = rounds + 1, worked + arcs.size
        inputs, outputs = np.divmod(arcs, cost.shape[1])
        known = transport_program.Arcs(inputs, outputs, cost[inputs, outputs])
        plan = transport_program.solve(known, masses, polytope)
        value, held = transport_program.feasible(masses, cost, known, plan.amounts)
        bound = duality.lower_bound(masses, plan.prices, cost, polytope)
        if bound > best_bound:
            best_bound, best_prices = bound, plan.prices
        if value - best_bound <= relative_gap * value + rounding:
            break
        reduced = cost - plan.potentials[:, np.newaxis] - plan.prices
        wanted = _wanted(reduced.ravel(), _EACH * (masses.size + outputs.size))
        # Where the value falls no program returns, and arcs may be forgotten.
        kept = arcs[plan.amounts > 0] if value < last else arcs
        grown = np.union1d(kept, wanted)
        if grown.size == arcs.size and np.array_equal(grown, arcs):
            break
        arcs, last = grown, min(value, last)
    law = ldp_polytope.nearest(held, polytope)
    return solution.Solution(law, best_prices, value, rounds)


def _wanted(reduced: FloatArray, most: int) -> IndexArray:
    """Returns arcs of reduced costs no further above zero than the least is below."""
    found = np.flatnonzero(reduced < -float(reduced.min()))
    if found.size <= most:
        return found
    return np.asarray(found[np.argpartition(reduced[found], most)[:most]])


def _first_arcs(
    masses: FloatArray, cost: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> IndexArray:
    """Arcs i·k_v + j between near ones, and those of a plan that is feasible.

    An output is near inputs that would reach far if all were alone.
    """
    size = cost.shape[1]
    share = float(polytope.upper.sum()) / size
    reached = np.minimum((masses / share).astype(np.intp) + 1, size - 1)
    ordered = np.sort(cost, axis=1)
    radii = ordered[np.arange(masses.size), reached]
    inputs, outputs = _least_of_rows(cost, _NEAREST)
    turned, back = _least_of_rows((cost - radii[:, np.newaxis]).T, _NEAREST)
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
