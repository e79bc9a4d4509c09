"""Projections with certificates, exact or entropic, of one user or a batch."""

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.entropic import entropic_projection
from dp_accounting_ext.wpm.projections.exact import column_generation

FloatArray = npt.NDArray[np.float64]


def project(
    mu: npt.ArrayLike,
    cost: npt.ArrayLike,
    base_measure: npt.ArrayLike,
    epsilon: float,
    regularization: float | None = None,
) -> solution.ProjectionResult:
    """Returns the member of the polytope that is cheapest to reach from μ.

    The result is not private, nor is its certificate. To release one draw, use a
    mechanism.

    Args:
        mu: (k,) distribution, or (n, k) for a batch.
        cost: (k, k_v) costs d(x_i, v_j)^p.
        base_measure: (k_v,) masses m with e^{−ε/2} ≤ Σm ≤ e^{ε/2}.
        epsilon: The privacy parameter ε.
        regularization: None for the exact projection, λ > 0 for the entropic one.

    Raises:
        TypeError: If an argument has the wrong type.
        ValueError: If an argument is out of range.
        SolverError: If the linear program behind the exact projection fails.

    Guarantees:
        `value` and `lower_bound` enclose, up to rounding, the cost of the
        distribution and the least cost of all.
    """
    privacy = checks.epsilon(epsilon)
    costs = checks.cost(cost)
    measure = checks.base_measure(base_measure, costs.shape[1], privacy)
    users = checks.distributions("mu", mu, costs.shape[0])
    allowed = ldp_polytope.from_base_measure(measure, privacy)
    if regularization is None:
        parts = [column_generation.solve(user, costs, allowed) for user in users]
    else:
        strength = checks.regularization(regularization)
        parts = [entropic_projection.solve(users, costs, allowed, strength)]
    return certified(parts, users, costs, allowed, batch=np.ndim(mu) == 2)


def certified(
    parts: list[solution.Solution],
    users: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    *,
    batch: bool,
) -> solution.ProjectionResult:
    """Returns the solutions of all users with the bounds that their prices prove."""
    prices = np.concatenate([part.prices for part in parts])
    bounds = []
    for user, price in zip(users, prices, strict=True):
        completed = duality.complete_prices(price, user, cost, polytope)
        bounds.append(duality.lower_bound(user, completed, cost, polytope))
    everything = solution.ProjectionResult(
        np.concatenate([part.distributions for part in parts]),
        np.concatenate([part.values for part in parts]),
        np.array(bounds),
        np.concatenate([part.regularized_gaps for part in parts]),
        np.concatenate([part.iterations for part in parts]),
        np.concatenate([part.converged for part in parts]),
    )
    return everything if batch else everything.first()
