"""Random allocation on a multiplicative grid: sums by doubling, refined as they
concentrate.
"""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.kernels import floats
from dp_accounting_ext.kernels import geometric
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound

_SMALLEST_RANGE = 0.1  # Of the loss, in nats, that a grid is laid out for.
_SMALLEST_MEAN = 1e-100
_FINEST = 2000.0  # Grid points per relative standard deviation, at most.
# Of ratios that agree in their first digits a part is set aside.
_TRIMMED = 0.25  # Of the tail, at either end of such ratios.
_LEAST_GAIN = 2.0  # Of steps at the mean without that part, over those with it.


def discretize(
    pair: dominating_pair.DominatingPair, step: float
) -> geometric.GeometricLaw:
    """Returns a pair's ratio on a multiplicative grid, its bound kept.

    Args:
        pair: n atoms.
        step: Logarithm of the ratio of neighbouring grid points.
    """
    law = geometric.from_atoms(
        pair.ratios, pair.masses, step, grouped=pair.bound is Bound.LOWER
    )
    return dataclasses.replace(
        law,
        zero_mass=pair.zero_mass,
        lost_mean=pair.infinity_mass,
        mass_error=law.mass_error + pair.mass_error,
        ratio_error=law.ratio_error + pair.ratio_error,
    )


def mean_of_copies(
    pair: dominating_pair.DominatingPair,
    num_steps: int,
    *,
    tail_mass: float,
    points: int,
) -> dominating_pair.DominatingPair:
    """Returns the law of the mean of independent copies of a pair's ratio.

    Args:
        pair: The ratio of one step.
        num_steps: Number of copies, t ≥ 1.
        tail_mass: Probability that may be trimmed, on either side.
        points: Grid points of each sum, about.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithms 1 and 2 by Algorithm 3
        (Theorem 4.6), Remark C.1 for lower bounds.
    """
    budget = tail_mass / max(1.0, 2 * math.log2(num_steps))
    trimmed = dominating_pair.without_tails(pair, _TRIMMED * tail_mass / num_steps)
    aside = _set_aside(trimmed)
    rare = num_steps * trimmed.zero_mass <= tail_mass
    # Over nothing, a grid's zero would be a ratio.
    if aside and rare and _LEAST_GAIN * _step(trimmed, aside) < _step(pair, 0.0):
        varied = _without(trimmed, aside)
        step = max(varied.loss_range(), _SMALLEST_RANGE) / points
        law = self_convolve(discretize(varied, step), num_steps, budget, points)
        return _with(_mean(law, pair.bound, num_steps), aside, trimmed, num_steps)
    step = max(pair.loss_range(), _SMALLEST_RANGE) / points
    law = self_convolve(discretize(pair, step), num_steps, budget, points)
    return _mean(law, pair.bound, num_steps)


def _set_aside(pair: dominating_pair.DominatingPair) -> float:
    """Returns a part of all ratios: what is left of the least is one deviation."""
    lowest = float(pair.ratios[0])
    mean = float(pair.p_masses.sum())
    apart = (pair.ratios - mean) * np.sqrt(pair.masses)
    return max(lowest - math.sqrt(sums.dot(apart, apart)), 0.0)


def _step(pair: dominating_pair.DominatingPair, aside: float) -> float:
    """Returns about the step, at the mean, of a grid for what is over a part."""
    low, high = (float(end) - aside for end in pair.ratios[[0, -1]])
    if low <= 0:
        return math.inf
    mean = float(pair.p_masses.sum()) - aside
    return max(math.log(high / low), _SMALLEST_RANGE) * mean


def _without(
    pair: dominating_pair.DominatingPair, aside: float
) -> dominating_pair.DominatingPair:
    """Returns the law of what ratios have over a part of all; zeros are left out."""
    ratios = pair.ratios - aside
    lowest = float(pair.ratios[0])
    error = pair.ratio_error + 2 * floats.UNIT_ROUNDOFF
    return dataclasses.replace(
        pair,
        ratios=ratios,
        zero_mass=0.0,
        ratio_error=floats.raised(error * lowest / float(ratios[0])),
    )


def _with(
    mean: dominating_pair.DominatingPair,
    aside: float,
    pair: dominating_pair.DominatingPair,
    num_steps: int,
) -> dominating_pair.DominatingPair:
    """Returns the law of a mean, of which `mean` is what is over a part of all.

    Args:
        mean: The law of what is over it; its zero is that part itself.
        aside: The part.
        pair: The ratio of one step.
        num_steps: Number of copies.
    """
    ratios, masses = mean.ratios, mean.masses
    if mean.zero_mass:
        ratios, masses = np.append(0.0, ratios), np.append(mean.zero_mass, masses)
    infinity_mass, zero_mass = mean.infinity_mass, 0.0
    if pair.bound is Bound.UPPER:
        # A mean with a zero in it counts as zero, and what it was else as infinite.
        zero_mass = floats.raised(num_steps * pair.zero_mass)
        infinity_mass = floats.raised(infinity_mass + zero_mass)
    share = float(ratios[-1]) / (float(ratios[-1]) + aside)
    return dataclasses.replace(
        mean,
        ratios=ratios + aside,
        masses=masses,
        infinity_mass=infinity_mass,
        zero_mass=zero_mass,
        ratio_error=mean.ratio_error * share + 4 * floats.UNIT_ROUNDOFF,
    )


def weighted_mean(
    pairs: Sequence[dominating_pair.DominatingPair],
    weights: Sequence[float],
    *,
    tail_mass: float,
    points: int,
) -> dominating_pair.DominatingPair:
    """Returns the law of a weighted mean of one ratio of each pair.

    Args:
        pairs: All upper, or all lower bounds.
        weights: Positive weights, which sum to one.
        tail_mass: Probability that may be trimmed, on either side.
        points: Grid points of the widest ratio, about.

    Source:
        https://arxiv.org/abs/2602.17284, Theorem 4.4 for steps that differ.
    """
    step = max(max(pair.loss_range() for pair in pairs), _SMALLEST_RANGE) / points
    laws = [
        _scaled(discretize(pair, step), weight)
        for pair, weight in zip(pairs, weights, strict=True)
    ]
    total, mean = laws[0], weights[0]
    for law, weight in zip(laws[1:], weights[1:], strict=True):
        mean += weight
        total = trim(geometric.convolve(total, law), mean, tail_mass / len(pairs))
    return _mean(total, pairs[0].bound, 1)


def _scaled(law: geometric.GeometricLaw, weight: float) -> geometric.GeometricLaw:
    """Returns the law of a multiple."""
    origin = weight * law.origin
    return dataclasses.replace(
        law,
        origin=origin,
        lost_mean=weight * law.lost_mean,
        ratio_error=law.ratio_error + math.ulp(origin) / origin,
    )


def _mean(
    law: geometric.GeometricLaw, bound: Bound, copies: int
) -> dominating_pair.DominatingPair:
    """Returns the pair of a sum's mean.

    Args:
        law: The sum of `copies` ratios.
        bound: The side that it bounds from.
        copies: What the sum is divided by.
    """
    kept = law.masses > 0
    places = law.places()[kept]
    order = np.argsort(places)
    return dominating_pair.DominatingPair(
        places[order] / copies,
        law.masses[kept][order],
        infinity_mass=law.lost_mean / copies,
        zero_mass=law.zero_mass,
        bound=bound,
        mass_error=law.mass_error,
        ratio_error=law.ratio_error + 4 * geometric.UNIT_ROUNDOFF,
    )


def self_convolve(
    law: geometric.GeometricLaw, count: int, tail_mass: float, points: int
) -> geometric.GeometricLaw:
    """Returns the law of a sum of copies.

    Each level holds the sums of ⌊n⌋ and ⌈n⌉ copies for n = count / 2^level, on
    grids of one step, so that any count costs two convolutions a level.

    Source:
        https://arxiv.org/abs/2602.17284, Algorithm 3.
    """
    if count == 1:
        return law
    levels = [{count}]
    while levels[-1] != {1} and levels[-1] != {1, 2}:
        halves = {n // 2 for n in levels[-1]} | {(n + 1) // 2 for n in levels[-1]}
        levels.append(halves)
    by_count = {1: law}
    if 2 in levels.pop():
        by_count[2] = trim(geometric.convolve(law, law), 2, tail_mass * 2 / count)
    for sizes in reversed(levels):
        refinement = _refinement(by_count[min(by_count)], points)
        by_count = {
            n: trim(
                geometric.convolve(
                    by_count[n // 2], by_count[(n + 1) // 2], refinement
                ),
                n,
                tail_mass * n / count,
            )
            for n in sizes
        }
    return by_count[count]


def _refinement(law: geometric.GeometricLaw, points: int) -> int:
    """Returns how much finer the next sum's grid is."""
    grid = law.grid()
    mean = sums.dot(grid, law.masses)
    if mean < _SMALLEST_MEAN or grid[-1] > 1 / _SMALLEST_MEAN:
        return 1
    relative = grid / mean
    scaled = (relative - 1) * np.sqrt(law.masses)
    deviation = math.sqrt(sums.dot(scaled, scaled))
    finest = max(deviation / _FINEST, math.log(2) / (4 * points))
    refinement = 1
    while (
        2 * refinement * law.masses.size <= 1.5 * points
        and law.step / refinement > finest
    ):
        refinement *= 2
    return refinement


def trim(
    law: geometric.GeometricLaw, mean: float, tail_mass: float
) -> geometric.GeometricLaw:
    """Returns the law without its tails.

    Upper bounds: what lies below goes to zero and to the lowest point kept,
    what lies above to the highest and to infinity. Lower bounds: the lower tail
    is dropped, the upper one grouped.

    Args:
        law: A sum of ratios.
        mean: Its mean, at most.
        tail_mass: The Q-mass below and the P-mass above that may be trimmed.
    """
    grid = law.grid()
    below = np.cumsum(law.masses)
    above = np.cumsum((grid * law.masses)[::-1])[::-1] / mean
    low = int(np.searchsorted(below, min(tail_mass, below[-1])))
    high = int(np.searchsorted(-above, -tail_mass)) - 1
    high = max(high, low)
    bottom, middle, top = np.split(law.masses, [low, high + 1])
    masses = middle.copy()
    masses[-1] += top.sum()
    # Shares from exponents: a difference of grid points has lost its digits.
    down = law.step * np.arange(low, 0, -1)
    up = law.step * np.arange(1, top.size + 1)
    beyond = sums.dot(top * grid[high + 1 :], -np.expm1(-up))
    zero_mass, lost_mean, excess = law.zero_mass, law.lost_mean, None
    if law.excess is None:
        masses[0] += sums.dot(bottom, np.exp(-down))
        zero_mass += sums.dot(bottom, -np.expm1(-down))
        lost_mean += beyond
    else:
        excess = law.excess[low : high + 1].copy()
        further = sums.dot(law.excess[high + 1 :], grid[high + 1 :])
        excess[-1] += (beyond + further) / float(grid[high])
    exponents = abs(math.log(law.origin)) + law.step * low
    origin = float(grid[low])
    rounding = (16 + 2 * exponents) * geometric.UNIT_ROUNDOFF + math.ulp(
        origin
    ) / origin
    summing = (16 + law.masses.size) * (1 + law.step) * geometric.UNIT_ROUNDOFF
    trimmed = dataclasses.replace(
        law,
        origin=origin,
        masses=masses,
        excess=excess,
        zero_mass=zero_mass,
        lost_mean=lost_mean,
        mass_error=law.mass_error + summing,
    )
    moved = geometric.movement(trimmed, summing)
    return dataclasses.replace(trimmed, ratio_error=law.ratio_error + rounding + moved)
