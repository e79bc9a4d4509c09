"""Privacy amplification by Poisson subsampling, on any pair and any closed form."""

from collections.abc import Callable
import math

import numpy as np

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction

# Certified (docs/guarantees.md, "closed forms on samples"): of a few sums, products and
# elementary functions, relatively.
_ROUNDING = 16 * floats.UNIT_ROUNDOFF
# Certified: among denormals a product is off by a unit or two, not relatively.
_DENORMAL_UNITS = 4 * 5e-324


def poisson_subsample(
    pair: dominating_pair.DominatingPair, sampling_probability: float
) -> dominating_pair.DominatingPair:
    """Returns the pair after Poisson subsampling.

    Args:
        pair: Law of Z = dP/dQ under Q, n atoms.
        sampling_probability: Inclusion probability λ of each record, in (0, 1].

    Returns:
        The law of 1 + λ(Z − 1), at most n + 1 atoms: the zero atom moves to
        1 − λ, and infinity_mass is scaled by λ.

    Guarantees:
        Dominates (or is dominated by) the subsampled mechanism exactly as `pair`
        does the base one.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 3.3 and Algorithms 8 and 9;
        https://arxiv.org/abs/2106.08567, Theorem 11.
    """
    ratios = (1 - sampling_probability) + sampling_probability * pair.ratios
    masses, zero_mass = pair.masses, pair.zero_mass
    if sampling_probability < 1 and zero_mass > 0:
        ratios = np.append(1 - sampling_probability, ratios)
        masses = np.append(zero_mass, masses)
        zero_mass = 0.0
    infinity_mass = sampling_probability * pair.infinity_mass
    if pair.infinity_mass and infinity_mass < floats.SMALLEST_MASS:
        is_upper = pair.bound is Bound.UPPER
        infinity_mass = floats.SMALLEST_MASS if is_upper else 0.0
    return dominating_pair.DominatingPair(
        ratios,
        masses,
        infinity_mass=infinity_mass,
        zero_mass=zero_mass,
        bound=pair.bound,
        mass_error=pair.mass_error,
        ratio_error=pair.ratio_error + 4 * floats.UNIT_ROUNDOFF,
    )


def delta(
    inner: Callable[[float], float],
    rate: float,
    epsilon: float,
    direction: Direction,
    bound: Bound,
) -> float:
    """Returns δ on a Poisson sample at ε, from that of all records at another ε.

    With κ = e^ε it is λ H_κ'(P‖Q), κ' = 1 + (κ − 1)/λ, where a record is removed; and
    (1 − κ (1 − λ)) H_κ'(Q‖P), κ' = κ λ / (1 − κ (1 − λ)), where one is added.

    Args:
        inner: A certified δ of all records at ε, in this direction, on the same side.
        rate: Inclusion probability λ of each record, in (0, 1).
        epsilon: ε, in nats.
        direction: Which of H(P‖Q) (remove) and H(Q‖P).
        bound: The side to err on.

    Source:
        https://arxiv.org/abs/1807.01647, Theorem 2 (advanced joint convexity).
    """
    sign = 1.0 if bound is Bound.UPPER else -1.0
    signed = epsilon if direction is Direction.REMOVE else -epsilon
    if signed > 1:
        # No digit cancels, and what an exponential would not hold is not asked for.
        rest = math.log1p((rate - 1) * math.exp(-signed))
        log_kappa, doubt = signed - math.log(rate) + rest, 0.0
        weight = math.exp(rest)
    else:
        growth = math.expm1(signed)
        sampled, size = rate + growth, _ROUNDING * (rate + abs(growth))
        if rate > 0.5:
            # What 1 − λ is has no rounding.
            kappa = math.exp(signed)
            sampled, size = kappa - (1 - rate), _ROUNDING * kappa
        if sampled <= size:
            # No ratio is as small (remove), or as large (add), but for rounding.
            doubt = max(sampled + size, 0.0)
            if direction is Direction.ADD:
                # Without doubt the exponential need not fit a float.
                upper = math.exp(-signed) * doubt if doubt else 0.0
                return min(upper, 1.0) if bound is Bound.UPPER else 0.0
            least = -growth + sign * (doubt - _ROUNDING * growth)
            return min(max(least, 0.0), 1.0)
        near = abs(growth) < 0.5 * rate
        log_kappa = math.log1p(growth / rate) if near else math.log(sampled / rate)
        doubt = size / sampled
        weight = math.exp(-signed) * sampled
    # At ε = 0 the level of all records is ε = 0, exactly.
    error = _ROUNDING * (1 + abs(signed) + abs(log_kappa)) + doubt if signed else 0.0
    if direction is Direction.REMOVE:
        value = rate * inner(log_kappa - sign * error)
    else:
        value = weight * (1 + sign * doubt) * inner(-log_kappa - sign * error)
    value = value * (1 + sign * _ROUNDING) + sign * _DENORMAL_UNITS
    return min(max(value, 0.0), 1.0)


def epsilon(
    inner: Callable[[float], float], rate: float, delta: float, bound: Bound
) -> float:
    """Returns ε ≥ 0 on a Poisson sample at δ where a record is removed.

    It is ln(1 + λ (e^ε' − 1)), ε' that of all records at δ/λ.

    Args:
        inner: A certified ε ≥ 0 of all records at δ, on the same side.
        rate: Inclusion probability λ of each record, in (0, 1).
        delta: δ, positive.
        bound: The side to err on.

    Source:
        As `delta`, inverted.
    """
    sign = 1.0 if bound is Bound.UPPER else -1.0
    share = delta / rate * (1 - sign * _ROUNDING)
    if share >= 1:
        return 0.0
    largest = inner(share)
    if largest < floats.LARGEST_EXPONENT:
        found = math.log1p(rate * math.expm1(largest))
        return found * (1 + sign * _ROUNDING)
    if math.isinf(largest):
        return largest
    rest = math.log1p((1 - rate) / rate * math.exp(-largest))
    error = _ROUNDING * (largest - math.log(rate) + rest)
    return max(largest + math.log(rate) + rest + sign * error, 0.0)
