"""Rényi divergences of a group of records, Gaussian noise and Poisson samples."""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.renyi import divergence
from dp_accounting_ext.renyi import trapezoid

FloatArray = divergence.FloatArray

# Normal tails beyond so many standard deviations are below 1e-56.
_REACH = 16.0
# No step is best at heights of more standard deviations.
_HIGHEST = 100.0
# Relative error of a divergence that its quadrature may have, e^-40.
_LOG_ERROR = -40.0
# Mixtures are evaluated for so many numbers at once, and for so many at most.
_BLOCK = 1 << 20
_MOST_TERMS = 1 << 22
_LARGEST_EXPONENT = 50.0
# Orders that share one lattice.
_BANDS = (8.0, 64.0, 256.0, 1024.0)


def group_rdp(
    orders: Sequence[float], group_size: int, sampling_probability: float, noise: float
) -> FloatArray:
    """Returns the RDP of one run, for each split of the group and each order.

    Row K₋ is the split in which K₋ members are removed and K₊ = K − K₋ inserted: the
    divergence of Σ_i Binom(i | K₋, r) N(i, σ²) from Σ_j Binom(j | K₊, r) N(−j, σ²). A
    split is fixed by the two datasets: runs are added up row by row, and the largest
    row is taken last.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        group_size: K.
        sampling_probability: Inclusion probability r of each record, in [0, 1].
        noise: σ, the noise multiplier.

    Returns:
        A read-only array of K + 1 rows, or of one, if all are alike.

    Guarantees:
        No entry is below the truth, and none above it by more than a relative 1e-10
        (order one, by 1e-8): the bound is tight for the mechanism. Exceptions are
        orders above 4096 and lattices of millions of points (σ far below 1, with a
        large group or order); there it is α K²/2σ², without amplification, which by
        the joint convexity of Ψ is a bound for any mixtures no farther apart than K.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8.
    """
    return _group_rdp(
        tuple(float(order) for order in orders),
        int(group_size),
        float(sampling_probability),
        divergence.noise_within_range(noise),
    )


@functools.lru_cache(maxsize=64)
def _group_rdp(
    orders: tuple[float, ...], group_size: int, rate: float, noise: float
) -> FloatArray:
    if rate == 0:
        rows = np.zeros((1, len(orders)))
    elif noise == 0:
        rows = np.full((1, len(orders)), np.inf)
    elif rate == 1:
        rows = divergence.gaussian_rdp(group_size / noise, orders)[np.newaxis]
    else:
        rows = np.array(
            [
                _split_rdp(orders, Split(removed, group_size - removed, rate, noise))
                for removed in range(group_size + 1)
            ]
        )
    rows.setflags(write=False)
    return rows


@dataclasses.dataclass(frozen=True)
class Split:
    """K₋ members removed and K₊ inserted: p, q are densities over that of N(0, σ²)."""

    removed: int
    inserted: int
    rate: float
    noise: float

    def log_p(self, points: FloatArray) -> FloatArray:
        """Returns (n,) logarithms of p."""
        return log_mixture(points, self.removed, self.rate, self.noise)

    def log_q(self, points: FloatArray) -> FloatArray:
        """Returns (n,) logarithms of q."""
        return log_mixture(-points, self.inserted, self.rate, self.noise)

    def unamplified_rdp(self, orders: Sequence[float]) -> FloatArray:
        """Returns the RDP of the furthest components, which no mixture exceeds."""
        distance = (self.removed + self.inserted) / self.noise
        return divergence.gaussian_rdp(distance, orders)

    def log_least_excess(self) -> float:
        """Returns about the logarithm of the divergence at small orders.

        Its χ² is at least the squared distance of the means over the variance of Q.
        """
        size, spread = self.removed + self.inserted, self.rate * (1 - self.rate)
        variance = self.noise**2 + self.inserted * spread
        return min(0.0, 2 * math.log(self.rate * size) - math.log(variance))

    def step(self, order: float, log_error: float) -> float:
        """Returns a step for ∫ p^α q^{1−α} dN(0, σ²) of so small a relative error.

        Guarantees:
            With x = e^{z/σ²}, p is Σ_i Binom(i) e^{−i²/2σ²} x^i. All zeros of it are
            negative: those of Σ Binom(i) x^i are, and the operators 1 − aD and
            1 + aD, D = x d/dx and 1/a above the degree, keep them so by Rolle's
            theorem, whereas e^{−cD²} is the limit of (1 − c D²/n)^n. So p and q have
            no zeros where |Im z| < π σ². At height d, θ = d/σ², |p| is at most its
            value on the real line, and each factor 1 + ρ/x of q at least cos(θ/2)
            times its value; the normal density is e^{d²/2σ²} times its own.
        """
        variance, power = self.noise**2, self.inserted * (order - 1)

        def log_growth(heights: FloatArray) -> FloatArray:
            half_angles = heights / (2 * variance)
            bent: FloatArray = power * np.log(np.cos(half_angles))
            return heights**2 / (2 * variance) - bent

        width = min(math.pi * variance, _HIGHEST * self.noise)
        return trapezoid.largest_step(log_growth, width, log_error)

    def end_of_transitions(self, order: float) -> float:
        """Returns a point beyond which p and q are one component, to a share 1e-13/α.

        At K₋ + a the others' share of p, whose last one remains, is at most
        (1 + ρ e^{−a/σ²})^{K₋} − 1 with ρ = (1 − r)/r; at a that of q, whose first one
        does, at most (1 + e^{−a/σ²}/ρ)^{K₊} − 1.
        """
        size = self.removed + self.inserted
        odds = abs(math.log1p(-self.rate) - math.log(self.rate))
        logs = 30 + math.log(order) + math.log(size) + odds
        return size + max(_REACH * self.noise, self.noise**2 * logs)

    def log_far_moment(self, order: float, step: float, first: int) -> float:
        """Returns log of the sum of p^α q^{1−α} over lattice points from `first` on.

        There it is at most the normal density around α K₋ times
        r^{αK₋} (1 − r)^{(1−α)K₊} e^{α(α−1)K₋²/2σ²}.
        """
        mean, variance = order * self.removed, self.noise**2
        reach = _REACH * self.noise
        if first * step > mean + reach:
            return -math.inf
        height = (
            order * self.removed * math.log(self.rate)
            - (order - 1) * self.inserted * math.log1p(-self.rate)
            + order * (order - 1) * self.removed**2 / (2 * variance)
        )
        start = max(first, math.floor((mean - reach) / step))
        points = step * np.arange(start, math.ceil((mean + reach) / step) + 1)
        density = np.exp(-((points - mean) ** 2) / (2 * variance))
        return height + math.log(
            step * density.sum() / (self.noise * math.sqrt(2 * math.pi))
        )


def log_mixture(
    points: FloatArray, members: int, rate: float, noise: float
) -> FloatArray:
    """Returns log Σ_i Binom(i | members, r) e^{(i z − i²/2)/σ²}, a likelihood ratio.

    Where the ratio is near one its logarithm keeps the relative accuracy of z.
    """
    counts = np.arange(members + 1)
    log_weights = _log_binomial(members, rate)
    weights = np.exp(log_weights)
    result = np.empty(len(points))
    rows = max(1, _BLOCK // (members + 1))
    for start in range(0, len(points), rows):
        block = points[start : start + rows]
        exponents = (np.multiply.outer(block, counts) - counts**2 / 2) / noise**2
        terms = log_weights + exponents
        largest = terms.max(axis=1)
        far = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1))
        near = np.expm1(np.minimum(exponents, _LARGEST_EXPONENT)) @ weights
        small = exponents.max(axis=1) <= _LARGEST_EXPONENT
        small &= np.abs(near) <= 0.5
        result[start : start + rows] = np.where(
            small, np.log1p(np.where(small, near, 0.0)), far
        )
    return result


def _log_binomial(members: int, rate: float) -> FloatArray:
    return np.array(
        [
            math.log(math.comb(members, count))
            + count * math.log(rate)
            + (members - count) * math.log1p(-rate)
            for count in range(members + 1)
        ]
    )


def _split_rdp(orders: tuple[float, ...], split: Split) -> FloatArray:
    """Returns the RDP of a split at every order."""
    result = split.unamplified_rdp(orders)
    lower = 0.0
    for upper in (*_BANDS, divergence.HIGHEST_ORDER):
        band = [place for place, order in enumerate(orders) if lower < order <= upper]
        if band:
            result[band] = _quadrature([orders[place] for place in band], split)
        lower = upper
    return result


def _quadrature(orders: Sequence[float], split: Split) -> list[float]:
    """Returns the RDP of a split at orders that share a lattice, by the trapezoid rule.

    Guarantees:
        What the rule may be short by is added: of ∫ p^α q^{1−α} dN, of Q and of P in
        the mean of the excess a share e^log_error each.
    """
    highest = max(orders)
    lowest = max(min(orders), divergence.LOWEST_ORDER)
    log_error = _LOG_ERROR + split.log_least_excess() + min(0.0, math.log(lowest - 1))
    step = split.step(highest, log_error)
    begin = -(split.removed + split.inserted + _REACH * split.noise)
    first = math.floor(begin / step)
    last = math.ceil(split.end_of_transitions(highest) / step)
    if (last - first) * (split.removed + split.inserted + 2) > _MOST_TERMS:
        unamplified: list[float] = split.unamplified_rdp(orders).tolist()
        return unamplified
    points = np.arange(first, last + 1, dtype=np.float64) * step
    log_q = split.log_q(points)
    losses = split.log_p(points) - log_q
    log_masses = (
        log_q
        - points**2 / (2 * split.noise**2)
        + math.log(step / (split.noise * math.sqrt(2 * math.pi)))
    )
    excesses = divergence.MeanExcess(log_masses, losses)
    result = []
    for given in orders:
        order = max(given, divergence.LOWEST_ORDER)
        near = excesses.log(order)
        far = split.log_far_moment(order, step, last + 1) - math.log(order - 1)
        missing = log_error + math.log((1 + 2 * order) / (order - 1))
        excess = float(np.logaddexp(np.logaddexp(near, far), missing))
        moment = divergence.log_moment_from_excess(excess, order)
        result.append(divergence.rdp_from_moment(moment, order))
    return result
