"""Costs that are given as a matrix."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.costs import transport_cost

FloatArray = npt.NDArray[np.float64]


class DenseCost(transport_cost.TransportCost):
    """Represents a matrix of costs.

    Args:
        matrix: (k, k_v) costs.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not a matrix, or some are negative or not finite.
    """

    def __init__(self, matrix: npt.ArrayLike) -> None:
        self._matrix = checks.cost(matrix)
        self.shape = (self._matrix.shape[0], self._matrix.shape[1])

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        return np.asarray(self._matrix[np.asarray(inputs, dtype=np.intp)])

    def matrix(self) -> FloatArray:
        return self._matrix

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Returns the matrix, so that a cost serves where a matrix is asked for."""
        if copy is False:
            return np.asarray(self._matrix, dtype=dtype)
        return np.array(self._matrix, dtype=dtype)


def as_cost(value: Any) -> transport_cost.TransportCost:
    """Returns a cost as it is, or a matrix as one.

    Raises:
        TypeError: If a matrix is not one of real numbers.
        ValueError: If its shape or an entry is wrong.
    """
    if isinstance(value, transport_cost.TransportCost):
        return value
    return DenseCost(value)
