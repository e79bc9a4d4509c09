"""The exact projection of one user, by a solver that the cost determines.

If costs are distances on a line, it is a sweep along the line (`line_sweep`). For all
other costs it is a linear program over groups of outputs (`grouped_outputs`).
"""

import dataclasses

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm.projections import grouped_outputs
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import line_sweep


@dataclasses.dataclass(frozen=True)
class ExactSolver:
    """Projects users exactly, for one cost and polytope.

    Attributes:
        cost: The cost of moving mass.
        polytope: The allowed distributions.
        relative_gap: The largest allowed gap between the cost of the plan and the lower
            bound by the prices, as a share of the cost.
        outputs: The indices of the outputs that may hold mass, in an order in which
            outputs that are near are adjacent.
    """

    cost: costs.TransportCost
    polytope: ldp_polytope.LdpPolytope
    relative_gap: float
    outputs: IndexArray

    def solve(self, inputs: IndexArray, masses: FloatArray) -> ldp_polytope.Solution:
        """Returns the exact projection of one user.

        Args:
            inputs: (s,) the inputs that hold mass.
            masses: (s,) their positive masses.

        Raises:
            SolverError: If a linear program fails.
        """
        places = self.cost.places_on_line()
        if places is not None:
            return line_sweep.solve(
                places[0][inputs],
                masses,
                places[1],
                self.polytope,
                self.relative_gap,
            )
        size, inner = self.polytope.upper.size, self.polytope.of(self.outputs)
        rows = self.cost.rows_to(inputs, self.outputs)
        found = grouped_outputs.solve(masses, rows, inner, self.relative_gap)
        distribution, prices = np.zeros((2, size))
        distribution[self.outputs] = found.distribution
        if self.outputs.size < size:
            # The largest prices for which no other output is nearer to an input than
            # the nearest of `outputs`.
            nearest = (rows - found.prices).min(axis=1)
            whole = self.cost.rows(inputs)
            prices = (whole - nearest[:, np.newaxis]).min(axis=0)
        prices[self.outputs] = found.prices
        return dataclasses.replace(found, distribution=distribution, prices=prices)


def make_solver(
    cost: costs.TransportCost,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
) -> ExactSolver:
    """Returns the solver of a cost and a polytope."""
    # No output holds more than all mass, and larger bounds would lose digits.
    polytope = ldp_polytope.LdpPolytope(polytope.lower, np.minimum(polytope.upper, 1.0))
    is_line = cost.places_on_line() is not None
    outputs = np.arange(polytope.upper.size) if is_line else cost.near_order()
    outputs = outputs[polytope.upper[outputs] > 0]
    return ExactSolver(cost, polytope, relative_gap, outputs)
