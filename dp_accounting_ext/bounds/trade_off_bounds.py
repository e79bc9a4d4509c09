"""Certified trade-off curves of compositions, and the Gaussian curves around them."""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.bounds import privacy_bounds
from dp_accounting_ext.bounds import trade_off
from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import Direction
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import compositions
from dp_accounting_ext.mechanisms import interface

# Certified: the relative error of a quotient, a square root and an exponential.
_ROUNDING = 1e-12
# A limit: the memory, in bytes, of curves that are kept for further questions. A group
# of hundreds of records has as many splits, with curves of some 5 MB each.
_MOST_KEPT = 64 << 20


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
        self._parts = {
            bound: compositions.in_cells(compositions.flatten(counts, bound), bound)
            for bound in Bound
        }
        claims = interface.claims_of(counts)
        self._mean = math.sqrt(claims.gaussian_precision) * (1 + _ROUNDING)
        self._largest_loss = claims.largest_loss
        self._curves: dict[tuple[Direction, Bound], trade_off.Curve] = {}
        cells = accuracy.cells_of_interval(interval)
        self._accuracy = accuracy.Accuracy.of_curve(least, cells)

    def rates(self, rates: FloatArray, bound: Bound) -> FloatArray:
        """Returns (n,) bounds on the true positive rates at false positive rates."""
        both = [self._found_and_missed(rates, way, bound)[0] for way in Direction]
        worst: FloatArray = np.maximum(*both)
        # Subnormal bounds have few digits: a simpler bound takes their place.
        rare = (worst > 0) & (worst < floats.SMALLEST_MASS)
        known = rates if bound is Bound.LOWER else np.full(1, floats.SMALLEST_MASS)
        return np.where(rare, known, worst)

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
                return self._found_and_missed(rates, direction, bound)

            # Tests with rates α above 1/2 have small rates in the other direction.
            distances.append(trade_off.largest_distance(ends, least, 0.5, bound))
        return min(max(distances), limit)

    def _found_and_missed(
        self, rates: FloatArray, direction: Direction, bound: Bound
    ) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) bounds on true positive rates, and on one minus these."""
        mean = self._gaussian(bound)
        if mean is not None:
            return trade_off.gaussian_rates(mean, rates, bound)
        curve = self._curve(direction, bound)
        found = curve.true_positive_rates(rates)
        opposite = {Direction.REMOVE: Direction.ADD, Direction.ADD: Direction.REMOVE}
        # Suppose that a test for P has the false positive rate α and misses a share β
        # of P. Its complement is a test for Q, which has the false positive rate β and
        # the true positive rate 1 − α.
        other = self._curve(opposite[direction], bound)
        missed = other.false_positive_rates(1 - rates)
        if bound is Bound.UPPER:
            above = [trade_off.gaussian_rates(self._mean, rates, bound)]
            above.append(self._of_the_largest_loss(rates))
            found = np.minimum(found, np.minimum(*(f for f, _ in above)))
            missed = np.maximum(missed, np.maximum(*(m for _, m in above)))
            # This also covers the rounding of one minus a rate.
            most = np.nextafter(1 - missed * (1 - _ROUNDING), 2.0)
            return np.minimum(found, np.minimum(most, 1.0)), missed
        least = np.nextafter(1 - missed * (1 + _ROUNDING), 0.0)
        return np.maximum(found, least), missed

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
        noise = next(iter(parts)).gaussian_noise
        if sum(parts.values()) > 1 or noise is None:
            return None
        rounding = _ROUNDING if bound is Bound.UPPER else -_ROUNDING
        return (1 + rounding) / noise

    @property
    def nbytes(self) -> int:
        """The memory of the curves that are kept, in bytes."""
        return sum(curve.nbytes for curve in self._curves.values())

    def forget(self) -> None:
        """Drops the curves. The next question makes them again."""
        self._curves.clear()

    def _curve(self, direction: Direction, bound: Bound) -> trade_off.Curve:
        key = direction, bound
        if key not in self._curves:
            self._curves[key] = self._make_curve(direction, bound)
        return self._curves[key]

    def _make_curve(self, direction: Direction, bound: Bound) -> trade_off.Curve:
        composed = privacy_bounds.composition_of(
            self._parts[bound], bound, self._accuracy
        )
        found = composed.losses(direction)
        return trade_off.Curve(
            found if direction is Direction.REMOVE else found.swapped()
        )


@dataclasses.dataclass(frozen=True, eq=False)
class WorstTradeOffBounds:
    """The largest trade-off curve over several scenarios, one of which is true.

    Attributes:
        scenarios: The bounds of at least one scenario.
        most_bytes: The memory of the curves that are kept for further questions.
    """

    scenarios: Sequence[TradeOffBounds]
    most_bytes: int = _MOST_KEPT

    def rates(self, rates: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns (n,) lower and (n,) upper bounds on the true positive rates."""
        lower, upper = (
            np.max([each.rates(rates, bound) for each in self._each()], axis=0)
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        return privacy_bounds.in_order(lower, upper), upper

    def gaussian_parameter(self, least: float) -> tuple[float, float]:
        """Returns a lower and an upper bound on the largest μ(α), least ≤ α ≤ 1/2."""
        lower, upper = (
            max(each.gaussian_parameter(least, bound) for each in self._each())
            for bound in (Bound.LOWER, Bound.UPPER)
        )
        ordered = privacy_bounds.in_order(np.array([lower]), np.array([upper]))
        return float(ordered[0]), upper

    def _each(self) -> Iterator[TradeOffBounds]:
        """Yields the scenarios, of which only the first ones keep their curves."""
        kept = 0
        for each in self.scenarios:
            yield each
            if kept + each.nbytes <= self.most_bytes:
                kept += each.nbytes
            else:
                each.forget()
