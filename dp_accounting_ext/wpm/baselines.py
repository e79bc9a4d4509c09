"""Mechanisms for comparison, with the same interface and the same guarantee."""

import math
from typing import Any

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import mechanism
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm import sampling_mechanism
from dp_accounting_ext.wpm.projections import ldp_polytope

# A share of the base measure in place of no mass. In the projection, outputs without
# mass are the last to get more than their least mass, all of them together.
_NEXT_TO_NOTHING = 1e-150
_STEPS = 300  # Far more than Newton's method takes.


class KLProjectionMechanism(sampling_mechanism.SamplingMechanism):
    """Represents a draw from the private law of least KL divergence from the input.

    Args:
        cost: (k, k) costs between inputs and outputs, which are the same points. They
            are used only by `worst_case_cost`, and for "minimax".
        epsilon: The privacy parameter ε of one draw.
        base_measure: "uniform" for the uniform measure with the scale that is optimal
            for every f-divergence, "minimax", or (k,) masses.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Section 2.2, after Park et al. 2024.
    """

    def __init__(
        self,
        cost: Any,
        epsilon: float,
        base_measure: mechanism.BaseMeasure = "uniform",
    ) -> None:
        paid, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
        size = paid.shape[1]
        if paid.shape[0] != size:
            raise ValueError(
                "cost must be square, as inputs and outputs must be the same points "
                f"for a divergence. Found shape {paid.shape}."
            )
        if isinstance(base_measure, str) and base_measure == "uniform":
            scale = math.exp(privacy / 2) / (math.exp(privacy) + size - 1)
            measure = np.full(size, scale)
        else:
            measure = mechanism.resolve_base_measure(base_measure, paid, privacy)
        super().__init__(paid, privacy, measure)

    def _propose(self, users: private_rows.PrivateRows) -> FloatArray:
        weights = np.tile(_NEXT_TO_NOTHING * self._base_measure, (len(users), 1))
        for user, row in enumerate(weights):
            inputs, masses = users.row(user)
            row[inputs] = np.maximum(masses, row[inputs])
        ones = np.ones(len(users))
        return ldp_polytope.kl_projection(weights, ones, self._polytope, _STEPS)[0]


class ExponentialMechanism(sampling_mechanism.SamplingMechanism):
    """Represents a draw that favours outputs of small mean cost.

    An output's probability is proportional to exp(−ε (μC)_j / (2Δ)), Δ the largest
    range of a column of costs. Its base measure is the smallest one that covers all of
    its laws. The least probability of every output is attained by a single-point input.

    Args:
        cost: (k, k_v) costs.
        epsilon: The privacy parameter ε of one draw.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Section 5.2.
    """

    def __init__(self, cost: Any, epsilon: float) -> None:
        paid, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
        rows = paid.matrix()
        sensitivity = float(np.ptp(rows, axis=0).max())
        self._rate = privacy / (2 * sensitivity) if sensitivity > 0 else 0.0
        # The logarithm of a probability is concave in the input, so that it is least at
        # a single point.
        least = self._laws(rows).min(axis=0)
        super().__init__(paid, privacy, math.exp(privacy / 2) * least)

    def _propose(self, users: private_rows.PrivateRows) -> FloatArray:
        rows = map(users.row, range(len(users)))
        return self._laws(np.stack([mass @ self._cost.rows(at) for at, mass in rows]))

    def _laws(self, mean_costs: FloatArray) -> FloatArray:
        logs = -self._rate * mean_costs
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
