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
    """Returns a read-only copy of an array of real numbers, as floats."""
    numbers = fields.number_array(name, value)
    # Numbers wider than floats may become infinite, which later checks refuse.
    with np.errstate(over="ignore"):
        copy = np.array(numbers, dtype=np.float64, order="C")
    copy.flags.writeable = False
    return copy


def amounts(name: str, value: Any, *, is_positive: bool = False) -> FloatArray:
    """Returns an array of finite numbers, none of them negative, or zero either."""
    numbers = array(name, value)
    wrong = ~((numbers < math.inf) & ((numbers > 0) if is_positive else (numbers >= 0)))
    if wrong.any():
        place = np.argwhere(wrong)[0]
        where = {1: " at index {}", 2: " in row {}, column {}"}.get(numbers.ndim, "")
        raise ValueError(
            f"{name} must be {'positive' if is_positive else 'non-negative'} and "
            f"finite. Found {numbers[wrong][0]}{where.format(*place)}."
        )
    return numbers


def cost(value: Any) -> FloatArray:
    """Returns the (k, k_v) costs as floats."""
    matrix = amounts("cost", value)
    if matrix.ndim != 2 or not matrix.size:
        raise ValueError(
            "cost must be a matrix with a row for each input and a column for each "
            f"output. Found shape {matrix.shape}."
        )
    largest_cost("cost", float(matrix.max()), 1.0)
    return matrix


def largest_cost(name: str, distance: float, power: float) -> float:
    """Returns the largest distance to the power of the order, if it can be summed."""
    with np.errstate(over="ignore"):
        largest = np.float64(distance) ** power
    if distance and not LEAST_COST <= largest <= MOST_COST:
        raise ValueError(
            f"{name} must be such that the largest cost is 0, or from {LEAST_COST:g} "
            f"to {MOST_COST:g}. Found a distance of up to {distance:g}, to the order "
            f"{power:g}; take another unit, or a smaller order."
        )
    return float(largest)


def order(value: Any) -> float:
    """Returns the order p ≥ 1 as a float."""
    number = fields.real_number("order", value)
    if not 1 <= number < math.inf:
        raise ValueError(f"order must be at least 1 and finite. Found {value}.")
    return number


def metric(value: Any) -> str:
    """Returns the name of a distance, one of `METRICS`."""
    if not isinstance(value, str) or value not in METRICS:
        raise ValueError(
            f"metric must be one of {', '.join(METRICS)}; a matrix of costs serves for "
            f"others. Found {value!r:.60}."
        )
    return value


def points(name: str, value: Any) -> FloatArray:
    """Returns (n, dimensions) points. A list of numbers is read as points on a line."""
    rows = array(name, value)
    if rows.ndim == 1:
        rows = rows[:, np.newaxis]
    if rows.ndim != 2 or not rows.size:
        raise ValueError(
            f"{name} must be a list of points, one at least. Found shape {rows.shape}."
        )
    wrong = ~np.isfinite(rows)
    if wrong.any():
        row, column = np.argwhere(wrong)[0]
        which = f"{rows[row, column]} at index {row}"
        if name == "trace":  # A trace is private, and so are the values in it.
            which = "a point that is not"
        raise ValueError(f"{name} must be finite. Found {which}.")
    return rows


def edges(value: Any) -> IndexArray:
    """Returns the (e, 2) nodes of edges, numbered from zero without large gaps."""
    pairs = np.asarray(value)
    if pairs.dtype.kind not in "iu":
        raise TypeError(f"edges must be pairs of integers. Found dtype {pairs.dtype}.")
    if pairs.ndim != 2 or pairs.shape[1] != 2 or not len(pairs):
        raise ValueError(f"edges must be pairs of nodes. Found shape {pairs.shape}.")
    # A far larger number, such as an identifier, would take all memory.
    count = len(pairs)
    if pairs.min() < 0 or pairs.max() > 2 * count:
        node = pairs.min() if pairs.min() < 0 else pairs.max()
        raise ValueError(
            f"edges must number nodes from zero without gaps: {count} connect nodes 0 "
            f"to {count} at most. Found node {node}."
        )
    return pairs.astype(np.intp)


def epsilon(value: Any) -> float:
    """Returns ε as a float, from `LEAST_EPSILON` to `MOST_EPSILON`."""
    number = fields.positive("epsilon", value)
    if not LEAST_EPSILON <= number <= MOST_EPSILON:
        raise ValueError(
            f"epsilon must be from {LEAST_EPSILON:g} to {MOST_EPSILON:g}. "
            f"Found {value}."
        )
    return number


def base_measure(value: Any, size: int, privacy: float) -> FloatArray:
    """Returns the (k_v,) base measure as floats, with a sum that is in its range."""
    masses = amounts("base_measure", value)
    if masses.shape != (size,):
        raise ValueError(
            f"base_measure must have an entry for each of the {size} outputs. "
            f"Found shape {masses.shape}."
        )
    mass = float(masses.sum())
    inside = total_mass("base_measure must have a sum", mass, privacy)
    return masses if mass == inside else masses * (inside / mass)


def total_mass(must: str, mass: float, privacy: float) -> float:
    """Returns the sum of a base measure, moved into its range if off by rounding.

    Outside of the range no distribution would be in the polytope. `must` begins errors.
    """
    low, high = math.exp(-privacy / 2), math.exp(privacy / 2)
    if not low * (1 - MASS_TOLERANCE) <= mass <= high * (1 + MASS_TOLERANCE):
        raise ValueError(
            f"{must} in [exp(-epsilon / 2), exp(epsilon / 2)] = "
            f"[{low:.6g}, {high:.6g}]. Found {mass:.6g}; scale it."
        )
    return min(max(mass, low), high)


def largest_masses(value: Any, total_mass: float) -> tuple[float, ...]:
    """Returns the masses of the largest outputs of a base measure, in falling order."""
    if isinstance(value, tuple) and not value:
        return ()
    masses = amounts("largest_masses", value, is_positive=True)
    if masses.ndim != 1 or masses.size > MOST_MASSES:
        raise ValueError(
            f"largest_masses must be a list of at most {MOST_MASSES} masses. "
            f"Found shape {masses.shape}."
        )
    if (np.diff(masses) > 0).any():
        raise ValueError("largest_masses must fall. Found one above that before it.")
    mass = math.fsum(masses)
    if mass > total_mass * (1 + MASS_TOLERANCE):
        raise ValueError(
            f"largest_masses must have a sum of at most total_mass, {total_mass:g}. "
            f"Found {mass:g}."
        )
    return tuple(masses.tolist())
