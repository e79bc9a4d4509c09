"""The exact privacy profile where the likelihood ratio increases.

The best test of P against Q then is "above a threshold", so the hockey-stick
divergence is a sum of as many distribution functions as there are shifts.
"""

from collections.abc import Callable
import functools
import math

import numpy as np
import numpy.typing as npt
from scipy import optimize

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import shifts

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
FloatArray = npt.NDArray[np.float64]
LogRatios = Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
Mixture = shifts.Mixture

# Certified (docs/guarantees.md, "Neyman–Pearson"): products with weights, their sum.
_ROUNDING = 8 * floats.UNIT_ROUNDOFF

# Tuning: a search that ends early is loose. Limits, and a relative width of ε.
_DOUBLINGS = 80
_TRIES = 200
_NEAR = 50.0  # Most thresholds are in this range, in units of the noise.
_EPSILON_ERROR = 4e-13
_LEAST_STEP = 1e-30  # Of ε.
_FURTHER = 1.05  # Steps towards a δ, over what its slope tells.
# Tuning: terms at a time, 2 MB an array.
_MOST_TERMS = 1 << 18


def deltas(
    p: Mixture, q: Mixture, *, epsilons: FloatArray, direction: Direction, bound: Bound
) -> FloatArray:
    """Returns certified hockey-stick divergences of two mixtures of one noise.

    Args:
        p: P; the ratio p/q must increase.
        q: Q.
        epsilons: (n,) ε, in nats.
        direction: H(P‖Q) (remove), or H(Q‖P).
        bound: The side to err on.

    Returns:
        (n,) δ, each of which depends on its own ε alone.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8 and Theorem M.2.
    """
    gained, spent = _mirrored(p, q, direction)
    found = np.full(epsilons.shape, 1.0 if bound is Bound.UPPER else 0.0)
    (asked,) = np.nonzero(epsilons <= floats.LARGEST_EXPONENT)
    size = _chunk(gained, spent)
    for first in range(0, asked.size, size):
        here = asked[first : first + size]
        found[here] = _below_thresholds(gained, spent, epsilons[here], bound)
    return found


def _mirrored(p: Mixture, q: Mixture, direction: Direction) -> tuple[Mixture, Mixture]:
    """Returns what a divergence is of, and from, so that the ratio decreases.

    Mirrored, what P has above a threshold lies below it.
    """
    return (q, p) if direction is Direction.ADD else (p.reflected(), q.reflected())


def _chunk(gained: Mixture, spent: Mixture) -> int:
    """Returns at how many points both are computed at a time."""
    return max(_MOST_TERMS // (len(gained.shifts) + len(spent.shifts)), 1)


def _below_thresholds(
    gained: Mixture, spent: Mixture, epsilons: FloatArray, bound: Bound
) -> FloatArray:
    """Returns (n,) suprema over c of gained(x < c) − e^ε spent(x < c).

    Args:
        gained: The law of which the divergence is taken.
        spent: The law it is taken from; the ratio spent/gained increases.
        epsilons: (n,) ε.
        bound: The side to err on.
    """
    at, beyond, uncertain = _thresholds(gained, spent, -epsilons)
    nowhere = at == -math.inf
    at[nowhere] = beyond[nowhere] = 0.0
    kappas = np.exp(epsilons)[:, np.newaxis]
    shifts_, gains, costs = _together(gained, spent)
    costs = kappas * costs
    sizes = gains + costs
    rounding = gained.weight_error() + spent.weight_error() + _ROUNDING
    masses, errors = gained.noise_below(at[:, np.newaxis] - shifts_)
    terms = (gains - costs) * masses
    values = terms.sum(axis=1)
    slack = np.abs(terms) * errors + sizes * (masses * rounding + floats.SMALLEST_MASS)
    slacks = slack.sum(axis=1) + np.abs(values) * shifts_.size * floats.UNIT_ROUNDOFF
    if bound is Bound.UPPER:
        # Any threshold gives a lower bound. Up to the best one the laws differ by no
        # more than what the ratio there is uncertain by.
        furthest, _ = gained.noise_below(beyond[:, np.newaxis] - shifts_)
        slacks += 2 * uncertain * (sizes * furthest).sum(axis=1)
    values += slacks if bound is Bound.UPPER else -slacks
    values[nowhere] = 0.0
    return np.asarray(np.minimum(np.maximum(values, 0.0), 1.0))


def _together(
    gained: Mixture, spent: Mixture
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns (s,) different shifts, and the weights that either law has there."""
    (first, gains), (second, costs) = gained.columns, spent.columns
    shifts_, numbers = np.unique(np.append(first, second), return_inverse=True)
    numbers = numbers.reshape(-1)
    weights = np.zeros((2, shifts_.size))
    np.add.at(weights[0], numbers[: first.size], gains)
    np.add.at(weights[1], numbers[first.size :], costs)
    return shifts_, weights[0], weights[1]


def _thresholds(
    gained: Mixture, spent: Mixture, levels: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns where the logarithm of spent/gained takes (n,) values, and how surely.

    Returns:
        (n,) points; (n,) points surely beyond the right ones; and bounds on the
        differences in between. Points are infinite outside the ratio's range.
    """
    low, high = gained.lowest_threshold(), spent.highest_threshold()
    ends = np.array([low, high, max(low, -_NEAR), min(high, _NEAR)])
    at_ends, _, errors = spent.log_ratios(gained, ends)
    at, beyond = np.full((2, levels.size), math.inf)
    uncertain = np.zeros(levels.shape)
    is_below = levels < at_ends[0] - errors[0]
    at[is_below] = beyond[is_below] = -math.inf
    is_last = (levels >= at_ends[1]) & (levels <= at_ends[1] + errors[1])
    at[is_last] = high
    uncertain[is_last] = 2 * (levels[is_last] - at_ends[1] + errors[1])
    (open_,) = np.nonzero((levels < at_ends[1]) & ~is_below)
    if open_.size:
        asked = levels[open_]
        left = np.where(asked > at_ends[2], ends[2], low)
        right = np.where(asked < at_ends[3], ends[3], high)
        right[asked <= at_ends[0]] = low
        at[open_], beyond[open_], uncertain[open_] = _inside(
            functools.partial(spent.log_ratios, gained), asked, left, right
        )
    return at, beyond, uncertain


def _inside(
    log_ratios: LogRatios, levels: FloatArray, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns what `_thresholds` does for levels in the ratio's range.

    Args:
        log_ratios: The logarithms at points, their slopes, and errors at most.
        levels: (n,) values wanted.
        left: (n,) points that are below the right ones.
        right: (n,) points above.
    """
    points, slopes = _crossings(log_ratios, levels, left, right)
    values, _, errors = log_ratios(points)
    uncertain = 2 * (np.abs(values - levels) + errors)
    with np.errstate(divide="ignore"):
        steps = np.minimum(uncertain / slopes, floats.LARGEST_LOSS)
    steps = np.maximum(steps, np.maximum(np.abs(points), 1e-3) * 1e-15)
    beyond = np.full(points.shape, math.inf)
    open_ = np.arange(points.size)
    for _ in range(_DOUBLINGS):
        there = points[open_] + steps[open_]
        values, _, errors = log_ratios(there)
        certain = values - errors > levels[open_]
        beyond[open_[certain]] = there[certain]
        open_ = open_[~certain]
        if not open_.size:
            break
        steps *= 2
    return points, beyond, uncertain


def _crossings(
    log_ratios: LogRatios, levels: FloatArray, left: FloatArray, right: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) points where levels are taken, but for rounding, and slopes near.

    Newton's steps, halfway where one leads out of what is left or gains little.
    """
    points, slopes = (left + right) / 2, np.zeros(levels.shape)
    open_, before = np.arange(levels.size), np.full(levels.shape, math.inf)
    for _ in range(_TRIES):
        here = points[open_]
        values, slope, errors = log_ratios(here)
        excess = values - levels[open_]
        slopes[open_] = slope
        left[open_] = np.where(excess > 0, left[open_], here)
        right[open_] = np.where(excess > 0, here, right[open_])
        with np.errstate(divide="ignore", invalid="ignore"):
            there = here - excess / slope
        low, high = left[open_], right[open_]
        leads_in = (there > low) & (there < high)
        near = np.abs(excess) <= errors
        halved = near | (np.abs(excess) < before / 2)
        there = np.where(leads_in & halved, there, (low + high) / 2)
        # As near as its error tells, one step is left.
        points[open_] = np.where(near & ~leads_in, here, there)
        going = ~near & (there != here)
        if not going.any():
            break
        open_, before = open_[going], np.abs(excess[going])
    return points, slopes


def epsilons(
    p: Mixture, q: Mixture, *, asked: FloatArray, direction: Direction, bound: Bound
) -> FloatArray:
    """Returns certified ε ≥ 0 at which two mixtures of one noise have (n,) δ.

    Args:
        p: P; the ratio p/q must increase.
        q: Q.
        asked: (n,) δ in (0, 1).
        direction: As in `deltas`.
        bound: The side to err on.

    Source:
        As `deltas`, inverted.
    """
    gained, spent = _mirrored(p, q, direction)
    size = _chunk(gained, spent)
    about, rates = np.zeros((2, asked.size))
    for first in range(0, asked.size, size):
        here = slice(first, first + size)
        about[here], rates[here] = _about(gained, spent, asked[here])
    about = np.minimum(about, floats.LARGEST_EXPONENT)
    sign = 1.0 if bound is Bound.UPPER else -1.0
    steps = sign * np.maximum(_EPSILON_ERROR * about, _LEAST_STEP)
    found: FloatArray = np.where(about > 0, np.maximum(about + steps, 0.0), 0.0)
    open_ = np.arange(found.size)
    while open_.size:
        there = deltas(p, q, epsilons=found[open_], direction=direction, bound=bound)
        # Upper bounds stop where even the upper profile is below; lower ones where the
        # lower profile still is above, or at zero.
        wrong = sign * (there - asked[open_]) > 0
        wrong &= (found[open_] > 0) | (bound is Bound.UPPER)
        open_, there = open_[wrong], there[wrong]
        lost = found[open_] > floats.LARGEST_EXPONENT
        if bound is Bound.UPPER and lost.any():
            found[open_[lost]] = math.inf
            open_, there = open_[~lost], there[~lost]
        # As far as δ tells that falls as it does nearby, if it is not all rounding, and
        # further than in the step before.
        known = np.where(there > floats.SMALLEST_MASS, there, asked[open_])
        lacking = np.abs(np.log(known / asked[open_]))
        steps[open_] = sign * np.maximum(
            _FURTHER * lacking / np.maximum(rates[open_], floats.SMALLEST_MASS),
            2 * np.abs(steps[open_]),
        )
        found[open_] = np.maximum(found[open_] + steps[open_], 0.0)
    return found


def _about(
    gained: Mixture, spent: Mixture, asked: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns (n,) ε ≥ 0 at (n,) δ, but for rounding, and how fast ln δ falls there.

    A threshold tells ε, and so δ, whose slope follows: that of ε times what is spent.
    """
    shifts_, gains, costs = _together(gained, spent)

    def at(points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
        logs, slopes, _ = spent.log_ratios(gained, points)
        masses, _ = gained.noise_below(points[:, np.newaxis] - shifts_)
        cost = (masses * costs).sum(axis=1)
        cost *= np.exp(np.minimum(-logs, floats.LARGEST_EXPONENT))
        found = np.maximum((masses * gains).sum(axis=1) - cost, floats.SMALLEST_MASS)
        return -logs, np.log(found), cost / found, slopes * cost / found

    def excess(points: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        _, values, _, slopes = at(points)
        return values, slopes, np.full(points.shape, _EPSILON_ERROR / 8)

    low = max(gained.lowest_threshold(), -_NEAR)
    high = min(spent.highest_threshold(), _NEAR)
    left, right = np.full(asked.shape, low), np.full(asked.shape, high)
    points, _ = _crossings(excess, np.log(asked), left, right)
    found, _, rates, _ = at(points)
    return np.maximum(found, 0.0), rates


def epsilon(
    delta_at: Callable[[float, Bound], float], delta: float, bound: Bound
) -> float:
    """Returns a certified ε ≥ 0 at δ, where a certified profile is on its side.

    Args:
        delta_at: δ at ε, on either side.
        delta: The target, in (0, 1).
        bound: The side to err on.
    """
    low, high = 0.0, 1.0
    while delta_at(high, bound) > delta:
        low, high = high, 2 * high
        if high > 1e6:
            return math.inf if bound is Bound.UPPER else low
    if not low and delta_at(0.0, bound) <= delta:
        return 0.0

    def excess(point: float) -> float:
        return math.log(max(delta_at(point, bound), floats.SMALLEST_MASS) / delta)

    point = float(
        optimize.brentq(
            excess, low, high, rtol=_EPSILON_ERROR, xtol=1e-300, maxiter=2000
        )
    )
    # Upper bounds stop where even the upper profile is below; lower ones where the
    # lower profile still is above.
    step = _EPSILON_ERROR * point
    if bound is Bound.UPPER:
        while point < high and delta_at(point, bound) > delta:
            point, step = min(point + step, high), 2 * step
        return point
    while point > low and delta_at(point, bound) <= delta:
        point, step = max(point - step, low), 2 * step
    return point
