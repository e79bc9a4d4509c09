"""The entropic projection of one user, by Newton steps on its dual.

With prices f of the inputs and q_j the weight s_j, clipped to its bounds, the dual
D(f) = μ·f + Σ_j [q_j (log q_j − log s_j) − q_j] + 1 is concave and smooth; its slope
is what rows miss, μ − P q. Where q_j is at a bound the plan's column is fixed, and
the curvature is diag(P q) − Σ_j q_j P_j P_jᵀ over such outputs. Steps are damped
until they raise the dual (Levenberg and Marquardt).
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import linalg

from dp_accounting_ext.wpm.projections.entropic import regularized_problem

FloatArray = npt.NDArray[np.float64]

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
class _Point:
    """Prices, and the dual there.

    Attributes:
        weights: What the prices make of the outputs.
        held: (n,) q, not yet a distribution.
        rows: (s,) row sums P q of the plan.
        value: D(f).
    """

    weights: regularized_problem.Weights
    held: FloatArray
    rows: FloatArray
    value: float


def project(
    problem: regularized_problem.Problem,
    potentials: FloatArray,
    relative_gap: float,
    max_iterations: int,
) -> tuple[regularized_problem.Proof, int, bool]:
    """Returns the entropic projection.

    Args:
        problem: What to project.
        potentials: (s,) prices to start from.
        relative_gap: Stop at a gap of this share of the cost.
        max_iterations: Stop after so many evaluations in any case.

    Returns:
        The last proof, evaluations of the dual, and whether the gap was met.
    """
    rounding = _ROUNDING * float(problem.cost.max())
    best, damping, step = _evaluate(problem, potentials), _FIRST_DAMPING, None
    missed = np.inf
    for count in range(1, max_iterations + 1):
        missing = problem.masses - best.rows
        size = float(np.abs(missing) @ (1 + np.abs(best.weights.potentials)))
        worth = size <= _WORTH_PROVING * relative_gap * missed or count % 8 == 0
        if step is None and (worth or missed == np.inf):
            proof = regularized_problem.prove(problem, best.weights)
            missed = proof.cost
            if proof.gap <= relative_gap * proof.cost + rounding:
                return proof, count, True
        if step is None:
            curvature = _curvature(problem, best)
        step = _step(problem, best, curvature, missing, damping)
        found = _evaluate(problem, best.weights.potentials + step)
        if _is_better(problem, found, best):
            best, damping, step = found, max(_LESS * damping, _LEAST_DAMPING), None
        elif damping < _MOST_DAMPING:
            damping *= _MORE
        else:
            break
    proof = regularized_problem.prove(problem, best.weights)
    return proof, count, proof.gap <= relative_gap * proof.cost + rounding


def _is_better(
    problem: regularized_problem.Problem, one: _Point, other: _Point
) -> bool:
    """Tells whether the dual rises; where rounding hides that, whether rows do."""
    missing = np.abs(problem.masses - one.rows).sum()
    rounding = _ROUNDING * (1 + abs(other.value))
    if one.value > other.value + rounding:
        return True
    fewer = missing < np.abs(problem.masses - other.rows).sum()
    return bool(one.value >= other.value - rounding and fewer)


def _evaluate(problem: regularized_problem.Problem, potentials: FloatArray) -> _Point:
    weights = regularized_problem.weigh(problem, potentials)
    lower, upper = problem.polytope.lower, problem.polytope.upper
    held = np.clip(np.exp(np.minimum(weights.logs, 700.0)), lower, upper)
    rows = weights.shares @ held
    entropy = held @ (np.log(held) - weights.logs - 1)
    return _Point(weights, held, rows, float(problem.masses @ potentials + entropy) + 1)


def _curvature(problem: regularized_problem.Problem, point: _Point) -> FloatArray:
    """Returns the (s, s) curvature of the dual, turned positive."""
    bounds, held = problem.polytope, point.held
    fixed = (held <= bounds.lower) | (held >= bounds.upper)
    # The product of a matrix with its own transpose takes half the time of others.
    scaled = point.weights.shares * np.sqrt(np.where(fixed, held, 0.0))
    curvature = -(scaled @ scaled.T)
    places = np.arange(point.rows.size)
    curvature[places, places] += point.rows
    return np.asarray(curvature)


def _step(
    problem: regularized_problem.Problem,
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
