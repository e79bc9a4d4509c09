"""Earlier bounds on random allocation of Gaussian noise, for comparison alone.

Upper bounds and the lower one are true up to the rounding of their formulas, which is
not counted; a Monte Carlo mean is an estimate.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import math
from typing import Any

import dp_accounting
from dp_accounting.rdp import rdp_privacy_accountant
import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import special

import dp_accounting_ext as ext
from dp_accounting_ext.common_types import FloatArray

# The orders of the sources: the partitions of larger integers are too many for the
# first, and the second has a closed form.
DIRECT_ORDERS = [float(order) for order in range(2, 61)]
DONG_ORDERS = [
    *map(float, range(2, 202)),
    *np.exp(np.linspace(math.log(202), math.log(10_000), 50)).tolist(),
]
_LARGEST_EPSILON = 100.0
_SAMPLES_AT_ONCE = 1 << 22


@functools.lru_cache(maxsize=64)
def directed(event: dp_accounting.DpEvent, pessimistic: bool = True) -> dict[str, Any]:
    """Returns the losses of an event where a record is removed, and where one is added.

    They are those of the stock distribution, which has them apart in private fields
    alone.
    """
    made = ext.pld.from_event(event, pessimistic_estimate=pessimistic)
    return {"remove": made._pmf_remove, "add": made._pmf_add}


def _poisson_delta(
    noise: float, rate: float, count: int, epsilon: float, direction: str
) -> float:
    """Returns an upper bound on δ of several Poisson samples.

    At ε ≥ 0 the larger direction, which an accountant knows, is that of removal.
    """
    step = ext.PLDSubsampleEvent(rate, dp_accounting.GaussianDpEvent(noise))
    if direction == "remove" and epsilon >= 0:
        return float(ext.PLDAccountant().compose(step, count).get_delta(epsilon))
    composed = dp_accounting.SelfComposedDpEvent(step, count)
    return float(directed(composed)[direction].get_delta_for_epsilon(epsilon))


def decomposition_delta(
    noise: float, selected: int, steps: int, epsilon: float, direction: str
) -> float:
    """Returns δ by comparison with Poisson samples of which one at least is drawn.

    Args:
        noise: σ.
        selected: k; rounds of t/k steps, rounded down, are composed.
        steps: t.
        epsilon: ε > 0.
        direction: "remove" or "add".

    Source:
        https://arxiv.org/abs/2502.08202, section 4 (decomposition of Poisson sampling).
    """
    each = steps // selected
    # In every round, so that what the source says of one round is true of several.
    some = (1 - (1 - 1 / each) ** each) ** selected
    if direction == "remove":
        inner, share = math.log1p(some * math.expm1(epsilon)), some
    else:
        inner = -math.log1p(some * math.expm1(-epsilon))
        share = some / (some + math.exp(epsilon) * (1 - some))
    found = _poisson_delta(noise, 1 / each, each * selected, inner, direction)
    return found / share if found < share else 1.0


def recursive_delta(
    noise: float, selected: int, steps: int, epsilon: float, direction: str
) -> float:
    """Returns δ by comparison with Poisson samples of a rate e^{2γ}/t, γ ≤ ε/2.

    Where no earlier output makes a step more likely than that, the step is such a
    sample; that some do has a small probability.

    Source:
        https://arxiv.org/abs/2502.08202, section 4 (recursive bound).
    """
    each = steps // selected
    gamma = min(epsilon / 2, math.log(max(2, each)) / 4)
    rate = min(math.exp(2 * gamma) / each, 1.0)
    tail = min(
        decomposition_delta(noise, 1, each, gamma, "add"),
        direct_add_delta(noise, 1, each, gamma),
    )
    weight = math.exp(gamma if direction == "add" else -gamma) / math.expm1(gamma)
    sampled = _poisson_delta(noise, rate, each * selected, epsilon, direction)
    return min(sampled + selected * weight * tail, 1.0)


def direct_add_delta(noise: float, selected: int, steps: int, epsilon: float) -> float:
    """Returns δ in the direction add, the mean of ratios at least the geometric one.

    Source:
        https://arxiv.org/abs/2502.08202, section 4 (direct analysis, add).
    """
    each = steps // selected
    moved = epsilon - selected * (1 - 1 / each) / (2 * noise**2)
    mean = math.sqrt(selected / each) / noise
    first = special.log_ndtr(mean / 2 - moved / mean)
    second = moved + special.log_ndtr(-mean / 2 - moved / mean)
    return float(np.exp(first) * -np.expm1(second - first))


def direct_remove_delta(
    noise: float, selected: int, steps: int, epsilon: float
) -> float:
    """Returns δ in the direction remove, from Rényi divergences of integer orders.

    Source:
        https://arxiv.org/abs/2502.08202, section 4 (direct analysis, remove).
    """
    rdp = selected * _direct_rdp(noise, steps // selected)
    return float(
        rdp_privacy_accountant.compute_delta(DIRECT_ORDERS, rdp.tolist(), epsilon)[0]
    )


@functools.lru_cache(maxsize=64)
def _direct_rdp(noise: float, steps: int) -> FloatArray:
    event = ext.RandomAllocationEvent(dp_accounting.GaussianDpEvent(noise), 1, steps)
    return np.asarray(ext.RdpAccountant(DIRECT_ORDERS).compose(event).rdp)


def _deltas(
    noise: float, selected: int, steps: int, epsilon: float, direction: str
) -> tuple[float, float]:
    """Returns δ of the bounds that fall with ε, and of the recursive one."""
    setting = noise, selected, steps, epsilon
    direct = direct_add_delta if direction == "add" else direct_remove_delta
    others = min(decomposition_delta(*setting, direction), direct(*setting))
    return others, recursive_delta(*setting, direction)


def combined_delta(noise: float, selected: int, steps: int, epsilon: float) -> float:
    """Returns the least of the earlier bounds by Feldman and Shenfeld.

    Source:
        https://arxiv.org/abs/2502.08202 (the tightest of all their methods).
    """
    setting = noise, selected, steps, epsilon
    return max(min(_deltas(*setting, direction)) for direction in ("remove", "add"))


def combined_epsilon(noise: float, selected: int, steps: int, delta: float) -> float:
    """Returns ε of the same at δ, by bisection of δ(ε) but for the recursive bound.

    That one, which takes a Poisson sample of another rate at every ε, is asked at the
    ε that the others give, and once more where it helps.

    Source:
        https://arxiv.org/abs/2502.08202.
    """

    def others(epsilon: float) -> float:
        setting = noise, selected, steps, epsilon
        return max(
            min(decomposition_delta(*setting, "remove"), direct_remove_delta(*setting)),
            min(decomposition_delta(*setting, "add"), direct_add_delta(*setting)),
        )

    best = _epsilon_at(others, delta)
    for share in (0.75, 0.85, 0.95):
        setting = noise, selected, steps, share * best
        if all(min(_deltas(*setting, way)) <= delta for way in ("remove", "add")):
            return share * best
    return best


def _epsilon_at(profile: Callable[[float], float], delta: float) -> float:
    """Returns where a decreasing profile falls to δ, to three digits."""
    low, high = math.log(1e-4), math.log(_LARGEST_EPSILON)
    if profile(math.exp(high)) > delta:
        return math.inf
    if profile(math.exp(low)) <= delta:
        return math.exp(low)
    for _ in range(16):
        middle = (low + high) / 2
        if profile(math.exp(middle)) > delta:
            low = middle
        else:
            high = middle
    return math.exp(high)


def dong_rdp(
    noise: float, selected: int, steps: int, orders: Sequence[float]
) -> tuple[FloatArray, FloatArray]:
    """Returns bounds on Rényi divergences at orders α ≥ 2, remove and add.

    Source:
        Dong, Chen and Özgür 2025, Leveraging randomness in model and data
        partitioning for privacy amplification (exact at α = 2 where a record is
        removed, by its number of common steps; by one variance where it is added).
    """
    k, t = selected, steps
    hits = np.arange(max(0, 2 * k - t), k + 1)
    logs = _log_choose(k, hits) + _log_choose(t - k, k - hits) - _log_choose(t, k)
    remove = np.array(
        [special.logsumexp(logs + hits * a / (2 * noise**2)) for a in orders]
    )
    alpha = np.array(orders)
    spread = k * (t - k) / (noise * t) ** 2
    grown = np.log(alpha) + spread + np.log1p(-(1 - 1 / alpha) * math.exp(-spread))
    add = alpha * k**2 / (2 * noise**2 * t) + alpha * k * (t - k) / (
        2 * noise**2 * t * (alpha - 1)
    )
    add -= t * grown / (2 * (alpha - 1))
    return remove, add


def _log_choose(whole: int, part: int | npt.NDArray[np.int64]) -> FloatArray:
    chosen: FloatArray = (
        special.gammaln(whole + 1)
        - special.gammaln(np.asarray(part) + 1)
        - special.gammaln(whole - np.asarray(part) + 1)
    )
    return chosen


def dong_epsilon(noise: float, selected: int, steps: int, delta: float) -> float:
    """Returns ε at δ by those, the larger of both directions.

    Source:
        Dong, Chen and Özgür 2025, as `dong_rdp`.
    """
    both = dong_rdp(noise, selected, steps, DONG_ORDERS)
    return max(
        float(rdp_privacy_accountant.compute_epsilon(DONG_ORDERS, rdp, delta)[0])
        for rdp in both
    )


def max_statistic_delta(noise: float, steps: int, epsilon: float) -> float:
    """Returns a lower bound on δ of one of t steps: the test of the largest output.

    Source:
        Chua et al. 2024, Balls-and-bins sampling for DP-SGD,
        https://arxiv.org/abs/2412.16802 (lower bound).
    """

    def gained(threshold: float) -> float:
        below = special.log_ndtr(threshold / noise)
        rest = (steps - 1) * below + special.log_ndtr((threshold - 1) / noise)
        return float(np.expm1(rest) - math.exp(epsilon) * np.expm1(steps * below))

    # The largest of −(P(max < c) − 1) + e^ε (Q(max < c) − 1).
    grid = np.linspace(-2.0, 1.0 + 12 * noise, 400)
    best = min(grid, key=gained)
    width = float(grid[1] - grid[0])
    found = optimize.minimize_scalar(
        gained, bounds=(best - width, best + width), method="bounded"
    )
    return max(-min(float(found.fun), gained(float(best))), 0.0)


def monte_carlo_deltas(
    noise: float,
    steps: int,
    epsilons: Sequence[float],
    *,
    samples: int,
    confidence: float,
    generator: np.random.Generator,
) -> tuple[FloatArray, FloatArray]:
    """Returns estimates of δ where a record is removed: means, and upper limits.

    Args:
        noise: σ.
        steps: t.
        epsilons: (n,) ε.
        samples: How many outputs are drawn.
        confidence: Of each limit, which holds with this probability.
        generator: Where the samples come from.

    Returns:
        (n,) means of (1 − e^{ε − loss})₊, and (n,) limits by Chernoff's inequality in
        its form with the relative entropy. The sources' importance sampling needs
        fewer samples.

    Source:
        Chua et al. 2024, https://arxiv.org/abs/2412.16802 (Monte Carlo accounting).
    """
    losses = np.empty(samples)
    rows = max(1, _SAMPLES_AT_ONCE // steps)
    for start in range(0, samples, rows):
        number = min(rows, samples - start)
        drawn = generator.standard_normal((number, steps), dtype=np.float32)
        drawn[:, 0] += 1 / noise
        exponents = drawn.astype(np.float64) / noise - 1 / (2 * noise**2)
        losses[start : start + number] = special.logsumexp(
            exponents, axis=1
        ) - math.log(steps)
    means = np.array(
        [float(-np.expm1(np.minimum(e - losses, 0.0)).mean()) for e in epsilons]
    )
    limits = [upper_limit(mean, samples, 1 - confidence) for mean in means.tolist()]
    return means, np.array(limits)


def upper_limit(mean: float, samples: int, chance: float) -> float:
    """Returns the q above a mean of which so small a mean is as likely as a chance."""
    allowed = -math.log(chance) / samples

    def excess(q: float) -> float:
        return float(special.rel_entr(mean, q) + special.rel_entr(1 - mean, 1 - q))

    if excess(1 - 1e-12) <= allowed:
        return 1.0
    low = max(mean, 1e-300)
    found = optimize.brentq(lambda q: excess(q) - allowed, low, 1 - 1e-12)
    return float(found)


def sampled_allocation_epsilon(
    noise: float, selected: int, steps: int, rate: float, count: int, delta: float
) -> float:
    """Returns ε of Poisson samples of random allocations by Rényi divergences alone.

    Args:
        noise: σ.
        selected: k.
        steps: t.
        rate: Inclusion probability of a record in each run.
        count: Number of runs.
        delta: δ.

    Source:
        Asi et al. 2025, PREAMBLE, https://eprint.iacr.org/2025/490 (divergences of an
        allocation, of a sample by the binomial expansion, added up).
    """
    event = ext.RandomAllocationEvent(
        dp_accounting.GaussianDpEvent(noise), selected, steps
    )
    one = ext.RdpAccountant(DIRECT_ORDERS).compose(event).rdp
    moments = np.concatenate([[0.0, 0.0], (np.array(DIRECT_ORDERS) - 1) * one])
    rdp = []
    for order in map(int, DIRECT_ORDERS):
        j = np.arange(order + 1)
        logs = _log_choose(order, j) + j * math.log(rate) + moments[: order + 1]
        logs += (order - j) * math.log1p(-rate)
        rdp.append(count * float(special.logsumexp(logs)) / (order - 1))
    return float(rdp_privacy_accountant.compute_epsilon(DIRECT_ORDERS, rdp, delta)[0])
