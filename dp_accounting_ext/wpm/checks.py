"""Checks of arguments. Errors name the argument, what was found, and the remedy.

Costs, ε, base measures and shapes are public, so errors about them print values.
Distributions are private. They are checked in `private_rows`.
"""

import math
from typing import Any

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.validation import fields

METRICS = ("euclidean", "cityblock", "chebyshev", "haversine", "cosine")
MASS_TOLERANCE = 1e-9
# The largest number of masses that an event stores.
MOST_MASSES = 4096
# The range of ε. Integer weights have at most 256 bits, and must have room for e^ε.
# Below the least ε there are no integers of 62 bits between the bounds.
LEAST_EPSILON, MOST_EPSILON = 1e-12, 160.0
# Sums of larger costs, times e^ε, would overflow, and shares of smaller ones underflow.
LEAST_COST, MOST_COST = 1e-200, 1e200


def array(name: str, value: Any) -> FloatArray:
    """Returns a read-only copy of the value, as an array of floats.

    Raises:
        TypeError: If it does not consist of real numbers.
    """
    found = fields.number_array(name, value)
    # Numbers wider than floats may become infinite, which later checks refuse.
    with np.errstate(over="ignore"):
        copy = np.array(found, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def cost(value: Any) -> FloatArray:
    """Returns the (k, k_v) costs as floats.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not a matrix, negative, not finite, or out of scale.
    """
    found = array("cost", value)
    if found.ndim != 2 or 0 in found.shape:
        raise ValueError(
            "cost must be a matrix with a row for each input and a column for each "
            f"output. Found shape {found.shape}."
        )
    wrong = ~((found >= 0) & (found < math.inf))
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        raise ValueError(
            "cost must be non-negative and finite. "
            f"Found {found[row, column]} in row {row}, column {column}."
        )
    largest = float(found.max())
    if largest and not LEAST_COST <= largest <= MOST_COST:
        raise ValueError(
            f"cost must have a largest entry from {LEAST_COST:g} to {MOST_COST:g}, or "
            f"zeros alone. Found {largest:g}; take another unit."
        )
    return found


def order(value: Any) -> float:
    """Returns the order p as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is below one, or not finite.
    """
    number = fields.real_number("order", value)
    if not 1 <= number < math.inf:
        raise ValueError(f"order must be at least 1 and finite. Found {value}.")
    return number


def metric(value: Any) -> str:
    """Returns the name of a distance.

    Raises:
        ValueError: If it is not in `METRICS`.
    """
    if not isinstance(value, str) or value not in METRICS:
        raise ValueError(
            f"metric must be one of {', '.join(METRICS)}; a matrix of costs serves for "
            f"others. Found {value!r:.60}."
        )
    return value


def largest_distance(name: str, distance: float, power: float) -> float:
    """Returns the largest distance, to the order: a cost that can be summed.

    Raises:
        ValueError: If it is above `MOST_COST`, or positive and below `LEAST_COST`.
    """
    with np.errstate(over="ignore"):
        largest = np.float64(distance) ** power
    if distance and not LEAST_COST <= largest <= MOST_COST:
        raise ValueError(
            f"{name} must be such that distances to the order {power:g} are up to "
            f"{LEAST_COST:g} to {MOST_COST:g}. Found a distance of up to {distance:g}; "
            "take another unit, or a smaller order."
        )
    return float(largest)


def points(name: str, value: Any) -> FloatArray:
    """Returns (n, dimensions) points. A list of numbers is read as points on a line.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not a list of points, or one is not finite.
    """
    found = array(name, value)
    if found.ndim == 1:
        found = found[:, np.newaxis]
    if not found.size:
        raise ValueError(f"{name} must be a list of points, one at least. Found none.")
    if found.ndim != 2:
        raise ValueError(f"{name} must be a list of points. Found shape {found.shape}.")
    wrong = ~np.isfinite(found)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        which = f"{found[row, column]} at index {row}"
        if name == "trace":  # A trace is private, and so are the values in it.
            which = "a point that is not"
        raise ValueError(f"{name} must be finite. Found {which}.")
    return found


def edges(value: Any) -> IndexArray:
    """Returns the (e, 2) nodes of the edges of a graph.

    Raises:
        TypeError: If the nodes are not integers.
        ValueError: If they are not pairs, or nodes are not numbered from zero without
            large gaps.
    """
    pairs = np.asarray(value)
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
    # A far larger number, such as an identifier, would take all memory.
    most = len(pairs)
    if pairs.max() > 2 * most:
        raise ValueError(
            f"edges must number nodes from zero without gaps: {most} connect nodes 0 "
            f"to {most} at most. Found node {pairs.max()}."
        )
    return pairs.astype(np.intp)


def lengths(value: Any) -> FloatArray:
    """Returns lengths of edges.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If one is not positive and finite.
    """
    found = array("lengths", value)
    wrong = ~((found > 0) & np.isfinite(found))
    if wrong.any():
        raise ValueError(
            f"lengths must be positive and finite. Found {found[wrong][0]}."
        )
    return found


def epsilon(value: Any) -> float:
    """Returns ε as a float.

    Raises:
        TypeError: If it is not a real number.
        ValueError: If it is not from `LEAST_EPSILON` to `MOST_EPSILON`.
    """
    number = fields.positive("epsilon", value)
    if number < LEAST_EPSILON:
        raise ValueError(f"epsilon must be at least {LEAST_EPSILON:g}. Found {value}.")
    if number > MOST_EPSILON:
        raise ValueError(f"epsilon must be at most {MOST_EPSILON:g}. Found {value}.")
    return number


def regularization(value: Any) -> float | None:
    """Returns λ as a float, or None.

    Raises:
        TypeError: If it is neither None nor a real number.
        ValueError: If it is not positive and finite.
    """
    return None if value is None else fields.positive("regularization", value)


def base_measure(value: Any, size: int, privacy: float) -> FloatArray:
    """Returns the (k_v,) base measure as floats.

    Raises:
        TypeError: If it is not an array of real numbers.
        ValueError: If its shape is wrong, an entry is negative or not finite, or no
            distribution lies in its polytope.
    """
    found = array("base_measure", value)
    if found.shape != (size,):
        raise ValueError(
            f"base_measure must have an entry for each of the {size} outputs. "
            f"Found shape {found.shape}."
        )
    wrong = ~((found >= 0) & (found < math.inf))
    if wrong.any():
        index = int(np.flatnonzero(wrong)[0])
        raise ValueError(
            "base_measure must be non-negative and finite. "
            f"Found {found[index]} at index {index}."
        )
    mass = float(found.sum())
    inside = _within("base_measure must have a sum", mass, privacy)
    return found if mass == inside else found * (inside / mass)


def total_mass(value: float, privacy: float) -> float:
    """Returns the sum of a base measure.

    Raises:
        ValueError: If no distribution lies in the polytope of such a measure.
    """
    return _within("total_mass must be", value, privacy)


def _within(must: str, mass: float, privacy: float) -> float:
    """Returns the sum of a base measure, moved into its range if off by rounding."""
    least, most = math.exp(-privacy / 2), math.exp(privacy / 2)
    if not least * (1 - MASS_TOLERANCE) <= mass <= most * (1 + MASS_TOLERANCE):
        raise ValueError(
            f"{must} in [exp(-epsilon / 2), exp(epsilon / 2)] = "
            f"[{least:.6g}, {most:.6g}]. Found {mass:.6g}; scale it."
        )
    # If rounding put the sum outside its range, the polytope would be empty.
    return min(max(mass, least), most)


def largest_masses(value: Any, total_mass: float) -> tuple[float, ...]:
    """Returns the masses of the largest outputs of a base measure.

    Raises:
        TypeError: If they are not a list of real numbers.
        ValueError: If they are too many or not in order, one is not positive and
            finite, or their sum is more than the total.
    """
    if isinstance(value, tuple) and not value:
        return ()
    found = array("largest_masses", value)
    if np.ndim(value) != 1 or found.size > MOST_MASSES:
        raise ValueError(
            f"largest_masses must be a list of at most {MOST_MASSES} masses. "
            f"Found shape {found.shape}."
        )
    wrong = ~((found > 0) & (found < math.inf))
    if wrong.any():
        raise ValueError(
            f"largest_masses must be positive and finite. Found {found[wrong][0]}."
        )
    if (np.diff(found) > 0).any():
        raise ValueError("largest_masses must fall. Found one above that before it.")
    mass = math.fsum(found)
    if mass > total_mass * (1 + MASS_TOLERANCE):
        raise ValueError(
            f"largest_masses must have a sum of at most total_mass, {total_mass:g}. "
            f"Found {mass:g}."
        )
    return tuple(found.tolist())
