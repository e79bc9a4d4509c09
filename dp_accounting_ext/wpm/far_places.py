"""Warnings of places far from the points, as after swapping latitude and longitude.

All functions take public places alone, so that their warnings may be published.
"""

import warnings

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import costs

# Tuning: a point is far away if its distance from the middle is more than the first
# multiple of the points' median distance, and near if it is at most the second
# multiple.
_FAR, _NEAR = 10.0, 3.0
_UNITS = {"haversine": " km"}


def check_public_trace(
    points: npt.ArrayLike, public_trace: npt.ArrayLike, *, metric: str = "euclidean"
) -> float:
    """Returns the median distance of the places of a public trace to the points.

    This is a rehearsal of `counts_at`, with a trace of the same source and form as the
    private ones that its owner has made public. A private trace must not be checked in
    this way, because the result would reveal information about it.

    A warning is issued if the median is larger than the distances among the points, as
    it is if the two columns of the points or of the trace are in the wrong order.

    Args:
        points: (k, dimensions) public points, as for `counts_at`.
        public_trace: (n, dimensions) places, each of which may be printed.
        metric: As for `PointCost`.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not finite, or differ in dimension.
    """
    cost = costs.PointCost(points, metric=metric)
    median = _median(cost, "public_trace", public_trace)
    warning = _warning(cost, "public_trace", public_trace, metric, median)
    if warning:
        warnings.warn(warning, stacklevel=2)
    return median


def warning_of_outputs(
    cost: costs.PointCost, outputs: npt.ArrayLike, metric: str
) -> str:
    """Returns a warning if outputs are far from all points, otherwise an empty string.

    Args:
        cost: The cost whose inputs are the points.
        outputs: (k_v, dimensions) points that may be released.
        metric: The metric of the cost.
    """
    return _warning(cost, "outputs", outputs, metric, _median(cost, "outputs", outputs))


def warning_of_points(points: npt.ArrayLike) -> str:
    """Returns a warning if some points seem swapped, otherwise an empty string.

    Args:
        points: (k, 2) latitudes and longitudes, in degrees.
    """
    found = np.asarray(points, dtype=np.float64)
    if found.ndim != 2 or found.shape[1] != 2:
        return ""
    middle = np.median(found, axis=0)
    apart, if_swapped = (
        np.abs(each - middle).max(axis=1) for each in (found, found[:, ::-1])
    )
    typical = float(np.median(apart))
    swapped = np.flatnonzero((apart > _FAR * typical) & (if_swapped <= _NEAR * typical))
    if not swapped.size:
        return ""
    return (
        "points must be latitudes before longitudes, each of them. Found "
        f"{swapped.size} of {len(found)} that are far from the others, and near to "
        f"them if swapped, the first at index {swapped[0]}."
    )


def _median(cost: costs.PointCost, name: str, places: npt.ArrayLike) -> float:
    return float(np.median(cost.nearest(name, places)[1]))


def _warning(
    cost: costs.PointCost,
    name: str,
    places: npt.ArrayLike,
    metric: str,
    median: float,
) -> str:
    if cost.metric_order is None or cost.shape[0] < 2:
        return ""
    widest = float(cost.between_inputs(0).max())
    if median <= widest:
        return ""
    unit = _UNITS.get(metric, "")
    warning = (
        f"{name} must be near the points. Found half of them {median:.3g}{unit} or "
    )
    warning += (
        f"more from any point, where points are up to {widest:.3g}{unit} from the "
    )
    warning += "first of them"
    found = np.asarray(places, dtype=np.float64)
    can_swap = found.ndim == 2 and found.shape[1] == 2
    if metric == "haversine":
        can_swap = can_swap and (np.abs(found) <= costs.MOST_LATITUDE).all()
    if can_swap and _median(cost, name, found[:, ::-1]) <= widest:
        warning += "; with their two columns swapped they are near"
    return f"{warning}."
