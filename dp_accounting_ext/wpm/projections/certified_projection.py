"""Projections with certificates, exact or entropic, of one user or a batch."""

from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import floats
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm import private_rows
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import entropic_projection
from dp_accounting_ext.wpm.projections import exact_projection
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution

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
        relative_gap: By what share of its cost the projection may lie further than
            the nearest member; of the entropic one, with the regularisation.
        max_iterations: The entropic projection stops then in any case.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
        SolverError: If the linear program behind the exact projection fails.

    Guarantees:
        `value` and `lower_bound` enclose, up to rounding, the cost of the
        distribution and the least cost of all.
    """
    privacy = checks.epsilon(epsilon)
    gap = checks.relative_gap(relative_gap)
    paid = costs.as_cost(cost)
    measure = checks.base_measure(base_measure, paid.shape[1], privacy)
    users = private_rows.read("mu", mu, paid.shape[0])
    allowed = ldp_polytope.from_base_measure(measure, privacy)
    settings = entropic_projection.make_settings(regularization, gap, max_iterations)
    if settings is None:
        exact = exact_projection.make_solver(paid, allowed, gap)
        parts = [exact.solve(*users.row(user)) for user in range(len(users))]
    else:
        parts = []
        for user in range(len(users)):
            inputs, masses = users.row(user)
            rows = paid.rows(inputs)
            parts.append(entropic_projection.solve(masses, rows, allowed, settings))
    bounds = _bounds(parts, users, paid, allowed)
    return solution.as_result(parts, bounds, paid.shape[1], batch=users.is_batch)


def _bounds(
    parts: list[solution.Solution],
    users: private_rows.PrivateRows,
    cost: costs.TransportCost,
    polytope: ldp_polytope.LdpPolytope,
) -> list[float]:
    """Returns the lower bounds that the solutions' prices prove."""
    outputs = np.flatnonzero(polytope.upper > 0)
    bounds = []
    for user, part in enumerate(parts):
        inputs, masses = users.row(user)
        rows = cost.rows(inputs)
        prices = part.prices
        if outputs.size < prices.size:
            prices = duality.complete_prices(prices[outputs], rows, outputs)
        bound = duality.lower_bound(masses, prices, rows, polytope)
        # Prices far above the costs cancel, and leave rounding; no cost is negative.
        excess = max(float(np.abs(prices).max()) - float(rows.max()), 0.0)
        bound -= _ROUNDING * (prices.size + inputs.size) * excess
        bounds.append(max(bound, 0.0))
    return bounds
