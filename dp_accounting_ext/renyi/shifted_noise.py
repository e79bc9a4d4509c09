"""Rényi divergences of Gaussian noise around random shifts, by quadrature."""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.renyi import ratio_moments

# Normal tails beyond this many standard deviations are below 1e-56.
_REACH = 16.0
# The logarithm of the largest relative error of the quadrature of a divergence.
_LOG_ERROR = -40.0
# Heights in the complex plane that are tried, over the largest one. That is at most
# `_HIGHEST` standard deviations.
_HEIGHTS, _HIGHEST = np.geomspace(1e-4, 0.999, 500), 100.0
# Limits of memory and time: the largest number of terms of a mixture that are evaluated
# at once, and in one quadrature.
_BLOCK, _MOST_TERMS = 1 << 20, 1 << 22
_LARGEST_EXPONENT = 50.0
# Orders between two of these numbers share one lattice.
_BANDS = (8.0, 64.0, 256.0, 1024.0, ratio_moments.HIGHEST_ORDER)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The normal law N(s, 1) with a random mean s, the shift.

    Attributes:
        shifts: (n,) values of the shift, at least 0 and increasing.
        log_weights: (n,) logarithms of their probabilities, which sum to one.
        factors: The number of factors a + b e^{z · range / factors}, with a, b ≥ 0,
            whose zeros are no nearer to the real line than those of the density over
            that of N(0, 1). It is 1 for any mixture.
    """

    shifts: FloatArray
    log_weights: FloatArray
    factors: int = 1

    @functools.cached_property
    def weights(self) -> FloatArray:
        """The (n,) probabilities."""
        return np.exp(self.log_weights)

    @property
    def spacing(self) -> float:
        """The largest shift minus the smallest one, over the number of factors."""
        return float(self.shifts[-1] - self.shifts[0]) / self.factors

    def mean(self, power: int = 1) -> float:
        """Returns the mean of the given power of the shift."""
        return float(self.weights @ self.shifts**power)

    def log_ratio(self, points: FloatArray) -> FloatArray:
        """Returns (m,) logarithms of the density over that of N(0, 1).

        Where the ratio is near one its logarithm keeps the relative accuracy of the
        points.
        """
        blocks = np.array_split(points, 1 + points.size * self.shifts.size // _BLOCK)
        return np.concatenate([self._log_ratio(block) for block in blocks])

    def _log_ratio(self, points: FloatArray) -> FloatArray:
        exponents = np.multiply.outer(points, self.shifts) - self.shifts**2 / 2
        terms = self.log_weights + exponents
        largest = terms.max(axis=1)
        logs = largest + np.log(np.exp(terms - largest[:, np.newaxis]).sum(axis=1))
        excess = np.expm1(np.minimum(exponents, _LARGEST_EXPONENT)) @ self.weights
        is_near = exponents.max(axis=1) <= _LARGEST_EXPONENT
        is_near &= np.abs(excess) <= 0.5
        return np.where(is_near, np.log1p(np.where(is_near, excess, 0.0)), logs)

    def last_transition(self, log_share: float, place: int) -> float:
        """Returns a point x beyond which one component dominates the mixture.

        Beyond it the sum of all other components is at most a given share of this one.

        Args:
            log_share: The logarithm of the share.
            place: 0 if the component of the smallest shift dominates to the left of −x;
                −1 if that of the largest shift dominates to the right of x.
        """
        others = np.delete(np.arange(self.shifts.size), place)
        gaps = np.abs(self.shifts[others] - self.shifts[place])
        middles = (self.shifts[others] + self.shifts[place]) / 2
        odds = self.log_weights[others] - self.log_weights[place]
        with np.errstate(over="ignore"):
            needed = (odds + math.log(max(others.size, 1)) - log_share) / gaps
        signed = needed - middles if place == 0 else needed + middles
        return float(np.max(signed, initial=0.0))


def mixture(weighted: Sequence[tuple[float, float]]) -> Mixture:
    """Returns the mixture of (shift, weight) pairs, all on one side of zero."""
    weights: dict[float, float] = {}
    for shift, weight in weighted:
        weights[abs(shift)] = weights.get(abs(shift), 0.0) + weight
    by_shift = sorted((shift, weight) for shift, weight in weights.items() if weight)
    ordered = np.array(by_shift, dtype=np.float64).T
    return Mixture(ordered[0], np.log(ordered[1]))


def binomial(members: int, rate: float, noise: float) -> Mixture:
    """Returns the noise around a binomial number of members, over its deviation σ.

    Its density over that of N(0, 1) is a polynomial in e^{z/σ}, all zeros of which are
    negative (docs/mathematics.md, "Rényi divergences").

    Args:
        members: The number of members.
        rate: The probability of each member, in (0, 1).
        noise: σ.
    """
    counts = range(members + 1)
    log_weights = [
        math.log(math.comb(members, count))
        + count * math.log(rate)
        + (members - count) * math.log1p(-rate)
        for count in counts
    ]
    return Mixture(np.array(counts) / noise, np.array(log_weights), max(members, 1))


@functools.lru_cache(maxsize=64)
def _group_rdp(
    orders: tuple[float, ...], group_size: int, rate: float, noise: float
) -> FloatArray:
    """Returns the rows of `group_rdp`."""
    if rate == 0:
        rows = np.zeros((1, len(orders)))
    elif noise == 0:
        rows = np.full((1, len(orders)), np.inf)
    elif rate == 1:
        rows = ratio_moments.gaussian_rdp(group_size / noise, orders)[np.newaxis]
    else:
        laws = [binomial(members, rate, noise) for members in range(group_size + 1)]
        rows = np.array(
            [rdp(orders, p, q) for p, q in zip(laws, reversed(laws), strict=True)]
        )
    rows.setflags(write=False)
    return rows


def group_rdp(
    orders: Sequence[float], group_size: int, sampling_probability: float, noise: float
) -> FloatArray:
    """Returns the RDP of Gaussian noise on a Poisson sample, for splits of a group.

    Row K₋ is for the split in which K₋ members are removed and K₊ = K − K₋ inserted. It
    is the divergence of Σ_i Binom(i | K₋, r) N(i, σ²) from Σ_j Binom(j | K₊, r) N(−j,
    σ²). The two datasets fix the split. So the rows of several runs are added, and the
    largest row is taken at the end.

    Args:
        orders: Rényi orders α ≥ 1, inf included.
        group_size: The number K of members of the group.
        sampling_probability: Inclusion probability r of each record, in [0, 1].
        noise: The noise multiplier σ.

    Returns:
        A read-only array of K + 1 rows, or of one row if all are equal.

    Guarantees:
        As for `rdp`. The bound is tight for the mechanism.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8.
    """
    return _group_rdp(
        tuple(float(order) for order in orders),
        int(group_size),
        float(sampling_probability),
        ratio_moments.noise_within_range(noise),
    )


def rdp(orders: Sequence[float], p: Mixture, q: Mixture) -> FloatArray:
    """Returns the (n,) divergences of P from Q, whose furthest components differ.

    Args:
        orders: (n,) Rényi orders α ≥ 1, inf included.
        p: The law P.
        q: The law Q mirrored at zero, so that its shifts are at least zero, too.

    Guarantees:
        No entry is below the truth, and none is above it by more than a relative 1e-10
        (1e-8 at order one). Exceptions are orders above 4096 and lattices of millions
        of points (for many shifts that are far apart, or large orders). There the entry
        is the divergence of the furthest components, which is a bound as Ψ is jointly
        convex.
    """
    result = ratio_moments.gaussian_rdp(float(p.shifts[-1] + q.shifts[-1]), orders)
    if p.shifts.size == q.shifts.size == 1:
        return result
    lower = 0.0
    for upper in _BANDS:
        band = [place for place, order in enumerate(orders) if lower < order <= upper]
        above = [max(orders[place], ratio_moments.LOWEST_ORDER) for place in band]
        divergences = _quadrature(above, p, q) if band else None
        if divergences is not None:
            result[band] = divergences
        lower = upper
    return result


def _quadrature(orders: Sequence[float], p: Mixture, q: Mixture) -> list[float] | None:
    """Returns the RDP at orders that share a lattice, by the trapezoidal rule, or None.

    The mean of the excess has three terms: ∫ p^α q^{1−α} dN, the mass of Q and the mass
    of P, where the functions p and q are densities relative to that of N(0, 1). The
    rule's relative error is at most e^log_error for each. The largest possible error is
    added, and the same amount for the integral beyond the last point.

    Returns:
        The divergences; or None if too many terms would be summed.
    """
    highest = max(orders)
    # The χ² divergence is at least the squared distance of the means, divided by the
    # variance of Q. It estimates the divergence at small orders.
    distance = max(p.mean() + q.mean(), floats.SMALLEST_MASS)
    variance = 1 + max(q.mean(2) - q.mean() ** 2, 0.0)
    log_error = _LOG_ERROR + min(0.0, 2 * math.log(distance) - math.log(variance))
    log_error += min(0.0, math.log(min(orders) - 1))
    step = _step(highest, log_error, p, q)
    reach = float(p.shifts[-1] + q.shifts[-1]) + _REACH
    first = math.floor(-reach / step)
    # The sum ends where nothing is left, or at `end`: beyond it all other components
    # are at most a share 1e-13/α of one of p, and of one of q.
    log_share = -30 - math.log(highest)
    transitions = p.last_transition(log_share, -1), q.last_transition(log_share, 0)
    end = max(*transitions, reach)
    mass_end = _end_of_mass(highest, log_error, p, q)
    last = math.ceil(min(end, mass_end) / step)
    if (last - first) * (p.shifts.size + q.shifts.size) > _MOST_TERMS:
        return None
    points = np.arange(first, last + 1, dtype=np.float64) * step
    log_q = q.log_ratio(-points)
    log_masses = log_q - points**2 / 2 + math.log(step / math.sqrt(2 * math.pi))
    losses = p.log_ratio(points) - log_q
    excesses = ratio_moments.log_mean_excesses(orders, log_masses, losses)
    result = []
    for order, excess in zip(orders, excesses, strict=True):
        terms = [excess, log_error + math.log((2 + 2 * order) / (order - 1))]
        if end <= mass_end:
            far = _log_far_moment(order, step, last + 1, p, q)
            terms.append(far - math.log(order - 1))
        raised = float(np.logaddexp.reduce(terms))
        result.append(ratio_moments.rdp_from_excess(raised, order))
    return result


def _step(order: float, log_error: float, p: Mixture, q: Mixture) -> float:
    """Returns a step at which ∫ p^α q^{1−α} dN(0, 1) has a small relative error.

    The error of this step h, and of any smaller one, is at most 2 M(d) ∫ f /
    (e^{2πd/h} − 1) if ∫ |f(x ± i b)| dx ≤ M(d) ∫ f(x) dx for every b ≤ d, and f is
    analytic there. This is solved for h, for the best of a few hundred d. At height d,
    |p| is at most its value on the line, and the normal density is multiplied by
    e^{d²/2}. The arguments of both terms of a factor of q are at most s d apart, where
    s is the spacing of Q. So p and q have no zeros where s d < π, and the size of each
    factor is at least cos(s d / 2) times its value on the line.

    Source:
        Trefethen and Weideman 2014, https://doi.org/10.1137/130932132, section 5.
    """
    widest = max(p.spacing, q.spacing)
    heights = min(math.pi / widest if widest else math.inf, _HIGHEST) * _HEIGHTS
    bent = q.factors * np.log(np.cos(q.spacing * heights / 2))
    log_growth = heights**2 / 2 - (order - 1) * bent
    periods = np.logaddexp(0.0, math.log(2.0) + log_growth - log_error)
    return float(np.max(2 * np.pi * heights / periods))


def _end_of_mass(order: float, log_share: float, p: Mixture, q: Mixture) -> float:
    """Returns a point beyond which ∫ p^α q^{1−α} dN is at most e^log_share.

    Let s be the largest shift of P, and −r the random shift of Q. For x ≥ 0, p ≤
    e^{s x}, and q ≥ e^{−E r x − E r²/2} by Jensen's inequality. So with m = α s + (α −
    1) E r the integrand is at most e^{(m² + (α − 1) E r²)/2} times the density of
    N(m, 1). P's density is the larger one there, so that this bounds the excess as
    well.
    """
    slope = order - 1
    mean = order * float(p.shifts[-1]) + slope * q.mean()
    size = (mean**2 + slope * q.mean(2)) / 2
    return mean + math.sqrt(2 * (size - log_share))


def _log_far_moment(
    order: float, step: float, first: int, p: Mixture, q: Mixture
) -> float:
    """Returns log of the sum of p^α q^{1−α} over lattice points from `first` on.

    There each mixture is replaced by the component that dominates it: P by that of its
    largest shift, s, and Q by that of its shift nearest to zero, −r. The integrand is a
    constant times the density of N(α s + (α − 1) r, 1) then.
    """
    slope = order - 1
    s, r = float(p.shifts[-1]), float(q.shifts[0])
    mean = order * s + slope * r
    if first * step > mean + _REACH:
        return -math.inf
    height = order * float(p.log_weights[-1]) - slope * float(q.log_weights[0])
    height += order * slope * (s + r) ** 2 / 2
    start = max(first, math.floor((mean - _REACH) / step))
    points = step * np.arange(start, math.ceil((mean + _REACH) / step) + 1)
    density = np.exp(-((points - mean) ** 2) / 2)
    return height + math.log(step * density.sum() / math.sqrt(2 * math.pi))
