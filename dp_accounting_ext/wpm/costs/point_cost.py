"""Costs between points: a row is computed when it is asked for."""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import spatial
from scipy.spatial import distance

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.costs import transport_cost

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
Metric = str | Callable[[FloatArray, FloatArray], float]

# The mean radius of the Earth, in kilometres (IUGG).
EARTH_RADIUS = 6371.0088
_METRICS = frozenset({"euclidean", "cityblock", "chebyshev", "haversine"})
# Rounding may take a cosine distance of zero below it by this.
_ROUNDING = 1e-12


class PointCost(transport_cost.TransportCost):
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
