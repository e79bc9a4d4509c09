"""Costs between places on a line."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.costs import transport_cost

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


class LineCost(transport_cost.TransportCost):
    """Represents powers of distances on a line.

    Args:
        inputs: (k,) places that a distribution may have mass on.
        outputs: (k_v,) places that may be released; None for `inputs`.
        order: The order p ≥ 1 of the Wasserstein distance.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If they are not lists of finite ones, the order is below one, or
            powers of their distances are too large to be summed.
    """

    def __init__(
        self,
        inputs: npt.ArrayLike,
        outputs: npt.ArrayLike | None = None,
        *,
        order: float = 1,
    ) -> None:
        self.order = self.metric_order = checks.order(order)
        self.inputs = checks.places("inputs", inputs)
        self.outputs = self.inputs
        if outputs is not None:
            self.outputs = checks.places("outputs", outputs)
        both = self.inputs, self.outputs
        with np.errstate(over="ignore"):
            extent = max(map(np.max, both)) - min(map(np.min, both))
        checks.largest_distance("places", extent, self.order)
        self.shape = (self.inputs.size, self.outputs.size)

    def rows(self, inputs: npt.ArrayLike) -> FloatArray:
        chosen = self.inputs[np.asarray(inputs, dtype=np.intp)]
        found = np.subtract.outer(chosen, self.outputs)
        np.abs(found, out=found)
        if self.order != 1:
            found **= self.order
        return np.asarray(found)

    def between_inputs(self, place: int) -> FloatArray:
        return np.asarray(np.abs(self.inputs - self.inputs[place]))

    def near_order(self) -> IndexArray:
        return np.argsort(self.outputs, kind="stable")

    def _identity(self) -> tuple[Any, ...]:
        return self.inputs, self.outputs, self.order
