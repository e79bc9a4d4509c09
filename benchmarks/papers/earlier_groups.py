"""What was known of group privacy before: bounds to compare the tight ones with.

A profile is a function from ε ≥ 0 to a δ that holds in both directions. Every function
here returns an upper bound on the group's δ, for independent records of a group that
all leave or all join (mechanism-agnostic), or change in any way (post-hoc).

Source: https://arxiv.org/abs/2403.04867, section 3.2 and Proposition 2.6.
"""

from collections.abc import Callable
from collections.abc import Sequence
import math

import dp_accounting
from dp_accounting import dp_event as stock
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np
from scipy import special

from dp_accounting_ext.common_types import FloatArray

Profile = Callable[[float], float]
_REPLACE = dp_accounting.NeighboringRelation.REPLACE_ONE


def gaussian_delta(distance: float, epsilon: float) -> float:
    """Returns δ of N(distance, 1) against N(0, 1)."""
    first = special.log_ndtr(distance / 2 - epsilon / distance)
    second = epsilon + special.log_ndtr(-distance / 2 - epsilon / distance)
    return float(np.exp(first) * -np.expm1(second - first))


def laplace_delta(distance: float, epsilon: float) -> float:
    """Returns δ of Lap(distance, 1) against Lap(0, 1), at ε ≥ 0."""
    return max(0.0, -math.expm1((epsilon - distance) / 2))


def mechanism_agnostic(
    base_profile: Callable[[int, float], float],
    sampling_probability: float,
    group_size: int,
    epsilon: float,
) -> float:
    """Returns δ' = Σ_k Binom(k | K, r) δ_k(ε_0), ε = log(1 + w (e^{ε_0} − 1)).

    Args:
        base_profile: δ_k(ε) of the base mechanism for batches that differ in k records.
        sampling_probability: r > 0, of Poisson sampling; w = 1 − (1 − r)^K.
        group_size: K; all of them leave, or all of them join.
        epsilon: ε ≥ 0, of the sampled mechanism.

    Source: https://arxiv.org/abs/2403.04867, section 3.2; with K = 1
        https://arxiv.org/abs/1807.01647, Theorem 8 (Poisson sampling).
    """
    sampled = -math.expm1(group_size * special.log1p(-sampling_probability))
    base_epsilon = math.log1p(math.expm1(epsilon) / sampled)
    total = 0.0
    for count in range(1, group_size + 1):
        mass = math.comb(group_size, count) * sampling_probability**count
        mass *= (1 - sampling_probability) ** (group_size - count)
        total += mass * base_profile(count, base_epsilon)
    return min(total, 1.0)


def post_hoc_linear(profile: Profile, group_size: int, epsilon: float) -> float:
    """Returns K e^ε δ_1(ε/K).

    Source: https://arxiv.org/abs/2403.04867, Proposition 2.6.
    """
    bound = group_size * math.exp(epsilon) * profile(epsilon / group_size)
    return min(bound, 1.0)


def post_hoc_geometric(profile: Profile, group_size: int, epsilon: float) -> float:
    """Returns δ_1(ε/K) Σ_{k<K} e^{kε/K}: the triangle inequality, step by step."""
    share = epsilon / group_size
    steps = sum(math.exp(step * share) for step in range(group_size))
    return min(steps * profile(share), 1.0)


def _sampled_log_moment(
    order: int, rdp: FloatArray, largest: float, rate: float
) -> float:
    """Returns (α − 1) ε'(α) of any mechanism on a batch without replacement.

    Args:
        order: α, an integer, at least 1.
        rdp: (≥ α − 1,) ε(2), …, ε(α), … of the mechanism.
        largest: Its ε(∞).
        rate: Batch size over dataset size.

    Source: https://arxiv.org/abs/1808.00087, Theorem 9.
    """
    if order < 2:
        return 0.0
    j = np.arange(2, order + 1)
    log_gain = math.log(math.expm1(largest)) if largest < 700 else largest
    logs = (j - 1) * rdp[: order - 1] + np.minimum(math.log(2), j * log_gain)
    logs[0] = min(logs[0], math.log(4) + math.log(math.expm1(rdp[0])))
    logs += j * math.log(rate) + special.gammaln(order + 1)
    logs -= special.gammaln(j + 1) + special.gammaln(order - j + 1)
    return float(np.logaddexp(0.0, special.logsumexp(logs)))


def agnostic_rdp(
    orders: Sequence[float], base_rdp: Callable[[FloatArray], FloatArray], rate: float
) -> list[float]:
    """Returns ε'(α) of any mechanism on a batch without replacement.

    At a fractional order α − 1 times it is interpolated, as it is convex; no order
    has more than the mechanism without sampling.

    Args:
        orders: α, above 1.
        base_rdp: From orders to ε(α) of the mechanism, one record of the batch
            replaced.
        rate: Batch size over dataset size.

    Source: https://arxiv.org/abs/1808.00087, Theorem 9 and Corollary 10.
    """
    rdp = base_rdp(np.arange(2.0, math.ceil(max(orders)) + 1))
    (largest,) = base_rdp(np.array([math.inf]))
    found = []
    for order, unsampled in zip(orders, base_rdp(np.array(orders)), strict=True):
        floor = math.floor(order)
        low, high = (
            _sampled_log_moment(end, rdp, largest, rate)
            for end in (floor, math.ceil(order))
        )
        moment = low + (order - floor) * (high - low)
        found.append(min(moment / (order - 1), float(unsampled)))
    return found


def response(truth: float) -> stock.DpEvent:
    """Returns randomized response to a bit query, true with this probability."""
    return stock.RandomizedResponseDpEvent(2 * (1 - truth), 2)


def response_rdp(truth: float, orders: FloatArray) -> FloatArray:
    """Returns dp_accounting's RDP of randomized response on all records."""
    accountant = rdp_privacy_accountant.RdpAccountant(orders.tolist(), _REPLACE)
    return np.asarray(accountant.compose(response(truth)).rdp)
