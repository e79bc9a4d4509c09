"""Earlier bounds on random allocation of Gaussian noise, for comparison alone.

None of them is used by an accountant. Upper bounds and the lower one are true up to the
rounding of their formulas, which is not counted; a Monte Carlo mean is an estimate.
"""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import special

from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.mechanisms import additive_noise
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.mechanisms import subsampled
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import gaussian
from dp_accounting_ext.renyi import conversion
from dp_accounting_ext.renyi import curves
from dp_accounting_ext.renyi import random_allocation

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
FloatArray = npt.NDArray[np.float64]

# The orders of the sources: the partitions of larger integers are too many for the
# first, and the second has a closed form.
DIRECT_ORDERS = tuple(float(order) for order in range(2, 61))
DONG_ORDERS = (
    *map(float, range(2, 202)),
    *np.exp(np.linspace(math.log(202), math.log(10_000), 50)).tolist(),
)
_TAIL_MASS = 1e-20
_INTERVAL, _LEAST_DELTA = 1e-4, 1e-16  # Of Poisson samples.
_LARGEST_EPSILON = 100.0
_SAMPLES_AT_ONCE = 1 << 22


@functools.lru_cache(maxsize=64)
def _poisson(
    noise: float, rate: float, count: int, direction: Direction
) -> composed_loss.ComposedLoss:
    """Returns the loss of so many Poisson samples, from above."""
    step = subsampled.on_poisson_sample(rate, additive_noise.Gaussian(noise))
    pairs = interface.pairs_of(step, Bound.UPPER, _TAIL_MASS)
    law = loss_distribution.from_pair(pairs.of(direction), direction, count)
    return composed_loss.ComposedLoss([law], _INTERVAL, _LEAST_DELTA)


def _poisson_delta(
    noise: float, rate: float, count: int, epsilon: float, direction: Direction
) -> float:
    composed = _poisson(noise, rate, count, direction)
    return float(composed.deltas(np.array([epsilon]))[0])


def decomposition_delta(
    noise: float, selected: int, steps: int, epsilon: float, direction: Direction
) -> float:
    """Returns δ by comparison with Poisson samples of which one at least is drawn.

    Args:
        noise: σ.
        selected: k; rounds of t/k steps, rounded down, are composed.
        steps: t.
        epsilon: ε > 0.
        direction: REMOVE or ADD.

    Source:
        https://arxiv.org/abs/2502.08202, section 4 (decomposition of Poisson sampling).
    """
    each = steps // selected
    # In every round, so that what the source says of one round is true of several.
    some = (1 - (1 - 1 / each) ** each) ** selected
    if direction is Direction.REMOVE:
        inner, share = math.log1p(some * math.expm1(epsilon)), some
    else:
        inner = -math.log1p(some * math.expm1(-epsilon))
        share = some / (some + math.exp(epsilon) * (1 - some))
    found = _poisson_delta(noise, 1 / each, each * selected, inner, direction)
    return found / share if found < share else 1.0


def recursive_delta(
    noise: float, selected: int, steps: int, epsilon: float, direction: Direction
) -> float:
    """Returns δ by comparison with Poisson samples of a rate e^{2γ}/t, γ ≤ ε/2.

    Where no earlier output makes a step more likely than that, the step is such a
    sample; that some do has a small probability.

    Args:
        noise: σ.
        selected: k.
        steps: t.
        epsilon: ε > 0.
        direction: REMOVE or ADD.

    Source:
        https://arxiv.org/abs/2502.08202, section 4 (recursive bound).
    """
    each = steps // selected
    gamma = min(epsilon / 2, math.log(max(2, each)) / 4)
    rate = min(math.exp(2 * gamma) / each, 1.0)
    tail = min(
        decomposition_delta(noise, 1, each, gamma, Direction.ADD),
        direct_add_delta(noise, 1, each, gamma),
    )
    grown = math.exp(gamma) - 1
    weight = math.exp(gamma if direction is Direction.ADD else -gamma) / grown
    sampled = _poisson_delta(noise, rate, each * selected, epsilon, direction)
    return min(sampled + selected * weight * tail, 1.0)


def direct_add_delta(noise: float, selected: int, steps: int, epsilon: float) -> float:
    """Returns δ in the direction ADD, the mean of ratios at least the geometric one.

    Args:
        noise: σ.
        selected: k.
        steps: t.
        epsilon: ε.

    Source:
        https://arxiv.org/abs/2502.08202, section 4 (direct analysis, add).
    """
    each = steps // selected
    shift = selected * (1 - 1 / each) / (2 * noise**2)
    mean = math.sqrt(selected / each) / noise
    return gaussian.delta(mean, epsilon - shift, Bound.UPPER)


def direct_remove_delta(
    noise: float, selected: int, steps: int, epsilon: float
) -> float:
    """Returns δ in the direction REMOVE, from Rényi divergences of integer orders.

    Args:
        noise: σ.
        selected: k.
        steps: t.
        epsilon: ε.

    Source:
        https://arxiv.org/abs/2502.08202, section 4 (direct analysis, remove).
    """
    rdp = selected * _direct_rdp(noise, steps // selected)
    return conversion.delta(DIRECT_ORDERS, rdp, epsilon)[0]


@functools.lru_cache(maxsize=64)
def _direct_rdp(noise: float, steps: int) -> FloatArray:
    return random_allocation.allocation_rdp(DIRECT_ORDERS, noise, 1, steps)


def combined_delta(noise: float, selected: int, steps: int, epsilon: float) -> float:
    """Returns the least of the earlier bounds by Feldman and Shenfeld.

    Args:
        noise: σ.
        selected: k.
        steps: t.
        epsilon: ε > 0.

    Source:
        https://arxiv.org/abs/2502.08202 (the tightest of all their methods).
    """
    setting = noise, selected, steps, epsilon
    ends = []
    for direction in Direction:
        direct = direct_add_delta if direction is Direction.ADD else direct_remove_delta
        ends.append(
            min(
                decomposition_delta(*setting, direction),
                recursive_delta(*setting, direction),
                direct(*setting),
            )
        )
    return max(ends)


def combined_epsilon(noise: float, selected: int, steps: int, delta: float) -> float:
    """Returns ε of the same at δ, by bisection of δ(ε) but for the recursive bound.

    That one, which takes a Poisson sample of another rate at every ε, is asked at the
    ε that the others give, and once more where it helps.

    Source:
        https://arxiv.org/abs/2502.08202.
    """

    def others(epsilon: float) -> float:
        return max(
            min(
                decomposition_delta(noise, selected, steps, epsilon, Direction.REMOVE),
                direct_remove_delta(noise, selected, steps, epsilon),
            ),
            min(
                decomposition_delta(noise, selected, steps, epsilon, Direction.ADD),
                direct_add_delta(noise, selected, steps, epsilon),
            ),
        )

    best = _epsilon_at(others, delta)
    for share in (0.75, 0.85, 0.95):
        if combined_delta(noise, selected, steps, share * best) <= delta:
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

    Args:
        noise: σ.
        selected: k.
        steps: t.
        orders: (n,) α ≥ 2.

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
    return max(conversion.epsilon(DONG_ORDERS, rdp, delta)[0] for rdp in both)


def max_statistic_delta(noise: float, steps: int, epsilon: float) -> float:
    """Returns a lower bound on δ of one of t steps: the test of the largest output.

    Args:
        noise: σ.
        steps: t.
        epsilon: ε.

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
    limits = [_upper_limit(mean, samples, 1 - confidence) for mean in means.tolist()]
    return means, np.array(limits)


def _upper_limit(mean: float, samples: int, chance: float) -> float:
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
        Asi et al. 2025, PREAMBLE (divergences of an allocation, of a sample by the
        binomial expansion, added up).
    """
    one = curves.Curve(random_allocation.allocation_rdp, (noise, selected, steps))
    sampled = curves.on_poisson_sample(one, rate)
    rdp = count * sampled.rdp(DIRECT_ORDERS)
    return conversion.epsilon(DIRECT_ORDERS, rdp, delta)[0]
