"""The exact projection of one user, by the algorithm that suits the public sizes."""

import dataclasses
import enum

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm.projections import column_generation
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import line_sweep
from dp_accounting_ext.wpm.projections import price_ascent
from dp_accounting_ext.wpm.projections import solution

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# Tuning: outputs up to which programs are faster than prices of the inputs.
_FEW_OUTPUTS = 3000


class Algorithm(enum.Enum):
    """How an exact projection is computed."""

    LINE_SWEEP = "distances on a line: one sweep"
    COLUMN_GENERATION = "few outputs: programs that grow by arcs"
    PRICE_ASCENT = "many outputs: prices of the inputs"


def choose_algorithm(cost: costs.TransportCost) -> Algorithm:
    """Returns what is fastest, by what is public alone.

    Args:
        cost: What mass costs to move.
    """
    if cost.places_on_line() is not None:
        return Algorithm.LINE_SWEEP
    if cost.shape[1] > _FEW_OUTPUTS:
        return Algorithm.PRICE_ASCENT
    return Algorithm.COLUMN_GENERATION


@dataclasses.dataclass(frozen=True)
class ExactSolver:
    """Projects users exactly, for one cost and polytope.

    Attributes:
        cost: What mass costs to move.
        polytope: The allowed distributions.
        relative_gap: Share of the cost that plan and prices may be apart.
        algorithm: How.
        outputs: Those that may hold mass, near ones near one another where the
            algorithm asks for it.
    """

    cost: costs.TransportCost
    polytope: ldp_polytope.LdpPolytope
    relative_gap: float
    algorithm: Algorithm
    outputs: IndexArray

    def solve(self, inputs: IndexArray, masses: FloatArray) -> solution.Solution:
        """Returns the exact projection of one user.

        Args:
            inputs: (s,) the inputs that hold mass.
            masses: (s,) their positive masses.

        Raises:
            SolverError: If the linear program behind it fails.
        """
        if self.algorithm is Algorithm.LINE_SWEEP:
            places = self.cost.places_on_line()
            assert places is not None
            return line_sweep.solve(
                places[0][inputs], masses, places[1], self.polytope, self.relative_gap
            )
        size = self.polytope.upper.size
        if np.array_equal(self.outputs, np.arange(size)):
            return self._solve(masses, self.cost.rows(inputs), self.polytope)
        rows = self.cost.rows_to(inputs, self.outputs)
        found = self._solve(masses, rows, self.polytope.of(self.outputs))
        distribution, prices = np.zeros((2, size))
        distribution[self.outputs] = found.distribution
        if self.outputs.size < size:
            # The greatest prices that leave the nearest output of an input as near.
            nearest = (rows - found.prices).min(axis=1)
            whole = self.cost.rows(inputs)
            prices = (whole - nearest[:, np.newaxis]).min(axis=0)
        prices[self.outputs] = found.prices
        return dataclasses.replace(found, distribution=distribution, prices=prices)

    def _solve(
        self, masses: FloatArray, rows: FloatArray, inner: ldp_polytope.LdpPolytope
    ) -> solution.Solution:
        if self.algorithm is Algorithm.PRICE_ASCENT:
            problem = price_ascent.Problem(masses, rows, inner)
            return price_ascent.solve(problem, self.relative_gap)
        return column_generation.solve(masses, rows, inner, self.relative_gap)


def make_solver(
    cost: costs.TransportCost,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
) -> ExactSolver:
    """Returns the solver of a cost and a polytope."""
    algorithm = choose_algorithm(cost)
    # No output holds more than everything, and a bound beyond it loses digits.
    polytope = ldp_polytope.LdpPolytope(polytope.lower, np.minimum(polytope.upper, 1.0))
    outputs = np.arange(polytope.upper.size)
    if algorithm is Algorithm.PRICE_ASCENT:
        outputs = cost.near_order()
    outputs = outputs[polytope.upper[outputs] > 0]
    return ExactSolver(cost, polytope, relative_gap, algorithm, outputs)
