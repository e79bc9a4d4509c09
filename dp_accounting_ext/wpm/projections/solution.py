"""What the solvers hand back, and what users get."""

import dataclasses

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Solution:
    """Solved projections of n users.

    Attributes:
        distributions: (n, k_v) members of the polytope, up to rounding.
        prices: (n, k_v) dual prices of the outputs.
        values: (n,) costs of feasible plans.
        regularized_gaps: (n,) certified gaps of the regularised problem, zero where
            there is no regularisation.
        iterations: (n,) iterations or rounds.
        converged: (n,) whether the solver's own criterion was met.
    """

    distributions: FloatArray
    prices: FloatArray
    values: FloatArray
    regularized_gaps: FloatArray
    iterations: IntArray
    converged: BoolArray


def one_user(
    distribution: FloatArray,
    prices: FloatArray,
    value: float,
    rounds: int,
    converged: bool,
) -> Solution:
    """Returns the exact solution of one user."""
    return Solution(
        distribution[np.newaxis],
        prices[np.newaxis],
        np.array([value]),
        np.zeros(1),
        np.array([rounds]),
        np.array([converged]),
    )


def joined(parts: list[Solution], size: int) -> Solution:
    """Returns solutions of some users, or of none, as one of k_v outputs."""
    none = Solution(
        np.empty((0, size)),
        np.empty((0, size)),
        np.empty(0),
        np.empty(0),
        np.empty(0, dtype=np.int64),
        np.empty(0, dtype=np.bool_),
    )
    fields = (field.name for field in dataclasses.fields(Solution))
    everything = [none, *parts]
    return Solution(
        *(np.concatenate([getattr(one, name) for one in everything]) for name in fields)
    )


@dataclasses.dataclass(frozen=True)
class ProjectionResult:
    """Represents a projection with its certificate; arrays for a batch.

    None of it is private: privacy is that of one draw from the distribution.

    Attributes:
        distribution: (k_v,) or (n, k_v), the projection.
        value: Cost of a plan that moves the input there: an upper bound.
        lower_bound: No member of the polytope can be reached for less.
        regularized_gap: Certified gap of the regularised problem, which the
            iteration stops on; zero for the exact projection.
        iterations: Iterations of the entropic projection, rounds of the exact one.
        converged: Whether the certified gap met the tolerance: that to the lower
            bound for the exact projection, `regularized_gap` for the entropic one.
    """

    distribution: FloatArray
    value: FloatArray | float
    lower_bound: FloatArray | float
    regularized_gap: FloatArray | float
    iterations: IntArray | int
    converged: BoolArray | bool

    @property
    def gap(self) -> FloatArray | float:
        """The value above the lower bound: how far from optimal, at most."""
        return self.value - self.lower_bound

    def first(self) -> "ProjectionResult":
        """Returns the result of the only user, as numbers."""
        return ProjectionResult(
            np.atleast_2d(self.distribution)[0],
            np.atleast_1d(self.value)[0].item(),
            np.atleast_1d(self.lower_bound)[0].item(),
            np.atleast_1d(self.regularized_gap)[0].item(),
            np.atleast_1d(self.iterations)[0].item(),
            np.atleast_1d(self.converged)[0].item(),
        )
