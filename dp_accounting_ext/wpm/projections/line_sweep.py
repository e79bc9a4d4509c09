"""The exact projection for distances on a line, without a linear program.

Along the line, the cost is the integral of |F_μ − F_q|. As a function of F_q it is
convex and piecewise linear place by place; its breakpoints are kept in two heaps on
either side of its minimum (the slope trick), shifted where an output adds its least
and most mass. This takes O((k + k_v) log(k + k_v)). On long lines all places
between two inputs are passed at once.
"""

import heapq
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm import costs
from dp_accounting_ext.wpm.projections import gap_sweep
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import solution

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# Places, each with its weight, the least first.
_Heap = list[tuple[float, float]]

# Sums along a line of so many places are off by less than that.
_ROUNDING, _ROUNDING_EACH = 1e-12, 1e-16
# Tuning: outputs from which on gaps between inputs are passed as a whole. A million
# places with 50 inputs take 1.2 s in place of 7; 10,000 take 22 ms in place of 47.
_LONG_LINE = 100_000


def solve(
    inputs: IndexArray,
    masses: FloatArray,
    cost: costs.LineCost,
    polytope: ldp_polytope.LdpPolytope,
) -> solution.Solution:
    """Returns the exact projection of one user, for p = 1.

    Args:
        inputs: (s,) the inputs that hold mass.
        masses: (s,) their masses.
        cost: Where inputs and outputs are.
        polytope: The allowed distributions.

    Returns:
        A solution of one row.
    """
    places = np.concatenate([cost.inputs[inputs], cost.outputs])
    order = np.argsort(places, kind="stable")
    steps = np.append(np.diff(places[order]), 0.0)
    none = np.zeros(masses.size)
    supplied = np.append(masses, np.zeros(polytope.upper.size))[order]
    least = np.append(none, polytope.lower)[order]
    # Beyond one a bound means nothing, and breakpoints would lose their digits.
    most = np.minimum(np.append(none, polytope.upper), 1.0)[order]
    given = np.cumsum(supplied)
    if polytope.upper.size >= _LONG_LINE:
        starts = np.unique(np.append(0, np.flatnonzero(order < masses.size)))
        minima = gap_sweep.minima(given, least, most, steps, starts).tolist()
    else:
        minima = _minima(given, least, most, steps)
    taken = _cumulated(minima, least, most)
    held = np.diff(taken, prepend=0.0)
    prices = _prices(taken - given, held, least, most, steps)
    size = polytope.upper.size
    distribution, sorted_prices = np.zeros(size), np.zeros(size)
    outputs = order >= masses.size
    found = order[outputs] - masses.size
    distribution[found], sorted_prices[found] = held[outputs], prices[outputs]
    return solution.Solution(
        ldp_polytope.nearest(distribution, polytope),
        sorted_prices,
        float(steps @ np.abs(taken - given)),
        1,
        True,
    )


def _minima(
    given: FloatArray, least: FloatArray, most: FloatArray, steps: FloatArray
) -> list[float]:
    """Returns where the cost of all before is least, before each place.

    Two heaps hold the breakpoints left and right of the minimum, with their changes
    of slope. An output shifts the left ones by its least mass, the right ones by its
    most; a step adds its length times the distance from the mass given so far.
    """
    # A heap has its least element first: the left one holds shift − place, the right
    # one place − shift.
    left = [(0.0, math.inf)]
    right = [(0.0, math.inf)]
    left_shift = right_shift = 0.0
    minima = []
    rows = zip(
        given.tolist(), least.tolist(), most.tolist(), steps.tolist(), strict=True
    )
    for mass, low, high, step in rows:
        minima.append(left_shift - left[0][0])
        left_shift += low
        right_shift += high
        if step <= 0:
            continue
        shift = left_shift - right_shift
        if mass < left_shift - left[0][0]:
            heapq.heappush(left, (left_shift - mass, 2 * step))
            _pass_on(left, right, step, shift)
        elif mass > right_shift + right[0][0]:
            heapq.heappush(right, (mass - right_shift, 2 * step))
            _pass_on(right, left, step, shift)
        else:
            heapq.heappush(left, (left_shift - mass, step))
            heapq.heappush(right, (mass - right_shift, step))
    return minima


def _pass_on(source: _Heap, target: _Heap, weight: float, shift: float) -> None:
    """Moves the nearest breakpoints, of some weight in all, to the other heap."""
    while weight > 0:
        place, found = source[0]
        if found > weight:
            heapq.heapreplace(source, (place, found - weight))
            found = weight
        else:
            heapq.heappop(source)
        heapq.heappush(target, (shift - place, found))
        weight -= found


def _cumulated(minima: list[float], least: FloatArray, most: FloatArray) -> FloatArray:
    """Returns F_q at each place: from one, backwards, as near the minima as allowed."""
    taken = np.empty(len(minima))
    current = 1.0
    lows, highs = least.tolist(), most.tolist()
    for place in range(len(minima) - 1, -1, -1):
        taken[place] = current
        nearest = max(minima[place], current - highs[place])
        current = min(nearest, current - lows[place])
    return taken


def _prices(
    excess: FloatArray,
    held: FloatArray,
    least: FloatArray,
    most: FloatArray,
    steps: FloatArray,
) -> FloatArray:
    """Returns dual prices that agree with a plan, relative to a common threshold.

    An output strictly between its bounds has price zero, one at its least mass a
    price of at least zero, one at its most of at most zero. Along the line prices
    fall or rise at slope one where mass flows, and at most at that elsewhere. So they
    are known but for one constant between two places that no mass passes.
    """
    rounding = _ROUNDING + _ROUNDING_EACH * steps.size
    low = np.where(held < most - rounding, 0.0, -math.inf)
    high = np.where(held > least + rounding, 0.0, math.inf)
    low = np.where(most > 0, low, -math.inf)
    high = np.where(most > 0, high, math.inf)
    # Where mass flows prices are known but for a constant: one for each stretch.
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
    """Returns numbers in ranges, each at most a step from the one before.

    The ranges left by all before are carried along, and numbers taken backwards.
    """
    bounds = list(zip(low.tolist(), high.tolist(), strict=True))
    ranges = [bounds[0]]
    for (least, most), step in zip(bounds[1:], steps.tolist(), strict=True):
        reach_low, reach_high = ranges[-1][0] - step, ranges[-1][1] + step
        # Where rounding leaves nothing, the end of the reach is as near as it gets.
        new_low = min(max(least, reach_low), reach_high)
        new_high = max(min(most, reach_high), reach_low)
        ranges.append((new_low, max(new_low, new_high)))
    price = min(max(0.0, ranges[-1][0]), ranges[-1][1])
    prices = [price]
    for (least, most), step in zip(ranges[-2::-1], steps[::-1].tolist(), strict=True):
        price = min(max(least, price - step), most, price + step)
        prices.append(price)
    return np.array(prices[::-1])
