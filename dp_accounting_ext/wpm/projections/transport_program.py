"""Transport along chosen arcs to outputs between bounds, by POT or by HiGHS."""

import dataclasses

import numpy as np
from scipy import sparse

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import network_simplex

# HiGHS has absolute tolerances, which are negligible for masses in units of 1e-5 and
# for costs of at most 100.
_MASS_SCALE = 1e5
_COST_SCALE = 1e2


@dataclasses.dataclass(frozen=True, repr=False)
class Plan:
    """An optimal plan on some arcs, with the dual prices of the program.

    Attributes:
        amounts: (arcs,) masses moved, up to the solver's tolerance.
        potentials: (s,) duals f of the inputs.
        prices: (n,) duals g of the outputs.
        value: The cost of a plan that moves the masses of the inputs exactly.
        held: (n,) the masses of the outputs under that plan.
    """

    amounts: FloatArray
    potentials: FloatArray
    prices: FloatArray
    value: float
    held: FloatArray


def solve(
    arcs: IndexArray,
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> Plan:
    """Returns the cheapest plan that empties the inputs, and its prices.

    Args:
        arcs: (arcs,) where mass may move, i·n + j from the input i to the output j.
        masses: (s,) positive masses of the inputs.
        cost: (s, n) costs.
        polytope: The least and most masses of the n outputs.

    Raises:
        SolverError: If the solvers fail.
    """
    rows, columns = cost.shape
    inputs, outputs = np.divmod(arcs, columns)
    program = inputs, outputs, cost.ravel()[arcs], masses, polytope
    try:
        if not network_simplex.is_installed():
            raise linear_program.SolverError("POT is not installed.")
        amounts, potentials, prices = network_simplex.solve(*program)
    except linear_program.SolverError:  # HiGHS may solve problems that POT cannot.
        amounts, potentials, prices = _by_program(*program)
    sums = np.bincount(inputs, amounts, minlength=rows)
    factors = np.divide(masses, sums, out=np.zeros(rows), where=sums > 0)
    moved, held = amounts * factors[inputs], np.zeros(columns)
    np.add.at(held, outputs, moved)
    # Masses below the solver's tolerance may not have been moved.
    empty = np.flatnonzero(sums <= 0)
    nearest = cost[empty].argmin(axis=1)
    np.add.at(held, nearest, masses[empty])
    value = float(moved @ program[2] + masses[empty] @ cost[empty, nearest])
    return Plan(amounts, potentials, prices, value, held)


def _by_program(
    inputs: IndexArray,
    outputs: IndexArray,
    paid: FloatArray,
    masses: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns the same as `network_simplex.solve`, by a linear program for HiGHS.

    Its variables are the masses on arcs and the masses of outputs. Its constraints are
    that each input's mass is moved, and that each output holds the mass that arrives.
    """
    count, rows, columns = paid.size, masses.size, polytope.upper.size
    scale = _COST_SCALE / (float(paid.max()) or 1.0)
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
    variables, duals = linear_program.solve(
        scale * np.append(paid, np.zeros(columns)),
        matrix,
        np.append(_MASS_SCALE * masses, np.zeros(columns)),
        bounds,
        equal=True,
    )
    amounts = np.maximum(variables[:count] / _MASS_SCALE, 0.0)
    return amounts, duals[:rows] / scale, duals[rows:] / scale
