"""Means of ratios on either kind of grid, and in stages of a few dozen."""

import functools
import math

from dp_accounting_ext.amplification import additive_allocation
from dp_accounting_ext.amplification import additive_window
from dp_accounting_ext.amplification import allocation_routes
from dp_accounting_ext.amplification import geometric_allocation
from dp_accounting_ext.pairs import dominating_pair
from dp_accounting_ext.pairs import exact_means

# Tuning: points of each sum, so that brackets are within about 1e-5 of ε, relatively.
ADDITIVE_POINTS = 17408
# A sum on a grid has so many where the loss has this range and this many doublings.
_GEOMETRIC_POINTS = 4000
_GEOMETRIC_WIDTH = 20.0
_GEOMETRIC_DOUBLINGS = 8.0
# Of more doublings, points². (1.6, σ = 0.5, 1 of 1000: gap 0.77 and time 1.13.)
_GROWTH_OF_MANY = 1.2
# Of fewer that are left over a lattice may not show the tails. (1 of 1,384,548 steps, σ
# = 1.213, 122 runs, δ = 7e-22: of two left over it lost 1e-21; ε was 128, not .0816.)
_FEWEST_ON_A_LATTICE = 32
# Of their points so many do at least: their part of the sum is small, and so is that of
# their error. (1, σ = 4.02, 1 of 686: gap 1.1 and time 0.5.)
_LEAST_SHARE = 0.5
_LONGEST_STAGE = 160  # The most ratios that one stage averages.


def points_for(pair: dominating_pair.DominatingPair, num_steps: int) -> int:
    """Returns points that keep the cost, points² / range a doubling, the same.

    But of many steps each adds to the error, and more points pay.
    """
    growth = max(pair.loss_range() / _GEOMETRIC_WIDTH, 1.0)
    doublings = math.ceil(math.log2(num_steps) + 1)
    few = doublings <= _GEOMETRIC_DOUBLINGS
    growth *= _GEOMETRIC_DOUBLINGS / doublings if few else _GROWTH_OF_MANY
    return math.ceil(_GEOMETRIC_POINTS * math.sqrt(growth))


def on_grid(
    pair: dominating_pair.DominatingPair,
    num_steps: int,
    tail_mass: float,
    points: int | None,
) -> dominating_pair.DominatingPair:
    """Returns the mean of t ratios on a multiplicative grid, of so many points."""
    mean = geometric_allocation.mean_of_copies(
        pair,
        num_steps,
        tail_mass=tail_mass,
        points=points or points_for(pair, num_steps),
    )
    return exact_means.settled(mean)


def in_stages(
    pair: dominating_pair.DominatingPair,
    num_steps: int,
    tail_mass: float,
    points: int,
) -> dominating_pair.DominatingPair:
    """Returns the mean of t ratios as a mean of means of means.

    A lattice that resolves one ratio is needlessly fine for a sum of thousands.
    Each stage averages a few dozen, and the next has a lattice of its own.
    """
    stages = math.ceil(math.log(num_steps) / math.log(_LONGEST_STAGE))
    means: dict[int, dominating_pair.DominatingPair] = {1: pair}

    def mean(steps: int, stage: int, tail: float) -> dominating_pair.DominatingPair:
        if steps in means:
            return means[steps]
        if stage == 1 and stages > 1 and allocation_routes.is_all_large(pair, steps):
            # A few dozen may be all large ratios where a million are not.
            means[steps] = on_grid(pair, steps, tail, None)
            return means[steps]
        groups = number_of_groups(steps, stage)
        size, rest = divmod(steps, groups)
        share = tail / groups
        kinds = [(mean(size, stage - 1, share), groups, size)]
        if rest:
            # One smaller group: of two kinds of groups, several of each, there would
            # be as many ways to have so many large ratios as there are of these.
            kinds.append((left_over(rest, share), 1, rest))
        summands = [
            additive_window.Summand(kind, count, n * groups / steps)
            for kind, count, n in kinds
        ]
        window = additive_window.window_of(summands, tail)
        means[steps] = additive_allocation.mean_of(summands, window, points=points)
        return means[steps]

    def left_over(steps: int, tail: float) -> dominating_pair.DominatingPair:
        if 1 < steps < _FEWEST_ON_A_LATTICE:
            share = max(_LEAST_SHARE, min(1.0, 2 * math.sqrt(steps / num_steps)))
            return on_grid(
                pair, steps, tail, math.ceil(share * points_for(pair, steps))
            )
        return mean(steps, 1, tail)

    return mean(num_steps, stages, tail_mass)


def number_of_groups(num_steps: int, stages: int) -> int:
    """Returns into how many groups of one size the last stage averages.

    Where a number near the best one divides the steps, nothing is left over; and else
    one whose groups can be averaged by further stages with nothing left over.
    """
    if stages == 1:
        return num_steps
    best, near = _near_best(num_steps, stages)
    candidates: list[int] = (
        [groups for groups in near if num_steps % groups == 0]
        or [groups for groups in near if _is_even(num_steps // groups, stages - 1)]
        or [round(best)]
    )
    return min(candidates, key=lambda groups: abs(groups - best))


def _near_best(num_steps: int, stages: int) -> tuple[float, range]:
    """Returns the root that makes all stages alike, and numbers near it."""
    best = float(num_steps ** (1 / stages))
    return best, range(max(2, math.ceil(best / 1.5)), math.floor(best * 1.5) + 1)


@functools.lru_cache(maxsize=4096)
def _is_even(num_steps: int, stages: int) -> bool:
    """Tells whether all stages can average groups of one size, with nothing left."""
    return stages == 1 or any(
        num_steps % groups == 0 and _is_even(num_steps // groups, stages - 1)
        for groups in _near_best(num_steps, stages)[1]
    )
