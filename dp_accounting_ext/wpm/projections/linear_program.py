"""Linear programs by SciPy's HiGHS, with attempts that follow a failure."""

from typing import Any

import numpy as np
from scipy import optimize

from dp_accounting_ext.common_types import FloatArray

# Method, presolve and tolerance. The first is the fastest on programs whose arcs were
# chosen well; the default tolerances and another method follow where it fails.
_ATTEMPTS = (
    ("highs-ds", False, 1e-10),
    ("highs-ds", True, 1e-7),
    ("highs-ipm", True, 1e-9),
)


class SolverError(RuntimeError):
    """Raised where no attempt at a linear program succeeds."""


def solve(
    costs: FloatArray, matrix: Any, sides: FloatArray, bounds: Any, *, equal: bool
) -> tuple[FloatArray, FloatArray]:
    """Returns where c·x is least with bounds on x, and A x equal to or at most b.

    Also returned is by how much it rises with each of b.

    Args:
        costs: (n,) the c.
        matrix: (rows, n) the A, sparse.
        sides: (rows,) the b.
        bounds: (n, 2) least and greatest values.
        equal: Whether rows are equalities.

    Raises:
        SolverError: If no attempt succeeds.
    """
    rows = {"A_eq": matrix, "b_eq": sides} if equal else {"A_ub": matrix, "b_ub": sides}
    # The signatures known of this function are one for each method.
    linprog: Any = optimize.linprog
    for method, presolve, tolerance in _ATTEMPTS:
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
