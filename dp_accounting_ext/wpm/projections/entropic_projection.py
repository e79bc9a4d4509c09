"""The entropic projection of one user, stopped on a certified duality gap.

All costs and prices are in units of λ. With prices f of the inputs, output j has the
weight s_j = Σ_i e^{f_i − C_ij / λ}, of which input i has the share P_ij, and holds
q_j: s_j, clipped to its bounds. The dual D(f) = μ·f + Σ_j [q_j (log q_j − log s_j) −
q_j] + 1 is concave and smooth; its slope is what rows miss, μ − P q. Where q_j is at a
bound the plan's column is fixed, and the curvature is diag(P q) − Σ_j q_j P_j P_jᵀ
over such outputs. Newton steps are damped until they raise the dual (Levenberg and
Marquardt).
"""

import dataclasses
import math
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import linalg
from scipy import special

from dp_accounting_ext.validation import fields
from dp_accounting_ext.wpm import checks
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution

FloatArray = npt.NDArray[np.float64]

_TINY = float(np.finfo(float).tiny)
_LEAST = 1e-290  # Of the largest cost: costs over λ are finite, and their sums are.
# A sum further from one than this is no distribution, and proves nothing.
_SUM_ERROR = 1e-10
# All tuning: the proof stands whatever these are.
# With them 250 outputs take 4 to 6 evaluations at λ = 0.05 and 11 to 13 at 0.01.
_FIRST_DAMPING = 0.05
_LESS, _MORE = 0.4, 12
_LEAST_DAMPING = 1e-12
_MOST_DAMPING = 1e12
# A proof costs about a step; it cannot pass before rows miss about as little.
_WORTH_PROVING = 3.0
# A gap below this share of the largest cost is rounding.
_ROUNDING = 1e-12


@dataclasses.dataclass(frozen=True)
class Settings:
    """How the entropic projection is computed; all of it public.

    Attributes:
        regularization: The parameter λ.
        relative_gap: Stop at a gap of this share of the cost.
        max_iterations: Stop then in any case.
    """

    regularization: float
    relative_gap: float
    max_iterations: int


def make_settings(
    regularization: Any, relative_gap: float, max_iterations: Any
) -> Settings | None:
    """Returns settings that were checked; None for the exact projection.

    Raises:
        TypeError: If one has the wrong type.
        ValueError: If one is out of range.
    """
    most = fields.positive_integer("max_iterations", max_iterations)
    if regularization is None:
        return None
    return Settings(checks.regularization(regularization), relative_gap, most)


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


@dataclasses.dataclass(frozen=True)
class Problem:
    """What to project, in units of λ.

    Attributes:
        masses: (s,) positive masses μ.
        cost: (s, n) costs over λ.
        polytope: The allowed distributions, of positive bounds.
    """

    masses: FloatArray
    cost: FloatArray
    polytope: ldp_polytope.LdpPolytope

    def row_prices(self, prices: FloatArray) -> FloatArray:
        """Returns the prices f at which rows of e^{f_i + g_j − C_ij / λ} sum to μ."""
        logs = special.logsumexp(prices - self.cost, axis=1)
        return np.asarray(np.log(self.masses) - logs)


@dataclasses.dataclass(frozen=True)
class Proof:
    """A member of the polytope, and what is known of it.

    Attributes:
        distribution: (n,) the member q.
        prices: (n,) prices of the outputs, log q_j − log s_j.
        cost: Cost, without the entropy, of a plan from μ to q.
        gap: Regularised cost of that plan above a lower bound of all plans'.
    """

    distribution: FloatArray
    prices: FloatArray
    cost: float
    gap: float


@dataclasses.dataclass(frozen=True)
class _Point:
    """Prices of the inputs, what they make of the outputs, and the dual there.

    Attributes:
        potentials: (s,) prices f.
        logs: (n,) log s_j.
        shares: (s, n) P_ij.
        held: (n,) q, not yet a distribution.
        rows: (s,) row sums P q of the plan.
        value: D(f).
    """

    potentials: FloatArray
    logs: FloatArray
    shares: FloatArray
    held: FloatArray
    rows: FloatArray
    value: float


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
    """
    outputs = np.flatnonzero(polytope.upper > 0)
    inner = polytope.of(outputs)
    # Bounds that underflow to zero count as the least normal number.
    inner = ldp_polytope.LdpPolytope(np.maximum(inner.lower, _TINY), inner.upper)
    # A smaller share of the largest cost is as good as none, and would overflow.
    strength = max(settings.regularization, _LEAST * float(cost.max()))
    problem = Problem(masses, cost[:, outputs] / strength, inner)
    proof, count, met = _project(problem, settings)
    distribution, prices = np.zeros(polytope.upper.size), np.zeros(polytope.upper.size)
    distribution[outputs] = ldp_polytope.nearest(proof.distribution, inner)
    prices[outputs] = strength * proof.prices
    return solution.Solution(
        np.minimum(distribution, polytope.upper),
        prices,
        strength * proof.cost,
        count,
        met,
        strength * proof.gap,
    )


def _project(problem: Problem, settings: Settings) -> tuple[Proof, int, bool]:
    """Returns the last proof, evaluations of the dual, and whether the gap was met."""
    relative_gap = settings.relative_gap
    rounding = _ROUNDING * float(problem.cost.max())
    start = problem.row_prices(np.log(problem.polytope.upper))
    best, damping, step = _evaluate(problem, start), _FIRST_DAMPING, None
    missed = np.inf
    for count in range(1, settings.max_iterations + 1):
        missing = problem.masses - best.rows
        size = float(np.abs(missing) @ (1 + np.abs(best.potentials)))
        worth = size <= _WORTH_PROVING * relative_gap * missed or count % 8 == 0
        if step is None and (worth or missed == np.inf):
            proof = prove(problem, best.potentials)
            missed = proof.cost
            if proof.gap <= relative_gap * proof.cost + rounding:
                return proof, count, True
        if step is None:
            curvature = _curvature(problem, best)
        step = _step(problem, best, curvature, missing, damping)
        found = _evaluate(problem, best.potentials + step)
        if _is_better(problem, found, best):
            best, damping, step = found, max(_LESS * damping, _LEAST_DAMPING), None
        elif damping < _MOST_DAMPING:
            damping *= _MORE
        else:
            break
    proof = prove(problem, best.potentials)
    return proof, count, proof.gap <= relative_gap * proof.cost + rounding


def _is_better(problem: Problem, one: _Point, other: _Point) -> bool:
    """Tells whether the dual rises; where rounding hides that, whether rows do."""
    missing = np.abs(problem.masses - one.rows).sum()
    rounding = _ROUNDING * (1 + abs(other.value))
    if one.value > other.value + rounding:
        return True
    fewer = missing < np.abs(problem.masses - other.rows).sum()
    return bool(one.value >= other.value - rounding and fewer)


def weigh(problem: Problem, potentials: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) log s_j and (s, n) P_ij at some prices."""
    shares = potentials[:, np.newaxis] - problem.cost
    largest = shares.max(axis=0)
    shares -= largest
    np.exp(shares, out=shares)
    sums = shares.sum(axis=0)
    shares /= sums
    return np.log(sums) + largest, shares


def _evaluate(problem: Problem, potentials: FloatArray) -> _Point:
    logs, shares = weigh(problem, potentials)
    lower, upper = problem.polytope.lower, problem.polytope.upper
    held = np.clip(np.exp(np.minimum(logs, 700.0)), lower, upper)
    entropy = held @ (np.log(held) - logs - 1)
    value = float(problem.masses @ potentials + entropy) + 1
    return _Point(potentials, logs, shares, held, shares @ held, value)


def _curvature(problem: Problem, point: _Point) -> FloatArray:
    """Returns the (s, s) curvature of the dual, turned positive."""
    bounds, held = problem.polytope, point.held
    fixed = (held <= bounds.lower) | (held >= bounds.upper)
    # The product of a matrix with its own transpose takes half the time of others.
    scaled = point.shares * np.sqrt(np.where(fixed, held, 0.0))
    curvature = -(scaled @ scaled.T)
    places = np.arange(point.rows.size)
    curvature[places, places] += point.rows
    return np.asarray(curvature)


def _step(
    problem: Problem,
    point: _Point,
    curvature: FloatArray,
    missing: FloatArray,
    damping: float,
) -> FloatArray:
    """Returns the damped Newton step."""
    damped, places = curvature.copy(), np.arange(missing.size)
    # In proportion to the masses: prices of small inputs are as free as of large ones.
    damped[places, places] += damping * (
        problem.masses + np.maximum(point.rows, problem.masses)
    )
    factor = linalg.cho_factor(damped, lower=True, check_finite=False)
    return np.asarray(linalg.cho_solve(factor, missing, check_finite=False))


def prove(problem: Problem, potentials: FloatArray) -> Proof:
    """Returns the member of the polytope nearest to the weights, and its gap.

    The plan q_j P_ij has the right columns. Its rows are scaled down to at most those
    of μ, and what is missing is added as a product of its margins. The entropy of
    the sum is bounded by convexity.

    Guarantees:
        Whatever the prices, no plan's regularised cost is below that of the plan,
        less the gap, up to rounding.
    """
    masses = problem.masses
    logs, shares = weigh(problem, potentials)
    law = ldp_polytope.kl_projection(logs[np.newaxis], problem.polytope)[0]
    prices = np.log(np.maximum(law, _TINY)) - logs
    dual = float(masses @ potentials + law @ prices)
    sums = shares @ law
    scale = np.minimum(1.0, masses / np.maximum(sums, _TINY))
    rows = sums * scale
    columns = law * (scale @ shares)
    left, right = masses - rows, np.maximum(law - columns, 0.0)
    left[left < 0] = 0.0
    missing = float(left.sum())
    left = left / max(missing, _TINY)
    right = right / max(float(right.sum()), _TINY)
    added = missing * float(left @ problem.cost @ right)
    moved = float(scale @ ((problem.cost * shares) @ law))
    kept = max(1 - missing, 0.0)
    mixed = float(special.xlogy(left, left).sum() + special.xlogy(right, right).sum())
    entropy = float(rows @ (potentials + np.log(np.maximum(scale, _TINY))))
    entropy += float(columns @ prices)
    regularized = entropy + added + missing * mixed - float(special.xlogy(kept, kept))
    proper = abs(float(law.sum()) - 1) <= _SUM_ERROR
    gap = max(regularized - dual, 0.0) if proper else np.inf
    return Proof(law, prices, moved + added, gap)
