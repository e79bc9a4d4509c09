"""The exact projection of small problems, by the network simplex of POT.

Each output is two: one that must get its least mass, and one that may get what there
is between its least and its most. A source of what would be too much fills the second
for nothing, and may not fill the first.
"""

import importlib.util
from typing import Any
import warnings

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections import transport_program

FloatArray = npt.NDArray[np.float64]

# No problem of the sizes that are sent here takes nearly so many pivots.
_MOST_PIVOTS = 10**7
# In units of the largest cost: more than prices differ by.
_FORBIDDEN = 4.0
_ROUNDING = 1e-14


def is_installed() -> bool:
    """Tells whether POT is there, without its import."""
    return importlib.util.find_spec("ot") is not None


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
        relative_gap: Share of the cost that plan and prices may be apart.

    Returns:
        A solution, proven by its prices.

    Raises:
        SolverError: If POT fails, or its prices prove too little.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I.
    """
    ot: Any = importlib.import_module("ot")
    inputs, size = cost.shape
    largest = float(cost.max()) or 1.0
    # Outputs are the sources: so pivots are a third of those of the other way round.
    table = np.zeros((2, size, inputs + 1))
    np.divide(cost.T, largest, out=table[0, :, :-1])
    table[1, :, :-1] = table[0, :, :-1]
    table[0, :, -1] = _FORBIDDEN
    wanted = np.concatenate([polytope.lower, polytope.upper - polytope.lower])
    supply = np.append(masses, max(float(wanted.sum() - masses.sum()), 0.0))
    wanted *= supply.sum() / wanted.sum()
    with warnings.catch_warnings():
        # A warning would tell of a private distribution.
        warnings.simplefilter("ignore")
        flows, found = ot.emd(
            wanted,
            supply,
            table.reshape(2 * size, inputs + 1),
            _MOST_PIVOTS,
            log=True,
            center_dual=False,
            check_marginals=False,
        )
    columns, rows = np.nonzero(flows[:, :-1])
    arcs = transport_program.Arcs(rows, columns % size, cost[rows, columns % size])
    value, held = transport_program.feasible(masses, cost, arcs, flows[columns, rows])
    potentials = largest * found["v"][:-1, np.newaxis]
    prices = (cost - potentials).min(axis=0)
    bound = duality.lower_bound(masses, prices, cost, polytope)
    if not abs(value - bound) <= relative_gap * value + _ROUNDING * largest:
        raise linear_program.SolverError("The network simplex did not prove its plan.")
    law = ldp_polytope.nearest(held, polytope)
    return solution.Solution(law, prices, value, 1)
