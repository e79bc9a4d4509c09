"""The types that every layer uses: arrays, the side of a bound, and the direction.

These names are imported one by one, unlike those of other modules.
"""

import enum

import numpy as np
import numpy.typing as npt

BoolArray = npt.NDArray[np.bool_]
ComplexArray = npt.NDArray[np.complex128]
FloatArray = npt.NDArray[np.float64]
# Integers that count, or that number the nodes of a lattice.
IntArray = npt.NDArray[np.int64]
# Integers that index arrays, as NumPy returns them.
IndexArray = npt.NDArray[np.intp]


class Bound(enum.Enum):
    """Which side of the true privacy profile a pair certifies."""

    UPPER = "upper"
    LOWER = "lower"


class Direction(enum.Enum):
    """Which of two neighboring datasets is P: with the record, or without it."""

    REMOVE = "remove"
    ADD = "add"
