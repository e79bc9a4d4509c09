"""The exact privacy profile where the likelihood ratio increases.

The best test of P against Q then is "above a threshold", so the hockey-stick
divergence is a sum of as many distribution functions as there are shifts.
"""

from collections.abc import Callable
import math

from scipy import optimize

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import shifts

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
Mixture = shifts.Mixture

# Certified (docs/guarantees.md, "Neyman–Pearson"): products with weights, their sum.
_ROUNDING = 8 * floats.UNIT_ROUNDOFF

# Tuning: a search that ends early is loose. Limits, and a relative width of ε.
_DOUBLINGS = 80
_NEAR = 50.0  # Most thresholds are in this range, in units of the noise.
_EPSILON_ERROR = 4e-13


def delta(
    p: Mixture, q: Mixture, *, epsilon: float, direction: Direction, bound: Bound
) -> float:
    """Returns a certified hockey-stick divergence of two mixtures of one noise.

    Args:
        p: P; the ratio p/q must increase.
        q: Q.
        epsilon: ε, in nats.
        direction: H(P‖Q) (remove), or H(Q‖P).
        bound: The side to err on.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8 and Theorem M.2.
    """
    if epsilon > floats.LARGEST_EXPONENT:
        return 1.0 if bound is Bound.UPPER else 0.0
    if direction is Direction.ADD:
        return _below_threshold(q, p, epsilon, bound)
    # Mirrored, what P has above a threshold lies below it, and q/p increases.
    return _below_threshold(p.reflected(), q.reflected(), epsilon, bound)


def _below_threshold(
    gained: Mixture, spent: Mixture, epsilon: float, bound: Bound
) -> float:
    """Returns the supremum over c of gained(x < c) − e^ε spent(x < c).

    Args:
        gained: The law of which the divergence is taken.
        spent: The law it is taken from; the ratio spent/gained increases.
        epsilon: ε.
        bound: The side to err on.
    """
    at, beyond, uncertain = _threshold(gained, spent, -epsilon)
    kappa = math.exp(epsilon)
    weights: dict[float, float] = {}
    sizes: dict[float, float] = {}
    for shift, weight in gained.shifts:
        weights[shift] = weights.get(shift, 0.0) + weight
        sizes[shift] = sizes.get(shift, 0.0) + weight
    for shift, weight in spent.shifts:
        weights[shift] = weights.get(shift, 0.0) - kappa * weight
        sizes[shift] = sizes.get(shift, 0.0) + kappa * weight
    rounding = gained.weight_error() + spent.weight_error() + _ROUNDING
    value = slack = 0.0
    for shift, weight in weights.items():
        if at == -math.inf:
            continue
        mass, error = gained.noise_below(at - shift)
        value += weight * mass
        slack += abs(weight) * mass * error
        slack += sizes[shift] * (mass * rounding + floats.SMALLEST_MASS)
        if bound is Bound.UPPER:
            # Any threshold gives a lower bound. Up to the best one the laws differ by
            # no more than what the ratio there is uncertain by.
            furthest, _ = gained.noise_below(beyond - shift)
            slack += 2 * sizes[shift] * furthest * uncertain
    slack += abs(value) * len(weights) * floats.UNIT_ROUNDOFF
    value += slack if bound is Bound.UPPER else -slack
    return min(max(value, 0.0), 1.0)


def _threshold(
    gained: Mixture, spent: Mixture, level: float
) -> tuple[float, float, float]:
    """Returns where the logarithm of spent/gained takes a value, and how surely.

    Returns:
        A point, infinite where the value lies outside the ratio's range; a point
        surely beyond the right one; and a bound on the difference in between.
    """

    def log_ratio(point: float) -> tuple[float, float]:
        return spent.log_ratio(gained, point)

    low, high = gained.lowest_threshold(), spent.highest_threshold()
    at_low, low_error = log_ratio(low)
    at_high, high_error = log_ratio(high)
    if at_low - low_error > level:
        return -math.inf, -math.inf, 0.0
    if at_high + high_error < level:
        return math.inf, math.inf, 0.0
    if at_low >= level:
        point = low
    elif at_high <= level:
        return high, math.inf, 2 * (level - at_high + high_error)
    else:
        near_low, near_high = max(low, -_NEAR), min(high, _NEAR)
        if log_ratio(near_low)[0] < level < log_ratio(near_high)[0]:
            low, high = near_low, near_high
        point = float(
            optimize.brentq(
                lambda x: log_ratio(x)[0] - level,
                low,
                high,
                xtol=1e-300,
                rtol=1e-14,
                maxiter=1000,
            )
        )
    value, error = log_ratio(point)
    uncertain = 2 * (abs(value - level) + error)
    step = max(abs(point), 1e-3) * 1e-15
    for _ in range(_DOUBLINGS):
        value, error = log_ratio(point + step)
        if value - error > level:
            return point, point + step, uncertain
        step *= 2
    return point, math.inf, uncertain


def epsilon(
    delta_at: Callable[[float, Bound], float], delta: float, bound: Bound
) -> float:
    """Returns a certified ε ≥ 0 at δ, where a certified profile is on its side.

    Args:
        delta_at: δ at ε, on either side.
        delta: The target, in (0, 1).
        bound: The side to err on.
    """
    low, high = 0.0, 1.0
    while delta_at(high, bound) > delta:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf if bound is Bound.UPPER else low
    if not low and delta_at(0.0, bound) <= delta:
        return 0.0

    def excess(point: float) -> float:
        return math.log(max(delta_at(point, bound), floats.SMALLEST_MASS) / delta)

    point = float(
        optimize.brentq(
            excess, low, high, rtol=_EPSILON_ERROR, xtol=1e-300, maxiter=2000
        )
    )
    # Upper bounds stop where even the upper profile is below; lower ones where the
    # lower profile still is above.
    step = _EPSILON_ERROR * point
    if bound is Bound.UPPER:
        while point < high and delta_at(point, bound) > delta:
            point, step = min(point + step, high), 2 * step
        return point
    while point > low and delta_at(point, bound) <= delta:
        point, step = max(point - step, low), 2 * step
    return point
