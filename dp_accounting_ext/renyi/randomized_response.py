"""Rényi divergences of randomized response on a batch of fixed size."""

from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.renyi import divergence

FloatArray = divergence.FloatArray


def batch_rdp(
    orders: Sequence[float], noise_parameter: float, sampling_fraction: float
) -> FloatArray:
    """Returns the RDP of a bit query of a batch answered by randomized response.

    The batch is drawn without replacement, one record of the dataset is replaced by
    another, and the answer is a bit of the batch, kept with probability
    θ = 1 − p/2. With β = 1 − θ, w = q/N and a = β + w (2θ − 1) it is the larger of the
    divergences of Bern(a) from Bern(β) and of Bern(β) from Bern(a).

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        noise_parameter: p, in [0, 1]: with this probability the answer is a fair coin.
        sampling_fraction: w, in [0, 1].

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
    masses = np.array([beta, 1 - beta])
    losses = np.array([math.log1p(shift / beta), math.log1p(-shift / (1 - beta))])
    shifted = np.array([beta + shift, 1 - beta - shift])
    return np.array(
        [
            max(
                _divergence(masses, losses, order),
                _divergence(shifted, -losses, order),
            )
            for order in orders
        ]
    )


def _divergence(masses: FloatArray, losses: FloatArray, order: float) -> float:
    """Returns the divergence of P from Q = `masses`, `losses` log P/Q."""
    if math.isinf(order):
        return divergence.rounded_up(float(losses.max()))
    order = max(order, divergence.LOWEST_ORDER)
    excess = divergence.log_sum(divergence.log_excess(losses, order) + np.log(masses))
    moment = divergence.log_moment_from_excess(excess, order)
    return divergence.rdp_from_moment(moment, order)
