"""The exact projection for distances on a line, without a linear program.

Along the line, the cost is the integral of |F_μ − F_q|. As a function of F_q it is
convex and piecewise linear place by place; its breakpoints are kept in order on either
side of its minimum (the slope trick), shifted where an output adds its least and most
mass. This takes O((k + k_v) log(k + k_v)).
"""

import heapq
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.wpm.projections import ldp_polytope

# Bounds on the rounding error of sums along a line: a constant, and a term per place.
_ROUNDING, _ROUNDING_EACH = 1e-12, 1e-16


def solve(
    inputs: FloatArray,
    masses: FloatArray,
    outputs: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> ldp_polytope.Solution:
    """Returns the exact projection of one user, for p = 1.

    The user has (s,) masses at places of a line; outputs are at (k_v,) places. Bounds
    of the polytope are at most one.
    """
    held, potentials, value = _sweep(inputs, masses, outputs, polytope)
    law = ldp_polytope.nearest(held, polytope)
    prices = _largest_prices(inputs, potentials, outputs)
    return ldp_polytope.Solution(law, prices, value, 1)


def _largest_prices(
    inputs: FloatArray, potentials: FloatArray, outputs: FloatArray
) -> FloatArray:
    """Returns the least |x_i − v_j| − f_i over the places x_i, for each v_j."""
    order = np.argsort(inputs, kind="stable")
    places, far = inputs[order], np.array([np.inf])
    left = np.minimum.accumulate(-potentials[order] - places)
    right = np.minimum.accumulate((places - potentials[order])[::-1])[::-1]
    after = np.searchsorted(places, outputs)
    return np.minimum(
        np.append(far, left)[after] + outputs, np.append(right, far)[after] - outputs
    )


def _sweep(
    inputs: FloatArray,
    masses: FloatArray,
    outputs: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> tuple[FloatArray, FloatArray, float]:
    """Returns the law, the dual prices of the inputs, and the cost, by one sweep."""
    places = np.concatenate([inputs, outputs])
    order = np.argsort(places, kind="stable")
    steps = np.append(np.diff(places[order]), 0.0)
    no_mass = np.zeros(masses.size)
    lower = np.append(no_mass, polytope.lower)[order]
    upper = np.append(no_mass, polytope.upper)[order]
    # Cumulated along the line, F_μ of the user and F_q of the law.
    of_user = np.cumsum(np.append(masses, np.zeros(outputs.size))[order])
    of_law = _cumulated(_minima(of_user, lower, upper, steps), lower, upper)
    held = np.diff(of_law, prepend=0.0)
    prices = _prices(of_law - of_user, held, lower, upper, steps)
    in_order = np.empty((2, order.size))
    in_order[:, order] = held, -prices
    value = float(steps @ np.abs(of_law - of_user))
    return in_order[0, masses.size :], in_order[1, : masses.size], value


def _minima(
    of_user: FloatArray, lower: FloatArray, upper: FloatArray, steps: FloatArray
) -> list[float]:
    """Returns, before each place, the F_q at which earlier places cost least.

    On either side of the minimum, a stack and a heap hold the breakpoints with their
    changes of slope. Those that come to be next to the minimum are on the stack, which
    most of them are, and a heap would be slow. An output shifts the left breakpoints by
    its least mass and the right ones by its most. A step along the line adds its length
    times the distance of F_q from F_μ.
    """
    # The least element is the first one of a heap and the last one of a stack. So the
    # left side holds shift − place, and the right one place − shift.
    left_heap, right_heap = [(math.inf, 0.0)], [(math.inf, 0.0)]
    left, right = [(0.0, math.inf)], [(0.0, math.inf)]
    push, pop = heapq.heappush, heapq.heappop
    left_shift = right_shift = 0.0
    minima = []
    rows = of_user.tolist(), lower.tolist(), upper.tolist(), steps.tolist()
    for mass, low, high, step in zip(*rows, strict=True):
        end = min(left[-1], left_heap[0])[0]
        minima.append(left_shift - end)
        left_shift += low
        right_shift += high
        if step <= 0:
            continue
        if mass < left_shift - end:
            heap, stack, other, place = left_heap, left, right, left_shift - mass
        elif mass > right_shift + min(right[-1], right_heap[0])[0]:
            heap, stack, other, place = right_heap, right, left, mass - right_shift
        else:
            left.append((left_shift - mass, step))
            right.append((mass - right_shift, step))
            continue
        # The minimum moves by as much weight as the step adds beyond it.
        push(heap, (place, 2 * step))
        shift, moving = left_shift - right_shift, step
        while moving > 0:
            place, weight = stack.pop() if stack[-1] < heap[0] else pop(heap)
            if weight > moving:
                stack.append((place, weight - moving))
                weight = moving
            other.append((shift - place, weight))
            moving -= weight
    return minima


def _cumulated(minima: list[float], lower: FloatArray, upper: FloatArray) -> FloatArray:
    """Returns F_q at each place, the nearest to the place's minimum that is allowed.

    It is one at the last place, and computed backwards from there. From a place to the
    one before it, F_q decreases by a mass between the place's bounds.
    """
    values, current = [], 1.0
    rows = minima[::-1], lower[::-1].tolist(), upper[::-1].tolist()
    for minimum, low, high in zip(*rows, strict=True):
        values.append(current)
        current = min(max(minimum, current - high), current - low)
    return np.array(values[::-1])


def _prices(
    excess: FloatArray,
    held: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
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
    low = np.where(held < upper - rounding, 0.0, -math.inf)
    high = np.where(held > lower + rounding, 0.0, math.inf)
    low = np.where(upper > 0, low, -math.inf)
    high = np.where(upper > 0, high, math.inf)
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

    They are the least ones above the lower ends; or the largest ones below the upper
    ends, if no lower end is finite.
    """
    places = np.append(0.0, np.cumsum(steps))

    def least_above(ends: FloatArray) -> FloatArray:
        before = np.maximum.accumulate(ends + places) - places
        after = np.maximum.accumulate((ends - places)[::-1])[::-1] + places
        return np.asarray(np.maximum(before, after))

    if np.isfinite(low).any():
        return np.minimum(least_above(low), high)
    return -least_above(-high) if np.isfinite(high).any() else np.zeros(low.size)
