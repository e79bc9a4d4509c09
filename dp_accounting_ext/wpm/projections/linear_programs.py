"""Linear programs by SciPy's HiGHS, and those of transport, which POT solves, too."""

import importlib
from typing import Any
import warnings

import numpy as np
from scipy import optimize
from scipy import sparse

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm.projections import ldp_polytope

# The method, presolve and tolerance of each attempt. The first is the fastest one on
# programs whose arcs were chosen well. If it fails, the other is tried.
_ATTEMPTS = (("highs-ds", False, 1e-10), ("highs-ipm", True, 1e-9))


class SolverError(RuntimeError):
    """Raised if no attempt at a linear program succeeds."""


def solve(
    costs: FloatArray,
    matrix: Any,
    sides: FloatArray,
    bounds: Any,
    *,
    equal: bool,
    interior: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Returns the x of the least c·x, subject to bounds on x and A x = b or A x ≤ b.

    It also returns the derivative of the minimum by each entry of b. The costs are c,
    the sparse matrix is A, and the sides are b. The interior-point method may be tried
    first: it is faster for programs of many dense rows.
    """
    rows = {"A_eq": matrix, "b_eq": sides} if equal else {"A_ub": matrix, "b_ub": sides}
    # SciPy's type stubs have one signature for each method.
    linprog: Any = optimize.linprog
    attempts = _ATTEMPTS[::-1] if interior else _ATTEMPTS
    for method, presolve, tolerance in attempts:
        options = {
            "presolve": presolve,
            "primal_feasibility_tolerance": tolerance,
            "dual_feasibility_tolerance": tolerance,
        }
        answer = linprog(costs, bounds=bounds, method=method, options=options, **rows)
        if answer.status == 0:
            duals = answer.eqlin if equal else answer.ineqlin
            return np.asarray(answer.x), np.asarray(duals.marginals)
    raise SolverError(f"The linear program could not be solved: {answer.message}")


# HiGHS has absolute tolerances, which are negligible for masses in units of 1e-5 and
# for costs of at most 100.
_MASS_SCALE = 1e5
_COST_SCALE = 1e2
# A limit that no problem of the sizes here comes near.
_MOST_PIVOTS = 10**7


def cheapest_plan(
    arcs: IndexArray,
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> tuple[ldp_polytope.Solution, FloatArray]:
    """Returns the cheapest plan from (s,) inputs to n outputs, and the inputs' duals.

    Mass may move on the given arcs, i·n + j from the input i to the output j. The plan
    moves the masses exactly, so that what outputs hold may be outside of the polytope,
    up to the tolerance of the solver.
    """
    rows, columns = cost.shape
    inputs, outputs = np.divmod(arcs, columns)
    arc_costs = cost.ravel()[arcs]
    program = inputs, outputs, arc_costs, masses, polytope
    try:
        amounts, potentials, prices = _by_simplex(*program)
    except Exception:  # POT is not installed, is older than 0.9.7, or finds no plan.
        amounts, potentials, prices = _by_program(*program)
    sums = np.bincount(inputs, amounts, minlength=rows)
    factors = np.divide(masses, sums, out=np.zeros(rows), where=sums > 0)
    moved, law = amounts * factors[inputs], np.zeros(columns)
    np.add.at(law, outputs, moved)
    # Masses below the solver's tolerance may not have been moved.
    empty = np.flatnonzero(sums <= 0)
    nearest = cost[empty].argmin(axis=1)
    np.add.at(law, nearest, masses[empty])
    value = float(moved @ arc_costs + masses[empty] @ cost[empty, nearest])
    return ldp_polytope.Solution(law, prices, value, 1), potentials


def _by_simplex(
    inputs: IndexArray,
    outputs: IndexArray,
    arc_costs: FloatArray,
    masses: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns the mass moved on each arc, and the duals of inputs and outputs.

    Each output is two sources: one of its least mass, and one of the difference of its
    most and its least mass. The unused part of the second moves to a sink at no cost.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I.
    """
    size, sink = polytope.upper.size, masses.size
    supplies = np.append(polytope.lower, polytope.upper - polytope.lower)
    unused = max(float(supplies.sum() - masses.sum()), 0.0)
    demands = np.append(masses, unused)
    seconds, largest = size + np.arange(size), float(arc_costs.max()) or 1.0
    table = sparse.coo_matrix(
        (
            np.concatenate([arc_costs / largest, arc_costs / largest, np.zeros(size)]),
            (
                np.concatenate([outputs, size + outputs, seconds]),
                np.concatenate([inputs, inputs, np.full(size, sink)]),
            ),
        ),
        shape=(supplies.size, demands.size),
    )
    with warnings.catch_warnings():
        # A warning would reveal information about a private distribution. Those of
        # POT's compiled code carry none.
        warnings.simplefilter("ignore")
        ot: Any = importlib.import_module("ot")
        flows, report = ot.emd(
            supplies * (demands.sum() / supplies.sum()),
            demands,
            table,
            _MOST_PIVOTS,
            log=True,
            center_dual=False,
            check_marginals=False,
        )
    if report["result_code"] != 1:
        raise SolverError("The network simplex found no plan.")
    moved = flows.col < sink
    keys = flows.col[moved].astype(np.intp) * size + flows.row[moved] % size
    places = np.searchsorted(inputs * size + outputs, keys)
    amounts = np.zeros(arc_costs.size)
    np.add.at(amounts, places, flows.data[moved])
    potentials = largest * report["v"][:sink]
    prices = np.full(size, np.inf)
    np.minimum.at(prices, outputs, arc_costs - potentials[inputs])
    return amounts, potentials, prices


def _by_program(
    inputs: IndexArray,
    outputs: IndexArray,
    arc_costs: FloatArray,
    masses: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns the same as `_by_simplex`, by a linear program for HiGHS.

    Its variables are the masses on arcs and the masses of outputs. Its constraints are
    that each input's mass is moved, and that each output holds the mass that arrives.
    """
    count, rows, columns = arc_costs.size, masses.size, polytope.upper.size
    scale = _COST_SCALE / (float(arc_costs.max()) or 1.0)
    rows_of = [inputs, rows + outputs, rows + np.arange(columns)]
    columns_of = [np.arange(count), np.arange(count + columns)]
    matrix = sparse.csc_array(
        (
            np.repeat([1.0, -1.0], [2 * count, columns]),
            (np.concatenate(rows_of), np.concatenate(columns_of)),
        ),
        shape=(rows + columns, count + columns),
    )
    bounds = np.zeros((count + columns, 2))
    bounds[:count, 1] = np.inf
    bounds[count:, 0] = _MASS_SCALE * polytope.lower
    bounds[count:, 1] = _MASS_SCALE * polytope.upper
    variables, duals = solve(
        scale * np.append(arc_costs, np.zeros(columns)),
        matrix,
        np.append(_MASS_SCALE * masses, np.zeros(columns)),
        bounds,
        equal=True,
    )
    amounts = np.maximum(variables[:count] / _MASS_SCALE, 0.0)
    return amounts, duals[:rows] / scale, duals[rows:] / scale
