"""From likelihood ratios to Rényi divergences, without cancellation."""

from collections.abc import Callable
from collections.abc import Sequence
import math

import numpy as np

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
# Tuning: the power series is used if |α log Z| is at most this.
_SMALL = 0.25
# Tuning: the number of losses in a block, whose powers are summed once for all orders.
_BLOCK = 64


class MeanExcess:
    """The mean of Z^α − 1 − α (Z − 1) over α − 1, for a law of losses and any order.

    As Z = dP/dQ has mean one under Q, this mean is (Ψ_α(P‖Q) − 1) / (α − 1). The mean
    of Z^α − 1 alone would be a small difference of large numbers. Here every summand is
    positive, with a relative error of a few roundings. Logarithms are used, so that Z^α
    may be larger than any float. Values that do not depend on the order are computed
    once.

    Args:
        log_masses: (n,) logarithms of masses under Q.
        losses: (n,) log Z, finite or −inf.
    """

    def __init__(self, log_masses: FloatArray, losses: FloatArray):
        by_size = np.argsort(np.abs(losses), kind="stable")
        losses, log_masses = losses[by_size], log_masses[by_size]
        self._sizes = np.abs(losses)
        self._top = float(np.max(log_masses, initial=-np.inf))
        masses = np.exp(log_masses - self._top) if self._top > -np.inf else log_masses
        # Larger losses are not summed by the power series at any order α ≥ 1.
        near = losses[self._sizes <= _SMALL]
        self._near_losses, self._near_masses = near, masses[: near.size]
        blocks = near.size // _BLOCK
        self._moments = _power_sums(
            near[: blocks * _BLOCK].reshape(blocks, _BLOCK),
            masses[: blocks * _BLOCK].reshape(blocks, _BLOCK),
        )
        self._positive = losses > 0
        self._gains = losses[self._positive]
        self._log_gaining = log_masses[self._positive]
        self._gains_backwards = np.expm1(-self._gains)
        costs = losses[~self._positive]
        self._costs, self._costing = costs, masses[~self._positive]
        self._ratios_less_one = np.expm1(costs)
        self._ratios = np.exp(costs)

    def log(self, order: float) -> float:
        """Returns the logarithm of the mean, for an order α > 1."""
        if self._top == -np.inf:
            return -np.inf
        # For these losses 14 terms of the power series give full float precision.
        near = int(np.searchsorted(self._sizes, _SMALL / order, side="right"))
        gains = int(np.count_nonzero(self._positive[:near]))
        total = self._near(order, near) + self._below(order, near - gains)
        with np.errstate(divide="ignore"):
            known = self._top + float(np.log(total))
        return float(np.logaddexp(known, self._log_above(order, gains)))

    def _near(self, order: float, count: int) -> float:
        """Sums (α^n − α) / (α − 1) lⁿ / n! from n = 2 on, for the smallest losses."""
        coefficients = [order / 2]
        for n in range(3, 16):
            # (α^n − α)/(α − 1) = α + α (α^{n−1} − α)/(α − 1) + … over n!.
            coefficients.append(order * (1 / math.factorial(n) + coefficients[-1] / n))
        blocks = count // _BLOCK
        rest = slice(blocks * _BLOCK, count)
        last = _power_sums(self._near_losses[rest], self._near_masses[rest])
        weights = np.array(coefficients)
        return float((weights @ self._moments[:, :blocks]).sum() + weights @ last)

    def _below(self, order: float, first: int) -> float:
        """Sums Z (Z^{α−1} − 1)/(α − 1) − (Z − 1) for Z < 1. All terms are below one."""
        slope = order - 1
        with np.errstate(over="ignore", invalid="ignore"):
            scaled = self._ratios[first:] * np.expm1(slope * self._costs[first:])
            excess = scaled / slope - self._ratios_less_one[first:]
        return float((self._costing[first:] * excess).sum())

    def _log_above(self, order: float, first: int) -> float:
        """Returns the logarithm of the sum for Z > 1, where Z^α may overflow."""
        gains, slope = self._gains[first:], order - 1
        if not gains.size:
            return -np.inf
        exponents = self._log_gaining[first:] + order * gains
        largest = float(exponents.max())
        if not math.isfinite(largest):
            return largest
        falling = np.expm1(-slope * gains)
        excess = (1 + falling) * self._gains_backwards[first:] - falling / slope
        return largest + math.log(float((np.exp(exponents - largest) * excess).sum()))


def _power_sums(losses: FloatArray, masses: FloatArray) -> FloatArray:
    """Returns (14, …) sums of m lⁿ over the last axis, for n = 2, …, 15."""
    terms, found = masses * losses**2, []
    for _ in range(14):
        found.append(terms.sum(axis=-1))
        terms = terms * losses
    return np.array(found)


def log_moment_from_excess(log_mean_excess: float, order: float) -> float:
    """Returns log Ψ_α, given the logarithm of (Ψ_α − 1)/(α − 1)."""
    return float(np.logaddexp(0.0, np.log(order - 1) + log_mean_excess))


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
    """Returns σ, or 0 if σ is below 1e-50, so that 1/σ² fits a float."""
    return 0.0 if noise < 1e-50 else min(noise, 1e50)


def gaussian_rdp(distance: float, orders: Sequence[float]) -> FloatArray:
    """Returns the (n,) divergences of N(distance, 1) from N(0, 1): α distance² / 2."""
    if distance == 0:  # Also at order inf, where the product would be NaN.
        return np.zeros(len(orders))
    slope = distance**2 / 2 * (1 + 8 * floats.UNIT_ROUNDOFF)
    found: FloatArray = np.array(orders) * slope
    return found


def log_sum(log_terms: FloatArray) -> float:
    """Returns the logarithm of a sum of exponentials; −inf for an empty sum."""
    largest = float(np.max(log_terms, initial=-np.inf))
    if largest == -np.inf:
        return largest
    return largest + float(np.log(np.sum(np.exp(log_terms - largest))))
