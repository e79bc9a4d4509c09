"""The Gaussian mechanism: N(1, σ²) against N(0, σ²)."""

import math

from scipy import optimize
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import gaussian_mixture


def dominating_pair_of(
    noise_multiplier: float,
    bound: Bound,
    *,
    tail_mass: float,
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of the Gaussian mechanism with sensitivity one.

    Args:
        noise_multiplier: The standard deviation over the sensitivity, positive.
        bound: The side, as in `gaussian_mixture.dominating_pair_of`.
        tail_mass: The probability outside of the grid at either end.
    """
    return gaussian_mixture.dominating_pair_of(
        gaussian_mixture.Mixture(((1 / noise_multiplier, 1.0),)),
        gaussian_mixture.Mixture(((0.0, 1.0),)),
        bound,
        tail_mass=tail_mass,
    )


def delta(mean: float, epsilon: float, bound: Bound) -> float:
    """Returns δ of N(mean, 1) against N(0, 1) at ε, by its closed form.

    δ(ε) = Φ(m/2 − ε/m) − e^ε Φ(−m/2 − ε/m). It is computed in logarithms, so that a
    large ε and a small δ stay in the range of floats.

    Args:
        mean: The mean m > 0: the sensitivity over the standard deviation.
        epsilon: ε, in nats.
        bound: The side of the bound.

    Source:
        Balle and Wang 2018, https://arxiv.org/abs/1805.06530, Theorem 8.
    """
    sign = 1 if bound is Bound.UPPER else -1
    if epsilon == 0:
        # Φ(m/2) − Φ(−m/2), which has all its digits however small it is.
        value = math.erf(mean / math.sqrt(8)) * (1 + sign * 16 * floats.UNIT_ROUNDOFF)
    else:
        value = math.exp(min(_log_delta(mean, epsilon, bound), 0.0))
    # The allowance is relative; a subnormal δ may be off by a few units more.
    return min(max(value + sign * 4 * 5e-324, 0.0), 1.0)


def _log_delta(mean: float, epsilon: float, bound: Bound) -> float:
    """Returns ln δ at ε, rounded to the side of the bound.

    With t = m/2 − ε/m and x = m − t, e^ε Φ(−x) = φ(t) R(x), where R is Mills's ratio.
    In this form no term is as large as ε or m², which are huge if the noise is small.
    """
    sign = 1 if bound is Bound.UPPER else -1
    slack = 64 * floats.UNIT_ROUNDOFF
    place, beyond = mean / 2 - epsilon / mean, mean / 2 + epsilon / mean
    if place == -math.inf:
        return place
    # A bound on the error of t, which is a difference of two rounded terms.
    shift = sign * 4 * floats.UNIT_ROUNDOFF * (mean / 2 + abs(epsilon) / mean)
    first = float(special.log_ndtr(place + shift))
    if first == -math.inf:
        return first
    first += sign * slack * (1 + abs(first))
    if beyond >= 0:
        mills = math.sqrt(math.pi / 2) * float(special.erfcx(beyond / math.sqrt(2)))
        # Beyond 1e150, φ(t) is below every float and t² above every float.
        furthest = min(max(abs(place) + shift, 0.0), 1e150)
        second = math.log(mills) - (furthest**2 + math.log(2 * math.pi)) / 2
    else:
        second = epsilon + float(special.log_ndtr(-beyond))
    second -= sign * slack * (1 + abs(second) + max(-epsilon, 0.0))
    difference = -math.expm1(min(second - first, 0.0))
    return first + math.log(difference) if difference > 0 else -math.inf


def epsilon(mean: float, delta: float, bound: Bound) -> float:
    """Returns ε ≥ 0 of N(mean, 1) against N(0, 1) at δ, from its closed form.

    Args:
        mean: The mean m > 0: the sensitivity over the standard deviation.
        delta: δ, in (0, 1).
        bound: The side of the bound.

    Returns:
        ε, in nats.

    Source:
        Balle and Wang 2018, https://arxiv.org/abs/1805.06530, Theorem 8.
    """
    goal = math.log(delta)

    def excess(candidate: float) -> float:
        return max(_log_delta(mean, candidate, bound), -1e300) - goal

    if excess(0.0) <= 0:
        return 0.0
    high = mean * (mean / 2 + math.sqrt(-2 * goal))
    while excess(high) > 0:
        high *= 2
    found = float(
        optimize.brentq(excess, 0.0, high, xtol=1e-300, rtol=1e-14, disp=False)
    )
    # The result is near the root. Move it to the safe side until δ shows that it is.
    is_upper = bound is Bound.UPPER
    nudge = 1e-14 if is_upper else -1e-14
    while (excess(found) > 0) is is_upper:
        found += nudge * found
        nudge *= 2
    return max(found, 0.0)
