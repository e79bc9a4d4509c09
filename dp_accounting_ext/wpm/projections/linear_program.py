"""Linear programs by SciPy's HiGHS, with further attempts after a failure."""

from typing import Any

import numpy as np
from scipy import optimize

from dp_accounting_ext.common_types import FloatArray

# The method, presolve and tolerance of each attempt. The first is the fastest one on
# programs whose arcs were chosen well. If it fails, the default tolerances and another
# method are tried.
_ATTEMPTS = (
    ("highs-ds", False, 1e-10),
    ("highs-ds", True, 1e-7),
    ("highs-ipm", True, 1e-9),
)


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

    It also returns the derivative of the minimum by each entry of b.

    Args:
        costs: (n,) the vector c.
        matrix: (rows, n) the sparse matrix A.
        sides: (rows,) the vector b.
        bounds: (n, 2) least and greatest values.
        equal: Whether rows are equalities.
        interior: Whether the interior-point method is tried first, which is faster for
            programs of many dense rows.

    Raises:
        SolverError: If no attempt succeeds.
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
        found = linprog(costs, bounds=bounds, method=method, options=options, **rows)
        if found.status == 0:
            duals = found.eqlin if equal else found.ineqlin
            return np.asarray(found.x), np.asarray(duals.marginals)
    raise SolverError(f"The linear program could not be solved: {found.message}")
