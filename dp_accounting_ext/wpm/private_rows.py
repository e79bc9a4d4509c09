"""Distributions of users, stored by the inputs that hold mass.

Users pass them as arrays or as sparse matrices, of masses or of counts. They are
private: an error names the rule that a distribution breaks, and shows no value of it.
"""

from collections.abc import Mapping
from collections.abc import Set
import dataclasses
from typing import Any

import numpy as np
from scipy import sparse

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.validation import fields

SUM_TOLERANCE = 1e-6


@dataclasses.dataclass(frozen=True, repr=False)
class PrivateRows:
    """Represents n distributions of k inputs, and shows none of them when printed.

    Attributes:
        table: (n, k) SciPy CSR matrix of positive masses, which sum to one in each row.
        is_batch: Whether the argument was a batch of rows, and not a single user.
    """

    table: Any
    is_batch: bool

    def __len__(self) -> int:
        return int(self.table.shape[0])

    def __repr__(self) -> str:
        size = self.table.shape[1]
        return f"{type(self).__name__}({len(self)} of {size} inputs, private)"

    @classmethod
    def of_points(cls, inputs: IndexArray, size: int) -> "PrivateRows":
        """Returns a user for each of some inputs, who has all mass there."""
        entries = np.ones(inputs.size), inputs, np.arange(inputs.size + 1)
        return cls(sparse.csr_matrix(entries, shape=(inputs.size, size)), True)

    def row(self, user: int) -> tuple[IndexArray, FloatArray]:
        """Returns the inputs that hold mass, increasing, and the masses of one user."""
        place = slice(*self.table.indptr[user : user + 2])
        return self.table.indices[place].astype(np.intp), self.table.data[place]

    def part(self, begin: int, end: int) -> "PrivateRows":
        """Returns some consecutive users, as a batch; `end` may be beyond the last."""
        return PrivateRows(self.table[begin:end], True)


def read(name: str, value: Any, size: int) -> PrivateRows:
    """Returns the distributions of an argument, of which errors show the name alone.

    It has (k,) masses or counts of one user, or (n, k) for a batch, as an array or as a
    SciPy sparse matrix. Integers are counts, which are divided by their sum. Other
    numbers are masses, which must sum to one.
    """
    is_sparse: bool = sparse.issparse(value)
    if not is_sparse and isinstance(value, Mapping | Set | str | None):
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise TypeError(f"{name} must be an array of real numbers. Found {kind}.")
    array: Any = value if is_sparse else fields.number_array(name, value)
    if array.dtype.kind not in "fiu":
        raise TypeError(
            f"{name} must be an array of real numbers. Found dtype {array.dtype}."
        )
    if not is_sparse and array.dtype.kind == "f":
        array = array.astype(np.float64)
    shape = array.shape
    if len(shape) not in (1, 2) or shape[-1] != size:
        raise ValueError(
            f"{name} must have a mass for each of the {size} inputs: shape ({size},), "
            f"or (n, {size}) for a batch. Found shape {shape}."
        )
    # This is a copy. Zeros are dropped, and entries that are stored twice are added, as
    # numbers that do not overflow.
    stored = sparse.coo_matrix(array if len(shape) == 2 else array.reshape((1, size)))
    entries = stored.data.astype(np.float64)
    table = sparse.csr_matrix((entries, (stored.row, stored.col)), shape=stored.shape)
    table.eliminate_zeros()
    if not ((table.data >= 0) & (table.data < np.inf)).all():
        raise ValueError(
            f"{name} must be non-negative and finite. Found an entry that is not."
        )
    counts = np.diff(table.indptr)
    if (counts == 0).any():
        raise ValueError(f"{name} must have some mass in each row. Found none.")
    owners = np.repeat(np.arange(counts.size), counts)
    sums = np.bincount(owners, table.data, minlength=counts.size)
    if array.dtype.kind in "iu":
        # Floats cannot hold all integers above 2^53.
        if (sums >= 2.0**53).any():
            raise ValueError(f"{name} must sum to less than 2^53. Found more.")
    elif (np.abs(sums - 1) > SUM_TOLERANCE).any():
        raise ValueError(
            f"{name} must sum to 1 within {SUM_TOLERANCE:g}. Found a sum further off; "
            "divide by it."
        )
    table.data /= sums[owners]
    return PrivateRows(table, len(shape) == 2)
