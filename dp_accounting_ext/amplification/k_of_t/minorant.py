"""Profiles as convex, decreasing, piecewise-linear functions."""

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]

_SMALLEST = 1e-250


def values_at(
    places: FloatArray, ratios: FloatArray, masses: FloatArray, sink: float
) -> FloatArray:
    """Returns (m,) values sink + Σ mass · (ratio − place)_+ of n atoms at places.

    All summands are positive: the relative error is at most 2 (n + 4) units of
    rounding.

    Args:
        places: (m,) non-negative places.
        ratios: (n,) increasing.
        masses: (n,) non-negative.
        sink: The value beyond all ratios.
    """
    slopes = np.cumsum(masses[::-1])[::-1]
    falls = np.append(slopes[1:] * np.diff(ratios), 0.0)
    values = np.append(sink + np.cumsum(falls[::-1])[::-1], sink)
    above = np.append(ratios, np.inf)
    following = np.searchsorted(ratios, places)
    gaps = np.where(following < ratios.size, above[following] - places, 0.0)
    found: FloatArray = values[following] + np.append(slopes, 0.0)[following] * gaps
    return found


def atoms_above(
    places: FloatArray, values: FloatArray
) -> tuple[FloatArray, FloatArray, float]:
    """Returns atoms whose function is at least a convex one, of which values are known.

    That is their greatest convex minorant, but for rounding: a convex function that is
    at most `values` at `places`, at most one at zero, and does not increase, is below
    it.

    Args:
        places: (n,) positive and increasing.
        values: (n,) upper bounds, at least one of them below one.

    Returns:
        (m,) places of the atoms, m ≤ n; (m,) their masses; and the value beyond.

    Guarantees:
        `values_at` of the atoms, computed in floats, is at least `values` at each of
        the atoms' places, and one at zero.

    Source:
        https://arxiv.org/abs/2602.17284, Claim B.3, for the convex order: the minorant
        of the least of two upper bounds is one.
    """
    places = np.append(0.0, places)
    # Raised to where floats have all their digits.
    values = np.minimum.accumulate(np.append(1.0, np.maximum(values, _SMALLEST)))
    corners = _lower_hull(places, values)
    places, values = places[corners], values[corners]
    slopes = np.append((values[:-1] - values[1:]) / np.diff(places), 0.0)
    masses = np.maximum(slopes[:-1] - slopes[1:], 0.0)
    sink = float(values[-1])
    found = values_at(places, places[1:], masses, sink)
    # Where rounding has lowered a corner all is raised.
    rise = floats.raised(
        float((values / np.maximum(found, floats.SMALLEST_MASS)).max(initial=1.0))
    )
    return places[1:], masses * rise, sink * rise


def _lower_hull(places: FloatArray, values: FloatArray) -> npt.NDArray[np.intp]:
    """Returns the corners of the greatest convex minorant, the first and last among."""
    corners: list[int] = []
    slopes: list[float] = []
    x, y = places.tolist(), values.tolist()
    for index in range(len(x)):
        while corners:
            last = corners[-1]
            slope = (y[index] - y[last]) / (x[index] - x[last])
            if not slopes or slope > slopes[-1]:
                slopes.append(slope)
                break
            corners.pop()
            slopes.pop()
        corners.append(index)
    return np.array(corners, dtype=np.intp)
