"""Rényi divergences of mechanisms whose privacy loss is bounded."""

from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.renyi import ratio_moments


def pure_dp_rdp(orders: Sequence[float], epsilon: float) -> FloatArray:
    """Returns the RDP of any ε-DP mechanism, that of binary randomized response.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        epsilon: ε ≥ 0.

    Source:
        https://arxiv.org/abs/1702.07476, Proposition 5, for randomized response;
        https://arxiv.org/abs/1311.0776, Theorem 3.4, that it dominates.
    """
    if epsilon > floats.LARGEST_EXPONENT or epsilon == 0:
        return np.full(len(orders), epsilon)
    truth, lie = 1 / (1 + math.exp(-epsilon)), 1 / (1 + math.exp(epsilon))
    return discrete_rdp(orders, (lie, truth), (epsilon, -epsilon))


def bounded_range_rdp(orders: Sequence[float], epsilon: float) -> FloatArray:
    """Returns the RDP of mechanisms whose losses lie in some [t − ε, t].

    The loss is in an interval and e^loss has mean one. So the mean of a convex function
    of e^loss is largest if the loss has only two values, the ends of the interval. The
    result is the largest divergence over t. With u = e^t, the divergence times α − 1 is
    log(((1 − e^{−αε}) u^{α−1} − (e^{−ε} − e^{−αε}) u^α) / (1 − e^{−ε})), and the best u
    is the zero of its derivative.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        epsilon: ε ≥ 0.

    Guarantees:
        No entry is below the largest divergence. As a function of t the divergence is
        flat near its largest value: if t is off by s ε, the divergence is off by a
        share of about s², which is less than a rounding error. For small ranges the
        result is the bound of ε²/8-zCDP.

    Source:
        https://arxiv.org/abs/1905.04273 (the exponential mechanism has bounded range);
        https://arxiv.org/abs/2004.07223, Lemma 3.4, for ε²/8-zCDP.
    """

    def largest(order: float) -> float:
        if order > ratio_moments.LARGEST_ORDER:
            return epsilon
        exponent = max(order, ratio_moments.LOWEST_ORDER)
        shares = [exponent * -math.expm1(-(exponent - 1) * epsilon)]
        shares.append((exponent - 1) * -math.expm1(-exponent * epsilon))
        top = min(max(epsilon + math.log(shares[1] / shares[0]), 0.0), epsilon)
        # The probabilities of both ends under Q.
        high = math.expm1(epsilon - top) / math.expm1(epsilon)
        low = -math.expm1(-top) / -math.expm1(-epsilon)
        ends = discrete_rdp([order], (high, low), (top, top - epsilon))
        return min(float(ends[0]), ratio_moments.rounded_up(order * epsilon**2 / 8))

    if epsilon > floats.LARGEST_EXPONENT:
        return np.full(len(orders), epsilon)
    # For smaller ranges, the rounding error of t may be more than 1e-10 of ε.
    if epsilon < 1e-5:
        squared = ratio_moments.rounded_up(epsilon**2 / 8)
        finite = np.minimum(orders, np.finfo(np.float64).max)
        return np.where(
            np.isinf(orders), epsilon, np.minimum(finite * squared, epsilon)
        )
    return np.array([min(largest(order), epsilon) for order in orders])


def laplace_rdp(orders: Sequence[float], epsilon: float) -> FloatArray:
    """Returns the RDP of the Laplace mechanism of parameter 1/ε.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        epsilon: The distance over the parameter of the noise, ε ≥ 0.

    Source:
        https://arxiv.org/abs/1702.07476, Proposition 6.
    """

    def single(order: float) -> float:
        if math.isinf(order):
            return epsilon
        shrunk = math.expm1((1 - 2 * order) * epsilon) / (2 * order - 1)
        # This is log1p(a x) / a, where a = α − 1, or its limit x at a = 0.
        slope = order - 1
        logarithm = math.log1p(slope * shrunk) / slope if slope else shrunk
        value = epsilon + logarithm + 16 * floats.UNIT_ROUNDOFF * epsilon
        return min(value, epsilon, ratio_moments.rounded_up(order * epsilon**2 / 2))

    if epsilon > floats.LARGEST_EXPONENT:
        return np.full(len(orders), epsilon)
    return np.array([single(order) for order in orders])


def discrete_rdp(
    orders: Sequence[float], masses: Sequence[float], losses: Sequence[float]
) -> FloatArray:
    """Returns the divergences of P from Q, which have finitely many outcomes.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        masses: (n,) probabilities of the outcomes under Q.
        losses: (n,) values of log P/Q, finite.
    """
    with np.errstate(divide="ignore"):
        log_masses = np.log(np.array(masses, dtype=np.float64))
    values = np.array(losses, dtype=np.float64)
    excess = ratio_moments.MeanExcess(log_masses, values)
    return np.array(
        [
            ratio_moments.rounded_up(float(values[log_masses > -np.inf].max()))
            if math.isinf(order)
            else _divergence(excess, max(order, ratio_moments.LOWEST_ORDER))
            for order in orders
        ]
    )


def batch_rdp(
    orders: Sequence[float], noise_parameter: float, sampling_fraction: float
) -> FloatArray:
    """Returns the RDP of randomized response to a yes-or-no question about a batch.

    The batch is drawn without replacement, and one record of the dataset is replaced by
    another. The true answer is kept with probability θ = 1 − p/2. With β = 1 − θ,
    w = q/N and a = β + w (2θ − 1), the result is the larger one of the divergences of
    Bern(a) from Bern(β) and of Bern(β) from Bern(a).

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        noise_parameter: The probability p in [0, 1] that the answer is a fair coin.
        sampling_fraction: The share w in [0, 1] of the dataset that is in the batch.

    Guarantees:
        No entry is below the bound, which is tight.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem I.3.
    """
    beta, shift = noise_parameter / 2, sampling_fraction * (1 - noise_parameter)
    if shift == 0:
        return np.zeros(len(orders))
    if beta == 0:
        return np.full(len(orders), np.inf)
    losses = np.array([math.log1p(shift / beta), math.log1p(-shift / (1 - beta))])
    masses, shifted = [beta, 1 - beta], [beta + shift, 1 - beta - shift]
    return np.maximum(
        discrete_rdp(orders, masses, losses.tolist()),
        discrete_rdp(orders, shifted, (-losses).tolist()),
    )


def _divergence(excess: ratio_moments.MeanExcess, order: float) -> float:
    moment = ratio_moments.log_moment_from_excess(excess.log(order), order)
    return ratio_moments.rdp_from_moment(moment, order)
