"""The paper's iteration for the entropic projection, in logarithms."""

import numpy as np

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections.entropic import regularized_problem


def project(
    problem: regularized_problem.Problem, passes: int
) -> regularized_problem.Proof:
    """Returns what the paper's algorithm has after some passes, and proves it.

    A pass is u = μ / (K v), s = Kᵀ u, q = Π(s), v = q / s with the kernel
    K = e^{−C/λ}; the paper takes 40. Its gap tells how far it is from converged.

    Args:
        problem: What to project.
        passes: How many, at least one.

    Source:
        https://arxiv.org/abs/2605.10015, Algorithm 1.
    """
    prices = np.zeros(problem.cost.shape[1])
    for _ in range(passes):
        potentials = regularized_problem.row_prices(problem, prices)
        weights = regularized_problem.weigh(problem, potentials)
        logs = weights.logs
        law = ldp_polytope.kl_projection(logs[np.newaxis], problem.polytope)[0]
        # Bounds that underflow to zero count as the least normal number.
        prices = np.log(np.maximum(law, np.finfo(float).tiny)) - logs
    return regularized_problem.prove(problem, weights)
