"""Transport along chosen arcs to outputs between bounds, by POT or by HiGHS."""

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import network_simplex
from dp_accounting_ext.wpm.projections import solution

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# HiGHS has absolute tolerances: masses in units of 1e-5 and costs of at most 100 keep
# them out of sight.
_MASS_SCALE = 1e5
_COST_SCALE = 1e2


def solve(
    arcs: solution.Arcs,
    supply: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    penalty: float | None = None,
) -> solution.Plan:
    """Returns the cheapest plan that empties the inputs, and its prices.

    Args:
        arcs: Where mass may move.
        supply: (s,) what inputs have.
        polytope: (n,) least and most of the outputs.
        penalty: What a unit costs that an input lacks or has too much; this also
            bounds the inputs' prices. None if all must be moved.

    Raises:
        SolverError: If the solvers fail.
    """
    if network_simplex.is_installed():
        try:
            return network_simplex.solve(arcs, supply, polytope, penalty)
        except linear_program.SolverError:
            pass  # What POT cannot solve, HiGHS may.
    return _by_program(arcs, supply, polytope, penalty)


def _by_program(
    arcs: solution.Arcs,
    supply: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    penalty: float | None,
) -> solution.Plan:
    """Returns the plan as a program of HiGHS.

    Its variables are what arcs move, what outputs hold and, with a penalty, what each
    input lacks or has too much; its rows say that inputs are emptied and that outputs
    hold what arrives.
    """
    count, rows, columns = arcs.cost.size, supply.size, polytope.upper.size
    spare = 0 if penalty is None else rows
    largest = max(float(np.abs(arcs.cost).max()), penalty or 0.0)
    scale = _COST_SCALE / largest if largest else 1.0
    held, left = np.arange(columns), np.arange(spare)
    first = count + columns
    rows_of = [arcs.inputs, rows + arcs.outputs, rows + held, left, left]
    columns_of = [np.arange(count), np.arange(first), first + np.arange(2 * spare)]
    signs = np.repeat([1.0, -1.0, 1.0, -1.0], [2 * count, columns, spare, spare])
    matrix = sparse.csc_array(
        (signs, (np.concatenate(rows_of), np.concatenate(columns_of))),
        shape=(rows + columns, first + 2 * spare),
    )
    bounds = np.zeros((first + 2 * spare, 2))
    bounds[:, 1] = np.inf
    bounds[count:first, 0] = _MASS_SCALE * polytope.lower
    bounds[count:first, 1] = _MASS_SCALE * polytope.upper
    costs = [arcs.cost, np.zeros(columns), np.full(2 * spare, penalty or 0.0)]
    variables, duals = linear_program.solve(
        scale * np.concatenate(costs),
        matrix,
        np.concatenate([_MASS_SCALE * supply, np.zeros(columns)]),
        bounds,
        equal=True,
    )
    moved, duals = np.maximum(variables / _MASS_SCALE, 0.0), duals / scale
    unmoved = float(moved[first:].sum())
    return solution.Plan(moved[:count], duals[:rows], duals[rows:], unmoved)


def feasible(
    masses: FloatArray, cost: FloatArray, arcs: solution.Arcs, amounts: FloatArray
) -> tuple[float, FloatArray]:
    """Returns the cost of a plan with its rows made exact, and its columns.

    Args:
        masses: (s,) positive masses of the inputs.
        cost: (s, n) costs.
        arcs: Where mass moves.
        amounts: (arcs,) what they move, up to a solver's tolerance.
    """
    used = np.flatnonzero(amounts > 0)
    inputs, moved = arcs.inputs[used], amounts[used]
    sums = np.bincount(inputs, moved, minlength=masses.size)
    empty = np.flatnonzero(sums <= 0)
    factors = np.divide(masses, sums, out=np.zeros_like(masses), where=sums > 0)
    moved *= factors[inputs]
    value = float(moved @ arcs.cost[used])
    columns = np.zeros(cost.shape[1])
    np.add.at(columns, arcs.outputs[used], moved)
    # Masses below a solver's tolerance may not have been moved at all.
    nearest = cost[empty].argmin(axis=1)
    np.add.at(columns, nearest, masses[empty])
    return value + float(masses[empty] @ cost[empty, nearest]), columns
