"""What the solvers hand back, and what users get."""

import dataclasses

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True, repr=False)
class Solution:
    """The solved projection of one user.

    Attributes:
        distribution: (k_v,) member of the polytope, up to rounding.
        prices: (k_v,) dual prices of the outputs.
        value: Cost of a feasible plan.
        rounds: Linear programs, or one.
    """

    distribution: FloatArray
    prices: FloatArray
    value: float
    rounds: int


@dataclasses.dataclass(frozen=True)
class ProjectionResult:
    """Represents a projection with its certificate; arrays for a batch.

    None of it is private: privacy is that of one draw from the distribution.

    Attributes:
        distribution: (k_v,) or (n, k_v), the projection.
        value: Cost of a plan that moves the input there: an upper bound.
        lower_bound: No member of the polytope can be reached for less.
        iterations: Rounds of the solver.
        converged: Whether the gap to the lower bound met the tolerance.
    """

    distribution: FloatArray
    value: FloatArray | float
    lower_bound: FloatArray | float
    iterations: npt.NDArray[np.int64] | int
    converged: npt.NDArray[np.bool_] | bool

    @property
    def gap(self) -> FloatArray | float:
        """The value above the lower bound: how far from optimal, at most."""
        return self.value - self.lower_bound
