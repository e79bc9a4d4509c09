"""Sums over rows and columns of e^{f_i + g_j − C_ij/λ}, in logarithms.

Potentials f and prices g are in units of λ. Prices are batches, a row for each user.
Potentials exist where a user has mass, and are one flat array: the entries of the
first user, of the second, and so on. There is a kernel that all users share, one
matrix product a pass, as long as the costs span few hundred λ; and one for a single
user that absorbs the user's potentials, so that it is exact at any λ.
"""

import abc

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# e^−250 twice, for the kernel and the potentials, stays a normal float.
SHARED_RANGE = 250.0

# With e^60 for potentials that moved, a sum above e^−500 has lost nothing it shows.
_MOST_MOVED = 60.0
_LEAST_LOG_SUM = -500.0


class Support:
    """Where users have mass, and sums over it.

    Args:
        masses: (n, k) distributions.
    """

    def __init__(self, masses: FloatArray) -> None:
        self.shape = masses.shape
        self.users, self.inputs = np.nonzero(masses > 0)
        self.masses = masses[self.users, self.inputs]
        counts = np.bincount(self.users, minlength=masses.shape[0])
        self._starts = np.cumsum(counts) - counts

    def sums(self, values: FloatArray) -> FloatArray:
        """Returns (n,) sums of flat values over each user's entries."""
        return np.asarray(np.add.reduceat(values, self._starts))

    def largest(self, values: FloatArray) -> FloatArray:
        """Returns (n,) largest of flat values over each user's entries."""
        return np.asarray(np.maximum.reduceat(values, self._starts))

    def dense(self, values: FloatArray) -> FloatArray:
        """Returns (n, k) flat values in their places, zeros elsewhere."""
        found = np.zeros(self.shape)
        found[self.users, self.inputs] = values
        return found


class GibbsKernel(abc.ABC):
    """The sums that an iteration needs."""

    @abc.abstractmethod
    def log_row_sums(self, prices: FloatArray) -> FloatArray:
        """Returns flat log Σ_j e^{g_j − C_ij/λ} for (n, k_v) prices g."""

    @abc.abstractmethod
    def log_column_sums(self, potentials: FloatArray) -> FloatArray:
        """Returns (n, k_v) log Σ_i e^{f_i − C_ij/λ} for flat potentials f."""

    @abc.abstractmethod
    def plan_costs(self, potentials: FloatArray, prices: FloatArray) -> FloatArray:
        """Returns (n,) Σ_ij C_ij/λ e^{f_i + g_j − C_ij/λ}."""


def make(scaled_cost: FloatArray, support: Support) -> GibbsKernel:
    """Returns a kernel for some users.

    Args:
        scaled_cost: (k, k_v) costs over λ.
        support: Where the users have mass; a single user, unless `shareable`.
    """
    if shareable(scaled_cost):
        return _SharedKernel(scaled_cost, support)
    return _AbsorbingKernel(scaled_cost[support.inputs])


def shareable(scaled_cost: FloatArray) -> bool:
    """Tells whether one kernel does for all users."""
    ranges = scaled_cost.max(axis=1) - scaled_cost.min(axis=1)
    return float(ranges.max()) <= SHARED_RANGE


class _SharedKernel(GibbsKernel):
    """One kernel, scaled so that the greatest entry of each row is one."""

    def __init__(self, scaled_cost: FloatArray, support: Support) -> None:
        least = scaled_cost.min(axis=1)
        self._kernel = np.exp(least[:, np.newaxis] - scaled_cost)
        self._weighted = scaled_cost * self._kernel
        self._least = least[support.inputs]
        self._support = support

    def log_row_sums(self, prices: FloatArray) -> FloatArray:
        shift = prices.max(axis=1)
        sums = np.exp(prices - shift[:, np.newaxis]) @ self._kernel.T
        flat = sums[self._support.users, self._support.inputs]
        return np.asarray(_log(flat) + shift[self._support.users] - self._least)

    def log_column_sums(self, potentials: FloatArray) -> FloatArray:
        scaled, shift = self._exponentials(potentials)
        return np.asarray(_log(scaled @ self._kernel) + shift[:, np.newaxis])

    def plan_costs(self, potentials: FloatArray, prices: FloatArray) -> FloatArray:
        scaled, shift = self._exponentials(potentials)
        logs = prices + shift[:, np.newaxis]
        return np.asarray(((scaled @ self._weighted) * np.exp(logs)).sum(axis=1))

    def _exponentials(self, potentials: FloatArray) -> tuple[FloatArray, FloatArray]:
        logs = potentials - self._least
        shift = self._support.largest(logs)
        return self._support.dense(np.exp(logs - shift[self._support.users])), shift


class _AbsorbingKernel(GibbsKernel):
    """The kernel of one user, with potentials near its own taken in.

    Sums are taken with the entries e^{f° + g° − C/λ} of potentials f°, g° that were
    absorbed. Where the prices have moved too far from these, or a sum is so small
    that entries which underflowed might show, the sum is taken anew.
    """

    def __init__(self, scaled_cost: FloatArray) -> None:
        self._cost = scaled_cost
        self._absorb(np.zeros(scaled_cost.shape[1]), _log_sum(-scaled_cost, axis=1))

    def log_row_sums(self, prices: FloatArray) -> FloatArray:
        moved = prices[0] - self._prices
        if np.abs(moved).max() <= _MOST_MOVED:
            found = _log(self._entries @ np.exp(moved))
            if found.min() >= _LEAST_LOG_SUM:
                return np.asarray(found - self._potentials)
        sums = _log_sum(prices[0] - self._cost, axis=1)
        self._absorb(prices[0].copy(), sums)
        return sums

    def log_column_sums(self, potentials: FloatArray) -> FloatArray:
        moved = potentials - self._potentials
        # A common shift is no movement.
        shift = moved.max()
        found = _log(np.exp(moved - shift) @ self._entries)
        if found.min() >= _LEAST_LOG_SUM:
            return np.asarray(found + shift - self._prices)[np.newaxis]
        return _log_sum(potentials[:, np.newaxis] - self._cost, axis=0)[np.newaxis]

    def plan_costs(self, potentials: FloatArray, prices: FloatArray) -> FloatArray:
        plan = np.exp(potentials[:, np.newaxis] + prices[0] - self._cost)
        return np.array([(plan * self._cost).sum()])

    def _absorb(self, prices: FloatArray, log_row_sums: FloatArray) -> None:
        self._prices, self._potentials = prices, -log_row_sums
        absorbed = self._potentials[:, np.newaxis] + prices - self._cost
        self._entries = np.exp(absorbed)


def _log(sums: FloatArray) -> FloatArray:
    """Logarithms, −∞ for zero."""
    with np.errstate(divide="ignore"):
        return np.asarray(np.log(sums))


def _log_sum(logs: FloatArray, axis: int) -> FloatArray:
    shift = logs.max(axis=axis, keepdims=True)
    sums = np.log(np.exp(logs - shift).sum(axis=axis))
    return np.asarray(sums + np.squeeze(shift, axis))
