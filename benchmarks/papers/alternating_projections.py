"""The paper's own iteration for the entropic projection, to compare with.

`wpm.project` takes Newton steps instead, and stops by a certified gap.
"""

from collections.abc import Iterator
import itertools

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import entropic_projection
from dp_accounting_ext.wpm.projections import ldp_polytope

FloatArray = npt.NDArray[np.float64]


def project(
    masses: FloatArray,
    cost: FloatArray,
    base_measure: FloatArray,
    epsilon: float,
    regularization: float,
    passes: int,
) -> FloatArray:
    """Returns the (k_v,) law after some passes of Algorithm 1.

    Each pass scales the rows and then the columns of the plan, with the kernel
    K = e^{−C/λ}; the paper takes 40.

    Args:
        masses: (k,) distribution.
        cost: (k, k_v) costs.
        base_measure: (k_v,) positive masses.
        epsilon: The privacy parameter ε.
        regularization: The parameter λ.
        passes: How many, at least one.

    Source:
        https://arxiv.org/abs/2605.10015, Algorithm 1.
    """
    rows = masses > 0
    polytope = ldp_polytope.from_base_measure(base_measure, epsilon)
    problem = entropic_projection.Problem(
        masses[rows], cost[rows] / regularization, polytope
    )
    potentials = next(itertools.islice(iterates(problem), passes - 1, None))
    return entropic_projection.prove(problem, potentials).distribution


def iterates(problem: entropic_projection.Problem) -> Iterator[FloatArray]:
    """Yields the (s,) prices of the inputs after one pass, two, and so on."""
    prices = np.zeros(problem.cost.shape[1])
    while True:
        potentials = problem.row_prices(prices)
        yield potentials
        logs, _ = entropic_projection.weigh(problem, potentials)
        law = ldp_polytope.kl_projection(logs[np.newaxis], problem.polytope)[0]
        # Bounds that underflow to zero count as the least normal number.
        prices = np.log(np.maximum(law, np.finfo(float).tiny)) - logs
