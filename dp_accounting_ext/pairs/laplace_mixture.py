"""Laplace noise around random shifts: pairs of two mixtures."""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import shifts

# Tuning: at least as many cells as for Gaussian noise, a hundredth of a nat wide at
# most.
_CELLS = 1 << 14


@dataclasses.dataclass(frozen=True)
class Mixture(shifts.Mixture):
    """The law Lap(shift, 1) with a random shift: a tuple of (shift, weight)."""

    def coefficients(self, left: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) a and b of the density a e^{x − left} + b e^{left − x}.

        This holds on intervals that begin at `left` and have no shift inside.
        """
        rising, falling = np.zeros(left.size), np.zeros(left.size)
        for shift, weight in self.shifts:
            ahead = shift > left
            terms = weight / 2 * np.exp(-np.abs(shift - left))
            rising += np.where(ahead, terms, 0.0)
            falling += np.where(ahead, 0.0, terms)
        return rising, falling

    def density(self, points: FloatArray) -> FloatArray:
        """Returns (n,) densities."""
        rising, falling = self.coefficients(points)
        return rising + falling

    def masses(self, points: FloatArray) -> FloatArray:
        """Returns (n − 1,) probabilities between points, which include all shifts."""
        rising, falling = self.coefficients(points[:-1])
        widths = np.diff(points)
        masses: FloatArray = rising * np.expm1(widths) - falling * np.expm1(-widths)
        return masses


def largest_loss(p: Mixture, q: Mixture) -> float:
    """Returns the largest loss in either direction, which is that of an end.

    Its relative error is below 1e-12, however rare or close the shifts are.
    """
    largest = max(
        _log_mean(p, 1.0) - _log_mean(q, 1.0), _log_mean(q, -1.0) - _log_mean(p, -1.0)
    )
    return largest * (1 + 2 * p.weight_error() + 2 * q.weight_error())


def _log_mean(mixture: Mixture, sign: float) -> float:
    """Returns ln E e^{±shift} for shifts on one side of zero, without cancellation."""
    signed = [(sign * shift, weight) for shift, weight in mixture.shifts]
    furthest = max(shift for shift, _ in signed)
    if furthest <= floats.LARGEST_EXPONENT:
        growth = math.fsum(w * math.expm1(s) for s, w in signed)
        # The logarithm of a mean so close to one would have few digits.
        if abs(growth) < 0.5:
            return math.log1p(growth)
    return furthest + math.log(math.fsum(w * math.exp(s - furthest) for s, w in signed))


def dominating_pair_of(
    p: Mixture, q: Mixture, bound: Bound, *, rest: tuple[float, float] = (0.0, 0.0)
) -> dominating_pair.DominatingPair:
    """Returns the pair of two mixtures of shifted Laplace noise.

    No shift of P is below a shift of Q. The likelihood ratio is constant below all
    shifts and above all of them, and increases in between. All losses are finite.

    Args:
        p: The law P, with shifts of at least 0, in units of the noise's parameter.
        q: The law Q, with shifts of at most 0.
        bound: The side. An upper pair splits each cell of the noise between its ends, a
            lower one merges it at its mean.
        rest: The probabilities that the weights of P and of Q leave out. The shifts
            that are left out may have any size.

    Returns:
        The pair, or the trivial one if shifts are more than 700 apart.

    Raises:
        ValueError: If a shift of P is negative, or one of Q positive.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem M.2.
    """
    low, high = q.lowest(), p.highest()
    shifts.check_order(p, q)
    reach = high - low
    if reach > floats.LARGEST_EXPONENT:
        return dominating_pair.trivial_pair(bound)
    number = math.ceil(max(_CELLS, 100 * reach))
    kinks = [shift for shift, _ in p.shifts + q.shifts]
    places = np.union1d(np.linspace(low, high, number + 1), kinks)
    edges = p.density(places) / q.density(places)
    p_masses, q_masses = p.masses(places), q.masses(places)
    # Outside of all shifts the density falls as e^{−distance} from the nearest end.
    q_ends = q.density(places[[0, -1]])
    # docs/rounding.md, "Laplace noise, cells".
    rounding = 64 * floats.UNIT_ROUNDOFF * (1 + reach + len(kinks))
    rounding += p.weight_error() + q.weight_error()
    if bound is Bound.LOWER:
        ratios = np.concatenate([edges[:1], p_masses / q_masses, edges[-1:]])
        masses = np.concatenate([q_ends[:1], q_masses, q_ends[1:]])
        return shifts.lower_pair(ratios, masses, rounding, 4 * rounding)
    edges = np.maximum.accumulate(edges)
    masses = shifts.split(q_masses, p_masses / q_masses - edges[:-1], np.diff(edges))
    # In two statements: if all shifts are equal there is one atom for both ends.
    masses[0] += q_ends[0]
    masses[-1] += q_ends[1]
    return dominating_pair.DominatingPair(
        edges, masses, *rest, bound, 4 * rounding, 4 * rounding
    )
