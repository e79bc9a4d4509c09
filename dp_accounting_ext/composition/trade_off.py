"""Trade-off curves: what a test at a false positive rate finds, from certified pairs.

With H_κ the divergence of P from Q, a test that rejects Q with probability α under Q
does so under P with at most

    TPR(α) = inf over κ ≥ 0 of α κ + H_κ,

and some test does (Neyman and Pearson). Where the pair is one of atoms the infimum is
at the ratio of an atom: the curve goes up atom by atom, the largest ratios first.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.composition import anchors
from dp_accounting_ext.composition import composed_loss
from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.composition import saddle_point
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
FloatArray = npt.NDArray[np.float64]

# Certified: of scipy's normal distribution function and its inverse, in nats or in
# standard deviations; asked by tests/test_assumptions.py.
_NORMAL_ERROR = 64 * dominating_pair.UNIT_ROUNDOFF
_INVERSE_ERROR = 1e-12
# Tuning: how far apart the bounds on the largest distance of two curves may be.
_CLOSE_ENOUGH = 1e-6
_FIRST_CELLS = 512
_MOST_ROUNDS = 24
_MOST_CELLS = 1 << 17
# Windows of a lower curve: how many, how far apart and from where, in deviations.
_MOST_WINDOWS = 60
_STEP = 2.0
_DEVIATIONS_BELOW = 6.0
_NARROWEST = 0.1


class Curve:
    """The trade-off curve of a pair in one direction, and its inverse.

    Args:
        pair: A certified pair, upper or lower.
        direction: Which of the two laws is tested for: P (remove), or Q.

    Guarantees:
        True positive rates are never below those of the mechanism where the pair is an
        upper bound, never above them where it is a lower one; least false positive
        rates are never above, and never below.
    """

    def __init__(
        self, pair: dominating_pair.DominatingPair, direction: Direction
    ) -> None:
        if direction is Direction.ADD:
            pair = dominating_pair.dual(pair)
        shift, factor = dominating_pair.allowance(
            pair.bound, pair.masses.size, pair.mass_error, pair.ratio_error
        )
        self._upper = pair.bound is Bound.UPPER
        # Sums of n terms, a line through them: twice, and each side its own way.
        rounding = 8 * (pair.masses.size + 16) * dominating_pair.UNIT_ROUNDOFF
        self._slack = 1 + rounding if self._upper else 1 - rounding
        self._factor = factor
        self._scale = math.exp(-shift)
        self._ratios = np.append(pair.ratios[::-1], 0.0)
        found = pair.infinity_mass + np.cumsum(pair.p_masses[::-1])
        self._found = np.append(pair.infinity_mass, found)
        self._spent = np.append(0.0, np.cumsum(pair.masses[::-1]))
        self.infinity_mass = min(max(factor * pair.infinity_mass, 0.0), 1.0)

    def true_positive_rates(self, rates: FloatArray) -> FloatArray:
        """Returns (n,) bounds on what is found at (n,) false positive rates."""
        if self._factor == 0:
            return rates.copy()
        places = rates * self._scale / self._factor
        first = np.searchsorted(self._spent, places, side="right") - 1
        along = self._ratios[first] * (places - self._spent[first])
        values = self._factor * self._slack * (self._found[first] + along)
        clipped: FloatArray = np.clip(values, rates, 1.0)
        return clipped

    def false_positive_rates(self, found: FloatArray) -> FloatArray:
        """Returns (n,) bounds on the least rate at which so much is found.

        From an upper curve they are certainly too small, from a lower one too large.
        """
        if self._factor == 0:
            return found.copy()
        goals = found / (self._factor * self._slack)
        last = np.searchsorted(self._found, goals, side="left") - 1
        below = np.maximum(last, 0)
        ratios = self._ratios[below]
        missing = goals * (1 / self._slack) - self._found[below]
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(ratios > 0, np.maximum(missing, 0.0) / ratios, math.inf)
        places = np.where(last < 0, 0.0, self._spent[below] + steps)
        values = places * self._factor / self._scale / self._slack
        return np.clip(values, 0.0, found)


class LowerCurve:
    """A lower bound on the trade-off curve of a composition, window by window.

    Tests that reject the largest composed losses, down to some centre, are accurate
    under the tilt that centres the law there. A pair of the whole composition has to be
    accurate in all places at once, and as a lower bound is not.

    Args:
        laws: What is composed: lower bounds.
        least: The least false positive rate that is asked for.
    """

    def __init__(
        self, laws: Sequence[loss_distribution.LossDistribution], least: float
    ) -> None:
        composed = composed_loss.ComposedLoss(laws, math.inf, least)
        self._tests = [
            composed.atoms(place).tests()
            for place in _places(saddle_point.LossSketch(laws), math.log(least))
        ]
        self.infinity_mass = loss_distribution.infinity_mass(laws) * (1 - 1e-9)

    def true_positive_rates(self, rates: FloatArray) -> FloatArray:
        """Returns the (n,) bounds on what is found at (n,) false positive rates."""
        best = rates
        for found, spent in self._tests:
            # Of two tests a third may draw one: between them the curve is a line.
            drawn = np.interp(
                rates, np.append(0.0, spent), np.append(self.infinity_mass, found)
            )
            best = np.maximum(best, drawn * (1 - 1e-14))
        return best

    def false_positive_rates(self, found: FloatArray) -> FloatArray:
        """Returns (n,) bounds, from above, on the least rate that finds so much."""
        best = found
        for rates, spent in self._tests:
            drawn = np.interp(
                found, np.append(0.0, rates), np.append(0.0, spent), right=math.inf
            )
            best = np.minimum(best, drawn * (1 + 1e-14))
        return best


def _places(
    sketch: saddle_point.LossSketch, log_least: float
) -> Iterator[anchors.Place]:
    """Yields places from far below the mean to where tests spend little."""
    value, mean, variance = sketch.cumulants(0.0)
    deviation = math.sqrt(max(variance, 0.0)) or sketch.deviation
    yield sketch.place(0.0, mean - _DEVIATIONS_BELOW * deviation)
    tilt = 0.0
    for _ in range(_MOST_WINDOWS):
        yield sketch.place(tilt, mean)
        # Chernoff: no test that goes no further down spends more. And where the law
        # is all but one loss, the largest, there is no further one.
        spread = math.sqrt(max(variance, 0.0))
        if value - (tilt + 1) * mean < log_least or spread < _NARROWEST * deviation:
            break
        tilt += _STEP / spread
        value, mean, variance = sketch.cumulants(tilt)


def gaussian_rates(mean: float, rates: FloatArray, bound: Bound) -> FloatArray:
    """Returns (n,) Φ(Φ⁻¹(α) + m), bounds on what N(m, 1) against N(0, 1) lets find.

    Args:
        mean: The mean m, non-negative: sensitivity over standard deviation.
        rates: (n,) false positive rates α.
        bound: The side to err on.

    Source:
        Dong et al. 2019, https://arxiv.org/abs/1905.02383, section 2.2.
    """
    if mean == 0:
        return rates.copy()
    sign = 1 if bound is Bound.UPPER else -1
    quantiles = _inverse(rates)
    with np.errstate(invalid="ignore"):
        error = _INVERSE_ERROR * (1 + np.abs(quantiles) + mean)
        logs = special.log_ndtr(quantiles + mean + sign * error)
        logs += sign * _NORMAL_ERROR * (1 + np.abs(logs))
    values = np.where(rates > 0, np.exp(np.minimum(logs, 0.0)), 0.0)
    return np.clip(np.where(rates < 1, values, 1.0), rates, 1.0)


def gaussian_misses(mean: float, rates: FloatArray, bound: Bound) -> FloatArray:
    """Returns (n,) Φ(−Φ⁻¹(α) − m), what is left of `gaussian_rates` to one.

    Args:
        mean: As there.
        rates: As there.
        bound: The side of the rates that are found: for an upper bound of these, what
            is missed is bounded from below.
    """
    sign = -1 if bound is Bound.UPPER else 1
    quantiles = _inverse(rates)
    with np.errstate(invalid="ignore"):
        error = _INVERSE_ERROR * (1 + np.abs(quantiles) + mean)
        logs = special.log_ndtr(-quantiles - mean + sign * error)
        logs += sign * _NORMAL_ERROR * (1 + np.abs(logs))
    values = np.where(rates < 1, np.exp(np.minimum(logs, 0.0)), 0.0)
    return np.clip(np.where(rates > 0, values, 1.0), 0.0, 1.0)


def _inverse(rates: FloatArray) -> FloatArray:
    """Returns (n,) quantiles of the normal law."""
    return np.asarray(special.ndtri(rates), dtype=np.float64)


def largest_distance(
    rates_above: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    least: float,
    most: float,
    bound: Bound,
) -> float:
    """Returns a bound on the largest Φ⁻¹(TPR(α)) − Φ⁻¹(α), α from least to most.

    TPR and α both increase: between two rates the distance is at most that of the
    larger TPR from the smaller α. Where this is not close to what is attained, a cell
    is cut in two.

    Args:
        rates_above: From (n,) rates α to bounds on TPR and on 1 − TPR, of which the
            smaller one is the more accurate.
        least: The smallest α, positive.
        most: The largest, below 1.
        bound: The side to err on, and that of `rates_above`.
    """
    upper = bound is Bound.UPPER
    ends = np.linspace(_inverse(np.array([least]))[0], special.ndtri(most), 2)
    low, high = float(ends[0]), float(ends[1])
    places = np.linspace(low, high, _FIRST_CELLS + 1)
    heights = _heights(rates_above, places, least, most)
    attained = float((heights - places).max())
    left, right = places[:-1], places[1:]
    over = heights[1:]
    for _ in range(_MOST_ROUNDS):
        if math.isinf(attained):
            return attained
        open_cells = over - left > attained + _CLOSE_ENOUGH
        if not upper or not 0 < open_cells.sum() < _MOST_CELLS:
            break
        left, right, over = left[open_cells], right[open_cells], over[open_cells]
        middle = (left + right) / 2
        between = _heights(rates_above, middle, least, most)
        attained = max(attained, float((between - middle).max()))
        left, right = np.concatenate([left, middle]), np.concatenate([middle, right])
        over = np.concatenate([between, over])
    error = _INVERSE_ERROR * (1 + abs(low) + abs(high) + abs(attained))
    if not upper:
        return max(attained - error, 0.0)
    return max(float((over - left).max(initial=0.0)), attained + _CLOSE_ENOUGH) + error


def _heights(
    rates_above: Callable[[FloatArray], tuple[FloatArray, FloatArray]],
    places: FloatArray,
    least: float,
    most: float,
) -> FloatArray:
    """Returns (n,) Φ⁻¹(TPR), from TPR or from 1 − TPR, whichever is the smaller."""
    rates = np.clip(special.ndtr(places), least, most)
    found, missed = rates_above(rates)
    return np.where(found <= missed, _inverse(found), -_inverse(missed))
