"""Certified trade-off curves: true positive rates of the best tests.

Let H_κ be the divergence of P from Q. A test that rejects Q with probability α under Q
rejects it under P with probability at most

    TPR(α) = inf over κ ≥ 0 of α κ + H_κ,

and some test attains this (Neyman and Pearson). For a pair with atoms the infimum is at
the ratio of an atom: the curve goes up atom by atom, from the largest ratio on.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import math

import numpy as np
from scipy import special

from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import memory
from dp_accounting_ext.kernel import profile
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface

# Certified: the error of SciPy's normal distribution function and of its inverse, in
# nats or in standard deviations. tests/test_assumptions.py checks it.
_NORMAL_ERROR = 64 * floats.UNIT_ROUNDOFF
_INVERSE_ERROR = 1e-12
# Tuning: the largest gap between the bounds on the largest distance of two curves, and
# the number of cells at the start.
_CLOSE_ENOUGH = 1e-6
_CELLS = 1 << 12
# Certified: the relative error of a quotient, a square root and an exponential.
_ROUNDING = 1e-12


class Curve:
    """The trade-off curve of two laws, and its inverse.

    Args:
        pair: The certified laws, upper or lower. A positive test decides for P.

    Guarantees:
        If the pair is an upper bound, true positive rates are at least those of the
        mechanism, and false positive rates at most. If it is a lower bound, it is the
        other way round.
    """

    def __init__(self, pair: profile.LossPair) -> None:
        order = np.argsort(-pair.losses, kind="stable")
        self._upper = pair.bound is Bound.UPPER
        sign = 1.0 if self._upper else -1.0
        # Both rates are sums of n terms, and points on a line between two sums. The
        # slack covers the rounding of both, each towards its own side.
        rounding = 8 * (pair.p_masses.size + 16) * floats.UNIT_ROUNDOFF
        self._slack = 1 + sign * rounding
        self._factor = math.exp(sign * pair.mass_error)
        # Larger losses give larger true positive rates.
        self._scale = math.exp(sign * pair.ratio_error)
        gained = pair.infinity_mass + np.cumsum(pair.p_masses[order])
        ratios = np.exp(np.minimum(pair.losses[order], floats.LARGEST_EXPONENT))
        q = pair.q_masses[order]
        if not self._upper:
            # A mass that underflowed has at most this false positive rate.
            q = np.maximum(q, floats.SMALLEST_MASS)
            ratios = np.minimum(ratios, pair.p_masses[order] / q)
        self._gained = np.append(pair.infinity_mass, gained)
        self._spent = np.append(0.0, np.cumsum(q))
        self._ratios = np.append(ratios, 0.0)
        self.infinity_mass = min(max(self._factor * pair.infinity_mass, 0.0), 1.0)

    def true_positive_rates(self, rates: FloatArray) -> FloatArray:
        """Returns (n,) bounds on true positive rates at (n,) false positive rates."""
        # A subnormal rate has few digits, which a ratio could multiply. From above it
        # is raised: a larger rate has no smaller true positive rate.
        smallest = floats.SMALLEST_MASS if self._upper else 0.0
        rounded = np.where(rates < floats.SMALLEST_MASS, smallest, rates)
        rounded = np.where(rates > 0, rounded, 0.0)
        places = rounded * self._scale / self._factor
        first = np.searchsorted(self._spent, places, side="right") - 1
        along = self._ratios[first] * (places - self._spent[first])
        values = self._factor * self._slack * (self._gained[first] + along)
        conservation.check_numbers("True positive rates", values)
        clipped: FloatArray = np.clip(values, rates, 1.0)
        return clipped

    def false_positive_rates(self, rates: FloatArray) -> FloatArray:
        """Returns (n,) bounds on the false positive rates at (n,) true positive rates.

        They are lower bounds for an upper curve, and upper bounds for a lower curve.
        """
        goals = rates / (self._factor * self._slack)
        last = np.searchsorted(self._gained, goals, side="left") - 1
        below = np.maximum(last, 0)
        ratios = self._ratios[below]
        missing = goals * (1 / self._slack) - self._gained[below]
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(ratios > 0, np.maximum(missing, 0.0) / ratios, math.inf)
        places = np.where(last < 0, 0.0, self._spent[below] + steps)
        values = places * self._factor / self._scale / self._slack
        smallest = 0.0 if self._upper else floats.SMALLEST_MASS
        values = np.where(values < floats.SMALLEST_MASS, smallest, values)
        conservation.check_numbers("False positive rates", values)
        return np.clip(values, 0.0, rates)


def gaussian_rates(
    mean: float, rates: FloatArray, bound: Bound
) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) Φ(Φ⁻¹(α) + m), the true positive rates of N(m, 1) against N(0, 1).

    Args:
        mean: The mean m ≥ 0: sensitivity over standard deviation. It may be infinite
            for an upper bound.
        rates: (n,) false positive rates α.
        bound: The side of the bound on true positive rates.

    Returns:
        Bounds on the true positive rates, and on one minus these, from the other side.

    Source:
        Dong et al. 2019, https://arxiv.org/abs/1905.02383, section 2.2.
    """
    if math.isinf(mean):
        return np.ones(rates.size), np.zeros(rates.size)
    sign = 1 if bound is Bound.UPPER else -1
    quantiles = special.ndtri(rates)
    with np.errstate(invalid="ignore"):
        error = _INVERSE_ERROR * (1 + np.abs(quantiles) + mean)
        ends = quantiles + mean + sign * error
        logs = np.array([special.log_ndtr(ends), special.log_ndtr(-ends)])
        logs += sign * _NORMAL_ERROR * (1 + np.abs(logs)) * np.array([[1], [-1]])
    detected, missed = np.exp(np.minimum(logs, 0.0))
    if mean == 0:
        detected = rates
    detected = np.clip(np.where((rates > 0) & (rates < 1), detected, rates), rates, 1.0)
    missed = np.where((rates > 0) & (rates < 1), missed, 1 - rates)
    return detected, np.clip(missed, 0.0, 1.0)


def largest_distance(
    rates_above: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    least: float,
    most: float,
    bound: Bound,
) -> float:
    """Returns a bound on the largest Φ⁻¹(TPR(α)) − Φ⁻¹(α) for α from `least` to `most`.

    Both TPR and α increase. So between two rates the distance is at most that of the
    larger TPR from the smaller α. A cell in which this is far above the attained
    distance is halved.

    Args:
        rates_above: The function of (n,) rates α that gives bounds on TPR and on 1 −
            TPR. The smaller of the two is the more accurate one.
        least: The smallest α, positive.
        most: The largest α, below 1.
        bound: The side of the bound, and of `rates_above`.
    """
    low, high = float(special.ndtri(least)), float(special.ndtri(most))
    places = np.linspace(low, high, _CELLS + 1)
    heights = _heights(rates_above, places, least, most)
    attained = float((heights - places).max())
    if math.isinf(attained):
        return attained
    left, tops, width = places[:-1], heights[1:], (high - low) / _CELLS
    # Until this takes too many cells, or cells are as narrow as floats allow.
    for _ in range(24):
        open_ = tops - left > attained + _CLOSE_ENOUGH
        if bound is Bound.LOWER or not 0 < open_.sum() < 32 * _CELLS:
            break
        width /= 2
        left, tops = left[open_], tops[open_]
        middle = left + width
        between = _heights(rates_above, middle, least, most)
        attained = max(attained, float((between - middle).max()))
        left, tops = np.concatenate([left, middle]), np.concatenate([between, tops])
    error = _INVERSE_ERROR * (1 + abs(low) + abs(high) + abs(attained))
    if bound is Bound.LOWER:
        return max(attained - error, 0.0)
    return max(float((tops - left).max(initial=0.0)), attained + _CLOSE_ENOUGH) + error


def _heights(
    rates_above: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    places: FloatArray,
    least: float,
    most: float,
) -> FloatArray:
    """Returns (n,) Φ⁻¹(TPR), from the smaller one of TPR and 1 − TPR."""
    rates = np.clip(special.ndtr(places), least, most)
    detected, missed = rates_above(rates)
    return np.where(detected <= missed, special.ndtri(detected), -special.ndtri(missed))


_CURVES: memory.Memory[Curve] = memory.Memory(privacy_bounds.MOST_KEPT)


class TradeOffBounds:
    """Bounds on the trade-off curve of one scenario, in the worse direction.

    Args:
        counts: The mechanisms that are composed, with the number of runs of each.
        least: The least positive false positive rate that is asked for.
        interval: The accountant's `value_discretization_interval`.
    """

    def __init__(
        self,
        counts: Mapping[interface.Mechanism, int],
        least: float,
        interval: float,
    ) -> None:
        self._parts = {bound: compositions.bounding(counts, bound) for bound in Bound}
        claims = interface.claims_of(counts)
        self._mean = math.sqrt(claims.gaussian_precision) * (1 + _ROUNDING)
        self._largest_loss = claims.largest_loss
        cells = accuracy.cells_of_interval(interval)
        self._accuracy = accuracy.Accuracy.of_curve(least, cells)

    def rates(self, rates: FloatArray, bound: Bound) -> FloatArray:
        """Returns (n,) bounds on the true positive rates at false positive rates."""
        rates_each_way = [
            self._detected_and_missed(rates, direction, bound)[0]
            for direction in Direction
        ]
        worst: FloatArray = np.maximum(*rates_each_way)
        # Subnormal bounds have few digits: a simpler bound takes their place.
        is_subnormal = (worst > 0) & (worst < floats.SMALLEST_MASS)
        simpler = rates if bound is Bound.LOWER else np.full(1, floats.SMALLEST_MASS)
        return np.where(is_subnormal, simpler, worst)

    def gaussian_parameter(self, least: float, bound: Bound) -> float:
        """Returns a bound on the largest μ(α), least ≤ α ≤ 1/2, in either direction.

        It is infinite if an infinite loss is more likely than the least α.
        """
        mean = self._gaussian(bound)
        if mean is not None:
            return mean
        if bound is Bound.UPPER and math.isfinite(self._mean):
            limit = self._mean
        else:
            limit = math.inf
        distances = []
        for direction in Direction:
            if self._curve(direction, bound).infinity_mass > least:
                return limit

            def ends(
                rates: FloatArray, direction: Direction = direction
            ) -> tuple[FloatArray, FloatArray]:
                return self._detected_and_missed(rates, direction, bound)

            # Tests with rates α above 1/2 have small rates in the other direction.
            distances.append(largest_distance(ends, least, 0.5, bound))
        return min(max(distances), limit)

    def _detected_and_missed(
        self, rates: FloatArray, direction: Direction, bound: Bound
    ) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) bounds on true positive rates, and on one minus these."""
        mean = self._gaussian(bound)
        if mean is not None:
            return gaussian_rates(mean, rates, bound)
        curve = self._curve(direction, bound)
        detected = curve.true_positive_rates(rates)
        opposite = {Direction.REMOVE: Direction.ADD, Direction.ADD: Direction.REMOVE}
        # Suppose that a test for P has the false positive rate α and misses a share β
        # of P. Its complement is a test for Q, which has the false positive rate β and
        # the true positive rate 1 − α.
        other = self._curve(opposite[direction], bound)
        missed = other.false_positive_rates(1 - rates)
        if bound is Bound.UPPER:
            above = [gaussian_rates(self._mean, rates, bound)]
            above.append(self._of_the_largest_loss(rates))
            detected = np.minimum(detected, np.minimum(*(f for f, _ in above)))
            missed = np.maximum(missed, np.maximum(*(m for _, m in above)))
            # This also covers the rounding of one minus a rate.
            limit = np.nextafter(1 - missed * (1 - _ROUNDING), 2.0)
            return np.minimum(detected, np.minimum(limit, 1.0)), missed
        at_least = np.nextafter(1 - missed * (1 + _ROUNDING), 0.0)
        return np.maximum(detected, at_least), missed

    def _of_the_largest_loss(self, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
        if self._largest_loss > floats.LARGEST_EXPONENT:
            return np.ones(rates.size), np.zeros(rates.size)
        growth = math.exp(self._largest_loss) * (1 + _ROUNDING)
        return np.minimum(rates * growth, 1.0), (1 - rates) / growth

    def _gaussian(self, bound: Bound) -> float | None:
        """Returns the mean of a composition that is one Gaussian, or None."""
        parts = self._parts[bound]
        if not parts:
            return 0.0
        noise = compositions.single_gaussian(parts)
        rounding = _ROUNDING if bound is Bound.UPPER else -_ROUNDING
        return None if noise is None else (1 + rounding) * noise.mean

    def _curve(self, direction: Direction, bound: Bound) -> Curve:
        make = functools.partial(self._make_curve, direction, bound)
        return _CURVES.get((self, direction, bound), make)

    def _make_curve(self, direction: Direction, bound: Bound) -> Curve:
        composed = compositions.losses(self._parts[bound], bound, self._accuracy)
        losses = composed.losses(direction)
        return Curve(losses if direction is Direction.REMOVE else losses.swapped())


@dataclasses.dataclass(frozen=True, eq=False)
class WorstTradeOffBounds:
    """The largest trade-off curve over several scenarios, one of which is true.

    Attributes:
        scenarios: The bounds of at least one scenario.
    """

    scenarios: Sequence[TradeOffBounds]

    def rates(self, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and (n,) upper bounds on the true positive rates."""
        lower, upper = (
            np.max([curve.rates(rates, bound) for curve in self.scenarios], axis=0)
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        return privacy_bounds.in_order(lower, upper), upper

    def gaussian_parameter(self, least: float) -> tuple[float, float]:
        """Returns a lower and an upper bound on the largest μ(α), least ≤ α ≤ 1/2."""
        lower, upper = (
            max(curve.gaussian_parameter(least, bound) for curve in self.scenarios)
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        ordered = privacy_bounds.in_order(np.array([lower]), np.array([upper]))
        return float(ordered[0]), upper
