"""Algorithm 1: projections with entropic regularization, for many users at once.

A plan diag(u) K diag(v) of the kernel K = e^{−C/λ} is scaled to a user's masses and to
the allowed laws in turn. The number of passes is fixed and public. No number of a user
enters the law of another: each product of a user has a shape that depends on that user
alone, or on nothing, so that not even its rounding differs.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import functools
from typing import NamedTuple

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm.projections import ldp_polytope

# Entries of the kernel must not underflow, so costs are at most so many λ.
MOST_UNITS = 600.0
# Tuning, all of these constants.
_KEPT = 1 << 23  # The largest kernel of all inputs that is kept.
# Users with more than 1 / _SHARE of the inputs are multiplied with the kernel of all
# inputs, so many at a time.
_SHARE, _ROWS = 8, 16
_ENTRIES = 1 << 17  # Entries of other users' kernels, multiplied in turn.
_STEPS = 12  # The steps of Newton's method.

_TINY = float(np.finfo(float).tiny)


class _Block(NamedTuple):
    """Users that are projected together.

    Attributes:
        masses: Their masses of inputs.
        sums: Returns K v for each user's row of v, in the shape of the masses.
        held: Returns Kᵀ u, which is what the outputs hold, a row for each user.
    """

    masses: FloatArray
    sums: Callable[[FloatArray], FloatArray]
    held: Callable[[FloatArray], FloatArray]


def _one_for_all(masses: FloatArray, kernel: FloatArray) -> _Block:
    """Returns the block of users with masses of all inputs, and a common kernel."""
    return _Block(masses, lambda v: v @ kernel.T, lambda u: u @ kernel)


def _one_for_each(
    masses: Sequence[FloatArray], kernels: Sequence[FloatArray]
) -> _Block:
    """Returns the block of users with masses of their own inputs, one by one."""
    starts = np.cumsum([row_masses.size for row_masses in masses])[:-1]

    def sums(v: FloatArray) -> FloatArray:
        pairs = zip(kernels, v, strict=True)
        return np.concatenate([kernel @ row for kernel, row in pairs])

    def held(u: FloatArray) -> FloatArray:
        pairs = zip(np.split(u, starts), kernels, strict=True)
        return np.stack([row_masses @ kernel for row_masses, kernel in pairs])

    return _Block(np.concatenate(masses), sums, held)


class EntropicSolver:
    """Projects users with the regularization λ > 0, by a number of passes.

    Entries of the kernel must not underflow: a smaller λ is refused.

    Source:
        https://arxiv.org/abs/2605.10015, Algorithm 1.
    """

    def __init__(
        self,
        cost: costs.TransportCost,
        polytope: ldp_polytope.LdpPolytope,
        regularization: float,
        iterations: int,
    ) -> None:
        regularization = fields.positive("regularization", regularization)
        largest = cost.largest()
        if largest > MOST_UNITS * regularization:
            raise ValueError(
                f"regularization must be at least {largest / MOST_UNITS:.6g}, the "
                f"largest cost / {MOST_UNITS:g}. Found {regularization:g}; take more, "
                "or None for exact projections."
            )
        self._cost, self._size = cost, polytope.upper.size
        self._outputs = np.flatnonzero(polytope.upper > 0)
        self._polytope = polytope.of(self._outputs).capped()
        self.regularization, self._iterations = regularization, iterations

    def certified(self, users: private_rows.PrivateRows) -> list[ldp_polytope.Solution]:
        """Returns the projections of users, each with the cost of a plan and prices."""
        laws, prices = self.solve(users)
        solutions = []
        for user, (law, price) in enumerate(zip(laws, prices, strict=True)):
            inputs, masses = users.row(user)
            rows = self._cost.rows(inputs)
            inner, at = rows[:, self._outputs], self._outputs
            value = _plan_cost(masses, inner, law[at], price[at], self.regularization)
            best = ldp_polytope.largest_prices(rows, inner, price[at])
            solutions.append(ldp_polytope.Solution(law, best, value, self._iterations))
        return solutions

    def solve(self, users: private_rows.PrivateRows) -> tuple[FloatArray, FloatArray]:
        """Returns (n, k_v) laws in the polytope, up to rounding, and (n, k_v) prices.

        The prices prove a lower bound on the cost of each user.
        """
        laws, prices = np.zeros((2, len(users), self._size))
        for rows, block in self._blocks(users):
            law, scales = self._scale(block)
            place = np.ix_(rows, self._outputs)
            laws[place] = law[: rows.size]
            prices[place] = self.regularization * np.log(scales[: rows.size])
        return laws, prices

    def _kernel(self, inputs: IndexArray) -> FloatArray:
        """Returns e^{−C/λ}, over the largest entry of each row."""
        rows = self._cost.rows(inputs)[:, self._outputs]
        minima = rows.min(axis=1, keepdims=True)
        return np.asarray(np.exp((minima - rows) / self.regularization))

    @functools.cached_property
    def _whole_kernel(self) -> FloatArray:
        return self._kernel(np.arange(self._cost.shape[0]))

    def _blocks(
        self, users: private_rows.PrivateRows
    ) -> Iterator[tuple[IndexArray, _Block]]:
        """Yields which users are projected together, and their kernels."""
        size, counts = users.table.shape[1], np.diff(users.table.indptr)
        is_small = size * self._outputs.size <= _KEPT
        shared = (counts * _SHARE > size) & is_small
        many = np.flatnonzero(shared)
        for begin in range(0, many.size, _ROWS):
            rows = many[begin : begin + _ROWS]
            masses = np.zeros((_ROWS, size))
            masses[: rows.size] = users.table[rows].toarray()
            yield rows, _one_for_all(masses, self._whole_kernel)
        few = np.flatnonzero(~shared)
        numbers = np.cumsum(counts[few]) * self._outputs.size // _ENTRIES
        for rows in np.split(few, np.flatnonzero(np.diff(numbers)) + 1):
            if rows.size:
                inputs, own = zip(*map(users.row, rows.tolist()), strict=True)
                yield rows, _one_for_each(own, [*map(self._kernel, inputs)])

    def _scale(self, block: _Block) -> tuple[FloatArray, FloatArray]:
        """Returns laws, and the scales v of the outputs after all passes."""
        held = block.held(block.masses)
        scales, factors = np.ones(held.shape), 1 / (held.sum(axis=1) + _TINY)
        for _ in range(self._iterations):
            u = block.masses / np.maximum(block.sums(scales), _TINY)
            held = np.maximum(block.held(u), _TINY)
            laws, factors = ldp_polytope.kl_projection(
                held, factors, self._polytope, _STEPS
            )
            scales = laws / held
            scales /= scales.max(axis=1, keepdims=True)
            np.maximum(scales, _TINY, out=scales)
        u = block.masses / np.maximum(block.sums(scales), _TINY)
        held = np.maximum(scales * block.held(u), _TINY)
        ones = np.ones(len(held))
        laws, _ = ldp_polytope.kl_projection(held, ones, self._polytope, _STEPS)
        return ldp_polytope.nearest(laws, self._polytope), scales


def _plan_cost(
    masses: FloatArray,
    rows: FloatArray,
    law: FloatArray,
    prices: FloatArray,
    regularization: float,
) -> float:
    """Returns the cost of a plan from a user's masses to a law.

    The plan of the prices moves at most as much to an output as the law holds. What is
    left of the masses is spread over what is left of the law.
    """
    nearest = (rows - prices).min(axis=1, keepdims=True)
    plan = np.exp((nearest + prices - rows) / regularization)
    plan *= (masses / plan.sum(axis=1))[:, np.newaxis]
    plan *= np.minimum(1.0, law / np.maximum(plan.sum(axis=0), _TINY))
    left = np.maximum(masses - plan.sum(axis=1), 0.0)
    open_ = np.maximum(law - plan.sum(axis=0), 0.0)
    spread = float(left @ rows @ open_) / max(float(open_.sum()), _TINY)
    return float((plan * rows).sum()) + spread
