"""The Wasserstein Projection Mechanism."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dp_accounting_ext.wpm import base_measures
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import sampling_mechanism
from dp_accounting_ext.wpm import worst_cases
from dp_accounting_ext.wpm.projections import entropic_projection
from dp_accounting_ext.wpm.projections import exact_projection

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
BaseMeasure = str | npt.ArrayLike


class WassersteinProjectionMechanism(sampling_mechanism.SamplingMechanism):
    """Represents a draw from the private law that is cheapest to reach from the input.

    Args:
        cost: (k, k_v) costs d(x_i, v_j)^p, as `cost_matrix` makes them, or a
            `TransportCost`, which needs no matrix. Public, and so must be any
            embedding that they come from.
        epsilon: The privacy parameter ε of one draw, at most 160.
        base_measure: "uniform" for the best uniform one, "minimax" for the least
            worst case, or (k_v,) masses m. Public: never made from the distributions
            to be protected.
        regularization: None for the exact projection; λ > 0 for the entropic one, in
            the unit of the costs. Public.
        relative_gap: By what share of its mean cost a draw may be farther from the
            input than the nearest private law's: of a draw 1 km away in the mean, a
            millionth is 1 mm. Of the entropic projection, whose regularisation costs
            far more, the share of the regularised problem. Public.
        max_iterations: The entropic projection stops then in any case.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.

    Source:
        https://arxiv.org/abs/2605.10015, Definition 3.1.
    """

    def __init__(
        self,
        cost: Any,
        epsilon: float,
        base_measure: BaseMeasure = "uniform",
        regularization: float | None = None,
        *,
        relative_gap: float = 1e-6,
        max_iterations: int = 5000,
    ) -> None:
        paid, privacy = costs.as_cost(cost), checks.epsilon(epsilon)
        self._gap = checks.relative_gap(relative_gap)
        self._entropic = entropic_projection.make_settings(
            regularization, self._gap, max_iterations
        )
        measure = resolve_base_measure(base_measure, paid, privacy)
        super().__init__(paid, privacy, measure)

    @classmethod
    def from_points(
        cls,
        points: npt.ArrayLike,
        epsilon: float,
        metric: costs.Metric = "euclidean",
        order: float = 1,
        base_measure: BaseMeasure = "uniform",
        *,
        outputs: npt.ArrayLike | None = None,
        **options: Any,
    ) -> "WassersteinProjectionMechanism":
        """Returns the mechanism for distances between points, without a matrix.

        Args:
            points: (k, dimensions) points, or (k,) on a line; latitudes and
                longitudes in degrees for the metric "haversine".
            epsilon: As for the class.
            metric: As for `PointCost`.
            order: The order p ≥ 1 of the Wasserstein distance.
            base_measure: As for the class.
            outputs: (k_v, dimensions) points that may be released; None for `points`.
            options: As for the class.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range.
        """
        cost = costs.PointCost(points, outputs, metric=metric, order=order)
        return cls(cost, epsilon, base_measure, **options)

    @classmethod
    def on_line(
        cls,
        inputs: npt.ArrayLike,
        outputs: npt.ArrayLike,
        epsilon: float,
        base_measure: BaseMeasure = "uniform",
        *,
        order: float = 1,
        **options: Any,
    ) -> "WassersteinProjectionMechanism":
        """Returns the mechanism for distances on a line, without a matrix.

        Args:
            inputs: (k,) places of the inputs.
            outputs: (k_v,) places of the outputs.
            epsilon: As for the class.
            base_measure: As for the class.
            order: The order p ≥ 1 of the Wasserstein distance.
            options: As for the class.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range.
        """
        cost = costs.LineCost(inputs, outputs, order=order)
        return cls(cost, epsilon, base_measure, **options)

    @classmethod
    def on_graph(
        cls,
        edges: Any,
        lengths: npt.ArrayLike | None = None,
        epsilon: float | None = None,
        base_measure: BaseMeasure = "uniform",
        *,
        order: float = 1,
        **options: Any,
    ) -> "WassersteinProjectionMechanism":
        """Returns the mechanism for shortest paths between nodes, without a matrix.

        Every node is both input and output; a base measure with zeros leaves out
        outputs.

        Args:
            edges: A scipy sparse matrix of lengths, or (e, 2) pairs of nodes, numbered
                from zero; passable both ways.
            lengths: (e,) positive lengths of the pairs; None for a sparse matrix.
            epsilon: As for the class; required.
            base_measure: As for the class.
            order: The order p ≥ 1 of the Wasserstein distance.
            options: As for the class.

        Raises:
            TypeError: If an argument has the wrong type.
            ValueError: If an argument is out of range, or the graph is not connected.
        """
        if lengths is not None and sparse.issparse(edges):
            write = f"; write epsilon={lengths}" if epsilon is None else ""
            raise TypeError(
                "lengths must be left out beside a sparse matrix, which carries them"
                f"{write}. Found a {type(lengths).__name__}."
            )
        if epsilon is None:
            raise TypeError(
                "epsilon must be a real number: it is required. Found none."
            )
        cost = (
            costs.GraphCost(edges, order=order)
            if lengths is None
            else costs.GraphCost.from_edges(edges, lengths, order=order)
        )
        return cls(cost, epsilon, base_measure, **options)

    @property
    def regularization(self) -> float | None:
        """The parameter λ of the entropic projection; None for the exact one."""
        return None if self._entropic is None else self._entropic.regularization

    @functools.cached_property
    def worst_case_cost(self) -> float:
        """The largest cost of any input: W_p to the power p.

        Above 3·10^7 pairs of inputs and outputs an upper bound of it, for a metric.
        """
        return worst_cases.worst_case_cost(
            self._base_measure, self._cost, self._epsilon
        )

    def _point_costs(self, inputs: IndexArray) -> FloatArray:
        points = worst_cases.PointCosts(self._cost, self._epsilon)
        return points.values(self._polytope.upper, inputs)

    def _excess(self, cost: float) -> float:
        stopped = self._gap * cost
        if self._entropic is None:
            return stopped
        strength, size = self._entropic.regularization, self._cost.shape[1]
        return stopped + entropic_projection.error_bound(strength, size)

    @functools.cached_property
    def _exact(self) -> exact_projection.ExactSolver:
        return exact_projection.make_solver(self._cost, self._polytope, self._gap)

    def _propose(self, inputs: IndexArray, masses: FloatArray) -> FloatArray:
        if self._entropic is None:
            found = self._exact.solve(inputs, masses)
        else:
            rows = self._cost.rows(inputs)
            found = entropic_projection.solve(
                masses, rows, self._polytope, self._entropic
            )
        return found.distribution

    def _identity(self) -> tuple[Any, ...]:
        return *super()._identity(), self._gap, self._entropic


def resolve_base_measure(
    value: BaseMeasure, cost: costs.TransportCost, epsilon: float
) -> FloatArray:
    """Returns the base measure that a user named or gave.

    Raises:
        TypeError: If it is neither a name nor an array of numbers.
        ValueError: If the name is unknown, or an array is out of range.
    """
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
    points: npt.ArrayLike, epsilon: float, *arguments: Any, **options: Any
) -> WassersteinProjectionMechanism:
    """Returns the mechanism for distances between points, without a matrix.

    Args:
        points: (k, dimensions) points, or (k,) on a line; latitudes and longitudes in
            degrees for `metric="haversine"`.
        epsilon: The privacy parameter ε of one draw.
        arguments: As for `WassersteinProjectionMechanism.from_points`.
        options: As for `WassersteinProjectionMechanism.from_points`.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
    """
    return WassersteinProjectionMechanism.from_points(
        points, epsilon, *arguments, **options
    )
