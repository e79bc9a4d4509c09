"""Inner products of the bins of a balls-in-bins run, under a strategy matrix.

A record of bin i moves the outputs by m_i, the sum of the columns i, i + b, i + 2b, …
of an (n, n) matrix. All entries are at least 0, so that sums and products keep their
relative accuracy.
"""

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats


def of_toeplitz(column: FloatArray, num_bins: int, num_epochs: int) -> FloatArray:
    """Returns the (b, b) inner products of a lower triangular Toeplitz matrix.

    Let e_s = Σ_j c_{s − jb}, where c is the first column. Then m_i is e, shifted by i
    and cut after n steps. So m_i · m_{i+d} is the sum of the first n − i − d products
    e_s e_{s+d}.

    Args:
        column: (p,) the first column of the matrix, p ≤ n.
        num_bins: The number b of bins.
        num_epochs: The number n / b of epochs.
    """
    steps = num_bins * num_epochs
    whole = np.zeros(steps)
    whole[: column.size] = column
    added = np.cumsum(whole.reshape(num_epochs, num_bins), axis=0).ravel()
    gram = np.zeros((num_bins, num_bins))
    for distance in range(num_bins):
        partial = np.cumsum(added[: steps - distance] * added[distance:])
        rows = np.arange(num_bins - distance)
        values = partial[steps - rows - distance - 1]
        gram[rows, rows + distance] = gram[rows + distance, rows] = values
    return gram


def of_matrix(rows: FloatArray, num_bins: int) -> FloatArray:
    """Returns the (b, b) inner products of the bins of an (n, n) strategy matrix.

    Args:
        rows: (n, n) entries of the matrix.
        num_bins: The number b of bins, which divides n.
    """
    steps = len(rows)
    added = rows.reshape(steps, steps // num_bins, num_bins).sum(axis=1)
    return np.asarray(added.T @ added)


def error(num_steps: int) -> float:
    """Returns a bound on the relative error of an inner product over n steps."""
    return 4 * (num_steps + 8) * floats.UNIT_ROUNDOFF
