"""Mechanisms to compare with, with the same interface and the same guarantee."""

import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import mechanism
from dp_accounting_ext.wpm import sampling_mechanism
from dp_accounting_ext.wpm.projections import ldp_polytope

FloatArray = npt.NDArray[np.float64]

# In the place of log 0: outputs without mass rise last, and as one.
_LOG_OF_NOTHING = -2000.0


class KLProjectionMechanism(sampling_mechanism.SamplingMechanism):
    """Represents a draw from the private law of least KL divergence from the input.

    Args:
        cost: (k, k) costs between inputs and outputs, which are the same points; they
            only serve `worst_case_cost`, and "minimax".
        epsilon: The privacy parameter ε of one draw.
        base_measure: "uniform" for the uniform one of the scale that is optimal for
            every f-divergence, "minimax", or (k,) masses.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Section 2.2, after Park et al. 2024.
    """

    def __init__(
        self,
        cost: npt.ArrayLike,
        epsilon: float,
        base_measure: str | npt.ArrayLike = "uniform",
    ) -> None:
        matrix, privacy = checks.cost(cost), checks.epsilon(epsilon)
        size = matrix.shape[1]
        if matrix.shape[0] != size:
            raise ValueError(
                "cost must be square, as inputs and outputs must be the same points "
                f"for a divergence. Found shape {matrix.shape}."
            )
        if isinstance(base_measure, str) and base_measure == "uniform":
            scale = math.exp(privacy / 2) / (math.exp(privacy) + size - 1)
            measure = np.full(size, scale)
        else:
            measure = mechanism.resolve_base_measure(base_measure, matrix, privacy)
        super().__init__(matrix, privacy, measure)

    def _propose(self, users: FloatArray) -> FloatArray:
        allowed = self._base_measure > 0
        inner = ldp_polytope.LdpPolytope(
            self._polytope.lower[allowed], self._polytope.upper[allowed]
        )
        masses = users[:, allowed]
        floor = np.log(self._base_measure[allowed]) + _LOG_OF_NOTHING
        with np.errstate(divide="ignore"):
            logs = np.where(masses > 0, np.log(masses), floor)
        laws = np.zeros_like(users)
        laws[:, allowed] = ldp_polytope.kl_projection(logs, inner)
        return laws


class ExponentialMechanism(sampling_mechanism.SamplingMechanism):
    """Represents a draw that favours outputs of small mean cost.

    An output's probability is proportional to exp(−ε (μC)_j / (2Δ)), Δ the largest
    range of a column of costs. Its base measure is the least that covers it: for
    every output, its least probability is that of a single-point input.

    Args:
        cost: (k, k_v) costs.
        epsilon: The privacy parameter ε of one draw.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Section 5.2.
    """

    def __init__(self, cost: npt.ArrayLike, epsilon: float) -> None:
        matrix, privacy = checks.cost(cost), checks.epsilon(epsilon)
        sensitivity = float(np.ptp(matrix, axis=0).max())
        self._rate = privacy / (2 * sensitivity) if sensitivity > 0 else 0.0
        # The logarithm of a probability is concave in the input.
        least = self._laws(matrix).min(axis=0)
        super().__init__(matrix, privacy, math.exp(privacy / 2) * least)

    def _propose(self, users: FloatArray) -> FloatArray:
        return self._laws(users @ self._cost)

    def _laws(self, mean_costs: FloatArray) -> FloatArray:
        logs = -self._rate * mean_costs
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
