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
_DEGREES = (
    "metric should be haversine, for kilometres: points look like latitudes and "
    "longitudes in degrees, and distances are taken as in a plane. If that is meant, "
    "write euclidean."
)


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
    median, warning = distance_to_points(cost, "public_trace", public_trace)
    if warning:
        warnings.warn(warning, stacklevel=2)
    return median


def distance_to_points(
    cost: costs.PointCost, name: str, places: npt.ArrayLike
) -> tuple[float, str]:
    """Returns the median distance of places to the points, and a warning or ""."""
    median = float(np.median(cost.nearest(name, places)[1]))
    if cost.metric_order is None or cost.shape[0] < 2:
        return median, ""
    widest = float(cost.between_inputs(0).max())
    if median <= widest:
        return median, ""
    unit = " km" if cost.metric == "haversine" else ""
    warning = (
        f"{name} must be near the points. Found half of them {median:.3g}{unit} or "
        f"more from any point, where points are up to {widest:.3g}{unit} from the "
        "first of them"
    )
    try:
        turned = cost.nearest(name, np.asarray(places)[:, ::-1])[1]
    except (IndexError, ValueError):  # These are no pairs, or no latitudes.
        turned = np.array([np.inf])
    if np.shape(places)[-1] == 2 and np.median(turned) <= widest:
        warning += "; with their two columns swapped they are near"
    return median, f"{warning}."


def warning_of_points(points: npt.ArrayLike, metric: str | None) -> str:
    """Returns a warning if points seem swapped, or to be degrees in a plane; or ""."""
    pairs = np.asarray(points, dtype=np.float64)
    if pairs.ndim != 2 or pairs.shape[1] != 2:
        return ""
    if metric is None:
        inside = (np.abs(pairs) <= (90, 180)).all() and (pairs != np.rint(pairs)).any()
        apart, size = np.ptp(pairs, axis=0).max(), np.abs(pairs).max()
        return _DEGREES * bool(inside and size > 1 and apart < size / 2)
    if metric != "haversine":
        return ""
    middle = np.median(pairs, axis=0)
    lengths, if_swapped = (
        np.abs(columns - middle).max(axis=1) for columns in (pairs, pairs[:, ::-1])
    )
    typical = float(np.median(lengths))
    swapped = np.flatnonzero(
        (lengths > _FAR * typical) & (if_swapped <= _NEAR * typical)
    )
    if not swapped.size:
        return ""
    return (
        "points must be latitudes before longitudes, each of them. Found "
        f"{swapped.size} of {len(pairs)} that are far from the others, and near to "
        f"them if swapped, the first at index {swapped[0]}."
    )
