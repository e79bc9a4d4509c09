"""Projections with certificates, exact or entropic, of one user or a batch."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm.costs import dense_cost
from dp_accounting_ext.wpm.costs import transport_cost
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.exact import exact_projection

FloatArray = npt.NDArray[np.float64]

# Certified: two scalar products, whose terms' weights sum to one but for rounding.
_ROUNDING = 8 * floats.UNIT_ROUNDOFF


def project(
    mu: Any,
    cost: Any,
    base_measure: npt.ArrayLike,
    epsilon: float,
    regularization: float | None = None,
    *,
    relative_gap: float = 1e-6,
    max_iterations: int = 5000,
    algorithm: str = "newton",
) -> solution.ProjectionResult:
    """Returns the member of the polytope that is cheapest to reach from μ.

    The result is not private, nor is its certificate. To release one draw, use a
    mechanism.

    Args:
        mu: (k,) distribution, or (n, k) for a batch; counts, or a sparse matrix.
        cost: (k, k_v) costs d(x_i, v_j)^p, or a `TransportCost`.
        base_measure: (k_v,) masses m with e^{−ε/2} ≤ Σm ≤ e^{ε/2}.
        epsilon: The privacy parameter ε.
        regularization: None for the exact projection, λ > 0 for the entropic one.
        relative_gap: The entropic projection stops at a regularised gap that is this
            share of the cost.
        max_iterations: It stops then in any case.
        algorithm: Of the entropic projection: "newton", or "paper" for
            `max_iterations` passes of the paper's Algorithm 1 (which takes 40).

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
        SolverError: If the linear program behind the exact projection fails.

    Guarantees:
        `value` and `lower_bound` enclose, up to rounding, the cost of the
        distribution and the least cost of all.
    """
    privacy = checks.epsilon(epsilon)
    costs = dense_cost.as_cost(cost)
    measure = checks.base_measure(base_measure, costs.shape[1], privacy)
    users = private_rows.read("mu", mu, costs.shape[0])
    allowed = ldp_polytope.from_base_measure(measure, privacy)
    settings = entropic_projection.make_settings(
        regularization, relative_gap, max_iterations, algorithm
    )
    if settings is None:
        exact = exact_projection.make_solver(costs, allowed)
        parts = [exact.solve(*users.row(user)) for user in range(len(users))]
    else:
        parts = []
        for user in range(len(users)):
            inputs, masses = users.row(user)
            rows = costs.rows(inputs)
            parts.append(entropic_projection.solve(masses, rows, allowed, settings))
    return _certified(parts, users, costs, allowed)


def _certified(
    parts: list[solution.Solution],
    users: private_rows.PrivateRows,
    cost: transport_cost.TransportCost,
    polytope: ldp_polytope.LdpPolytope,
) -> solution.ProjectionResult:
    """Returns the solutions of all users with the bounds that their prices prove."""
    outputs = np.flatnonzero(polytope.upper > 0)
    bounds = []
    for user, part in enumerate(parts):
        inputs, masses = users.row(user)
        rows = cost.rows(inputs)
        prices = part.prices[0]
        if outputs.size < prices.size:
            prices = duality.complete_prices(prices[outputs], rows, outputs)
        bound = duality.lower_bound(masses, prices, rows, polytope)
        # Prices far above the costs cancel, and leave rounding; no cost is negative.
        excess = max(float(np.abs(prices).max()) - float(rows.max()), 0.0)
        bound -= _ROUNDING * (prices.size + inputs.size) * excess
        bounds.append(max(bound, 0.0))
    whole = solution.joined(parts, polytope.upper.size)
    found = solution.ProjectionResult(
        whole.distributions,
        whole.values,
        np.array(bounds),
        whole.regularized_gaps,
        whole.iterations,
        whole.converged,
    )
    return found if users.is_batch else found.first()
