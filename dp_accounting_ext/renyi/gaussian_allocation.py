"""Rényi divergences of random allocation of the Gaussian mechanism."""

from collections.abc import Sequence
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.renyi import ratio_moments


def removing_rdp(orders: Sequence[float], noise: float, num_steps: int) -> FloatArray:
    """Returns the RDP of allocation to one of t steps, if a record is removed.

    The likelihood ratio is Z = (X_1 + … + X_t)/t, where X_i is the ratio of one step.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        noise: The noise multiplier σ > 0.
        num_steps: The number of steps t.

    Guarantees:
        No entry is below the truth. Entries are exact at integer orders up to 4096.
        Between integers they are computed from the chord of log Ψ_α, which is a convex
        function of α.
    """
    plain = ratio_moments.gaussian_rdp(1 / noise, orders)
    if num_steps == 1:
        return plain
    return ratio_moments.by_chords(
        orders, plain, lambda needed: log_remove_moments(needed, noise, num_steps)
    )


def log_remove_moments(
    orders: set[int], noise: float, num_steps: int
) -> dict[int, float]:
    """Returns log E Z^α of the removing direction at integer orders α ≥ 2, exactly.

    E Z^α = t^{−α} α! [s^α] (Σ_j E X^j s^j / j!)^t, with E X^j = e^{j(j−1)/2σ²}. The sum
    is regrouped so that all terms are positive, and the term 1 is left out: E Z^α − 1 =
    Σ_{j≥2} α (α − 1) … (α − j + 1) c_j. Here j! c_j is the j-th central moment of Z.
    With κ_k the k-th cumulant of Z, which is that of X divided by t^{k−1}, the
    recursion is j c_j = Σ_{k≥2} (κ_k/(k − 1)!) c_{j−k}. The time does not depend on t.

    Args:
        orders: Integer orders, at least 2.
        noise: The noise multiplier σ > 0.
        num_steps: The number of steps t.

    Source:
        https://arxiv.org/abs/2502.08202: the direct formula for the removing direction.
    """
    if not orders:
        return {}
    highest = max(orders)
    degrees = np.arange(highest)
    # Entry k − 1 is log κ_k/(k − 1)!.
    cumulants = _log_cumulants(highest, noise) - degrees * math.log(num_steps)
    central = np.full(highest + 1, -np.inf)
    central[0] = 0.0
    for n in range(2, highest + 1):
        terms = cumulants[1:n] + central[n - 2 :: -1][: n - 1]
        central[n] = ratio_moments.log_sum(terms) - math.log(n)
    return {
        order: float(
            np.logaddexp(
                0.0,
                ratio_moments.log_sum(_log_falling(order)[2:] + central[2 : order + 1]),
            )
        )
        for order in orders
    }


@functools.lru_cache(maxsize=16)
def _log_cumulants(highest: int, noise: float) -> FloatArray:
    """Returns log κ_k/(k − 1)! of X = dP/dQ under Q, k = 1, …, highest.

    With q = e^{1/σ²}, E X^n = q^{n(n−1)/2} is the sum over all graphs on n vertices of
    (q − 1)^{number of edges}. So κ_n is the same sum over connected graphs, which is (q
    − 1)^{n−1} I_n(q), where I_n is the inversion enumerator of trees (Mallows and
    Riordan 1968). It satisfies I_n = Σ_k C(n − 2, k − 1) (1 + q + … + q^{k−1}) I_k
    I_{n−k}, whose terms are positive.
    """
    rate = noise**-2
    log_gap = rate + math.log(-math.expm1(-rate))
    counts = np.arange(1, highest + 1)
    log_sums = rate * counts + np.log(-np.expm1(-rate * counts)) - log_gap
    trees = np.zeros(highest)
    for n in range(2, highest + 1):
        terms = log_sums[: n - 1] + trees[: n - 1] + trees[n - 2 :: -1]
        trees[n - 1] = ratio_moments.log_sum(terms) - math.log(n - 1)
    cumulants: FloatArray = trees + (counts - 1) * log_gap
    return cumulants


def _log_falling(order: int) -> FloatArray:
    """Returns log of α (α − 1) … (α − j + 1) for j = 0, …, α, from exact integers."""
    logs, product = [0.0], 1
    for count in range(order):
        product *= order - count
        logs.append(math.log(product))
    return np.array(logs)
