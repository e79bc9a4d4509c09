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
# Heights d in the complex plane, in standard deviations, are tried up to this one.
_HIGHEST = 100.0
# Logarithm of the relative error that the quadrature of a divergence may have.
_LOG_ERROR = -40.0
# Tuning: the most terms of a mixture evaluated at once, and in one quadrature.
_BLOCK = 1 << 20
_MOST_TERMS = 1 << 22
_LARGEST_EXPONENT = 50.0
# Orders that share one lattice.
_BANDS = (8.0, 64.0, 256.0, 1024.0)


@dataclasses.dataclass(frozen=True)
class Mixture:
    """N(s, 1) around a random shift s.

    Attributes:
        shifts: (n,) that are at least 0, increasing.
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
        """Returns the mean of a power of the shift."""
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
        """Returns a point beyond which all but one component are a share of it.

        Args:
            log_share: Logarithm of the share.
            first: Whether it is the component of the least shift, on the left, that
                remains: at minus the point that is returned. Else it is that of the
                largest shift, on the right.
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
    """Returns the mixture of (shift, weight), on one side of zero, in any order."""
    weights: dict[float, float] = {}
    for shift, weight in weighted:
        weights[abs(shift)] = weights.get(abs(shift), 0.0) + weight
    kept = sorted((shift, weight) for shift, weight in weights.items() if weight)
    ordered = np.array(kept, dtype=np.float64).T
    return Mixture(ordered[0], np.log(ordered[1]))


@dataclasses.dataclass(frozen=True)
class Pair:
    """Two mixtures, P and Q. The second one is stored mirrored at zero.

    P's shifts are thus at least 0, and Q's at most 0. The functions p and q are the
    densities of P and Q relative to that of N(0, 1).
    """

    p: Mixture
    q: Mixture

    @property
    def distance(self) -> float:
        """The distance between the furthest components of P and Q."""
        return float(self.p.shifts[-1] + self.q.shifts[-1])

    def unamplified_rdp(self, orders: Sequence[float]) -> FloatArray:
        """Returns the RDP of the furthest components, which no mixture exceeds."""
        return ratio_moments.gaussian_rdp(self.distance, orders)

    def log_least_excess(self) -> float:
        """Returns about the logarithm of the divergence at small orders.

        Its χ² is at least the squared distance of the means over the variance of Q.
        """
        apart = max(self.p.mean() + self.q.mean(), floats.SMALLEST_MASS)
        variance = 1 + max(self.q.mean(2) - self.q.mean() ** 2, 0.0)
        return min(0.0, 2 * math.log(apart) - math.log(variance))

    def zero_free_width(self) -> float:
        """Returns a width w such that p and q have no zeros where |Im z| < w.

        There the terms of either mixture have arguments that are less than π apart.
        """
        widest = max(self.p.range, self.q.range)
        return math.pi / widest if widest else math.inf

    def log_q_bent(self, heights: FloatArray) -> FloatArray:
        """Returns logarithms, at most 0, of the least |q(x + i d)| / q(x) at heights d.

        All terms' arguments are within an angle of its range times d, so that their
        sum is at least the cosine of half of it times the sum of their sizes.
        """
        bent: FloatArray = np.log(np.cos(self.q.range * heights / 2))
        return bent

    def step(self, order: float, log_error: float) -> float:
        """Returns a step for ∫ p^α q^{1−α} dN(0, 1) of so small a relative error.

        Guarantees:
            At height d |p| is at most its value on the real line, |q| at least what
            `log_q_bent` says, and the normal density is e^{d²/2} times its own.
        """

        def log_growth(heights: FloatArray) -> FloatArray:
            return heights**2 / 2 - (order - 1) * self.log_q_bent(heights)

        width = min(self.zero_free_width(), _HIGHEST)
        return trapezoid.largest_step(log_growth, width, log_error)

    def end_of_transitions(self, order: float) -> float:
        """Returns a point beyond which p and q are one component, to a share 1e-13/α.

        Of p the one with the largest shift remains, of q that with the least.
        """
        log_share = -30 - math.log(order)
        ends = (
            self.p.last_transition(log_share, first=False),
            self.q.last_transition(log_share, first=True),
        )
        return max(*ends, self.distance + _REACH)

    def log_far_moment(self, order: float, step: float, first: int) -> float:
        """Returns log of the sum of p^α q^{1−α} over lattice points from `first` on.

        It is that of the components that remain. With s and r their distances from
        zero it is a constant times the density of N(α s + (α − 1) r, 1).
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

        With s the largest shift of P, and −r that of Q, a random one, p ≤ e^{s x} and
        q ≥ e^{−E r x − E r²/2} (Jensen) where x ≥ 0. So with m = α s + (α − 1) E r the
        integrand is at most e^{(m² + (α − 1) E r²)/2} times the density of N(m, 1).
        There P's density is the larger, so that it bounds the excess as well.
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
        No entry is below the truth, and none above it by more than a relative 1e-10
        (order one, by 1e-8). Exceptions are orders above 4096 and lattices of millions
        of points (many shifts that are far apart, or large orders of them); there it is
        that of the furthest components.
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
    """Returns the RDP at orders that share a lattice, by the trapezoid rule.

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
    excesses = ratio_moments.MeanExcess(log_masses, pair.p.log_ratio(points) - log_q)
    result = []
    for given in orders:
        order = max(given, ratio_moments.LOWEST_ORDER)
        excess = excesses.log(order)
        if end <= mass_end:
            far = pair.log_far_moment(order, step, last + 1) - math.log(order - 1)
            excess = float(np.logaddexp(excess, far))
        missing = log_error + math.log((2 + 2 * order) / (order - 1))
        excess = float(np.logaddexp(excess, missing))
        moment = ratio_moments.log_moment_from_excess(excess, order)
        result.append(ratio_moments.rdp_from_moment(moment, order))
    return result
