"""Earlier bounds on random allocation of Gaussian noise, for comparison alone.

Upper bounds and the lower one are true up to the rounding of their formulas, which is
not counted; a Monte Carlo mean is an estimate.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import math
from typing import Literal
from typing import TypeAlias

import dp_accounting
from dp_accounting.pld import pld_pmf
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
_LARGEST_EPSILON = 1e4
# Losses of a round that is composed with others: their number on either side of zero,
# up to where δ is rare, or to the largest.
_LOSSES, _RARE, _MOST_LOSS = 4000, 1e-14, 64.0
_SAMPLES_AT_ONCE = 1 << 22
# Outputs of the record's own step, in a Monte Carlo estimate.
_OWN_OUTPUTS = 1001
Way: TypeAlias = Literal["remove", "add"]
_WAYS: tuple[Way, Way] = ("remove", "add")


@functools.lru_cache(maxsize=64)
def _poisson(noise: float, rate: float, count: int) -> ext.PLDAccountant:
    """Returns the accountant of several Poisson samples of Gaussian noise."""
    step = dp_accounting.PoissonSampledDpEvent(
        rate, dp_accounting.GaussianDpEvent(noise)
    )
    return ext.PLDAccountant(value_discretization_interval=2e-5).compose(step, count)


def decomposition_delta(
    noise: float, selected: int, steps: int, epsilon: float, direction: Way
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
    if selected == 1:
        found = _decomposed_deltas(noise, each, np.array([epsilon]), direction)
        return float(found[0])
    rounds = _decomposed_rounds(noise, each, selected, direction)
    return float(rounds.get_delta_for_epsilon(epsilon))


def _decomposed_deltas(
    noise: float, steps: int, epsilons: FloatArray, direction: Way
) -> FloatArray:
    """Returns (n,) δ of one of t steps by this comparison, at (n,) ε."""
    none = (1 - 1 / steps) ** steps
    with np.errstate(divide="ignore"):  # Where there is but one step, or δ is 0.
        log_none, log_some = np.log(none), np.log1p(-none)
        if direction == "remove":
            inner, log_share = np.logaddexp(log_none, log_some + epsilons), log_some
        else:
            inner = -np.logaddexp(log_none, log_some - epsilons)
            log_share = log_some - np.logaddexp(log_some, epsilons + log_none)
        accountant = _poisson(noise, 1 / steps, steps)
        sampled = accountant.get_delta_bounds(inner, direction=direction)[1]
        return np.asarray(np.exp(np.minimum(np.log(sampled) - log_share, 0.0)))


@functools.lru_cache(maxsize=64)
def _decomposed_rounds(
    noise: float, steps: int, count: int, direction: Way
) -> pld_pmf.PLDPmf:
    """Returns the losses of several rounds, each of one of t steps, composed."""
    reach = 1.0
    while reach < _MOST_LOSS and (
        _decomposed_deltas(noise, steps, np.array([reach]), direction) > _RARE
    ):
        reach *= 2
    numbers = np.arange(-_LOSSES, _LOSSES + 1)
    deltas = _decomposed_deltas(noise, steps, numbers * reach / _LOSSES, direction)
    one = pld_pmf.create_pmf_pessimistic_connect_dots(
        reach / _LOSSES, numbers, np.minimum.accumulate(deltas)
    )
    return one.self_compose(count)


def recursive_delta(
    noise: float, selected: int, steps: int, epsilon: float, direction: Way
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
    accountant = _poisson(noise, rate, each * selected)
    sampled = accountant.get_delta_bounds(epsilon, direction=direction)[1]
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
    noise: float, selected: int, steps: int, epsilon: float, direction: Way
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
    return max(min(_deltas(*setting, direction)) for direction in _WAYS)


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
    if math.isinf(best):
        return best
    for share in (0.75, 0.85, 0.95):
        setting = noise, selected, steps, share * best
        if all(min(_deltas(*setting, way)) <= delta for way in _WAYS):
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

    The outputs of all steps but the record's are drawn. Its own step is integrated, so
    that a rare large output needs no luck, as with the sources' importance sampling.

    Args:
        noise: σ.
        steps: t.
        epsilons: (n,) ε.
        samples: How often outputs are drawn.
        confidence: Of each limit, which holds with about this probability.
        generator: Where the samples come from.

    Returns:
        (n,) means of (1 − e^{ε − loss})₊, and (n,) limits, those of a normal law with
        the standard error.

    Source:
        Chua et al. 2024, https://arxiv.org/abs/2412.16802 (Monte Carlo accounting).
    """
    others = np.empty(samples)
    rows = max(1, _SAMPLES_AT_ONCE // steps)
    for start in range(0, samples, rows):
        number = min(rows, samples - start)
        drawn = generator.standard_normal((number, steps - 1), dtype=np.float32)
        exponents = drawn.astype(np.float64) / noise - 1 / (2 * noise**2)
        others[start : start + number] = np.exp(exponents).sum(axis=1)
    outputs = np.linspace(-9.0, 9.0, _OWN_OUTPUTS) + 1 / noise
    masses = np.exp(-((outputs - 1 / noise) ** 2) / 2)
    masses /= masses.sum()
    own = np.exp(outputs / noise - 1 / (2 * noise**2))
    losses = np.log((others[:, np.newaxis] + own) / steps)
    each = np.array(
        [-np.expm1(np.minimum(epsilon - losses, 0.0)) @ masses for epsilon in epsilons]
    )
    means = each.mean(axis=1)
    errors = each.std(axis=1, ddof=1) / math.sqrt(samples)
    return means, means + float(special.ndtri(confidence)) * errors


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
