"""From likelihood ratios to Rényi divergences, without cancellation."""

from collections.abc import Callable
from collections.abc import Sequence
import functools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats

# The divergence of order one (Kullback-Leibler) is bounded by that of this order, as
# Rényi divergences increase in the order.
LOWEST_ORDER = 1.0 + 1e-9
# Above this order only bounds without amplification are computed.
HIGHEST_ORDER = 4096.0
# Above this order the divergence of order inf is used, which is no smaller: floats
# cannot represent α − 1 there, nor differences of losses of about 1/α.
LARGEST_ORDER = 1e12
# Tuning: orders at which bounds are tried where any order gives one.
SOME_ORDERS = (1.1, 1.25, *(x * 2.0**n for n in range(10) for x in (1.5, 2.0)))
# The power series is used if |α log Z| is at most this.
_SMALL = 0.25


class _Terms(NamedTuple):
    """What all orders from 2^(n − 1) to 2^n have in common in `log_mean_excesses`.

    Attributes:
        powers: (14,) sums of mass · (log Z)^n for n from 2 to 15, over losses so small
            that these terms of the power series give full float precision.
        masses_below: Masses of the other losses that are at most zero.
        costs: These losses.
        less_one: Z − 1 at these losses.
        log_masses_above: Logarithms of masses of the other losses above zero.
        gains: These losses.
        inverses_less_one: 1/Z − 1 at these losses.
    """

    powers: FloatArray
    masses_below: FloatArray
    costs: FloatArray
    less_one: FloatArray
    log_masses_above: FloatArray
    gains: FloatArray
    inverses_less_one: FloatArray


def log_mean_excesses(
    orders: Sequence[float], log_masses: FloatArray, losses: FloatArray
) -> list[float]:
    """Returns logarithms of the mean of Z^α − 1 − α (Z − 1) over α − 1, at n orders.

    As Z = dP/dQ has mean one under Q, this mean is (Ψ_α(P‖Q) − 1) / (α − 1). The mean
    of Z^α − 1 alone would be a small difference of large numbers. Here every summand is
    positive, with a relative error of a few roundings. Logarithms are used, so that Z^α
    may be larger than any float.

    Args:
        orders: (n,) finite orders α > 1.
        log_masses: (m,) logarithms of masses under Q.
        losses: (m,) log Z, finite or −inf.
    """
    top = float(np.max(log_masses, initial=-np.inf))
    if top == -np.inf:
        return [-math.inf] * len(orders)
    by_size = np.argsort(np.abs(losses), kind="stable")
    losses, log_masses = losses[by_size], log_masses[by_size]
    sizes, masses = np.abs(losses), np.exp(log_masses - top)

    @functools.cache
    def terms_of(octave: int) -> _Terms:
        near = int(np.searchsorted(sizes, _SMALL / 2.0**octave, side="right"))
        terms, powers = masses[:near] * losses[:near], []
        for _ in range(14):
            terms = terms * losses[:near]
            powers.append(terms.sum())
        below = np.flatnonzero(losses[near:] <= 0) + near
        above = np.flatnonzero(losses[near:] > 0) + near
        costs, gains = losses[below], losses[above]
        return _Terms(
            np.array(powers),
            *(masses[below], costs, np.expm1(costs)),
            *(log_masses[above], gains, np.expm1(-gains)),
        )

    def log_mean(order: float) -> float:
        """Returns the logarithm of the mean at one order."""
        slope, terms = order - 1, terms_of(math.ceil(math.log2(order)))
        # (α^n − α)/(α − 1)/n!, where the quotient is α + α (α^{n−1} − α)/(α − 1).
        series = [order / 2]
        for n in range(3, 16):
            series.append(order * (1 / math.factorial(n) + series[-1] / n))
        total = float(terms.powers @ series)
        # What ratios Z < 1 contribute, as Z (Z^{α−1} − 1)/(α − 1) − (Z − 1). Written
        # so, no two nearly equal numbers are subtracted, and no term is above one.
        with np.errstate(over="ignore", invalid="ignore"):
            excess = (1 + terms.less_one) * np.expm1(slope * terms.costs) / slope
            excess -= terms.less_one
        total += float((terms.masses_below * excess).sum())
        log_below = top + math.log(total) if total else -math.inf
        # The same over Z^α for Z > 1, where Z^α may overflow.
        falling = np.expm1(-slope * terms.gains)
        excess = (1 + falling) * terms.inverses_less_one - falling / slope
        log_above = log_sum(terms.log_masses_above + order * terms.gains, excess)
        return float(np.logaddexp(log_below, log_above))

    return [log_mean(order) for order in orders]


def of_outcomes(
    orders: Sequence[float], masses: npt.ArrayLike, losses: FloatArray
) -> FloatArray:
    """Returns the (n,) divergences of P from Q, which have finitely many outcomes.

    Args:
        orders: (n,) Rényi orders α ≥ 1, inf included.
        masses: (m,) probabilities of the outcomes under Q.
        losses: (m,) values of log P/Q, finite.
    """
    with np.errstate(divide="ignore"):
        log_masses = np.log(np.asarray(masses, dtype=np.float64))
    largest = rounded_up(float(losses[log_masses > -np.inf].max()))
    divergences = np.full(len(orders), largest)
    finite = np.isfinite(orders)
    above = np.maximum(np.array(orders)[finite], LOWEST_ORDER).tolist()
    divergences[finite] = [
        rdp_from_excess(excess, order)
        for excess, order in zip(
            log_mean_excesses(above, log_masses, losses), above, strict=True
        )
    ]
    return divergences


def rdp_from_excess(log_mean_excess: float, order: float) -> float:
    """Returns the divergence, rounded up, from the logarithm of (Ψ_α − 1)/(α − 1)."""
    moment = float(np.logaddexp(0.0, np.log(order - 1) + log_mean_excess))
    return rdp_from_moment(moment, order)


def rdp_from_moment(log_moment: float, order: float) -> float:
    """Returns log Ψ_α / (α − 1), rounded up."""
    return rounded_up(log_moment / (order - 1))


def rounded_up(value: float) -> float:
    """Returns a value ≥ 0, raised by a hundred times the observed rounding error."""
    return value * (1.0 + 1e-11)


def by_chords(
    orders: Sequence[float],
    plain: FloatArray,
    moments: Callable[[set[int]], dict[int, float]],
) -> FloatArray:
    """Returns RDP from log Ψ at integer orders, or `plain` if that is smaller.

    log Ψ is a convex function of the order, so that its chords are above it. At order
    one it is 0.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        plain: (n,) bounds without amplification, which are the result for orders above
            `HIGHEST_ORDER`.
        moments: The function from a set of integer orders, at least 2, to log Ψ.
    """
    within = [max(order, LOWEST_ORDER) for order in orders if order <= HIGHEST_ORDER]
    integers = {n for x in within for n in (math.floor(x), math.ceil(x))} - {1}
    log_moments = moments(integers) | {1: 0.0}
    bounds = plain.copy()
    for place, asked in enumerate(orders):
        if asked > HIGHEST_ORDER:
            continue
        order = max(asked, LOWEST_ORDER)
        below = math.floor(order)
        share = order - below
        moment = (1 - share) * log_moments[below]
        moment += share * log_moments[below + 1] if share else 0.0
        bounds[place] = min(bounds[place], rdp_from_moment(moment, order))
    return bounds


def noise_within_range(noise: float) -> float:
    """Returns 0 for σ below 1e-50, and at most 1e50, so that 1/σ² fits a float.

    The divergences of the result are no smaller than those of σ.
    """
    return 0.0 if noise < 1e-50 else min(noise, 1e50)


def gaussian_rdp(distance: float, orders: Sequence[float]) -> FloatArray:
    """Returns the (n,) divergences of N(distance, 1) from N(0, 1): α distance² / 2."""
    if distance == 0:  # Also at order inf, where the product would be NaN.
        return np.zeros(len(orders))
    slope = distance**2 / 2 * (1 + 8 * floats.UNIT_ROUNDOFF)
    divergences: FloatArray = np.array(orders) * slope
    return divergences


def log_sum(log_terms: FloatArray, factors: FloatArray | float = 1.0) -> float:
    """Returns the logarithm of a sum of exponentials times positive factors.

    It is −inf for an empty sum, and inf if a term is infinite.
    """
    largest = float(np.max(log_terms, initial=-np.inf))
    if not math.isfinite(largest):
        return largest
    return largest + math.log(float((np.exp(log_terms - largest) * factors).sum()))
