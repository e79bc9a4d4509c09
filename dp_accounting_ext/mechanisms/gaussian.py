"""The Gaussian mechanism: N(1, σ²) against N(0, σ²)."""

import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext import dominating_pair

FloatArray = npt.NDArray[np.float64]

_LARGEST_LOSS = 700.0
_SMALLEST_MASS = 1e-300
_DENORMAL_UNITS = 4 * 5e-324
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(5)

# Relative error of scipy.special.ndtr in the lower tail, in units of rounding: at
# argument 0, and its growth with the square of the argument.
_NDTR_ERROR = 32.0
_NDTR_GROWTH = 4.0

SMALLEST_TAIL_MASS = 1e-290

# Below it, ratios do not fit a float: losses are some 1/(2σ²).
SMALLEST_NOISE_MULTIPLIER = 0.036


def _cells(points: FloatArray, mean: float) -> tuple[FloatArray, FloatArray]:
    """Returns the standard normal mass of cells, and the mean of the ratio in each.

    The ratio is e^{mean · (x − left end)} − 1, x in the cell. Both are sums of
    positive terms (Gauss–Legendre), so that no mass is a difference of two
    distribution functions. With cells narrower than 1/8 in the exponent the
    quadrature's own error is below rounding.

    Args:
        points: (n + 1,) ends of the cells, increasing.
        mean: The mean m of P.

    Returns:
        (n,) masses under Q, and (n,) means under Q of ratio / ratio at the left
        end − 1.
    """
    half = np.diff(points) / 2
    middle = points[:-1] + half
    masses = np.zeros(half.size)
    excess = np.zeros(half.size)
    for node, weight in zip(_NODES, _WEIGHTS, strict=True):
        step = node * half
        density = weight * np.exp(-step * (middle + step / 2))
        masses += density
        excess += density * np.expm1(mean * half * (1 + node))
    excess /= masses
    masses *= half * np.exp(-(middle**2) / 2) / math.sqrt(2 * math.pi)
    return masses, excess


def dominating_pair_of(
    noise_multiplier: float,
    bound: dominating_pair.Bound,
    *,
    tail_mass: float,
    points: int | None = None,
) -> dominating_pair.DominatingPair:
    """Returns a certified pair of the Gaussian mechanism with sensitivity one.

    Args:
        noise_multiplier: Standard deviation over sensitivity, positive.
        bound: Upper splits each cell of the loss between its ends, lower groups
            it at its mean.
        tail_mass: Probability outside the grid on either side, at least 1e-290.
        points: Number of grid points; by default enough for any use here.

    Returns:
        A pair with about n = points atoms, their logarithms equally spaced; one
        that says nothing below `SMALLEST_NOISE_MULTIPLIER`.

    Source:
        Zhu et al. 2022, https://arxiv.org/abs/2106.08567, for the pair;
        Doroshenko et al. 2022, https://arxiv.org/abs/2207.04380, for splitting.
    """
    if noise_multiplier < SMALLEST_NOISE_MULTIPLIER:
        return _nothing_known(bound)
    mean = 1 / noise_multiplier
    width = float(special.ndtri(tail_mass))
    if points is None:
        growth = math.sqrt(max(mean * (mean - 2 * width) / 20, 1.0))
        points = math.ceil((1 << 14) * min(growth, 8.0))
    # Losses beyond ±700 do not fit a float as ratios: they are tail, whatever their
    # mass.
    lowest = max(width, mean / 2 - _LARGEST_LOSS / mean)
    highest = min(mean - width, mean / 2 + _LARGEST_LOSS / mean)
    noise = np.linspace(lowest, highest, points)
    ratios = np.exp(noise * mean - mean**2 / 2)
    q_masses, excess = _cells(noise, mean)
    q_low, p_low = special.ndtr(noise[0]), special.ndtr(noise[0] - mean)
    q_high, p_high = special.ndtr(-noise[-1]), special.ndtr(mean - noise[-1])
    size = float(np.abs(noise).max()) + mean
    rounding = _NDTR_ERROR + _NDTR_GROWTH * size**2
    errors = {
        "mass_error": rounding * dominating_pair.UNIT_ROUNDOFF,
        # Of the exponents of ratios; the tails' ratios are as uncertain as masses,
        # and weigh no more than tail_mass.
        "ratio_error": (32 + 4 * mean * size) * dominating_pair.UNIT_ROUNDOFF,
    }
    if bound is dominating_pair.Bound.LOWER:
        all_ratios = ratios[:-1] * (1 + excess)
        all_masses = q_masses
        if q_high > _SMALLEST_MASS:
            lowered = (1 - 4 * errors["mass_error"]) * p_high / q_high
            all_ratios = np.append(all_ratios, lowered)
            all_masses = np.append(all_masses, q_high)
        kept = (all_masses > _SMALLEST_MASS) & (
            all_ratios * all_masses > _SMALLEST_MASS
        )
        return dominating_pair.DominatingPair(
            all_ratios[kept], all_masses[kept], 0.0, 0.0, bound, **errors
        )
    raised = np.minimum(excess / np.expm1(mean * np.diff(noise)), 1.0) * q_masses
    masses = np.zeros(ratios.size)
    masses[1:] += raised
    masses[:-1] += q_masses - raised
    masses[0] += p_low / ratios[0]
    masses[-1] += q_high
    return dominating_pair.DominatingPair(
        ratios,
        masses,
        # Differences, so their rounding is that of what they are taken from.
        infinity_mass=float(max(p_high - ratios[-1] * q_high, 0.0))
        + 4 * errors["mass_error"] * float(p_high),
        zero_mass=float(max(q_low - p_low / ratios[0], 0.0))
        + 4 * errors["mass_error"] * float(q_low),
        bound=bound,
        **errors,
    )


def _nothing_known(bound: dominating_pair.Bound) -> dominating_pair.DominatingPair:
    """Returns the pair that dominates all, or is dominated by all."""
    sink = 1.0 if bound is dominating_pair.Bound.UPPER else 0.0
    return dominating_pair.DominatingPair(np.ones(1), np.zeros(1), sink, sink, bound)


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
    value = math.exp(min(_log_delta(mean, epsilon, bound), 0.0))
    # The slack is relative; among denormals a few units are more than that.
    units = (
        _DENORMAL_UNITS if bound is dominating_pair.Bound.UPPER else -_DENORMAL_UNITS
    )
    return min(max(value + units, 0.0), 1.0)


def _log_delta(mean: float, epsilon: float, bound: dominating_pair.Bound) -> float:
    first = float(special.log_ndtr(mean / 2 - epsilon / mean))
    second = epsilon + float(special.log_ndtr(-mean / 2 - epsilon / mean))
    slack = 1 + abs(first) + abs(second) + abs(epsilon) + mean**2
    slack *= 64 * dominating_pair.UNIT_ROUNDOFF
    if bound is dominating_pair.Bound.LOWER:
        slack = -slack
    difference = -math.expm1(min(second - first - slack, 0.0))
    if difference <= 0:
        return -math.inf
    return first + slack + math.log(difference)


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

    def excess(candidate: float) -> float:
        return max(_log_delta(mean, candidate, bound), -1e300) - goal

    if excess(0.0) <= 0:
        return 0.0
    high = mean * (mean / 2 + math.sqrt(-2 * goal))
    while excess(high) > 0:
        high *= 2
    low = 0.0
    while high - low > 1e-13 * high:
        middle = (low + high) / 2
        if excess(middle) > 0:
            low = middle
        else:
            high = middle
    return high if bound is dominating_pair.Bound.UPPER else low
