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
        starts: (n + 1,) the index at which each user's entries begin, and the index at
            which those of the last user end.
        inputs: (entries,) the inputs that hold mass, increasing for each user.
        masses: (entries,) their positive masses, which sum to one for each user.
        size: The number k of inputs.
        is_batch: Whether the argument was a batch of rows, and not a single user.
    """

    starts: IndexArray
    inputs: IndexArray
    masses: FloatArray
    size: int
    is_batch: bool

    def __len__(self) -> int:
        return self.starts.size - 1

    def __repr__(self) -> str:
        return f"{type(self).__name__}({len(self)} of {self.size} inputs, private)"

    @classmethod
    def of_points(cls, inputs: IndexArray, size: int) -> "PrivateRows":
        """Returns a user for each of some inputs, who has all mass there."""
        starts = np.arange(inputs.size + 1)
        return cls(starts, inputs, np.ones(inputs.size), size, True)

    def row(self, user: int) -> tuple[IndexArray, FloatArray]:
        """Returns the inputs and the masses of one user."""
        part = slice(self.starts[user], self.starts[user + 1])
        return self.inputs[part], self.masses[part]

    def part(self, begin: int, end: int) -> "PrivateRows":
        """Returns some consecutive users, as a batch; `end` may be beyond the last."""
        end = min(end, len(self))
        first, last = self.starts[begin], self.starts[end]
        return PrivateRows(
            self.starts[begin : end + 1] - first,
            self.inputs[first:last],
            self.masses[first:last],
            self.size,
            True,
        )


def read(name: str, value: Any, size: int) -> PrivateRows:
    """Returns the distributions of an argument.

    Args:
        name: The argument's name, for errors.
        value: (k,) masses or counts of one user, or (n, k) for a batch, as an array
            or as a SciPy sparse matrix. Integers are counts, which are divided
            by their sum. Other numbers are masses, which must sum to one.
        size: The number k of inputs.

    Raises:
        TypeError: If they are not real numbers.
        ValueError: If the shape is wrong, an entry is negative or not finite, or a
            row of counts sums to zero, or the sum of a row of masses is further than
            `SUM_TOLERANCE` from one.
    """
    is_sparse: bool = sparse.issparse(value)
    if not is_sparse and isinstance(value, Mapping | Set | str | None):
        kind = "None" if value is None else f"a {type(value).__name__}"
        raise TypeError(f"{name} must be an array of real numbers. Found {kind}.")
    found: Any = value if is_sparse else fields.number_array(name, value)
    if found.dtype.kind not in "fiu":
        raise TypeError(
            f"{name} must be an array of real numbers. Found dtype {found.dtype}."
        )
    if not is_sparse and found.dtype.kind == "f":
        found = found.astype(np.float64)
    shape = found.shape
    if len(shape) not in (1, 2) or shape[-1] != size:
        raise ValueError(
            f"{name} must have a mass for each of the {size} inputs: shape ({size},), "
            f"or (n, {size}) for a batch. Found shape {shape}."
        )
    starts, inputs, entries = _entries(
        found if len(shape) == 2 else found.reshape((1, size))
    )
    if not ((entries >= 0) & (entries < np.inf)).all():
        raise ValueError(
            f"{name} must be non-negative and finite. Found an entry that is not."
        )
    masses = _shares(name, entries, starts, counted=found.dtype.kind in "iu")
    return PrivateRows(starts, inputs, masses, size, len(shape) == 2)


def _entries(table: Any) -> tuple[IndexArray, IndexArray, FloatArray]:
    """Returns where rows start, and columns and values of the nonzero entries."""
    if isinstance(table, np.ndarray):
        users, inputs = np.nonzero(table)
        starts = np.searchsorted(users, np.arange(len(table) + 1))
        return starts, inputs, table[users, inputs].astype(np.float64)
    # This is a copy. Zeros are dropped, and entries that are stored twice are added, as
    # numbers that do not overflow. (In some versions of SciPy `astype` adds them
    # before.)
    given = table.tocoo()
    entries = given.data.astype(np.float64)
    rows = sparse.csr_matrix((entries, (given.row, given.col)), shape=table.shape)
    rows.eliminate_zeros()
    return rows.indptr.astype(np.intp), rows.indices.astype(np.intp), rows.data


def _shares(
    name: str, entries: FloatArray, starts: IndexArray, *, counted: bool
) -> FloatArray:
    """Returns entries divided by the sums of their users."""
    users = starts.size - 1
    lengths = np.diff(starts)
    owners = np.repeat(np.arange(users), lengths)
    sums = np.bincount(owners, entries, minlength=users)
    if (lengths == 0).any():
        raise ValueError(f"{name} must have some mass in each row. Found none.")
    if counted:
        # Floats cannot hold all integers above 2^53.
        if users and sums.max() >= 2.0**53:
            raise ValueError(f"{name} must sum to less than 2^53. Found more.")
    elif (np.abs(sums - 1) > SUM_TOLERANCE).any():
        raise ValueError(
            f"{name} must sum to 1 within {SUM_TOLERANCE:g}. Found a sum further off; "
            "divide by it."
        )
    return np.asarray(entries / sums[owners])
