"""The exact privacy profile of two mixtures of Gaussians, one to either side.

The likelihood ratio increases. The best test of P against Q then is "above a
threshold", so the hockey-stick divergence is a sum of as many distribution functions as
there are shifts.
"""

from collections.abc import Callable
import functools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import gaussian_mixture

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
FloatArray = npt.NDArray[np.float64]
LogRatios = Callable[[FloatArray], tuple[FloatArray, FloatArray, FloatArray]]
Mixture = gaussian_mixture.Mixture

# Certified (docs/guarantees.md, "Neyman–Pearson"): products with weights, their sum.
_ROUNDING = 8 * floats.UNIT_ROUNDOFF

# Tuning: a search that ends early is loose.
_DOUBLINGS = 80
_TRIES = 200
_NEAR = 50.0  # Most thresholds are in this range, in units of the noise.
# Tuning: terms at a time, 2 MB an array.
_MOST_TERMS = 1 << 18


def deltas(
    p: Mixture, q: Mixture, *, epsilons: FloatArray, direction: Direction, bound: Bound
) -> FloatArray:
    """Returns certified hockey-stick divergences of two mixtures.

    Args:
        p: P; the ratio p/q must increase.
        q: Q.
        epsilons: (n,) ε, in nats.
        direction: H(P‖Q) (remove), or H(Q‖P).
        bound: The side to err on.

    Returns:
        (n,) δ, each of which depends on its own ε alone.

    Source:
        https://arxiv.org/abs/2403.04867, Theorem 3.8.
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
    (first, gains), (second, costs) = (
        np.array(gained.shifts).T,
        np.array(spent.shifts).T,
    )
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
    low, high = -gaussian_mixture.FURTHEST, gaussian_mixture.FURTHEST
    ends = np.array([low, high, -_NEAR, _NEAR])
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
