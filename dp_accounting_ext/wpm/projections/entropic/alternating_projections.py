"""The paper's iteration for the entropic projection, in logarithms."""

import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections.entropic import gibbs_kernel

FloatArray = npt.NDArray[np.float64]


@dataclasses.dataclass(frozen=True)
class Problem:
    """Distributions of users to project, and what they share.

    Attributes:
        support: Where the users have mass, and how much.
        kernel: The kernel of the costs over λ.
        polytope: The allowed distributions, with positive bounds.
    """

    support: gibbs_kernel.Support
    kernel: gibbs_kernel.GibbsKernel
    polytope: ldp_polytope.LdpPolytope

    def potentials(self, prices: FloatArray) -> FloatArray:
        """Returns the flat f at which rows of e^{f + g − C/λ} sum to μ."""
        logs = np.log(self.support.masses)
        return np.asarray(logs - self.kernel.log_row_sums(prices))


@dataclasses.dataclass(frozen=True)
class Iterate:
    """What one pass over rows and columns leaves, for every user.

    Attributes:
        potentials: f where users have mass, flat, in units of λ.
        prices: (n, k_v) g, at which the columns of e^{f + g − C/λ} sum to
            `distributions`.
        distributions: (n, k_v) members of the polytope.
        dual: (n,) value of the regularised dual, over λ; a lower bound.
    """

    potentials: FloatArray
    prices: FloatArray
    distributions: FloatArray
    dual: FloatArray


def make_problem(
    masses: FloatArray, scaled_cost: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> Problem:
    """Returns the problem of some users: one, unless they can share a kernel.

    Args:
        masses: (n, k) distributions.
        scaled_cost: (k, k_v) costs over λ.
        polytope: The allowed distributions, with positive bounds.
    """
    support = gibbs_kernel.Support(masses)
    return Problem(support, gibbs_kernel.make(scaled_cost, support), polytope)


def step(problem: Problem, prices: FloatArray) -> Iterate:
    """Returns the iterate after u = μ / (K v), s = Kᵀ u, q = Π(s), v = q / s.

    Args:
        problem: What to project.
        prices: (n, k_v) log v to start from.

    Returns:
        The iterate, whose `dual` is the largest over g for its own f, and never
        falls from one step to the next.
    """
    potentials = problem.potentials(prices)
    sums = problem.kernel.log_column_sums(potentials)
    projected = ldp_polytope.kl_projection(sums, problem.polytope)
    # Bounds that underflow to zero count as the least normal number.
    logs = np.log(np.maximum(projected, np.finfo(float).tiny))
    support = problem.support
    dual = support.sums(support.masses * potentials)
    dual += (projected * (logs - sums)).sum(axis=1)
    return Iterate(potentials, logs - sums, projected, dual)


def project(problem: Problem, iterations: int) -> Iterate:
    """Returns the iterate of the paper's algorithm after a number of iterations.

    It is the reference that `entropic_projection` is measured against.

    Args:
        problem: What to project.
        iterations: How many passes, at least one.

    Source:
        https://arxiv.org/abs/2605.10015, Algorithm 1.
    """
    prices = np.zeros((problem.support.shape[0], problem.polytope.lower.size))
    for _ in range(iterations):
        found = step(problem, prices)
        prices = found.prices
    return found


def contraction_factor(cost: FloatArray, regularization: float) -> float:
    """Returns c < 1 such that log v comes closer by c in Hilbert's metric a step.

    Args:
        cost: (k, k_v) costs; leave out rows and columns without mass.
        regularization: The parameter λ.

    Returns:
        The square of Birkhoff's coefficient tanh(Δ / 4) of the kernel, Δ the
        largest C_ik − C_il + C_jl − C_jk over λ.

    Source:
        https://arxiv.org/abs/2605.10015, Theorem 4.3, with Lemma L.2.
    """
    largest = 0.0
    for row in cost:
        differences = cost - row
        spread = differences.max(axis=1) - differences.min(axis=1)
        largest = max(largest, float(spread.max()))
    return math.tanh(largest / regularization / 4) ** 2
