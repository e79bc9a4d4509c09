"""Where a convex function of the mass so far is least, along a line with long gaps.

Along the line, the cost of what lies before a place is convex and piecewise linear in
the mass F_q up to there. Its breakpoints lie left and right of its minimum. An output
shifts the left ones by its least mass and the right ones by its most; a step of length
w beyond it adds w |G − F_q|, with the mass G of the inputs so far (the slope trick).

Between two inputs G stays, and the minimum passes it once. While it is below, each
step moves breakpoints of weight w from the right to the left, none of which were added
meanwhile; once it is above, from the left to the right, of all that are added the
highest first. So the steps of a gap are made together.
"""

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]
Breakpoints = tuple[FloatArray, FloatArray]


class _Stack:
    """Represents breakpoints on one side, the one next to the minimum last.

    Their places rise, and each has a weight; the first has all weight that is needed.
    """

    def __init__(self) -> None:
        self._chunks = [(np.zeros(1), np.full(1, np.inf))]

    def top(self) -> float:
        """Returns the last place; -inf if all have been taken."""
        return float(self._chunks[-1][0][-1]) if self._chunks else -np.inf

    def push(self, places: FloatArray, weights: FloatArray) -> None:
        """Adds rising places, none below the last; those without weight are not."""
        heavy = weights > 0
        if heavy.any():
            self._chunks.append((places[heavy], weights[heavy]))

    def take_above(self, least: float) -> Breakpoints:
        """Removes and returns what is above a place, the last first."""
        taken = [(np.empty(0), np.empty(0))]
        while self._chunks and self._chunks[-1][0][-1] > least:
            places, weights = self._chunks.pop()
            kept = int(np.searchsorted(places, least, side="right"))
            if kept:
                self._chunks.append((places[:kept], weights[:kept]))
            taken.append((places[kept:][::-1], weights[kept:][::-1]))
        return (
            np.concatenate([chunk[0] for chunk in taken]),
            np.concatenate([chunk[1] for chunk in taken]),
        )


def minima(
    given: FloatArray,
    least: FloatArray,
    most: FloatArray,
    steps: FloatArray,
    starts: IndexArray,
) -> FloatArray:
    """Returns where the cost of all before is least, before each place.

    Args:
        given: (n,) mass of the inputs up to each place.
        least: (n,) least mass that the place adds to F_q.
        most: (n,) most mass.
        steps: (n,) distances to the next place.
        starts: (g,) rising places at which gaps begin, the first of them zero: within
            a gap the mass given stays.
    """
    left, right = _Stack(), _Stack()
    shifts = np.cumsum(least), np.cumsum(most)
    found = np.empty(given.size)
    before = 0.0
    for begin, end in zip(starts, np.append(starts[1:], given.size), strict=True):
        part = slice(begin, end)
        lower, upper = (shift[part] for shift in shifts)
        gap = _Gap(float(given[begin]), lower, upper, steps[part], found[part])
        _pass_gap(left, right, gap)
        # Before the place adds its own mass.
        found[part] += np.append(before, lower[:-1])
        before = float(lower[-1])
    return found


class _Gap(NamedTuple):
    """Places between which no input adds mass."""

    mass: float  # Of the inputs so far.
    lower: FloatArray  # (n,) Shift of the left side with each place,
    upper: FloatArray  # (n,) and of the right one.
    steps: FloatArray  # (n,) Distances to the next place.
    tops: FloatArray  # (n,) Where what is found goes: the last place on the left.

    def after(self, place: int) -> "_Gap":
        """Returns the rest from a place on."""
        return _Gap(self.mass, *(array[place:] for array in self[1:]))


def _pass_gap(left: _Stack, right: _Stack, gap: _Gap) -> None:
    """Makes the steps of a gap, and fills its `tops`.

    Places on the left are F_q less the shift, on the right the shift less F_q.
    """
    mass, lower, upper, steps, tops = gap
    place = _rise(left, right, gap)
    # The minimum is at the mass given, or will be at the first step that has a length.
    near = left.top()
    stop = (steps[place:] > 0) | (near + lower[place:] >= mass)
    waiting = int(stop.argmax()) if stop.any() else stop.size
    tops[place : place + waiting + 1] = near
    place += waiting
    if place < steps.size and near + lower[place] < mass:
        both = steps[place : place + 1]
        left.push(mass - lower[place : place + 1], both)
        right.push(upper[place : place + 1] - mass, both)
        place += 1
    if place < steps.size:
        _fall(left, right, gap.after(place))


def _rise(left: _Stack, right: _Stack, gap: _Gap) -> int:
    """Makes the steps for which the minimum is below the mass; returns their number.

    Fills in `tops` for these.
    """
    mass, lower, upper, steps, tops = gap
    places, weights = right.take_above(upper[0] - mass)
    reached, moved = np.cumsum(weights), np.cumsum(steps)
    # What is next on the right, before each step.
    following = np.searchsorted(reached, np.append(0.0, moved[:-1]), side="right")
    below = np.append(places, -np.inf)[following] > upper - mass
    count = int(below.size if below.all() else below.argmin())
    if count:
        # The last step may need some of what it adds itself.
        places = np.append(places, upper[count - 1] - mass)
        order = np.argsort(-places, kind="stable")
        weights = np.append(weights, 2 * steps[count - 1])[order]
        places = places[order]
        reached = np.cumsum(weights)
        pieces, times, sizes = _pieces(reached, moved[:count])
        shifted = (upper - lower)[times] - places[pieces]
        last = np.searchsorted(times, np.arange(count)) - 1
        tops[:count] = np.append(left.top(), shifted)[last + 1]
        left.push(shifted, sizes)
        left_over = np.maximum(reached - moved[count - 1], 0.0)
        places = np.append(places, upper[: count - 1] - mass)
        weights = np.minimum(weights, left_over)
        weights = np.append(weights, 2 * steps[: count - 1])
    order = np.argsort(places, kind="stable")
    right.push(places[order], weights[order])
    return count


def _fall(left: _Stack, right: _Stack, gap: _Gap) -> None:
    """Makes the steps for which the minimum is not below the mass, and fills `tops`."""
    mass, lower, upper, steps, tops = gap
    places, weights = left.take_above(mass - lower[-1])
    places = np.append(places, mass - lower)
    weights = np.append(weights, 2 * steps)
    order = np.argsort(-places, kind="stable")
    places, weights = places[order], weights[order]
    reached, moved = np.cumsum(weights), np.cumsum(steps)
    following = np.searchsorted(reached, np.append(0.0, moved[:-1]), side="right")
    tops[:] = np.append(places, left.top())[following]
    pieces, times, sizes = _pieces(reached, moved)
    right.push((upper - lower)[times] - places[pieces], sizes)
    weights = np.minimum(weights, np.maximum(reached - float(moved[-1]), 0.0))
    left.push(places[::-1], weights[::-1])


def _pieces(
    reached: FloatArray, moved: FloatArray
) -> tuple[IndexArray, IndexArray, FloatArray]:
    """Returns the parts of breakpoints that steps move: whose, when, and how heavy.

    Args:
        reached: (b,) weights of the breakpoints so far.
        moved: (n,) weights that steps move so far.
    """
    ends = np.concatenate([reached[reached < moved[-1]], moved])
    ends.sort()
    starts = np.append(0.0, ends[:-1])
    sizes = ends - starts
    starts, sizes = starts[sizes > 0], sizes[sizes > 0]
    pieces = np.searchsorted(reached, starts, side="right")
    times = np.searchsorted(moved, starts, side="right")
    return pieces, times, sizes
