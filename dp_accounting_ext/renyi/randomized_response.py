"""Rényi divergences of randomized response on a batch of fixed size."""

from collections.abc import Sequence
import math

import numpy as np

from dp_accounting_ext.renyi import divergence
from dp_accounting_ext.renyi import pure_mechanisms

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
    losses = np.array([math.log1p(shift / beta), math.log1p(-shift / (1 - beta))])
    masses, shifted = [beta, 1 - beta], [beta + shift, 1 - beta - shift]
    return np.maximum(
        pure_mechanisms.discrete_rdp(orders, masses, losses.tolist()),
        pure_mechanisms.discrete_rdp(orders, shifted, (-losses).tolist()),
    )
