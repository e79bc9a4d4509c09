"""The Gaussian mechanism: N(1, σ²) against N(0, σ²)."""

import math

from scipy import special

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import gaussian_mixture

# Certified (docs/guarantees.md, "closed Gaussian δ"): four units of the denormals.
_DENORMAL_UNITS = 4 * 5e-324
# Certified: of a density times a length, relatively; that of rounding is far less.
_SMALL_MEAN_ERROR = 1e-14
# Tuning: of a smaller mean the total variation is a length times a density.
_SMALL_MEAN = 1e-4
# Tuning: the relative width of ε at which a search ends, after some ten steps.
_CLOSE = 2.5e-14


def dominating_pair_of(
    noise_multiplier: float,
    bound: dominating_pair.Bound,
    *,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of the Gaussian mechanism with sensitivity one.

    Args:
        noise_multiplier: Standard deviation over sensitivity, positive.
        bound: As for `gaussian_mixture.dominating_pair_of`, which says the rest.
        tail_mass: Probability outside the grid on either side.
    """
    return gaussian_mixture.dominating_pair_of(
        gaussian_mixture.Mixture(((1 / noise_multiplier, 1.0),)),
        gaussian_mixture.Mixture(((0.0, 1.0),)),
        bound,
        tail_mass=tail_mass,
    )


def delta(mean: float, epsilon: float, bound: dominating_pair.Bound) -> float:
    """Returns δ of N(mean, 1) against N(0, 1) at ε, from its closed form.

    δ(ε) = Φ(m/2 − ε/m) − e^ε Φ(−m/2 − ε/m), in logarithms, so that neither a
    large ε nor a small δ leaves the range of floats.

    Args:
        mean: The mean m, positive: sensitivity over standard deviation.
        epsilon: ε, in nats.
        bound: The side to err on.

    Source:
        Balle and Wang 2018, https://arxiv.org/abs/1805.06530, Theorem 8.
    """
    if epsilon == 0 and mean <= _SMALL_MEAN:
        return _small_total_variation(mean, bound)
    value = math.exp(min(_log_delta(mean, epsilon, bound)[0], 0.0))
    # The slack is relative; among denormals a few units are more than that.
    units = (
        _DENORMAL_UNITS if bound is dominating_pair.Bound.UPPER else -_DENORMAL_UNITS
    )
    return min(max(value + units, 0.0), 1.0)


def _small_total_variation(mean: float, bound: dominating_pair.Bound) -> float:
    """Returns Φ(m/2) − Φ(−m/2): m times a density of φ(0), or of φ(0) (1 − m²/24)."""
    value = mean / math.sqrt(2 * math.pi)
    if bound is dominating_pair.Bound.UPPER:
        return value * (1 + _SMALL_MEAN_ERROR) + _DENORMAL_UNITS
    return max(value * (1 - mean**2 / 24 - _SMALL_MEAN_ERROR) - _DENORMAL_UNITS, 0.0)


def _log_delta(
    mean: float, epsilon: float, bound: dominating_pair.Bound
) -> tuple[float, float]:
    """Returns ln δ at ε, on a side, and minus its derivative."""
    first = float(special.log_ndtr(mean / 2 - epsilon / mean))
    if first == -math.inf:
        return first, math.inf
    second = epsilon + float(special.log_ndtr(-mean / 2 - epsilon / mean))
    slack = 1 + abs(first) + abs(second) + abs(epsilon) + mean**2
    slack *= 64 * floats.UNIT_ROUNDOFF
    if bound is dominating_pair.Bound.LOWER:
        slack = -slack
    difference = -math.expm1(min(second - first - slack, 0.0))
    if difference <= 0:
        return -math.inf, math.inf
    value = first + slack + math.log(difference)
    return value, math.exp(min(second - value, floats.LARGEST_EXPONENT))


def epsilon(mean: float, delta: float, bound: dominating_pair.Bound) -> float:
    """Returns ε ≥ 0 of N(mean, 1) against N(0, 1) at δ, from its closed form.

    Args:
        mean: The mean m, positive: sensitivity over standard deviation.
        delta: The target, in (0, 1).
        bound: The side to err on.

    Returns:
        ε, in nats.

    Source:
        Balle and Wang 2018, https://arxiv.org/abs/1805.06530, Theorem 8.
    """
    goal = math.log(delta)

    def excess(candidate: float) -> tuple[float, float]:
        value, slope = _log_delta(mean, candidate, bound)
        return max(value, -1e300) - goal, slope

    if excess(0.0)[0] <= 0:
        return 0.0
    low, high = 0.0, mean * (mean / 2 + math.sqrt(-2 * goal))
    while excess(high)[0] > 0:
        high *= 2
    point, nudge = high, _CLOSE
    while high - low > 4 * _CLOSE * high:
        above, slope = excess(point)
        low, high = (point, high) if above > 0 else (low, point)
        # Without a slope that is a float: halfway.
        step = above / slope if slope > 0 else math.inf
        if abs(step) < nudge * point:
            # As near as that: across, so that both ends close in.
            step = nudge * point if above > 0 else -nudge * point
            nudge *= 2
        point += step
        if not low < point < high:
            point = (low + high) / 2
    return high if bound is dominating_pair.Bound.UPPER else low
