"""The exact projection for distances on a line, without a linear program.

Along the line, the cost is the integral of |F_μ − F_q|. As a function of F_q it is
convex and piecewise linear place by place; its breakpoints are kept in two heaps on
either side of its minimum (the slope trick), shifted where an output adds its least
and most mass. This takes O((k + k_v) log(k + k_v)).

If there are many places, the sweep is first run on groups of adjacent places. Suppose
that in some adjacent groups every output is at its upper bound, or every one at its
lower bound, and mass moves in one direction. The places in between are then assumed to
be the same, and the sweep is run on the remaining places alone. The dual prices verify
this; if they do not prove the gap, the sweep is run on all places.
"""

import heapq
import math

import numpy as np
from scipy import ndimage

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm.projections import ldp_polytope

# Tuning: the number of places from which they are grouped, the number of groups, and
# the number of groups around a change that are swept place by place.
_MANY, _PICTURE, _REACH = 1 << 17, 1 << 14, 2
# Bounds on the rounding error of sums along a line: a constant, and a term per place.
_ROUNDING, _ROUNDING_EACH = 1e-12, 1e-16


def solve(
    inputs: FloatArray,
    masses: FloatArray,
    outputs: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
) -> ldp_polytope.Solution:
    """Returns the exact projection of one user, for p = 1.

    Args:
        inputs: (s,) places of the inputs that hold mass.
        masses: (s,) their masses.
        outputs: (k_v,) places of the outputs.
        polytope: The allowed distributions, whose bounds are at most one.
        relative_gap: The largest allowed gap between the cost of the plan and the lower
            bound by the prices, as a share of the cost.
    """
    places = np.concatenate([inputs, outputs])
    order = np.argsort(places, kind="stable")
    steps = np.append(np.diff(places[order]), 0.0)
    none = np.zeros(masses.size)
    least = np.append(none, polytope.lower)[order]
    most = np.append(none, polytope.upper)[order]
    given = np.cumsum(np.append(masses, np.zeros(outputs.size))[order])
    line = given, least, most, steps
    starts = np.flatnonzero(order < masses.size)
    for whole in (order.size < _MANY, True):
        taken = _sweep(*line) if whole else _refined(line, starts)
        held = np.diff(taken, prepend=0.0)
        prices = _prices(taken - given, held, least, most, steps)
        value = float(steps @ np.abs(taken - given))
        gap = float(np.maximum(prices * (held - least), prices * (held - most)).sum())
        if whole or gap <= relative_gap * value:
            break
    found = np.empty((2, order.size))
    found[:, order] = held, prices
    law, prices = found[:, masses.size :]
    law = ldp_polytope.nearest(law, polytope)
    return ldp_polytope.Solution(law, prices, value, 1)


def _refined(line: tuple[FloatArray, ...], inputs: IndexArray) -> FloatArray:
    """Returns F_q after each place, from a sweep of groups of adjacent places.

    A group keeps its result if, in all groups within reach, outputs are at the same
    bound and mass moves in the same direction.
    """
    given, least, most, steps = line
    starts = np.union1d(np.arange(0, given.size, given.size // _PICTURE), inputs)
    low, high, lengths = np.add.reduceat([least, most, steps], starts, axis=1)
    coarse = _sweep(given[starts], low, high, lengths)
    held, excess = np.diff(coarse, prepend=0.0), coarse - given[starts]
    full = held > (low + high) / 2
    off = np.abs(held - np.where(full, high, low)) > 1e-6 * (high - low)
    ways = 2 * full + (excess > 0)
    changes = off | (np.diff(ways, prepend=ways[:1]) != 0)
    near = ndimage.maximum_filter1d(changes.astype(np.uint8), 2 * _REACH + 1) > 0
    near |= near.mean() > 0.3  # Then all places are swept.
    free, full, right = np.repeat(
        [near, full, excess < 0], np.diff(starts, append=given.size), axis=1
    )
    known = np.where(full, most, least)
    begins = free.copy()
    begins[starts] = True
    first = np.flatnonzero(begins)
    # The distance from a mass that is out of reach has a constant slope.
    out = np.where(right[first], math.inf, -math.inf)
    bounds = np.where(free, [least, most], known)
    sums = np.add.reduceat([*bounds, steps], first, axis=1)
    taken = _sweep(np.where(free[first], given[first], out), *sums)
    known[free] = np.diff(taken, prepend=0.0)[free[first]]
    return np.cumsum(known)


def _sweep(
    given: FloatArray, least: FloatArray, most: FloatArray, steps: FloatArray
) -> FloatArray:
    """Returns F_q after each place, for the plan of the least cost."""
    return _cumulated(_minima(given, least, most, steps), least, most)


def _minima(
    given: FloatArray, least: FloatArray, most: FloatArray, steps: FloatArray
) -> list[float]:
    """Returns, before each place, where the cost of all earlier places is least.

    Two heaps hold the breakpoints left and right of the minimum, with their changes of
    slope. An output shifts the left breakpoints by its least mass and the right ones by
    its most. A step along the line adds its length times the distance from the mass
    given so far.
    """
    # A heap has its least element first. So the left heap holds shift − place, and the
    # right one place − shift.
    left, right = [(0.0, math.inf)], [(0.0, math.inf)]
    push, pop = heapq.heappush, heapq.heappop
    left_shift = right_shift = 0.0
    minima = []
    rows = given.tolist(), least.tolist(), most.tolist(), steps.tolist()
    for mass, low, high, step in zip(*rows, strict=True):
        minima.append(left_shift - left[0][0])
        left_shift += low
        right_shift += high
        if step <= 0:
            continue
        if mass < left_shift - left[0][0]:
            source, target, place = left, right, left_shift - mass
        elif mass > right_shift + right[0][0]:
            source, target, place = right, left, mass - right_shift
        else:
            push(left, (left_shift - mass, step))
            push(right, (mass - right_shift, step))
            continue
        # The minimum moves by as much weight as the step adds beyond it.
        push(source, (place, 2 * step))
        shift, moving = left_shift - right_shift, step
        while moving > 0:
            place, weight = source[0]
            if weight > moving:
                source[0] = place, weight - moving  # It is still the least element.
                weight = moving
            else:
                pop(source)
            push(target, (shift - place, weight))
            moving -= weight
    return minima


def _cumulated(minima: list[float], least: FloatArray, most: FloatArray) -> FloatArray:
    """Returns F_q at each place, computed backwards from one, as near the minima as
    allowed.
    """
    taken, current = [], 1.0
    rows = minima[::-1], least[::-1].tolist(), most[::-1].tolist()
    for minimum, low, high in zip(*rows, strict=True):
        taken.append(current)
        current = min(max(minimum, current - high), current - low)
    return np.array(taken[::-1])


def _prices(
    excess: FloatArray,
    held: FloatArray,
    least: FloatArray,
    most: FloatArray,
    steps: FloatArray,
) -> FloatArray:
    """Returns dual prices that agree with a plan, relative to a common threshold.

    An output strictly between its bounds has the price zero. At its least mass its
    price is at least zero, and at its most mass at most zero. Along the line, prices
    rise or fall with slope one where mass flows, and with a slope of at most one
    elsewhere. So between two places that no mass passes they are known up to a
    constant.
    """
    rounding = _ROUNDING + _ROUNDING_EACH * steps.size
    low = np.where(held < most - rounding, 0.0, -math.inf)
    high = np.where(held > least + rounding, 0.0, math.inf)
    low = np.where(most > 0, low, -math.inf)
    high = np.where(most > 0, high, math.inf)
    # On each stretch where mass flows, prices are known up to a constant.
    flows = np.abs(excess) > rounding
    slopes = np.where(flows, -np.sign(excess) * steps, 0.0)
    shape = np.append(0.0, np.cumsum(slopes[:-1]))
    ends = np.flatnonzero(~flows[:-1])
    starts = np.append(0, ends + 1)
    constants = _constants(
        np.maximum.reduceat(low - shape, starts),
        np.minimum.reduceat(high - shape, starts),
        steps[ends],
    )
    return shape + np.repeat(constants, np.diff(starts, append=steps.size))


def _constants(low: FloatArray, high: FloatArray, steps: FloatArray) -> FloatArray:
    """Returns numbers in given ranges, each at most a step from the one before.

    Forwards, each range is narrowed to what the earlier ranges allow. Backwards, the
    numbers are chosen in the narrowed ranges.
    """
    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    ranges = [bounds[0]]
    for (least, most), step in zip(bounds[1:], steps.tolist(), strict=True):
        reach_low, reach_high = ranges[-1][0] - step, ranges[-1][1] + step
        # If rounding leaves an empty range, the nearest end is taken.
        new_low = min(max(least, reach_low), reach_high)
        new_high = max(min(most, reach_high), reach_low)
        ranges.append((new_low, max(new_low, new_high)))
    price = min(max(0.0, ranges[-1][0]), ranges[-1][1])
    prices = [price]
    for (least, most), step in zip(ranges[-2::-1], steps[::-1].tolist(), strict=True):
        price = min(max(least, price - step), most, price + step)
        prices.append(price)
    return np.array(prices[::-1])
