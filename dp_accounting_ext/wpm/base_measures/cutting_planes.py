"""Linear programs over base measures, from functions known one tangent at a time.

Measures are scaled to y = βm: 0 ≤ y ≤ 1 and 1 ≤ Σy ≤ e^ε.
"""

import math

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dp_accounting_ext.wpm.projections import linear_program

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]


class Cuts:
    """Lower bounds c + a·y of convex functions, which are minimised in sum.

    Args:
        size: The number k_v of outputs.
        epsilon: The privacy parameter ε.
        weights: (functions,) weights of the functions in the sum.
        cap: A limit for functions beside the sum; they are bounded by `add_capped`.
    """

    def __init__(
        self, size: int, epsilon: float, weights: FloatArray, cap: float = math.inf
    ) -> None:
        self._most_mass = min(float(size), math.exp(epsilon))
        self._weights = weights
        self._cap = cap
        self._intercepts = np.zeros(0)
        self._slopes = np.zeros((0, size))
        # The function that a tangent bounds; one past the last for capped ones.
        self._functions = np.zeros(0, dtype=np.intp)

    def add(
        self, intercepts: FloatArray, slopes: FloatArray, functions: IndexArray
    ) -> None:
        """Adds a tangent c + a·y to each of some functions."""
        self._intercepts = np.append(self._intercepts, intercepts)
        self._slopes = np.concatenate([self._slopes, slopes])
        self._functions = np.append(self._functions, functions)

    def add_capped(self, intercepts: FloatArray, slopes: FloatArray) -> None:
        """Adds tangents that must stay below the cap."""
        capped = np.full(intercepts.size, self._weights.size)
        self.add(intercepts - self._cap, slopes, capped)

    def solve(self) -> tuple[FloatArray, float] | None:
        """Returns the y with the least sum, and a proven lower bound of the sum.

        None if the solver fails.
        """
        count, size = self._slopes.shape
        known = self._functions < self._weights.size
        shape = (count, self._weights.size)
        places = (np.flatnonzero(known), self._functions[known])
        levels = sparse.csc_array((-np.ones(known.sum()), places), shape=shape)
        total = sparse.csc_array(
            np.append(np.ones(size), np.zeros(self._weights.size))[np.newaxis]
        )
        tangents = sparse.hstack([sparse.csc_array(self._slopes), levels])
        try:
            found = linear_program.solve(
                np.append(np.zeros(size), self._weights),
                sparse.vstack([tangents, total, -total], format="csc"),
                np.concatenate([-self._intercepts, [self._most_mass, -1.0]]),
                [(0.0, 1.0)] * size + [(None, None)] * self._weights.size,
                equal=False,
            )
        except linear_program.SolverError:
            return None
        shares = np.maximum(-found.duals[:count], 0.0)
        return self._inside(found.variables[:size]), self._bound(shares)

    def _bound(self, shares: FloatArray) -> float:
        """Returns the least value of a sum of the tangents, a knapsack.

        A function's shares are first made to sum to its weight.
        """
        known = self._functions < self._weights.size
        owners = self._functions[known]
        sums = np.bincount(owners, shares[known], minlength=self._weights.size)
        if not (sums > 0).all():
            return -math.inf
        shares = shares.copy()
        shares[known] *= (self._weights / sums)[owners]
        order = np.sort(shares @ self._slopes)
        room = np.clip(self._most_mass - np.arange(order.size), 0.0, 1.0)
        # One unit of mass is needed; beyond it only what lowers the value is taken.
        least = float(order[0] + np.minimum(order[1:], 0.0) @ room[1:])
        return float(shares @ self._intercepts) + least

    def _inside(self, most: FloatArray) -> FloatArray:
        """Returns the solver's y with its sum and its entries within the limits."""
        clipped = np.clip(most, 0.0, 1.0)
        total = min(max(float(clipped.sum()), 1.0), self._most_mass)
        return np.asarray(clipped * (total / clipped.sum()))
