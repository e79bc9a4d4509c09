"""What searches for base measures hand back."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class MeasureResult:
    """Represents a base measure with a certificate of its objective.

    Attributes:
        base_measure: (k_v,) masses m.
        value: Its objective: the worst-case cost, or the mean cost of public users.
        lower_bound: No allowed measure has less.
        iterations: Rounds of the search.
        converged: Whether the gap met the tolerance.
    """

    base_measure: FloatArray
    value: float
    lower_bound: float
    iterations: int
    converged: bool

    def __array__(
        self, dtype: npt.DTypeLike | None = None, copy: bool | None = None
    ) -> npt.NDArray[Any]:
        """Returns the base measure, so that a result serves where one is asked for."""
        if copy is False:
            return np.asarray(self.base_measure, dtype=dtype)
        return np.array(self.base_measure, dtype=dtype)

    @property
    def gap(self) -> float:
        """The value above the lower bound."""
        return self.value - self.lower_bound
