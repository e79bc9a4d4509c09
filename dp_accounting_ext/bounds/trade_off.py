"""Trade-off curves: what a test at a false positive rate finds, from certified pairs.

With H_κ the divergence of P from Q, a test that rejects Q with probability α under Q
does so under P with at most

    TPR(α) = inf over κ ≥ 0 of α κ + H_κ,

and some test does (Neyman and Pearson). Where the pair is one of atoms the infimum is
at the ratio of an atom: the curve goes up atom by atom, the largest ratios first.
"""

from collections.abc import Callable
import math

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import pair

Bound = dominating_pair.Bound
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


class Curve:
    """The trade-off curve of two laws, and its inverse.

    Args:
        pair: Certified laws, upper or lower; P is tested for.

    Guarantees:
        True positive rates are never below those of the mechanism where the pair is an
        upper bound, never above them where it is a lower one; least false positive
        rates are never above, and never below.
    """

    def __init__(self, pair: pair.Pair) -> None:
        order = np.argsort(-pair.losses, kind="stable")
        self._upper = pair.bound is Bound.UPPER
        sign = 1.0 if self._upper else -1.0
        # Sums of n terms, a line through them: twice, and each side its own way.
        rounding = 8 * (pair.p.size + 16) * dominating_pair.UNIT_ROUNDOFF
        self._slack = 1 + sign * rounding
        self._factor = math.exp(sign * pair.error)
        # Where losses are larger, so is what is found at a rate.
        self._scale = math.exp(sign * pair.shift)
        found = pair.over + np.cumsum(pair.p[order])
        ratios = np.exp(np.minimum(pair.losses[order], floats.LARGEST_EXPONENT))
        q = pair.q[order]
        if not self._upper:
            # Of an output too rare for a float so much is spent, for what it finds.
            q = np.maximum(q, floats.SMALLEST_MASS)
            ratios = np.minimum(ratios, pair.p[order] / q)
        self._found = np.append(pair.over, found)
        self._spent = np.append(0.0, np.cumsum(q))
        self._ratios = np.append(ratios, 0.0)
        self.infinity_mass = min(max(self._factor * pair.over, 0.0), 1.0)

    def true_positive_rates(self, rates: FloatArray) -> FloatArray:
        """Returns (n,) bounds on what is found at (n,) false positive rates."""
        # Fewer digits than a ratio could multiply: a larger rate finds no less (upper),
        # and of none is what has no spending (lower).
        least = floats.SMALLEST_MASS if self._upper else 0.0
        rounded = np.where(rates < floats.SMALLEST_MASS, least, rates)
        rounded = np.where(rates > 0, rounded, 0.0)
        places = rounded * self._scale / self._factor
        first = np.searchsorted(self._spent, places, side="right") - 1
        along = self._ratios[first] * (places - self._spent[first])
        values = self._factor * self._slack * (self._found[first] + along)
        clipped: FloatArray = np.clip(values, rates, 1.0)
        return clipped

    def false_positive_rates(self, found: FloatArray) -> FloatArray:
        """Returns (n,) bounds on the least rate at which so much is found.

        From an upper curve they are certainly too small, from a lower one too large.
        """
        goals = found / (self._factor * self._slack)
        last = np.searchsorted(self._found, goals, side="left") - 1
        below = np.maximum(last, 0)
        ratios = self._ratios[below]
        missing = goals * (1 / self._slack) - self._found[below]
        with np.errstate(divide="ignore", invalid="ignore"):
            steps = np.where(ratios > 0, np.maximum(missing, 0.0) / ratios, math.inf)
        places = np.where(last < 0, 0.0, self._spent[below] + steps)
        values = places * self._factor / self._scale / self._slack
        least = 0.0 if self._upper else floats.SMALLEST_MASS
        values = np.where(values < floats.SMALLEST_MASS, least, values)
        return np.clip(values, 0.0, found)


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
