"""Transport problems between bounds, by a linear program: slow, and hard to upset."""

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections.exact import interior_point

FloatArray = npt.NDArray[np.float64]

# HiGHS has absolute tolerances: masses in units of 1e-5 and costs of about 10 keep
# them out of sight.
_MASS_SCALE = 1e5
_COST_SCALE = 10.0


def solve(problem: interior_point.Problem) -> interior_point.Optimum:
    """Returns an optimal plan and its prices.

    The program's variables are what arcs move, what outputs hold, and what each input
    lacks or has too much.

    Args:
        problem: What to solve.

    Raises:
        SolverError: If the solver fails.
    """
    arcs, inputs = problem.cost.size, problem.supply.size
    outputs = problem.polytope.lower.size
    unmoved = np.concatenate([np.eye(inputs), -np.eye(inputs)], axis=1)
    ones, numbers = np.ones(arcs), np.arange(arcs)
    shape = (inputs, arcs), (outputs, arcs)
    matrix = sparse.vstack(
        [
            sparse.hstack(
                [
                    sparse.csc_matrix((ones, (problem.inputs, numbers)), shape[0]),
                    sparse.csc_matrix((inputs, outputs)),
                    sparse.csc_matrix(unmoved),
                ]
            ),
            sparse.hstack(
                [
                    sparse.csc_matrix((ones, (problem.outputs, numbers)), shape[1]),
                    -sparse.identity(outputs),
                    sparse.csc_matrix((outputs, 2 * inputs)),
                ]
            ),
        ],
        format="csc",
    )
    bounds = np.zeros((arcs + outputs + 2 * inputs, 2))
    bounds[:, 1] = np.inf
    bounds[arcs : arcs + outputs, 0] = _MASS_SCALE * problem.polytope.lower
    bounds[arcs : arcs + outputs, 1] = _MASS_SCALE * problem.polytope.upper
    free, left = np.zeros(outputs), np.full(2 * inputs, problem.penalty)
    found = linear_program.solve(
        _COST_SCALE * np.concatenate([problem.cost, free, left]),
        matrix,
        np.concatenate([_MASS_SCALE * problem.supply, free]),
        bounds,
        equal=True,
    )
    duals = found.duals / _COST_SCALE
    return interior_point.Optimum(
        numbers,
        np.maximum(found.variables[:arcs] / _MASS_SCALE, 0.0),
        duals[:inputs],
        duals[inputs:],
        float(found.variables[-2 * inputs :].sum()) / _MASS_SCALE,
        1,
    )
