"""The entropic projection of one user, stopped on a certified duality gap."""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.entropic import alternating_projections
from dp_accounting_ext.wpm.projections.entropic import newton_projection
from dp_accounting_ext.wpm.projections.entropic import regularized_problem

FloatArray = npt.NDArray[np.float64]

ALGORITHMS = ("newton", "paper")
_TINY = float(np.finfo(float).tiny)
_LEAST = 1e-290  # Of the largest cost: costs over λ are finite, and their sums are.


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the entropic projection is computed; all of it public.

    Attributes:
        regularization: The parameter λ.
        relative_gap: Stop at a gap of this share of the cost.
        max_iterations: Stop then in any case; of "paper" the number of passes.
        algorithm: "newton" or "paper".
    """

    regularization: float
    relative_gap: float
    max_iterations: int
    algorithm: str


def make_settings(
    regularization: Any, relative_gap: Any, max_iterations: Any, algorithm: Any
) -> Settings | None:
    """Returns settings that were checked; None for the exact projection.

    Raises:
        TypeError: If one has the wrong type.
        ValueError: If one is out of range.
    """
    gap = fields.real_number("relative_gap", relative_gap)
    if not 0 < gap < math.inf:
        raise ValueError(f"relative_gap must be positive. Found {relative_gap}.")
    if algorithm not in ALGORITHMS:
        raise ValueError(f'algorithm must be "newton" or "paper". Found {algorithm!r}.')
    most = fields.positive_integer("max_iterations", max_iterations)
    if regularization is None:
        return None
    return Settings(checks.regularization(regularization), gap, most, algorithm)


def error_bound(regularization: float, num_outputs: int) -> float:
    """Returns how much more than the exact projection the entropic one can cost.

    With p the order of the distance, W_p is larger by at most the p-th root.

    Args:
        regularization: The parameter λ.
        num_outputs: The number k_v of outputs.

    Returns:
        λ log k_v. Given its row sums, a plan's entropy lies within log k_v of that
        of μ; where k_v ≤ k, this is at most half of the paper's 2λ log k.

    Source:
        https://arxiv.org/abs/2605.10015, Proposition 4.1.
    """
    return regularization * math.log(num_outputs)


def solve(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    settings: Settings,
) -> solution.Solution:
    """Returns the entropic projection of one user.

    Args:
        masses: (s,) positive masses.
        cost: (s, k_v) costs.
        polytope: The allowed distributions.
        settings: How to.

    Returns:
        A solution of one row.
    """
    outputs = np.flatnonzero(polytope.upper > 0)
    inner = polytope.of(outputs)
    # Bounds that underflow to zero count as the least normal number.
    inner = ldp_polytope.LdpPolytope(np.maximum(inner.lower, _TINY), inner.upper)
    # A smaller share of the largest cost is as good as none, and would overflow.
    strength = max(settings.regularization, _LEAST * float(cost.max()))
    scaled = cost[:, outputs] / strength
    problem = regularized_problem.Problem(masses, scaled, inner)
    if settings.algorithm == "paper":
        proof = alternating_projections.project(problem, settings.max_iterations)
        count = settings.max_iterations
        met = proof.gap <= settings.relative_gap * proof.cost
    else:
        start = regularized_problem.row_prices(problem, np.log(inner.upper))
        proof, count, met = newton_projection.project(
            problem, start, settings.relative_gap, settings.max_iterations
        )
    distribution, prices = np.zeros(polytope.upper.size), np.zeros(polytope.upper.size)
    distribution[outputs] = ldp_polytope.nearest(proof.distribution, inner)
    prices[outputs] = strength * proof.prices
    return solution.Solution(
        np.minimum(distribution, polytope.upper)[np.newaxis],
        prices[np.newaxis],
        np.array([strength * proof.cost]),
        np.array([strength * proof.gap]),
        np.array([count]),
        np.array([met]),
    )
