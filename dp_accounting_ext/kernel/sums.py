"""Sums of products of masses, and of probabilities; and repeated doubling."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
import math
from typing import TypeVar

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import floats

Item = TypeVar("Item")

# Sums are made of blocks of this many terms, whose sums are then added up.
_BLOCK = 256


def dot(x: FloatArray, y: FloatArray) -> float:
    """Returns Σ x_i y_i.

    On the calling thread: for vectors of thousands a threaded BLAS takes more CPU time
    to wake its threads than for the sum.
    """
    return float(np.einsum("i,i->", x, y))


def quantiles(values: FloatArray, masses: FloatArray) -> tuple[float, float, float]:
    """Returns the median, and the ends of the interval of the middle two thirds.

    Args:
        values: (n,) values, increasing.
        masses: (n,) masses.

    Returns:
        The lower end, the median and the upper end.
    """
    cumulated = np.cumsum(masses)
    places = np.searchsorted(cumulated, np.array([0.16, 0.5, 0.84]) * cumulated[-1])
    low, middle, high = values[places].tolist()
    return low, middle, high


def convolve(x: FloatArray, y: FloatArray) -> FloatArray:
    """Returns the (n + m − 1,) convolution of (n,) and (m,) masses, in blocks.

    Blocks without a mass are left out. If `x` is `y`, each two blocks meet once.
    """
    if x.size <= y.size:
        x, y = y, x
    if y.size <= 2 * _BLOCK:
        return np.convolve(x, y)
    out = np.zeros(x.size + y.size - 1)
    for first in range(0, y.size, _BLOCK):
        block = y[first : first + _BLOCK]
        if not block.any():
            continue
        start, other = first, x
        if x is y:
            start, other = 2 * first, np.append(block, 2 * x[first + _BLOCK :])
        out[start : start + other.size + block.size - 1] += np.convolve(other, block)
    return out


def convolution_error(terms: int) -> float:
    """Returns a bound on the relative error of `convolve` with `terms` products."""
    return (min(terms, 2 * _BLOCK) + terms // _BLOCK + 4) * floats.UNIT_ROUNDOFF


def products(
    x: FloatArray,
    y: FloatArray,
    degrees: Sequence[int],
    product: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """Returns the rows of a product: for each degree, the sum of all row products of
    it.

    Args:
        x: (k, n) rows.
        y: (k, m) rows.
        degrees: (k,) degrees of the rows.
        product: The product of two rows.
    """
    rows = dict(zip(degrees, x, strict=True))
    others = rows if x is y else dict(zip(degrees, y, strict=True))
    return np.array(
        [
            sum(
                product(rows[low], others[degree - low])
                for low in degrees
                if degree - low in others
            )
            for degree in degrees
        ]
    )


def repeated(
    item: Item,
    number: int,
    joined: Callable[[Item, Item], Item],
    before: Item | None = None,
) -> Item:
    """Returns a product, a sum or a chain of an item with itself, by doubling.

    Args:
        item: The item.
        number: How often it comes, at least once.
        joined: The function from two of them to both together.
        before: What comes before, or None.
    """
    result = before
    while number:
        if number & 1:
            result = item if result is None else joined(result, item)
        number >>= 1
        if number:
            item = joined(item, item)
    assert result is not None
    return result


def gather(cells: IntArray, weights: FloatArray, size: int = 0) -> FloatArray:
    """Returns (n,) sums of the weights in each cell, n ≥ size.

    However many weights meet in a cell, the error is at most two units of rounding of
    the sum of their absolute values.
    """
    # Multiples of the last digit of twice the sum add up exactly. The arrays are
    # reused: allocating memory costs more than the sums.
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
    """Returns what `gather` does, with an error of one unit of rounding a weight."""
    return np.asarray(np.bincount(cells, weights, size), dtype=np.float64)


def probability_of_any(probabilities: Iterable[tuple[float, int]]) -> float:
    """Returns the probability that at least one of several independent events happens.

    Args:
        probabilities: (probability, number of events that have it).
    """
    exponent = 0.0
    for probability, number in probabilities:
        if probability >= 1:
            return 1.0
        exponent += number * math.log1p(-probability)
    return 0.0 - math.expm1(exponent)
