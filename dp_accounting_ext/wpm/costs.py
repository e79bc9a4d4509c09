"""What a unit of mass costs to move: powers of distances, a row for each input.

A matrix, points in a space or on a sphere, places on a line, nodes of a graph. No
matrix of all inputs and outputs need exist: a projection asks for the rows of the
inputs that hold mass. All of it is public.
"""

import abc
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy import spatial
from scipy.sparse import csgraph
from scipy.spatial import distance

from dp_accounting_ext.wpm import checks

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
Metric = str | Callable[[FloatArray, FloatArray], float]

# The mean radius of the Earth, in kilometres (IUGG).
EARTH_RADIUS = 6371.0088
_METRICS = frozenset({"euclidean", "cityblock", "chebyshev", "haversine"})
# Rounding may take a cosine distance of zero below it by this.
_ROUNDING = 1e-12


class TransportCost(abc.ABC):
    """Represents costs C_ij = d(x_i, v_j)^p of moving a unit of mass.

    No matrix of all inputs and outputs need exist: a projection asks for the rows of
    the inputs that hold mass. All of it is public.

    Attributes:
        shape: The numbers (k, k_v) of inputs and outputs.
        metric_order: The order p if d is a metric that `between_inputs` gives; None
            if it is not known to be one. Then φ_i, the cost of the worst case, is
            known between inputs: its p-th root differs by at most their distance.
    """

    shape: tuple[int, int]
    metric_order: float | None = None

    @abc.abstractmethod
    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        """Returns the (n, k_v) costs of n inputs, by their indices."""

    def matrix(self) -> FloatArray:
        """Returns all (k, k_v) costs: for small ones."""
        return self.rows(np.arange(self.shape[0]))

    def between_inputs(self, place: int) -> FloatArray:
        """Returns the (k,) distances d between one input and all.

        Raises:
            ValueError: If `metric_order` is None: the cost is of no metric.
        """
        raise ValueError(
            "cost must be of a metric between inputs. "
            f"Found a {type(self).__name__} without one."
        )

    def near_order(self) -> IndexArray:
        """Returns the outputs in an order that has near ones near one another.

        Any order serves; a good one makes coarse pictures of the outputs good.
        """
        return np.arange(self.shape[1])

    def _identity(self) -> tuple[Any, ...]:
        """Returns what makes two costs of one class equal."""
        return (self.matrix(),)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, TransportCost):
            return NotImplemented
        pairs = zip(self._identity(), other._identity(), strict=True)
        return all(np.array_equal(one, two) for one, two in pairs)

    def __hash__(self) -> int:
        return hash((type(self), self.shape))

    def __repr__(self) -> str:
        inputs, outputs = self.shape
        return f"{type(self).__name__}({inputs} inputs, {outputs} outputs)"


class DenseCost(TransportCost):
    """Represents a matrix of costs.

    Args:
        matrix: (k, k_v) costs.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not a matrix, or some are negative or not finite.
    """

    def __init__(self, matrix: npt.ArrayLike) -> None:
        self._matrix = checks.cost(matrix)
        self.shape = (self._matrix.shape[0], self._matrix.shape[1])

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        return np.asarray(self._matrix[np.asarray(inputs, dtype=np.intp)])

    def matrix(self) -> FloatArray:
        return self._matrix

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Returns the matrix, so that a cost serves where a matrix is asked for."""
        if copy is False:
            return np.asarray(self._matrix, dtype=dtype)
        return np.array(self._matrix, dtype=dtype)


def as_cost(value: Any) -> TransportCost:
    """Returns a cost as it is, or a matrix as one.

    Raises:
        TypeError: If a matrix is not one of real numbers.
        ValueError: If its shape or an entry is wrong.
    """
    if isinstance(value, TransportCost):
        return value
    return DenseCost(value)


class PointCost(TransportCost):
    """Represents powers of distances between points.

    Args:
        points: (k, dimensions) points x_i that a distribution may have mass on, or
            (k,) on a line; latitudes and longitudes in degrees for "haversine".
        outputs: (k_v, dimensions) points v_j that may be released; None for `points`.
        metric: "haversine" for kilometres on a sphere, a metric of
            `scipy.spatial.distance.cdist` that needs no parameters, or a function of
            two points.
        order: The order p ≥ 1 of the Wasserstein distance.

    Raises:
        TypeError: If the points, the order or a distance are not real numbers.
        ValueError: If points are not finite or differ in dimension, the metric is
            unknown, the order is below one, or powers of distances are too large to
            be summed.
    """

    def __init__(
        self,
        points: npt.ArrayLike,
        outputs: npt.ArrayLike | None = None,
        *,
        metric: Metric = "euclidean",
        order: float = 1,
    ) -> None:
        self._order = checks.order(order)
        if not isinstance(metric, str) and not callable(metric):
            raise TypeError(
                f"metric must be a name or a function of two points. Found {metric!r}."
            )
        self._metric: Any = metric
        self._points = checks.points("points", points)
        self._outputs = self._points
        if outputs is not None:
            self._outputs = checks.points("outputs", outputs)
        if self._points.shape[1] != self._outputs.shape[1]:
            raise ValueError(
                "points and outputs must be of one dimension. "
                f"Found {self._points.shape[1]} and {self._outputs.shape[1]}."
            )
        if metric == "haversine":
            self._points = on_sphere("points", self._points)
            self._outputs = on_sphere("outputs", self._outputs)
        self.shape = (len(self._points), len(self._outputs))
        if isinstance(metric, str) and metric in _METRICS:
            self.metric_order = self._order
        # A bad metric is found out here, and not at the first projection, whose error
        # would be that of a private distribution.
        if not isinstance(metric, str):
            _check_number(metric(self._points[0], self._outputs[0]))
        try:
            self._distances(self._points[:1], self._outputs)
            self._distances(self._points, self._outputs[:1])
        except ValueError as error:
            if "Unknown Distance Metric" not in str(error):
                raise
            raise ValueError(
                'metric must be "haversine", for degrees, a function, or of '
                'scipy.spatial.distance.cdist, as "euclidean" and "cityblock" are. '
                f"Found {metric!r:.60}."
            ) from None
        if self.metric_order is not None:
            # No two points are further apart than corners of a box around all.
            low, high = (
                end([end(self._points, axis=0), end(self._outputs, axis=0)], axis=0)
                for end in (np.min, np.max)
            )
            extent = self._distances(low[np.newaxis], high[np.newaxis])[0, 0]
            checks.largest_distance("points", extent, self._order)

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        chosen = self._points[np.asarray(inputs, dtype=np.intp)]
        found = self._distances(chosen, self._outputs)
        if self.metric_order is None:
            checks.largest_distance("points", float(found.max()), self._order)
        if self._order != 1:
            found **= self._order
        return found

    def between_inputs(self, place: int) -> FloatArray:
        return np.asarray(
            self._distances(self._points[place : place + 1], self._points)[0]
        )

    def near_order(self) -> IndexArray:
        return np.asarray(spatial.cKDTree(self._outputs).indices, dtype=np.intp)

    def nearest_inputs(self, places: npt.ArrayLike) -> IndexArray:
        """Returns the (n,) indices of the points nearest to n places.

        Raises:
            TypeError: If the places are not real numbers.
            ValueError: If they are not finite, or of another dimension.
        """
        found = checks.points("trace", places)
        if self._metric == "haversine":
            found = on_sphere("trace", found)
        if found.shape[1] != self._points.shape[1]:
            raise ValueError(
                "trace must have the dimension of the points. "
                f"Found {found.shape[1]} and {self._points.shape[1]}."
            )
        norms = {"euclidean": 2.0, "haversine": 2.0, "cityblock": 1.0}
        if isinstance(self._metric, str) and self._metric in norms:
            tree = spatial.cKDTree(self._points)
            return np.asarray(tree.query(found, p=norms[self._metric])[1], np.intp)
        each = [self._distances(place[np.newaxis], self._points) for place in found]
        return np.array([int(one.argmin()) for one in each], dtype=np.intp)

    def _distances(self, left: FloatArray, right: FloatArray) -> FloatArray:
        if self._metric == "haversine":
            chords = distance.cdist(left, right)
            return np.asarray(2 * EARTH_RADIUS * np.arcsin(np.minimum(chords / 2, 1)))
        found = np.asarray(distance.cdist(left, right, self._metric), dtype=np.float64)
        found[(found < 0) & (found > -_ROUNDING)] = 0.0
        # A metric of SciPy's is finite for finite points, but for those of direction.
        if self.metric_order is None:
            checks.cost(found)
        return found

    def _identity(self) -> tuple[Any, ...]:
        return self._points, self._outputs, self._metric, self._order


def on_sphere(name: str, places: FloatArray) -> FloatArray:
    """Returns (n, 3) places on the unit sphere, of latitudes and longitudes.

    Raises:
        ValueError: If there are not two columns, a latitude is beyond a pole, or a
            longitude beyond a whole turn.
    """
    if places.shape[1] != 2:
        raise ValueError(
            f'{name} must have two columns for metric "haversine": latitudes and '
            f"longitudes, in degrees. Found {places.shape[1]}."
        )
    beyond = np.abs(places[:, 0]) > 90
    if beyond.any():
        found = "a latitude beyond a pole"
        if name != "trace":  # Which is private, and so are the values in it.
            found += f", {places[beyond][0, 0]:g}"
        raise ValueError(
            f'{name} must have latitudes in [-90, 90] for metric "haversine", in the '
            f"first column. Found {found}."
        )
    beyond = np.abs(places[:, 1]) > 360
    if beyond.any():
        found = "one beyond"
        if name != "trace":
            found = f"{places[beyond][0, 1]:g}"
        raise ValueError(
            f'{name} must have longitudes in [-360, 360] for metric "haversine", in '
            f"the second column. Found {found}."
        )
    latitudes, longitudes = np.radians(places).T
    return np.column_stack(
        [
            np.cos(latitudes) * np.cos(longitudes),
            np.cos(latitudes) * np.sin(longitudes),
            np.sin(latitudes),
        ]
    )


def _check_number(found: Any) -> None:
    """Checks what a function of two points returns.

    Raises:
        TypeError: If it is no real number.
    """
    try:
        if not isinstance(found, str | bytes):
            float(found)
            return
    except (TypeError, ValueError):
        pass
    raise TypeError(f"metric must return a real number. Found {found!r:.60}.")


def counts_at(
    points: npt.ArrayLike, trace: npt.ArrayLike, *, metric: Metric = "euclidean"
) -> npt.NDArray[np.int64]:
    """Returns how often a trace is at each point, by the nearest one.

    Args:
        points: (k, dimensions) public points; latitudes and longitudes in degrees
            for "haversine".
        trace: (n, dimensions) private places.
        metric: As for `PointCost`.

    Returns:
        (k,) counts, which a mechanism takes as a distribution. Private, as the trace.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not finite, or differ in dimension.
    """
    nearest = PointCost(points, metric=metric).nearest_inputs(trace)
    counts = np.bincount(nearest, minlength=np.shape(points)[0])
    return np.asarray(counts, dtype=np.int64)


class LineCost(TransportCost):
    """Represents powers of distances on a line.

    Args:
        inputs: (k,) places that a distribution may have mass on.
        outputs: (k_v,) places that may be released; None for `inputs`.
        order: The order p ≥ 1 of the Wasserstein distance.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not lists of finite ones, the order is below one, or
            powers of their distances are too large to be summed.
    """

    def __init__(
        self,
        inputs: npt.ArrayLike,
        outputs: npt.ArrayLike | None = None,
        *,
        order: float = 1,
    ) -> None:
        self.order = self.metric_order = checks.order(order)
        self.inputs = checks.places("inputs", inputs)
        self.outputs = self.inputs
        if outputs is not None:
            self.outputs = checks.places("outputs", outputs)
        both = self.inputs, self.outputs
        with np.errstate(over="ignore"):
            extent = max(map(np.max, both)) - min(map(np.min, both))
        checks.largest_distance("places", extent, self.order)
        self.shape = (self.inputs.size, self.outputs.size)

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        chosen = self.inputs[np.asarray(inputs, dtype=np.intp)]
        found = np.subtract.outer(chosen, self.outputs)
        np.abs(found, out=found)
        if self.order != 1:
            found **= self.order
        return np.asarray(found)

    def between_inputs(self, place: int) -> FloatArray:
        return np.asarray(np.abs(self.inputs - self.inputs[place]))

    def near_order(self) -> IndexArray:
        return np.argsort(self.outputs, kind="stable")

    def _identity(self) -> tuple[Any, ...]:
        return self.inputs, self.outputs, self.order


class GraphCost(TransportCost):
    """Represents powers of the lengths of shortest paths between nodes.

    Every node is both input and output; a base measure with zeros leaves out outputs.

    Args:
        graph: (k, k) scipy sparse matrix of positive lengths, passable both ways.
        order: The order p ≥ 1 of the Wasserstein distance.

    Raises:
        TypeError: If it is no sparse matrix of real numbers.
        ValueError: If it is not square, a length is not positive and finite, or the
            graph is not connected, or powers of distances are too large to be summed.
    """

    def __init__(self, graph: Any, *, order: float = 1) -> None:
        is_sparse: bool = sparse.issparse(graph)
        if not is_sparse:
            raise TypeError(
                f"graph must be a scipy sparse matrix. Found a {type(graph).__name__}."
            )
        self.order = self.metric_order = checks.order(order)
        given = graph.tocoo()
        if given.shape[0] != given.shape[1] or not given.shape[0]:
            raise ValueError(f"graph must be square. Found shape {given.shape}.")
        # Those that are named twice are added, as numbers that do not wrap.
        entries = checks.array("lengths", given.data)
        table = sparse.csr_matrix((entries, (given.row, given.col)), shape=given.shape)
        lengths = checks.lengths(table.data)
        size = int(table.shape[0])
        self._graph = sparse.csr_matrix(
            (lengths, table.indices, table.indptr), shape=table.shape
        )
        pieces, _ = csgraph.connected_components(self._graph, directed=False)
        if pieces > 1:
            raise ValueError(f"graph must be connected. Found {pieces} pieces.")
        self.shape = (size, size)
        # No two nodes are further apart than by way of the first.
        furthest = 2 * float(self.between_inputs(0).max())
        checks.largest_distance("lengths", furthest, self.order)

    @classmethod
    def from_edges(
        cls, edges: npt.ArrayLike, lengths: npt.ArrayLike, *, order: float = 1
    ) -> "GraphCost":
        """Returns the cost of a list of edges.

        Args:
            edges: (e, 2) pairs of nodes, numbered from zero, passable both ways; of
                parallel ones the shortest counts.
            lengths: (e,) positive lengths.
            order: As for the class.

        Raises:
            TypeError: If the nodes are not integers or the lengths not real numbers.
            ValueError: If shapes do not match, or values are out of range.
        """
        pairs = _pairs(edges)
        found = checks.lengths(lengths)
        if found.shape != (len(pairs),):
            raise ValueError(
                f"lengths must have an entry for each of the {len(pairs)} edges. "
                f"Found shape {found.shape}."
            )
        # Sparse matrices add up parallel edges: only the shortest may stay.
        ends = np.sort(pairs, axis=1)
        order_of = np.lexsort((found, ends[:, 1], ends[:, 0]))
        _, first = np.unique(ends[order_of], axis=0, return_index=True)
        kept = order_of[first]
        size = int(pairs.max()) + 1
        return cls(
            sparse.csr_matrix(
                (found[kept], (ends[kept, 0], ends[kept, 1])), shape=(size, size)
            ),
            order=order,
        )

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        chosen = np.asarray(inputs, dtype=np.intp)
        found = np.atleast_2d(self._paths(chosen))
        return found if self.order == 1 else np.asarray(found**self.order)

    def between_inputs(self, place: int) -> FloatArray:
        return np.asarray(self._paths(np.array([place]))[0])

    def near_order(self) -> IndexArray:
        table = (self._graph + self._graph.T).tocsr()
        found = csgraph.breadth_first_order(table, 0, return_predecessors=False)
        return np.asarray(found, dtype=np.intp)

    def _paths(self, starts: IndexArray) -> FloatArray:
        return np.asarray(csgraph.dijkstra(self._graph, directed=False, indices=starts))

    def _identity(self) -> tuple[Any, ...]:
        table = self._graph
        return table.data, table.indices, table.indptr, self.order


def _pairs(edges: Any) -> IndexArray:
    pairs = np.asarray(edges)
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"edges must be pairs of integers. Found dtype {pairs.dtype}.")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ValueError(
            "edges must be pairs of nodes, numbered from zero. "
            f"Found shape {pairs.shape}."
        )
    if pairs.min() < 0:
        raise ValueError(
            "edges must be pairs of nodes, numbered from zero. "
            f"Found node {pairs.min()}."
        )
    # A number far beyond it, mistyped or an identifier, would take all memory.
    most = len(pairs)
    if pairs.max() > 2 * most:
        raise ValueError(
            f"edges must number nodes from zero without gaps: {most} connect nodes 0 "
            f"to {most} at most. Found node {pairs.max()}."
        )
    return pairs.astype(np.intp)


def cost_matrix(
    inputs: npt.ArrayLike,
    outputs: npt.ArrayLike,
    *,
    metric: Metric = "euclidean",
    order: float = 2,
) -> FloatArray:
    """Returns the costs C_ij = d(x_i, v_j)^p.

    Args:
        inputs: (k, dimensions) points x_i a distribution may have mass on, or (k,)
            on a line. Public, as is everything but the distributions.
        outputs: (k_v, dimensions) points v_j that may be released, or (k_v,).
        metric: As for `PointCost`, which does without the matrix.
        order: The order p ≥ 1 of the Wasserstein distance.

    Returns:
        The (k, k_v) costs.

    Raises:
        TypeError: If the points or the order are not real numbers.
        ValueError: If the points differ in dimension, a distance is negative or not
            finite, or the order is below one.
    """
    left, right = checks.points("inputs", inputs), checks.points("outputs", outputs)
    if left.shape[1] != right.shape[1]:
        raise ValueError(
            "inputs and outputs must be of one dimension. "
            f"Found {left.shape[1]} and {right.shape[1]}."
        )
    cost = PointCost(left, right, metric=metric, order=order)
    return checks.cost(cost.matrix())
