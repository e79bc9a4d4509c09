"""Sums of products, and of chances."""

from collections.abc import Iterable
import math

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


def dot(x: FloatArray, y: FloatArray) -> float:
    """Returns Σ x_i y_i.

    On the calling thread: for vectors of thousands a threaded BLAS spends more CPU
    on waking its threads than on the sum.
    """
    return float(np.einsum("i,i->", x, y))


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
