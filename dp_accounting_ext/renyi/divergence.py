"""From likelihood ratios to Rényi divergences, without cancellation."""

from collections.abc import Callable
from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import floats

FloatArray = npt.NDArray[np.float64]

# Order one, the Kullback-Leibler divergence, is answered by the order just above it:
# Rényi divergences increase with the order.
LOWEST_ORDER = 1.0 + 1e-9
# Above this order only bounds without amplification are computed.
HIGHEST_ORDER = 4096.0
# Above this one divergences are taken to be those of order inf, which are no smaller: a
# float loses α − 1, and what a loss is short of the largest one, about 1/α.
LARGEST_ORDER = 1e12


def log_excess(losses: FloatArray, order: float) -> FloatArray:
    """Returns log (Z^α − 1 − α (Z − 1)) / (α − 1) where Z = e^loss.

    Its mean under Q, where Z = dP/dQ has mean one, is (Ψ_α(P‖Q) − 1) / (α − 1). The
    mean of Z^α − 1 alone would be a small difference of large numbers; here every
    value is positive, computed to a relative error of a few roundings, and stays a
    float however large Z^α is.

    Args:
        losses: log Z, finite or −inf.
        order: α > 1.
    """
    # There 16 terms of a power series are all that a float holds.
    small = np.abs(losses) * order <= 0.25
    positive = ~small & (losses > 0)
    negative = ~small & ~positive
    found = np.empty(losses.shape)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        for where, share in (
            (small, _log_excess_of_small),
            (positive, _log_excess_of_positive),
            (negative, _log_excess_of_negative),
        ):
            found[where] = share(losses[where], order)
    return found


def _log_excess_of_small(losses: FloatArray, order: float) -> FloatArray:
    """Sums (α^n − α) / (α − 1) lⁿ / n! from n = 2 on."""
    coefficient, total = order / 2, np.zeros_like(losses)
    power = losses**2
    for n in range(3, 16):
        total += coefficient * power
        # (α^n − α)/(α − 1) = α + α (α^{n−1} − α)/(α − 1) + … over n!.
        coefficient = order * (1 / math.factorial(n) + coefficient / n)
        power = power * losses
    return np.log(total)


def _log_excess_of_positive(losses: FloatArray, order: float) -> FloatArray:
    """Divides by Z^α, which may be too large for a float."""
    slope = order - 1
    scaled = -np.expm1(-slope * losses) / slope
    rest: FloatArray = np.exp(-slope * losses) * np.expm1(-losses)
    return order * losses + np.log(scaled + rest)


def _log_excess_of_negative(losses: FloatArray, order: float) -> FloatArray:
    """Takes Z (Z^{α−1} − 1)/(α − 1) − (Z − 1) as it stands: all of it below one."""
    slope = order - 1
    scaled = np.exp(losses) * np.expm1(slope * losses) / slope
    return np.log(scaled - np.expm1(losses))


def log_moment_from_excess(log_mean_excess: float, order: float) -> float:
    """Returns log Ψ_α, where (Ψ_α − 1)/(α − 1) is given by its logarithm."""
    return float(np.logaddexp(0.0, np.log(order - 1) + log_mean_excess))


def rdp_from_moment(log_moment: float, order: float) -> float:
    """Returns log Ψ_α / (α − 1), rounded up."""
    return rounded_up(log_moment / (order - 1))


def rounded_up(value: float) -> float:
    """Returns a value ≥ 0 raised by a hundred times what rounding was seen to cost."""
    return value * (1.0 + 1e-11)


def by_chords(
    orders: Sequence[float],
    plain: FloatArray,
    moments: Callable[[set[int]], dict[int, float]],
) -> FloatArray:
    """Returns RDP from log Ψ at integer orders, or what is plain where that is less.

    log Ψ is convex in the order, and 0 at order one, so that a chord is above it.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        plain: (n,) bounds without amplification, all there is above `HIGHEST_ORDER`.
        moments: From integers, at least 2, to log Ψ there.
    """
    within = [max(order, LOWEST_ORDER) for order in orders if order <= HIGHEST_ORDER]
    needed = {near for x in within for near in (math.floor(x), math.ceil(x))} - {1}
    known = moments(needed) | {1: 0.0}
    found = plain.copy()
    for place, asked in enumerate(orders):
        if asked > HIGHEST_ORDER:
            continue
        order = max(asked, LOWEST_ORDER)
        below = math.floor(order)
        share = order - below
        moment = (1 - share) * known[below]
        moment += share * known[below + 1] if share else 0.0
        found[place] = min(found[place], rdp_from_moment(moment, order))
    return found


def noise_within_range(noise: float) -> float:
    """Returns σ, or less, such that 1/σ² is a float: 0 if it is below 1e-50."""
    return 0.0 if noise < 1e-50 else min(noise, 1e50)


def gaussian_rdp(distance: float, orders: Sequence[float]) -> FloatArray:
    """Returns the (n,) divergences of N(distance, 1) from N(0, 1): α distance² / 2."""
    if distance == 0:  # Of every order, also of an infinite one.
        return np.zeros(len(orders))
    slope = distance**2 / 2 * (1 + 8 * floats.UNIT_ROUNDOFF)
    found: FloatArray = np.array(orders) * slope
    return found


def log_sum(log_terms: FloatArray) -> float:
    """Returns the logarithm of the sum of exponentials, −inf of none."""
    largest = float(np.max(log_terms, initial=-np.inf))
    if largest == -np.inf:
        return largest
    return largest + float(np.log(np.sum(np.exp(log_terms - largest))))
