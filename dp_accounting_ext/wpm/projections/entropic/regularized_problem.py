"""The regularised problem of one user: its dual, and what proves an answer.

All costs and prices are in units of λ. With prices f of the inputs, output j has the
weight s_j = Σ_i e^{f_i − C_ij / λ}, of which input i has the share P_ij. The plan
q_j P_ij has the columns q.
"""

import dataclasses

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.wpm.projections import ldp_polytope

FloatArray = npt.NDArray[np.float64]

_TINY = float(np.finfo(float).tiny)
# A sum further from one than this is no distribution, and proves nothing.
_SUM_ERROR = 1e-10


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


@dataclasses.dataclass(frozen=True)
class Weights:
    """What prices of the inputs make of the outputs.

    Attributes:
        potentials: (s,) prices f.
        logs: (n,) log s_j.
        shares: (s, n) P_ij.
    """

    potentials: FloatArray
    logs: FloatArray
    shares: FloatArray


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


def weigh(problem: Problem, potentials: FloatArray) -> Weights:
    """Returns the outputs' weights at some prices."""
    shares = potentials[:, np.newaxis] - problem.cost
    largest = shares.max(axis=0)
    shares -= largest
    np.exp(shares, out=shares)
    sums = shares.sum(axis=0)
    shares /= sums
    return Weights(potentials, np.log(sums) + largest, shares)


def row_prices(problem: Problem, prices: FloatArray) -> FloatArray:
    """Returns the prices f at which rows of e^{f_i + g_j − C_ij / λ} sum to μ."""
    logs = special.logsumexp(prices - problem.cost, axis=1)
    return np.asarray(np.log(problem.masses) - logs)


def prove(problem: Problem, weights: Weights) -> Proof:
    """Returns the member of the polytope nearest to the weights, and its gap.

    The plan q_j P_ij has the right columns. Its rows are scaled down to at most those
    of μ, and what is missing is added as a product of its margins. The entropy of
    the sum is bounded by convexity.

    Guarantees:
        Whatever the prices, no plan's regularised cost is below that of the plan,
        less the gap, up to rounding.
    """
    masses, shares = problem.masses, weights.shares
    law = ldp_polytope.kl_projection(weights.logs[np.newaxis], problem.polytope)[0]
    prices = np.log(np.maximum(law, _TINY)) - weights.logs
    dual = float(masses @ weights.potentials + law @ prices)
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
    entropy = float(rows @ (weights.potentials + np.log(np.maximum(scale, _TINY))))
    entropy += float(columns @ prices)
    regularized = entropy + added + missing * mixed - float(special.xlogy(kept, kept))
    proper = abs(float(law.sum()) - 1) <= _SUM_ERROR
    gap = max(regularized - dual, 0.0) if proper else np.inf
    return Proof(law, prices, moved + added, gap)
