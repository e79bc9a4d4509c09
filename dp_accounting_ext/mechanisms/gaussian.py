"""The Gaussian mechanism: N(1, σ²) against N(0, σ²)."""

import math

import numpy as np
import numpy.typing as npt
from scipy import optimize
from scipy import special

from dp_accounting_ext import dominating_pair

FloatArray = npt.NDArray[np.float64]

# Relative error of scipy.special.ndtr where its value is at most 1/2, in units
# of rounding: at argument 0, and its growth with the square of the argument.
_NDTR_ERROR = 32.0
_NDTR_GROWTH = 4.0

_LARGEST_LOSS = 700.0

SMALLEST_TAIL_MASS = 1e-290


def _interval_masses(points: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns the standard normal masses between points, and their relative errors.

    Differences are of lower tails in the left half and of upper tails in the
    right half, so that no mass is a difference of numbers near one.
    """
    left = points[1:] <= 0
    near = np.where(left, points[1:], -points[:-1])
    far = np.where(left, points[:-1], -points[1:])
    tail = special.ndtr(near)
    masses = tail - special.ndtr(far)
    rounding = (_NDTR_ERROR + _NDTR_GROWTH * near**2) * dominating_pair.UNIT_ROUNDOFF
    crossing = (points[:-1] < 0) & (points[1:] > 0)
    tail = np.where(crossing, 1.0, tail)
    with np.errstate(divide="ignore", invalid="ignore"):
        errors = np.where(masses > 0, 2 * rounding * tail / masses, 0.0)
    return masses, errors


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
        A pair with n = points atoms (two more for a lower bound), their
        logarithms equally spaced.

    Source:
        Zhu et al. 2022, https://arxiv.org/abs/2106.08567, for the pair;
        Doroshenko et al. 2022, https://arxiv.org/abs/2207.04380, for splitting.
    """
    mean = 1 / noise_multiplier
    width = float(special.ndtri(tail_mass))
    if points is None:
        growth = math.sqrt(max(mean * (mean - 2 * width) / 20, 1.0))
        points = math.ceil((1 << 14) * min(growth, 8.0))
    noise = np.linspace(width, mean - width, points)
    # Losses above 700 overflow as ratios; they are tail whatever their mass.
    noise = noise[noise * mean - mean**2 / 2 <= _LARGEST_LOSS]
    ratios = np.exp(noise * mean - mean**2 / 2)
    q_masses, q_errors = _interval_masses(noise)
    p_masses, p_errors = _interval_masses(noise - mean)
    q_low, p_low = special.ndtr(noise[0]), special.ndtr(noise[0] - mean)
    q_high, p_high = special.ndtr(-noise[-1]), special.ndtr(mean - noise[-1])
    errors = {
        "mass_error": float(q_errors.max()),
        # Ratios themselves are off by the rounding of their exponents.
        "ratio_error": float((q_errors + p_errors).max())
        + 4 * (1 + mean * (mean + abs(width))) * dominating_pair.UNIT_ROUNDOFF,
    }
    if bound is dominating_pair.Bound.LOWER:
        q_all = np.concatenate([[q_low], q_masses, [q_high]])
        p_all = np.concatenate([[p_low], p_masses, [p_high]])
        kept = (q_all > 0) & (p_all > 0)
        return dominating_pair.DominatingPair(
            p_all[kept] / q_all[kept], q_all[kept], 0.0, 0.0, bound, **errors
        )
    low, high = ratios[:-1], ratios[1:]
    raised = np.clip((p_masses - low * q_masses) / (high - low), 0.0, q_masses)
    masses = np.zeros(ratios.size)
    masses[1:] += raised
    masses[:-1] += q_masses - raised
    masses[0] += p_low / ratios[0]
    masses[-1] += q_high
    return dominating_pair.DominatingPair(
        ratios,
        masses,
        infinity_mass=float(p_high),
        zero_mass=float(q_low),
        bound=bound,
        **errors,
    )


def upper_epsilon(mean: float, delta: float) -> float:
    """Returns ε of N(mean, 1) against N(0, 1) at δ, from its closed form.

    δ(ε) = Φ(m/2 − ε/m) − e^ε Φ(−m/2 − ε/m), in logarithms, so that neither a
    large ε nor a small δ leaves the range of floats.

    Args:
        mean: The mean m, positive: sensitivity over standard deviation.
        delta: The target, in (0, 1).

    Returns:
        An upper bound on ε ≥ 0, in nats.

    Source:
        Balle and Wang 2018, https://arxiv.org/abs/1805.06530, Theorem 8.
    """

    def log_delta(epsilon: float) -> float:
        first = special.log_ndtr(mean / 2 - epsilon / mean)
        second = epsilon + special.log_ndtr(-mean / 2 - epsilon / mean)
        # Rounding of the two, on the side of a larger δ.
        slack = 64 * dominating_pair.UNIT_ROUNDOFF * (1 + abs(first) + abs(second))
        slack += 64 * dominating_pair.UNIT_ROUNDOFF * (epsilon + mean**2)
        gap = max(first - second + slack, 0.0)
        return float(first + slack + math.log(max(-math.expm1(-gap), 5e-324)))

    goal = math.log(delta)
    if log_delta(0.0) <= goal:
        return 0.0
    high = mean * (mean / 2 + math.sqrt(-2 * goal)) + 1e-300
    while log_delta(high) > goal:
        high *= 2
    return float(
        optimize.brentq(lambda x: log_delta(x) - goal, 0.0, high, xtol=1e-300)
    ) * (1 + 1e-12)
