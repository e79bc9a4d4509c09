"""The Wasserstein Projection Mechanism."""

import functools
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import sampling_mechanism
from dp_accounting_ext.wpm.base_measures import minimax_measure
from dp_accounting_ext.wpm.base_measures import point_costs
from dp_accounting_ext.wpm.base_measures import uniform_measure
from dp_accounting_ext.wpm.costs import dense_cost
from dp_accounting_ext.wpm.costs import graph_cost
from dp_accounting_ext.wpm.costs import line_cost
from dp_accounting_ext.wpm.costs import point_cost
from dp_accounting_ext.wpm.costs import transport_cost
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.exact import exact_projection

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
        relative_gap: The entropic projection stops at a certified gap of the
            regularised problem that is this share of the cost. What the
            regularisation itself costs is far more than 1e-3.
        max_iterations: It stops then in any case.
        algorithm: Of the entropic projection: "newton", or "paper" for
            `max_iterations` passes of the paper's Algorithm 1 (which takes 40).

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
        relative_gap: float = 1e-3,
        max_iterations: int = 5000,
        algorithm: str = "newton",
    ) -> None:
        costs, privacy = dense_cost.as_cost(cost), checks.epsilon(epsilon)
        self._entropic = entropic_projection.make_settings(
            regularization, relative_gap, max_iterations, algorithm
        )
        measure = resolve_base_measure(base_measure, costs, privacy)
        super().__init__(costs, privacy, measure)

    @classmethod
    def from_points(
        cls,
        points: npt.ArrayLike,
        epsilon: float,
        metric: point_cost.Metric = "euclidean",
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
        cost = point_cost.PointCost(points, outputs, metric=metric, order=order)
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
        cost = line_cost.LineCost(inputs, outputs, order=order)
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
            graph_cost.GraphCost(edges, order=order)
            if lengths is None
            else graph_cost.GraphCost.from_edges(edges, lengths, order=order)
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
        return point_costs.worst_case_cost(
            self._base_measure, self._cost, self._epsilon
        )

    @functools.cached_property
    def _exact(self) -> exact_projection.ExactSolver:
        return exact_projection.make_solver(self._cost, self._polytope)

    def _propose(self, inputs: IndexArray, masses: FloatArray) -> FloatArray:
        if self._entropic is None:
            found = self._exact.solve(inputs, masses)
        else:
            rows = self._cost.rows(inputs)
            found = entropic_projection.solve(
                masses, rows, self._polytope, self._entropic
            )
        return np.asarray(found.distributions[0])

    def _identity(self) -> tuple[Any, ...]:
        return *super()._identity(), self._entropic


def resolve_base_measure(
    value: BaseMeasure, cost: transport_cost.TransportCost, epsilon: float
) -> FloatArray:
    """Returns the base measure that a user named or gave.

    Raises:
        TypeError: If it is neither a name nor an array of numbers.
        ValueError: If the name is unknown, or an array is out of range.
    """
    if not isinstance(value, str):
        return checks.base_measure(value, cost.shape[1], epsilon)
    named: dict[str, Any] = {
        "uniform": uniform_measure.uniform_base_measure,
        "minimax": minimax_measure.minimax_base_measure,
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
