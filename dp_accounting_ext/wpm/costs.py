"""Transport costs: the cost of moving a unit of mass, as a power of a distance.

Costs are given by a matrix, by points in a space or on a sphere, or by the nodes of a
graph. The matrix of all inputs and outputs need not exist: a projection computes the
rows of the inputs that hold mass. All costs are public.
"""

import abc
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from scipy import spatial
from scipy.sparse import csgraph
from scipy.spatial import distance

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.wpm import checks

# The mean radius of the Earth, in kilometres (IUGG).
EARTH_RADIUS = 6371.0088
MOST_LATITUDE, MOST_LONGITUDE = 90, 360
# Tuning: the number of costs, or of masses, that are held at once.
TOGETHER = 1 << 21


class TransportCost(abc.ABC):
    """Represents costs C_ij = d(x_i, v_j)^p of moving a unit of mass.

    Attributes:
        shape: The numbers (k, k_v) of inputs and outputs.
        metric_order: The order p if d is a metric, which `between_inputs` then returns;
            None if d is not known to be one. For a metric, the p-th roots of the
            worst-case costs φ_i of two inputs differ by at most their distance.
    """

    shape: tuple[int, int]
    metric_order: float | None = None

    @abc.abstractmethod
    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        """Returns the (n, k_v) costs of n inputs, by their indices."""

    def matrix(self) -> FloatArray:
        """Returns the matrix of all (k, k_v) costs, for small problems."""
        return self.rows(np.arange(self.shape[0]))

    def between_inputs(self, place: int) -> FloatArray:
        """Returns the (k,) distances d between one input and every input.

        Raises:
            ValueError: If `metric_order` is None, so that d need not be a metric.
        """
        raise ValueError(
            "cost must be of a metric between inputs. "
            f"Found a {type(self).__name__} without one."
        )

    def largest(self) -> float:
        """Returns the largest cost, or an upper bound that is not far above it."""
        return max(float(self.rows([place]).max()) for place in range(self.shape[0]))

    def output_cells(self) -> list[tuple[float, int]]:
        """Returns diameters and numbers of nested cells of the outputs, from one on.

        They are at least the largest distance d of two outputs of a cell, and fall to
        zero. For a metric alone.
        """
        # Outputs are as far apart as by way of an input.
        order = self.metric_order or 1.0
        return [(2 * self.largest() ** (1 / order), 1), (0.0, self.shape[1])]

    def places_on_line(self) -> tuple[FloatArray, FloatArray] | None:
        """Returns (k,) inputs and (k_v,) outputs if costs are distances on a line."""
        return None

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

    def largest(self) -> float:
        return float(self._matrix.max())


def as_cost(value: Any) -> TransportCost:
    """Returns a cost as it is, or a matrix as one."""
    return value if isinstance(value, TransportCost) else DenseCost(value)


class PointCost(TransportCost):
    """Represents powers of distances between points.

    Args:
        points: (k, dimensions) points x_i that a distribution may have mass on, or
            (k,) points on a line. For "haversine" they are latitudes and longitudes in
            degrees.
        outputs: (k_v, dimensions) points v_j that may be released; by default `points`.
        metric: "euclidean", "cityblock", "chebyshev", "haversine" for kilometres on a
            sphere, or "cosine", which is not a metric. For other distances, pass a
            matrix of costs to the mechanism.
        order: The order p ≥ 1 of the Wasserstein distance.

    Raises:
        TypeError: If the points or the order are not real numbers.
        ValueError: If points are not finite or differ in dimension, the metric is
            unknown, the order is below one, or powers of distances are too large to
            be summed.
    """

    def __init__(
        self,
        points: npt.ArrayLike,
        outputs: npt.ArrayLike | None = None,
        *,
        metric: str = "euclidean",
        order: float = 1,
    ) -> None:
        self._order, self.metric = checks.order(order), checks.metric(metric)
        self._points = self._outputs = self._placed("points", points)
        if outputs is not None:
            self._outputs = self._placed("outputs", outputs)
        if self._points.shape[1] != self._outputs.shape[1]:
            raise ValueError(
                "points and outputs must be of one dimension. "
                f"Found {self._points.shape[1]} and {self._outputs.shape[1]}."
            )
        self.shape = (len(self._points), len(self._outputs))
        extent = 2.0  # The largest cosine distance.
        if metric != "cosine":
            self.metric_order = self._order
            # No two points are further apart than two corners of a box around them.
            spaces = self._points, self._outputs
            low = np.min([np.min(places, axis=0) for places in spaces], axis=0)
            high = np.max([np.max(places, axis=0) for places in spaces], axis=0)
            extent = self._distances(low[np.newaxis], high[np.newaxis])[0, 0]
        self._largest = checks.largest_cost("points", extent, self._order)

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        chosen = self._points[np.asarray(inputs, dtype=np.intp)]
        distances = self._distances(chosen, self._outputs)
        if self._order != 1:
            distances **= self._order
        return distances

    def largest(self) -> float:
        return self._largest

    def between_inputs(self, place: int) -> FloatArray:
        if self.metric_order is None:
            return super().between_inputs(place)
        point = self._points[place : place + 1]
        return np.asarray(self._distances(point, self._points)[0])

    def output_cells(self) -> list[tuple[float, int]]:
        # In this order, outputs that are near are adjacent.
        order = spatial.cKDTree(self._outputs).indices
        placed, size, cells = self._outputs[order], self.shape[1], []
        widest = math.inf
        for number in [1 << level for level in range(size.bit_length())] + [size]:
            starts = np.arange(number) * size // number
            low = np.minimum.reduceat(placed, starts)
            high = np.maximum.reduceat(placed, starts)
            # No two points of a cell are further apart than corners of a box around it.
            across = self._distances(np.zeros((1, placed.shape[1])), high - low)
            widest = min(widest, float(across.max()))
            cells.append((widest, number))
        return cells

    def places_on_line(self) -> tuple[FloatArray, FloatArray] | None:
        if self._points.shape[1] > 1 or self.metric_order != 1:
            return None
        return self._points[:, 0], self._outputs[:, 0]

    def nearest(
        self, name: str, places: npt.ArrayLike
    ) -> tuple[IndexArray, FloatArray]:
        """Returns the (n,) points nearest to n places, and how far they are.

        Args:
            name: The name of the places in errors. If it is "trace", errors show none
                of the values.
            places: (n, dimensions).

        Raises:
            TypeError: If the places are not real numbers.
            ValueError: If they are not finite, or of another dimension.
        """
        placed = self._placed(name, places)
        if placed.shape[1] != self._points.shape[1]:
            raise ValueError(
                f"{name} must have the dimension of the points. "
                f"Found {placed.shape[1]} and {self._points.shape[1]}."
            )
        if self.metric == "cosine":
            rows = [self._distances(row[np.newaxis], self._points)[0] for row in placed]
            nearest = np.array([int(row.argmin()) for row in rows], dtype=np.intp)
            return nearest, np.array([row.min() for row in rows])
        norm = {"cityblock": 1.0, "chebyshev": np.inf}.get(self.metric, 2.0)
        tree = spatial.cKDTree(self._points)
        lengths, indices = tree.query(placed, p=norm)
        distances = np.asarray(lengths, dtype=np.float64)
        if self.metric == "haversine":
            distances = _arcs(distances)
        return np.asarray(indices, dtype=np.intp), distances

    def _placed(self, name: str, places: npt.ArrayLike) -> FloatArray:
        """Returns checked points, as unit vectors for "haversine" and "cosine"."""
        vectors = checks.points(name, places)
        if self.metric == "haversine":
            return on_sphere(name, vectors)
        if self.metric == "cosine":
            largest = np.abs(vectors).max(axis=1, keepdims=True)
            if not largest.all():
                raise ValueError(
                    f'{name} must have a direction each for metric "cosine". Found a '
                    "point of zeros."
                )
            vectors = vectors / largest
            return np.asarray(vectors / np.linalg.norm(vectors, axis=1, keepdims=True))
        return vectors

    def _distances(self, left: FloatArray, right: FloatArray) -> FloatArray:
        if self.metric == "haversine":
            return _arcs(distance.cdist(left, right))
        if self.metric == "cosine":
            # Rounding may make a distance of zero negative.
            return np.asarray(np.maximum(1 - left @ right.T, 0.0))
        # On a line all metrics are equal, and without squares nothing underflows.
        metric: Any = "cityblock" if left.shape[1] == 1 else self.metric
        return np.asarray(distance.cdist(left, right, metric))


def _arcs(chords: FloatArray) -> FloatArray:
    """Returns distances along the Earth in km, from chords of the unit sphere."""
    return np.asarray(2 * EARTH_RADIUS * np.arcsin(np.minimum(chords / 2, 1)))


def on_sphere(name: str, places: FloatArray) -> FloatArray:
    """Returns (n, 3) points of the unit sphere, given latitudes and longitudes."""
    if places.shape[1] != 2:
        raise ValueError(
            f'{name} must have two columns for metric "haversine": latitudes and '
            f"longitudes, in degrees. Found {places.shape[1]}."
        )
    limits = (("latitudes", MOST_LATITUDE), ("longitudes", MOST_LONGITUDE))
    for column, (noun, end) in enumerate(limits):
        beyond = np.abs(places[:, column]) > end
        if beyond.any():
            # A trace is private, and so are the values in it.
            value = "one" if name == "trace" else f"{places[beyond][0, column]:g}"
            raise ValueError(
                f'{name} must have {noun} in [-{end}, {end}] for metric "haversine", '
                f"in column {column + 1} of 2. Found {value} beyond."
            )
    latitudes, longitudes = np.radians(places).T
    flat = np.cos(latitudes)
    return np.column_stack(
        [flat * np.cos(longitudes), flat * np.sin(longitudes), np.sin(latitudes)]
    )


def counts_at(
    points: npt.ArrayLike, trace: npt.ArrayLike, *, metric: str = "euclidean"
) -> IntArray:
    """Returns how often each point is the nearest one to a place of a trace.

    It must not be revealed whether a private trace is far from the points. Use
    `check_public_trace` to rehearse with a public trace.

    Args:
        points: (k, dimensions) public points; latitudes and longitudes in degrees
            for "haversine".
        trace: (n, dimensions) private places.
        metric: As for `PointCost`.

    Returns:
        (k,) counts, which a mechanism takes as a distribution. They are as private as
        the trace.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not finite, or differ in dimension.
    """
    nearest, _ = PointCost(points, metric=metric).nearest("trace", trace)
    counts = np.bincount(nearest, minlength=np.shape(points)[0])
    return np.asarray(counts, dtype=np.int64)


class GraphCost(TransportCost):
    """Represents powers of the lengths of shortest paths between nodes.

    Every node is an input and an output. A zero of the base measure excludes an output.

    Args:
        graph: (k, k) SciPy sparse matrix of the positive lengths of undirected edges.
        order: The order p ≥ 1 of the Wasserstein distance.

    Raises:
        TypeError: If it is not a sparse matrix of real numbers.
        ValueError: If it is not square, a length is not positive and finite, or the
            graph is not connected, or powers of distances are too large to be summed.
    """

    def __init__(self, graph: Any, *, order: float = 1) -> None:
        is_sparse: bool = sparse.issparse(graph)
        if not is_sparse:
            raise TypeError(
                f"graph must be a scipy sparse matrix. Found a {type(graph).__name__}."
            )
        self._order = self.metric_order = checks.order(order)
        edges = graph.tocoo()
        if edges.shape[0] != edges.shape[1] or not edges.shape[0]:
            raise ValueError(f"graph must be square. Found shape {edges.shape}.")
        # Entries that are stored twice are added, as floats, which do not overflow.
        entries = checks.array("lengths", edges.data)
        table = sparse.csr_matrix((entries, (edges.row, edges.col)), shape=edges.shape)
        lengths = checks.amounts("lengths", table.data, is_positive=True)
        size = int(table.shape[0])
        # A copy, as older versions of SciPy find no paths in arrays that are read-only.
        self._graph = sparse.csr_matrix(
            (lengths.copy(), table.indices, table.indptr), shape=table.shape
        )
        pieces, _ = csgraph.connected_components(self._graph, directed=False)
        if pieces > 1:
            raise ValueError(f"graph must be connected. Found {pieces} pieces.")
        self.shape = (size, size)
        # No two nodes are further apart than along a path through the first one.
        furthest = 2 * float(self.between_inputs(0).max())
        self._largest = checks.largest_cost("lengths", furthest, self._order)

    @classmethod
    def from_edges(
        cls, edges: npt.ArrayLike, lengths: npt.ArrayLike, *, order: float = 1
    ) -> "GraphCost":
        """Returns the cost of a list of edges.

        Args:
            edges: (e, 2) pairs of nodes, numbered from zero, for undirected edges. Of
                parallel edges the shortest counts.
            lengths: (e,) positive lengths.
            order: The order p ≥ 1 of the Wasserstein distance.

        Raises:
            TypeError: If the nodes are not integers or the lengths not real numbers.
            ValueError: If shapes do not match, or values are out of range.
        """
        pairs = checks.edges(edges)
        numbers = checks.amounts("lengths", lengths, is_positive=True)
        if numbers.shape != (len(pairs),):
            raise ValueError(
                f"lengths must have an entry for each of the {len(pairs)} edges. "
                f"Found shape {numbers.shape}."
            )
        # Sparse matrices add up parallel edges, so that only the shortest is kept.
        shortest = np.argsort(numbers, kind="stable")
        ends, first = np.unique(
            np.sort(pairs, axis=1)[shortest], axis=0, return_index=True
        )
        size = int(pairs.max()) + 1
        table = numbers[shortest[first]], (ends[:, 0], ends[:, 1])
        return cls(sparse.csr_matrix(table, shape=(size, size)), order=order)

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        chosen = np.asarray(inputs, dtype=np.intp)
        distances = np.atleast_2d(self._paths(chosen))
        return distances if self._order == 1 else np.asarray(distances**self._order)

    def largest(self) -> float:
        return self._largest

    def between_inputs(self, place: int) -> FloatArray:
        return np.asarray(self._paths(np.array([place]))[0])

    def _paths(self, starts: IndexArray) -> FloatArray:
        return np.asarray(csgraph.dijkstra(self._graph, directed=False, indices=starts))
