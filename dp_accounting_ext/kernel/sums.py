"""Sums of products, and of chances."""

from collections.abc import Iterable
from collections.abc import Sequence
import math
from typing import TypeVar

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
# Certified: so many are added up in any order.
_NEIGHBOURS = 32
Values = TypeVar("Values", FloatArray, npt.NDArray[np.complex128])


def dot(x: FloatArray, y: FloatArray) -> float:
    """Returns Σ x_i y_i.

    On the calling thread: for vectors of thousands a threaded BLAS spends more CPU
    on waking its threads than on the sum.
    """
    return float(np.einsum("i,i->", x, y))


def total(values: FloatArray) -> float:
    """Returns the sum of values ≥ 0, off by at most two units of rounding.

    In two parts, of which the larger is exact: all of it are multiples of the last
    digit of twice the sum. The other is n times smaller than n roundings of it.
    """
    anchor = 2 * float(values.sum())
    high = (values + anchor) - anchor
    return float(high.sum()) + float((values - high).sum())


def pairwise(values: Values) -> Values:
    """Returns the sums of n values, of any sign, along the last axis.

    The error is at most ⌈log₂ n⌉ units of rounding of the sum of absolute values.
    """
    while values.shape[-1] > 1:
        half = values.shape[-1] // 2
        halves = values[..., :half] + values[..., half : 2 * half]
        if values.shape[-1] % 2:
            halves = np.concatenate([halves, values[..., 2 * half :]], axis=-1)
        values = halves
    return values[..., 0]


def gather(
    cells: npt.NDArray[np.int64], weights: FloatArray, size: int = 0
) -> FloatArray:
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


def gather_neighbours(
    cells: npt.NDArray[np.int64], each: Sequence[FloatArray], size: int
) -> list[FloatArray]:
    """Returns the (size,) sums of some weights in each cell, where few cells follow.

    Args:
        cells: (n,) cells, best with neighbours in one.
        each: (n,) weights, several times.
        size: How many cells there are.

    Returns:
        Each one's sums, with an error of at most 34 units of rounding of the sum of
        their absolute values.
    """
    starts = np.arange(cells.size) % _NEIGHBOURS == 0
    starts[1:] |= cells[1:] != cells[:-1]
    (begins,) = np.nonzero(starts)
    cells = cells[begins]
    return [gather(cells, np.add.reduceat(x, begins), size) for x in each]


def gather_quickly(
    cells: npt.NDArray[np.int64], weights: FloatArray, size: int = 0
) -> FloatArray:
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
