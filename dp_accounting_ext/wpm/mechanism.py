"""The Wasserstein Projection Mechanism, and two others to compare it with."""

import functools
import math
from typing import Any
import warnings

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import base_measures
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import far_places
from dp_accounting_ext.wpm import integer_weights
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm import sampling_mechanism
from dp_accounting_ext.wpm import worst_cases
from dp_accounting_ext.wpm.projections import certified_projection
from dp_accounting_ext.wpm.projections import entropic
from dp_accounting_ext.wpm.projections import ldp_polytope

BaseMeasure = str | npt.ArrayLike

# The bits of the number that chooses a place of a user: those of a float.
_BITS = 53
# For KL projections: a share of the base measure in place of no mass, with which
# outputs without mass are the last to get more than their least mass, all of them
# together; and far more steps than Newton's method takes.
_NEXT_TO_NOTHING, _STEPS = 1e-150, 300


class WassersteinProjectionMechanism(sampling_mechanism.SamplingMechanism):
    """Represents a draw from the private law that is cheapest to reach from the input.

    Args:
        cost: (k, k_v) costs d(x_i, v_j)^p, or a `TransportCost`, which needs no
            matrix. Costs are public, and so must be any embedding that they come from.
        epsilon: The privacy parameter ε of one draw, at most 160.
        base_measure: "uniform" for the best uniform measure, "minimax" for the measure
            of the least worst-case cost, or (k_v,) masses m. The measure is public: it
            must not be made from the distributions to be protected.
        relative_gap: The largest allowed excess of the mean cost of a draw over the
            least one of a private law, as a share of it. For example, with 1e-6 a draw
            that is 1 km away on average may be 1 mm further away than necessary. It is
            public.
        regularization: None for exact projections; or λ > 0, in the unit of costs, for
            Algorithm 1. It is faster for many places, and further from the input, by
            how much `project` proves. Draws are as private.
        iterations: The number of passes of Algorithm 1, the same for all users.
        linear: Whether to draw one of a user's own places first, and then from the law
            of users who have all mass there. No program is solved. ε and the
            worst-case cost are the same; the cost of other users is larger. A server
            can estimate more from such draws, as their law is linear in the
            distribution (up to rounding of 2^-50): see `likeliest_population`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or λ below 1/600 of the largest
            cost, or a linear mechanism is to be regularized.

    Source:
        https://arxiv.org/abs/2605.10015, Definition 3.1 and Algorithm 1.
    """

    def __init__(
        self,
        cost: Any,
        epsilon: float,
        base_measure: BaseMeasure = "uniform",
        *,
        relative_gap: float = 1e-6,
        regularization: float | None = None,
        iterations: int = 40,
        linear: bool = False,
    ) -> None:
        transport_cost, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
        self._gap = fields.inner_probability("relative_gap", relative_gap)
        passes = fields.positive_integer("iterations", iterations)
        measure = resolve_base_measure(base_measure, transport_cost, privacy)
        super().__init__(transport_cost, privacy, measure)
        self._is_linear = fields.flag("linear", linear)
        self._entropic: entropic.EntropicSolver | None = None
        if regularization is not None:
            if self._is_linear:
                raise ValueError(
                    "linear must be False with regularization, as linear draws need no "
                    "projection. Found True."
                )
            self._entropic = entropic.EntropicSolver(
                transport_cost, self._polytope, regularization, passes
            )

    @property
    def is_linear(self) -> bool:
        """Whether the law of a draw is linear in the distribution."""
        return self._is_linear

    @property
    def regularization(self) -> float | None:
        """The regularization λ of Algorithm 1, or None."""
        return None if self._entropic is None else self._entropic.regularization

    @functools.cached_property
    def worst_case_cost(self) -> float:
        """The largest cost of any input, with regularization of any single point.

        It is W_p to the power p. For more than 10^7 pairs of inputs and outputs and a
        metric, it is an upper bound.
        """
        inputs, outputs = self._cost.shape
        if self._entropic is not None and inputs * outputs <= worst_cases.MOST_PAIRS:
            return float(self._point_costs(np.arange(inputs)).max())
        worst = worst_cases.worst_case_cost(
            self._base_measure, self._cost, self._epsilon
        )
        if self._entropic is None:
            return worst
        # One pass finds the regularized law of a point, and entropies are below log k.
        return worst + self._entropic.regularization * math.log(outputs)

    def _point_costs(self, inputs: IndexArray) -> FloatArray:
        if self._entropic is not None:
            return super()._point_costs(inputs)
        upper = self._polytope.upper
        return worst_cases.point_costs(upper, self._cost, self._epsilon, inputs)

    def _excess(self, cost: float) -> float:
        is_solved = self._entropic is None and not self._is_linear
        return cost * self._gap / (1 - self._gap) if is_solved else 0.0

    @functools.cached_property
    def _exact(self) -> certified_projection.ExactSolver:
        return certified_projection.ExactSolver(self._cost, self._polytope, self._gap)

    def _propose(self, users: private_rows.PrivateRows) -> FloatArray:
        if self._entropic is not None:
            return self._entropic.solve(users)[0]
        law = self._mixed if self._is_linear else self._projected
        return np.stack([law(*users.row(user)) for user in range(len(users))])

    def _projected(self, inputs: IndexArray, masses: FloatArray) -> FloatArray:
        return self._exact.solve(inputs, masses).distribution

    def _mixed(self, inputs: IndexArray, masses: FloatArray) -> FloatArray:
        """Returns the mixture of the nearest laws of single inputs."""
        rows = self._cost.rows(inputs)
        return masses @ ldp_polytope.cheapest(rows, self._polytope)

    def _draws(
        self, users: private_rows.PrivateRows, source: np.random.Generator | None
    ) -> IntArray:
        if not self._is_linear:
            return super()._draws(users, source)
        # Any law of these places is private, as the draw from each of them is.
        places = np.empty(len(users), dtype=np.intp)
        for user in range(len(users)):
            inputs, masses = users.row(user)
            shares = np.cumsum(masses)
            chance = integer_weights.uniform(_BITS, source) / 2.0**_BITS
            place = int(np.searchsorted(shares, chance * shares[-1], side="right"))
            places[user] = inputs[min(place, inputs.size - 1)]
        points = private_rows.PrivateRows.of_points(places, self._cost.shape[0])
        return super()._draws(points, source)


def resolve_base_measure(
    value: BaseMeasure, cost: costs.TransportCost, epsilon: float
) -> FloatArray:
    """Returns the base measure that was given, or that has the given name."""
    if not isinstance(value, str):
        return checks.base_measure(value, cost.shape[1], epsilon)
    named: dict[str, Any] = {
        "uniform": base_measures.uniform_base_measure,
        "minimax": base_measures.minimax_base_measure,
    }
    if value not in named:
        raise ValueError(
            f'base_measure must be "uniform", "minimax" or an array. Found {value!r}.'
        )
    return np.asarray(named[value](cost, epsilon).base_measure)


def from_points(
    points: npt.ArrayLike,
    epsilon: float,
    metric: str | None = None,
    order: float = 1,
    base_measure: BaseMeasure = "uniform",
    *,
    outputs: npt.ArrayLike | None = None,
    **options: Any,
) -> WassersteinProjectionMechanism:
    """Returns the mechanism for distances between points, without a matrix.

    Args:
        points: As for `PointCost`.
        epsilon: The privacy parameter ε of one draw.
        metric: As for `PointCost`. By default it is "euclidean", with a warning if
            points look like latitudes and longitudes.
        order: The order p ≥ 1 of the Wasserstein distance.
        base_measure: As for `WassersteinProjectionMechanism`.
        outputs: (k_v, dimensions) points that may be released; None for `points`.
        **options: Other arguments of `WassersteinProjectionMechanism`. λ is in the unit
            of distances to the power p.

    Warnings, which depend on public values alone, are issued if points look like
    degrees and no metric is named, if some points seem to have latitude and longitude
    swapped, and if outputs are far from all points.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.
    """
    cost = costs.PointCost(points, outputs, metric=metric or "euclidean", order=order)
    warned = [far_places.warning_of_points(points, metric)]
    if outputs is not None:
        warned.append(far_places.distance_to_points(cost, "outputs", outputs)[1])
    for words in filter(None, warned):
        warnings.warn(words, stacklevel=2)
    return WassersteinProjectionMechanism(cost, epsilon, base_measure, **options)


class KLProjectionMechanism(sampling_mechanism.SamplingMechanism):
    """Represents a draw from the private law of least KL divergence from the input.

    Args:
        cost: (k, k) costs between inputs and outputs, which are the same points. They
            are used only by `worst_case_cost`, and for "minimax".
        epsilon: The privacy parameter ε of one draw.
        base_measure: "uniform" for the uniform measure with the scale that is optimal
            for every f-divergence, "minimax", or (k,) masses.

    Raises:
        TypeError, ValueError: If an argument has the wrong type or is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Section 2.2, after Park et al. 2024.
    """

    def __init__(
        self,
        cost: Any,
        epsilon: float,
        base_measure: BaseMeasure = "uniform",
    ) -> None:
        transport_cost, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
        size = transport_cost.shape[1]
        if transport_cost.shape[0] != size:
            raise ValueError(
                "cost must be square, as inputs and outputs must be the same points "
                f"for a divergence. Found shape {transport_cost.shape}."
            )
        if isinstance(base_measure, str) and base_measure == "uniform":
            scale = math.exp(privacy / 2) / (math.exp(privacy) + size - 1)
            measure = np.full(size, scale)
        else:
            measure = resolve_base_measure(base_measure, transport_cost, privacy)
        super().__init__(transport_cost, privacy, measure)

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
        TypeError, ValueError: If an argument has the wrong type or is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Section 5.2.
    """

    def __init__(self, cost: Any, epsilon: float) -> None:
        transport_cost, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
        rows = transport_cost.matrix()
        sensitivity = float(np.ptp(rows, axis=0).max())
        self._rate = privacy / (2 * sensitivity) if sensitivity > 0 else 0.0
        # The logarithm of a probability is concave in the input, so that it is least at
        # a single point.
        minima = self._laws(rows).min(axis=0)
        super().__init__(transport_cost, privacy, math.exp(privacy / 2) * minima)

    def _propose(self, users: private_rows.PrivateRows) -> FloatArray:
        rows = map(users.row, range(len(users)))
        return self._laws(np.stack([mass @ self._cost.rows(at) for at, mass in rows]))

    def _laws(self, mean_costs: FloatArray) -> FloatArray:
        logs = -self._rate * mean_costs
        weights = np.exp(logs - logs.max(axis=1, keepdims=True))
        return np.asarray(weights / weights.sum(axis=1, keepdims=True))
