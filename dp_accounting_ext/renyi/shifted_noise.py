"""Rényi divergences of Gaussian noise around random shifts, by quadrature."""

from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.renyi import ratio_moments
from dp_accounting_ext.renyi import trapezoid

# Normal tails beyond this many standard deviations are below 1e-56.
_REACH = 16.0
# The largest height d in the complex plane that is tried, in standard deviations.
_HIGHEST = 100.0
# The logarithm of the largest relative error of the quadrature of a divergence.
_LOG_ERROR = -40.0
# Tuning: the largest number of terms of a mixture that are evaluated at once, and in
# one quadrature.
_BLOCK = 1 << 20
_MOST_TERMS = 1 << 22
_LARGEST_EXPONENT = 50.0
# Orders between two of these numbers share one lattice.
_BANDS = (8.0, 64.0, 256.0, 1024.0)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """The normal law N(s, 1) with a random mean s, the shift.

    Attributes:
        shifts: (n,) values of the shift, at least 0 and increasing.
        log_weights: (n,) logarithms of their probabilities, which sum to one.
    """

    shifts: FloatArray
    log_weights: FloatArray

    @functools.cached_property
    def weights(self) -> FloatArray:
        """The (n,) probabilities."""
        return np.exp(self.log_weights)

    @property
    def range(self) -> float:
        """The largest shift minus the smallest one."""
        return float(self.shifts[-1] - self.shifts[0])

    def mean(self, power: int = 1) -> float:
        """Returns the mean of the given power of the shift."""
        return float(self.weights @ self.shifts**power)

    def log_ratio(self, points: FloatArray) -> FloatArray:
        """Returns (m,) logarithms of the density over that of N(0, 1).

        Where the ratio is near one its logarithm keeps the relative accuracy of the
        points.
        """
        result = np.empty(len(points))
        rows = max(1, _BLOCK // self.shifts.size)
        for start in range(0, len(points), rows):
            block = points[start : start + rows]
            exponents = np.multiply.outer(block, self.shifts) - self.shifts**2 / 2
            terms = self.log_weights + exponents
            largest = terms.max(axis=1)
            far = largest + np.log(np.exp(terms - largest[:, None]).sum(axis=1))
            near = np.expm1(np.minimum(exponents, _LARGEST_EXPONENT)) @ self.weights
            small = exponents.max(axis=1) <= _LARGEST_EXPONENT
            small &= np.abs(near) <= 0.5
            result[start : start + rows] = np.where(
                small, np.log1p(np.where(small, near, 0.0)), far
            )
        return result

    def last_transition(self, log_share: float, *, first: bool) -> float:
        """Returns a point x beyond which one component dominates the mixture.

        Beyond it the sum of all other components is at most a given share of this one.

        Args:
            log_share: The logarithm of the share.
            first: If True, the component of the smallest shift dominates to the left of
                −x. If False, that of the largest shift dominates to the right of x.
        """
        place = 0 if first else -1
        others = np.delete(np.arange(self.shifts.size), place)
        gaps = np.abs(self.shifts[others] - self.shifts[place])
        middles = (self.shifts[others] + self.shifts[place]) / 2
        odds = self.log_weights[others] - self.log_weights[place]
        with np.errstate(over="ignore"):
            needed = (odds + math.log(max(others.size, 1)) - log_share) / gaps
        return float(np.max(needed + (-middles if first else middles), initial=0.0))


def mixture(weighted: Sequence[tuple[float, float]]) -> Mixture:
    """Returns the mixture of (shift, weight) pairs, all on one side of zero."""
    weights: dict[float, float] = {}
    for shift, weight in weighted:
        weights[abs(shift)] = weights.get(abs(shift), 0.0) + weight
    kept = sorted((shift, weight) for shift, weight in weights.items() if weight)
    ordered = np.array(kept, dtype=np.float64).T
    return Mixture(ordered[0], np.log(ordered[1]))


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two mixtures, P with shifts of at least 0, and Q with shifts of at most 0.

    Q is stored mirrored at zero. The functions p and q are the densities of P and Q
    relative to that of N(0, 1).
    """

    p: Mixture
    q: Mixture

    @property
    def distance(self) -> float:
        """The distance between the furthest components of P and Q."""
        return float(self.p.shifts[-1] + self.q.shifts[-1])

    def unamplified_rdp(self, orders: Sequence[float]) -> FloatArray:
        """Returns the RDP of the furthest components, a bound for the mixtures."""
        return ratio_moments.gaussian_rdp(self.distance, orders)

    def log_least_excess(self) -> float:
        """Returns an estimate of the logarithm of the divergence at small orders.

        The χ² divergence is at least the squared distance of the means, divided by the
        variance of Q.
        """
        apart = max(self.p.mean() + self.q.mean(), floats.SMALLEST_MASS)
        variance = 1 + max(self.q.mean(2) - self.q.mean() ** 2, 0.0)
        return min(0.0, 2 * math.log(apart) - math.log(variance))

    def zero_free_width(self) -> float:
        """Returns a width w such that p and q have no zeros where |Im z| < w.

        There the arguments of the terms of a mixture are less than π apart.
        """
        widest = max(self.p.range, self.q.range)
        return math.pi / widest if widest else math.inf

    def log_q_bent(self, heights: FloatArray) -> FloatArray:
        """Returns logarithms of lower bounds on |q(x + i d)| / q(x) at heights d.

        Let R be the range of Q's shifts. At height d the arguments of all terms of q
        lie within an angle of R d. So the size of their sum is at least cos(R d / 2)
        times the sum of their sizes.
        """
        bent: FloatArray = np.log(np.cos(self.q.range * heights / 2))
        return bent

    def step(self, order: float, log_error: float) -> float:
        """Returns a step at which ∫ p^α q^{1−α} dN(0, 1) has a small relative error.

        Guarantees:
            The error is bounded from the growth of the integrand off the real line. At
            height d, |p| is at most its value on the line, |q| is bounded from below by
            `log_q_bent`, and the normal density is multiplied by e^{d²/2}.
        """

        def log_growth(heights: FloatArray) -> FloatArray:
            return heights**2 / 2 - (order - 1) * self.log_q_bent(heights)

        width = min(self.zero_free_width(), _HIGHEST)
        return trapezoid.largest_step(log_growth, width, log_error)

    def end_of_transitions(self, order: float) -> float:
        """Returns a point beyond which one component dominates p, and one dominates q.

        All other components are at most a share 1e-13/α of it. Beyond the point, the
        component with the largest shift dominates p, and that with the smallest one q.
        """
        log_share = -30 - math.log(order)
        ends = (
            self.p.last_transition(log_share, first=False),
            self.q.last_transition(log_share, first=True),
        )
        return max(*ends, self.distance + _REACH)

    def log_far_moment(self, order: float, step: float, first: int) -> float:
        """Returns log of the sum of p^α q^{1−α} over lattice points from `first` on.

        There each mixture is replaced by its dominating component. With s and r the
        distances of the two from zero, the integrand is a constant times the density of
        N(α s + (α − 1) r, 1).
        """
        slope = order - 1
        ahead, behind = float(self.p.shifts[-1]), float(self.q.shifts[0])
        mean = order * ahead + slope * behind
        if first * step > mean + _REACH:
            return -math.inf
        height = (
            order * float(self.p.log_weights[-1])
            - slope * float(self.q.log_weights[0])
            + order * slope * (ahead + behind) ** 2 / 2
        )
        start = max(first, math.floor((mean - _REACH) / step))
        points = step * np.arange(start, math.ceil((mean + _REACH) / step) + 1)
        density = np.exp(-((points - mean) ** 2) / 2)
        return height + math.log(step * density.sum() / math.sqrt(2 * math.pi))

    def end_of_mass(self, order: float, log_share: float) -> float:
        """Returns a point beyond which ∫ p^α q^{1−α} dN is at most e^log_share.

        Let s be the largest shift of P, and −r the random shift of Q. For x ≥ 0, p ≤
        e^{s x}, and q ≥ e^{−E r x − E r²/2} by Jensen's inequality. So with m = α s +
        (α − 1) E r the integrand is at most e^{(m² + (α − 1) E r²)/2} times the density
        of N(m, 1). P's density is the larger one there, so that this bounds the excess
        as well.
        """
        slope = order - 1
        mean = order * float(self.p.shifts[-1]) + slope * self.q.mean()
        size = (mean**2 + slope * self.q.mean(2)) / 2
        return mean + math.sqrt(2 * (size - log_share))


def rdp(orders: Sequence[float], pair: Pair) -> FloatArray:
    """Returns the (n,) divergences of P from Q, whose furthest components differ.

    Args:
        orders: (n,) Rényi orders α ≥ 1, inf included.
        pair: P and Q.

    Guarantees:
        No entry is below the truth, and none is above it by more than a relative 1e-10
        (1e-8 at order one). Exceptions are orders above 4096 and lattices of millions
        of points (for many shifts that are far apart, or large orders). There the entry
        is the divergence of the furthest components.
    """
    result = pair.unamplified_rdp(orders)
    if pair.p.shifts.size == pair.q.shifts.size == 1:
        return result
    lower = 0.0
    for upper in (*_BANDS, ratio_moments.HIGHEST_ORDER):
        band = [place for place, order in enumerate(orders) if lower < order <= upper]
        if band:
            result[band] = _quadrature([orders[place] for place in band], pair)
        lower = upper
    return result


def _quadrature(orders: Sequence[float], pair: Pair) -> list[float]:
    """Returns the RDP at orders that share a lattice, by the trapezoidal rule.

    Guarantees:
        No entry is below the truth, because the largest possible error is added. The
        mean of the excess has three terms: ∫ p^α q^{1−α} dN, the mass of Q and the mass
        of P. The rule's relative error is at most e^log_error for each. The same amount
        is added for the integral beyond the last point, if that is not computed.
    """
    highest = max(orders)
    lowest = max(min(orders), ratio_moments.LOWEST_ORDER)
    log_error = _LOG_ERROR + pair.log_least_excess() + min(0.0, math.log(lowest - 1))
    step = pair.step(highest, log_error)
    first = math.floor(-(pair.distance + _REACH) / step)
    end = pair.end_of_transitions(highest)
    mass_end = pair.end_of_mass(highest, log_error)
    last = math.ceil(min(end, mass_end) / step)
    terms = pair.p.shifts.size + pair.q.shifts.size
    if (last - first) * terms > _MOST_TERMS:
        unamplified: list[float] = pair.unamplified_rdp(orders).tolist()
        return unamplified
    points = np.arange(first, last + 1, dtype=np.float64) * step
    log_q = pair.q.log_ratio(-points)
    log_masses = log_q - points**2 / 2 + math.log(step / math.sqrt(2 * math.pi))
    losses = pair.p.log_ratio(points) - log_q
    above = [max(order, ratio_moments.LOWEST_ORDER) for order in orders]
    excesses = ratio_moments.log_mean_excesses(above, log_masses, losses)
    result = []
    for order, excess in zip(above, excesses, strict=True):
        if end <= mass_end:
            far = pair.log_far_moment(order, step, last + 1) - math.log(order - 1)
            excess = float(np.logaddexp(excess, far))
        missing = log_error + math.log((2 + 2 * order) / (order - 1))
        excess = float(np.logaddexp(excess, missing))
        result.append(ratio_moments.rdp_from_excess(excess, order))
    return result
