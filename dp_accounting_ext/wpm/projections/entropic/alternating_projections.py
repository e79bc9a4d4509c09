"""The paper's iteration for the entropic projection, in logarithms."""

from collections.abc import Iterator
import itertools

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
    weights = next(itertools.islice(iterates(problem), passes - 1, None))
    return regularized_problem.prove(problem, weights)


def iterates(
    problem: regularized_problem.Problem,
) -> Iterator[regularized_problem.Weights]:
    """Yields the weights of the outputs after one pass, two, and so on."""
    prices = np.zeros(problem.cost.shape[1])
    while True:
        potentials = regularized_problem.row_prices(problem, prices)
        weights = regularized_problem.weigh(problem, potentials)
        yield weights
        logs = weights.logs
        law = ldp_polytope.kl_projection(logs[np.newaxis], problem.polytope)[0]
        # Bounds that underflow to zero count as the least normal number.
        prices = np.log(np.maximum(law, np.finfo(float).tiny)) - logs
