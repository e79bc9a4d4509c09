"""Projections with certificates, for one user or for a batch of users."""

import dataclasses
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext import displays
from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm.projections import entropic
from dp_accounting_ext.wpm.projections import exact_projection
from dp_accounting_ext.wpm.projections import ldp_polytope

# A gap of at most this share of the largest cost is attributed to rounding.
_SMALL = 1e-13
# Certified: a bound on the rounding error of two scalar products, whose weights sum to
# about one.
_ROUNDING = 8 * floats.UNIT_ROUNDOFF


@dataclasses.dataclass(frozen=True, repr=False)
class ProjectionResult(displays.Displayed):
    """Represents a projection with its certificate; arrays for a batch.

    None of it is private: privacy is that of one draw from the distribution.

    Attributes:
        distribution: (k_v,) or (n, k_v), the projection.
        value: The cost of a plan that moves the input to the projection.
        lower_bound: A lower bound on the cost of moving the input into the polytope.
        iterations: The number of rounds of the solver.
        converged: Whether the gap between the two is at most the tolerance.
    """

    distribution: FloatArray
    value: FloatArray | float
    lower_bound: FloatArray | float
    iterations: IntArray | int
    converged: BoolArray | bool

    @property
    def gap(self) -> FloatArray | float:
        """The difference of the value and the lower bound."""
        return self.value - self.lower_bound

    def _display(self) -> displays.Table:
        values, gaps = np.atleast_1d(self.value), np.atleast_1d(self.gap)
        rows = [
            ("distributions", str(values.size)),
            ("outputs", str(self.distribution.shape[-1])),
            ("largest cost", f"{values.max(initial=0.0):.6g}"),
            ("above the least, at most", f"{gaps.max(initial=0.0):.2g}"),
        ]
        title = "projection, as private as its input"
        return displays.Table(title, ("", "value"), rows)


def project(
    mu: Any,
    cost: Any,
    base_measure: npt.ArrayLike,
    epsilon: float,
    *,
    relative_gap: float = 1e-6,
    regularization: float | None = None,
    iterations: int = 40,
) -> ProjectionResult:
    """Returns the member of the polytope that is cheapest to reach from μ.

    The result is not private, nor is its certificate. To release one draw, use a
    mechanism.

    Args:
        mu: (k,) distribution, or (n, k) for a batch; counts, or a sparse matrix.
        cost: (k, k_v) costs d(x_i, v_j)^p, or a `TransportCost`.
        base_measure: (k_v,) masses m with e^{−ε/2} ≤ Σm ≤ e^{ε/2}.
        epsilon: The privacy parameter ε.
        relative_gap: The largest allowed excess of the projection's cost over the least
            cost, as a share of it. With regularization it decides `converged` alone.
        regularization: None for the exact projection; or λ > 0, in the unit of costs,
            for Algorithm 1. It is faster for many places.
        iterations: The number of passes of Algorithm 1.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range, or λ below 1/600 of the largest
            cost.
        SolverError: If the linear program behind an exact projection fails.

    Guarantees:
        `value` and `lower_bound` enclose, up to rounding, the cost of the
        distribution and the least cost of all, also with regularization.

    Source:
        https://arxiv.org/abs/2605.10015, Section 4.
    """
    privacy = checks.epsilon(epsilon)
    gap = fields.inner_probability("relative_gap", relative_gap)
    paid = costs.as_cost(cost)
    size = paid.shape[1]
    measure = checks.base_measure(base_measure, size, privacy)
    users = private_rows.read("mu", mu, paid.shape[0])
    allowed = ldp_polytope.from_base_measure(measure, privacy)
    passes = fields.positive_integer("iterations", iterations)
    if regularization is None:
        exact = exact_projection.ExactSolver(paid, allowed, gap)
        solutions = [exact.solve(*users.row(user)) for user in range(len(users))]
    else:
        fast = entropic.EntropicSolver(paid, allowed, regularization, passes)
        solutions = fast.certified(users)
    values, bounds, met = np.zeros(len(solutions)), np.zeros(len(solutions)), []
    for user, solution in enumerate(solutions):
        inputs, masses = users.row(user)
        rows = paid.rows(inputs)
        values[user] = solution.value
        bounds[user] = _lower_bound(solution.prices, masses, rows, allowed)
        slack = gap * solution.value + _SMALL * float(rows.max())
        met.append(solution.value - bounds[user] <= slack)
    laws = np.array([solution.distribution for solution in solutions]).reshape(
        len(solutions), size
    )
    rounds = np.array([solution.rounds for solution in solutions], dtype=np.int64)
    certificates = values, bounds, rounds, np.array(met, dtype=np.bool_)
    if users.is_batch:
        return ProjectionResult(laws, *certificates)
    return ProjectionResult(laws[0], *(numbers[0].item() for numbers in certificates))


def _lower_bound(
    prices: FloatArray,
    masses: FloatArray,
    rows: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> float:
    """Returns the lower bound that a solution's prices prove."""
    bound = ldp_polytope.lower_bound(masses, prices, rows, polytope)
    # Large prices cancel up to rounding, and no cost is negative.
    excess = max(float(np.abs(prices).max()) - float(rows.max()), 0.0)
    return max(bound - _ROUNDING * (prices.size + masses.size) * excess, 0.0)
