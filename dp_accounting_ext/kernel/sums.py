"""Sums of products, and of chances."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import floats

# Sums have so many terms one after another, and then so many of these sums.
_BLOCK = 256


def dot(x: FloatArray, y: FloatArray) -> float:
    """Returns Σ x_i y_i.

    On the calling thread: for vectors of thousands a threaded BLAS spends more CPU
    on waking its threads than on the sum.
    """
    return float(np.einsum("i,i->", x, y))


def quantiles(values: FloatArray, masses: FloatArray) -> tuple[float, float, float]:
    """Returns the values between which the middle two thirds are, and the median.

    Args:
        values: (n,) values, increasing.
        masses: (n,) masses.

    Returns:
        The lower one, the median and the upper one.
    """
    cumulated = np.cumsum(masses)
    places = np.searchsorted(cumulated, np.array([0.16, 0.5, 0.84]) * cumulated[-1])
    low, middle, high = values[places].tolist()
    return low, middle, high


def convolve(x: FloatArray, y: FloatArray) -> FloatArray:
    """Returns the (n + m − 1,) sums of products of masses, in blocks."""
    if x.size < y.size:
        x, y = y, x
    if y.size <= 2 * _BLOCK:
        return np.convolve(x, y)
    out = np.zeros(x.size + y.size - 1)
    for first in range(0, y.size, _BLOCK):
        part = y[first : first + _BLOCK]
        out[first : first + x.size + part.size - 1] += np.convolve(x, part)
    return out


def convolution_error(terms: int) -> float:
    """Bounds the relative error of a sum of so many products, as `convolve` has it."""
    return (min(terms, 2 * _BLOCK) + terms // _BLOCK + 4) * floats.UNIT_ROUNDOFF


def products(
    x: FloatArray,
    y: FloatArray,
    degrees: Sequence[int],
    product: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """Returns rows of a product: for each degree all that have it together.

    Args:
        x: (k, n) rows.
        y: (k, m) rows.
        degrees: (k,) their degrees.
        product: Of two rows.
    """
    return np.array(
        [
            sum(
                product(x[degrees.index(low)], y[degrees.index(degree - low)])
                for low in degrees
                if degree - low in degrees
            )
            for degree in degrees
        ]
    )


def product_of_series(x: FloatArray, y: FloatArray) -> FloatArray:
    """Returns the product of two power series, up to its degree, of laws on a lattice.

    Args:
        x: (k, n) coefficients, masses of a law each, many of them zero.
        y: (k, m) others.

    Returns:
        (k, n + m - 1) coefficients.
    """
    found = np.zeros((len(x), x.shape[1] + y.shape[1] - 1))
    within = [[_nonzero(row) for row in rows] for rows in (x, y)]
    for low, first in enumerate(within[0]):
        for high, second in enumerate(within[1][: len(x) - low]):
            if first.stop and second.stop:
                part = convolve(x[low, first], y[high, second])
                start = first.start + second.start
                found[low + high, start : start + part.size] += part
    return found


def _nonzero(row: FloatArray) -> slice:
    """Returns where the first and the last mass are that are not zero."""
    (places,) = np.nonzero(row)
    return slice(int(places[0]), int(places[-1]) + 1) if places.size else slice(0, 0)


def gather(cells: IntArray, weights: FloatArray, size: int = 0) -> FloatArray:
    """Returns (n,) sums of the weights in each cell, n ≥ size.

    However many meet in a cell, the error is at most two units of rounding of the
    sum of their absolute values.
    """
    # Multiples of the last digit of twice their sum add up exactly. In place: fresh
    # memory costs more than the sums.
    if cells.size == 0:
        return np.zeros(size)
    high = np.abs(weights)
    anchor = np.bincount(cells, high)[cells]
    anchor *= 2
    np.add(weights, anchor, out=high)
    high -= anchor
    total = gather_quickly(cells, high, size)
    low = np.subtract(weights, high, out=anchor)
    total += gather_quickly(cells, low, size)
    return total


def gather_quickly(cells: IntArray, weights: FloatArray, size: int = 0) -> FloatArray:
    """Returns what `gather` does, with an error of as many units as weights."""
    return np.asarray(np.bincount(cells, weights, size), dtype=np.float64)


def probability_of_any(chances: Iterable[tuple[float, int]]) -> float:
    """Returns the probability that any of independent events happens.

    Args:
        chances: Probabilities, and how many events have each.
    """
    exponent = 0.0
    for chance, number in chances:
        if chance >= 1:
            return 1.0
        exponent += number * math.log1p(-chance)
    return 0.0 - math.expm1(exponent)
