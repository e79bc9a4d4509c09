"""What it costs to move mass, a row for each input, computed when it is asked for."""

import abc
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


class TransportCost(abc.ABC):
    """Represents costs C_ij = d(x_i, v_j)^p of moving a unit of mass.

    No matrix of all inputs and outputs need exist: a projection asks for the rows of
    the inputs that hold mass. All of it is public.

    Attributes:
        shape: The numbers (k, k_v) of inputs and outputs.
        metric_order: The order p if d is a metric that `between_inputs` gives; None
            if it is not known to be one. Then φ_i, the cost of the worst case, is
            known between inputs: its p-th root differs by at most their distance.
    """

    shape: tuple[int, int]
    metric_order: float | None = None

    @abc.abstractmethod
    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        """Returns the (n, k_v) costs of n inputs, by their indices."""

    def matrix(self) -> FloatArray:
        """Returns all (k, k_v) costs: for small ones."""
        return self.rows(np.arange(self.shape[0]))

    def between_inputs(self, place: int) -> FloatArray:
        """Returns the (k,) distances d between one input and all.

        Raises:
            ValueError: If `metric_order` is None: the cost is of no metric.
        """
        raise ValueError(
            "cost must be of a metric between inputs. "
            f"Found a {type(self).__name__} without one."
        )

    def near_order(self) -> IndexArray:
        """Returns the outputs in an order that has near ones near one another.

        Any order serves; a good one makes coarse pictures of the outputs good.
        """
        return np.arange(self.shape[1])

    def _identity(self) -> tuple[Any, ...]:
        """Returns what makes two costs of one class equal."""
        return (self.matrix(),)

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other) or not isinstance(other, TransportCost):
            return NotImplemented
        pairs = zip(self._identity(), other._identity(), strict=True)
        return all(np.array_equal(one, two) for one, two in pairs)

    def __hash__(self) -> int:
        return hash((type(self), self.shape))

    def __repr__(self) -> str:
        inputs, outputs = self.shape
        return f"{type(self).__name__}({inputs} inputs, {outputs} outputs)"
