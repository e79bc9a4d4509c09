"""What the solvers hand back, and what users get."""

from collections.abc import Sequence
import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
BoolArray = npt.NDArray[np.bool_]


@dataclasses.dataclass(frozen=True)
class Solution:
    """The solved projection of one user.

    Attributes:
        distribution: (k_v,) member of the polytope, up to rounding.
        prices: (k_v,) dual prices of the outputs.
        value: Cost of a feasible plan.
        rounds: Iterations, or rounds.
        converged: Whether the solver's own criterion was met.
        regularized_gap: Certified gap of the regularised problem, zero where there is
            no regularisation.
    """

    distribution: FloatArray
    prices: FloatArray
    value: float
    rounds: int
    converged: bool
    regularized_gap: float = 0.0


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


def as_result(
    parts: Sequence[Solution], bounds: Sequence[float], size: int, *, batch: bool
) -> ProjectionResult:
    """Returns what users get: arrays for a batch, numbers for one alone.

    Args:
        parts: Solutions of n users, or of none.
        bounds: (n,) what their prices prove.
        size: The number k_v of outputs.
        batch: Whether users came as rows.
    """
    if not batch:
        part = parts[0]
        return ProjectionResult(
            part.distribution,
            part.value,
            bounds[0],
            part.regularized_gap,
            part.rounds,
            part.converged,
        )

    def column(name: str, kind: Any) -> npt.NDArray[Any]:
        return np.array([getattr(part, name) for part in parts], dtype=kind)

    return ProjectionResult(
        column("distribution", np.float64).reshape(len(parts), size),
        column("value", np.float64),
        np.array(bounds, dtype=np.float64),
        column("regularized_gap", np.float64),
        column("rounds", np.int64),
        column("converged", np.bool_),
    )
