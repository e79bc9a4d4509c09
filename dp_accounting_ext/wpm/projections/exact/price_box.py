"""The exact projection where a few inputs hold mass and outputs are many.

Prices f of the inputs decide all: output j is served by the input with the least
C_ij − f_i, and holds its least mass where that is above zero, its most where below.
The dual's value is concave in f, and known for all outputs in one pass.

Newton steps bring f near its optimum, first for a coarse picture of the outputs and
then for more and more of them; the curvature is counted from the outputs near a
change of hands. Then the dual is maximised exactly in a box around f: only outputs that
change hands inside of the box are free, and a linear program knows no others. Where the
optimum is inside of the box it is the optimum of all; else wide boxes of groups of
outputs bring f nearer, and the box moves.
"""

import dataclasses

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.exact import column_generation
from dp_accounting_ext.wpm.projections.exact import interior_point
from dp_accounting_ext.wpm.projections.exact import transport_plan
from dp_accounting_ext.wpm.projections.exact import transport_program

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# All tuning: each solution is proven by its prices, whatever these are.
# In a box, costs are in units of its radius: this gap leaves next to nothing unmoved.
# And it is this share of the gap that is asked for.
_BOX_GAP, _BOX_SHARE = 1e-11, 0.1
# Outputs of the first picture for each input, and how many times more the next has.
_COARSE = 4
_FEWEST = 300
_FINER = 6
# A block of outputs stays in the cache of a processor.
_BLOCK = 1 << 13
_NEWTON_STEPS = 15
_REFUSALS = 8
_FIRST_SHARE, _WIDEST_SHARE = 0.05, 0.3
_FREE, _FREE_SHARE = 100, 3
_WIDER = 4.0
# Boxes of groups: rounds, the first radius as a share of what prices differ by, by how
# much it shrinks where none is found, when a step counts as too short, the parts of a
# radius that are told apart, and the gap. Of ten users with near places among 50,000,
# all then end in one or two boxes of all outputs, which took 1 to 139. Users whose
# places lie apart end sooner without: so where so little is missing, a box of outputs
# comes first (0.001 of 50,000 and less of a million; near places miss 0.004 to 0.01).
_MOST_ROUNDS, _FIRST_RADIUS, _NARROWER, _AT_THE_RIM = 16, 0.05, 4.0, 0.9
_GRAIN, _GROUP_GAP, _MOST_DOUBLINGS = 4.0, 1e-3, 64
_LITTLE_MISSING = 2e-3
_MOST_FREE = 12_000
# In boxes much is unmoved at first: with 0.03, four users with near places took 12 to
# 80 steps for each box, with this 11 to 45.
_FIRST_SLACK = 0.3
# Boxes of fewer arcs are solved by a linear program, and those of fewer outputs have
# fewer arcs.
_WORTH_MIDDLE, _CORNER, _MOST_PROGRAM = 2000, 500, 8000
_MOST_BOXES = 200
_RELATIVE_GAP = 1e-11
_ROUNDING = 1e-14
_SLACK = 1e-9


@dataclasses.dataclass(frozen=True)
class Problem:
    """One user's mass and the outputs that may hold some.

    Attributes:
        masses: (s,) positive masses.
        cost: (s, n) costs.
        polytope: The allowed distributions, of positive upper bounds.
    """

    masses: FloatArray
    cost: FloatArray
    polytope: ldp_polytope.LdpPolytope

    def part(self, outputs: IndexArray) -> "Problem":
        """Returns the problem of some outputs, which stand for all."""
        lower, upper = self.polytope.lower, self.polytope.upper
        return Problem(
            self.masses,
            self.cost[:, outputs],
            ldp_polytope.LdpPolytope(
                lower[outputs] * (lower.sum() / lower[outputs].sum()),
                upper[outputs] * (upper.sum() / upper[outputs].sum()),
            ),
        )


@dataclasses.dataclass(frozen=True)
class _Prices:
    """Prices of the inputs, and what the outputs make of them.

    Attributes:
        potentials: (s,) prices f.
        owner: (n,) the input with the least C_ij − f_i.
        excess: (n,) that least value, which is the price of the output.
        margin: (n,) by how much the second-best input is worse.
        held: (n,) the mass that the output holds.
        value: The dual's value: no plan costs less.
    """

    potentials: FloatArray
    owner: npt.NDArray[np.int32]
    excess: FloatArray
    margin: FloatArray
    held: FloatArray
    value: float


def solve(problem: Problem, order: IndexArray) -> solution.Solution:
    """Returns the exact projection of one user.

    Args:
        problem: What to project, of two inputs or more.
        order: (n,) the outputs in an order that has near ones near one another.

    Returns:
        A solution of one row.

    Raises:
        SolverError: If a linear program fails, or no box holds the optimum.
    """
    potentials = _starting_potentials(problem, order)
    prices = _ascend(problem, potentials)
    missing = float(np.abs(_missing(problem, prices)[0]).sum())
    plain = 1 if missing < _LITTLE_MISSING else 0
    free = min(max(prices.owner.size // _FREE_SHARE, _FREE), _MOST_FREE)
    rounding = _ROUNDING * float(problem.cost.max())
    radius = 0.0
    for count in range(1, _MOST_BOXES + 1):
        if count == plain + 1:
            prices, radius = _approach(problem, prices), 0.0
        box = _box(problem, prices, free, radius)
        try:
            found, plan = _solve_in_box(problem, prices, box)
        except linear_program.SolverError:
            if free <= _CORNER:
                raise
            # A smaller box is easier.
            free, radius = max(free // 4, _CORNER), 0.0
            continue
        if plan is not None:
            value, distribution = transport_plan.feasible(
                problem.masses, problem.cost, plan.inputs, plan.outputs, plan.amounts
            )
            best = max(found.value, prices.value)
            if value - best <= _RELATIVE_GAP * value + rounding:
                law = ldp_polytope.nearest(distribution, problem.polytope)
                return solution.one_user(law, found.excess, value, count, True)
            # What the middle of the plans leaves open, a corner of them decides.
            free = min(free, _CORNER)
        if found.value <= prices.value:
            prices = _ascend(problem, found.potentials)
        elif box.radius < radius:
            prices = _followed(problem, prices, found)
        else:
            prices = found
        radius = _WIDER * box.radius
    raise linear_program.SolverError("No box of prices holds the optimum.")


def _followed(problem: Problem, start: _Prices, end: _Prices) -> _Prices:
    """Returns the best prices further along a step, doubled while the dual rises."""
    step = end.potentials - start.potentials
    further = _evaluate(problem, end.potentials + step)
    while further.value > end.value:
        step = 2 * step
        end, further = further, _evaluate(problem, further.potentials + step)
    return end


def _starting_potentials(problem: Problem, order: IndexArray) -> FloatArray:
    """Returns prices that are good for coarse pictures of the outputs."""
    size = problem.cost.shape[1]
    fewest = max(_COARSE * problem.masses.size, _FEWEST)
    sizes: list[int] = []
    while size > fewest:
        size = max(size // _FINER, fewest)
        sizes.append(size)
    if not sizes:
        return _lonely_potentials(problem)
    coarsest = problem.part(_spread(problem, order, sizes.pop()))
    start = column_generation.solve(
        coarsest.masses, coarsest.cost, coarsest.polytope
    ).prices[0]
    potentials = np.asarray((coarsest.cost - start).min(axis=1))
    while sizes:
        part = problem.part(_spread(problem, order, sizes.pop()))
        potentials = _ascend(part, potentials).potentials
    return potentials


def _lonely_potentials(problem: Problem) -> FloatArray:
    """Returns the costs of the outputs that each input alone would reach."""
    size = problem.cost.shape[1]
    reached = problem.masses / (float(problem.polytope.upper.sum()) / size)
    places = np.minimum(reached.astype(np.intp) + 1, size - 1)
    ordered = np.sort(problem.cost, axis=1)
    return np.asarray(ordered[np.arange(places.size), places])


def _spread(problem: Problem, order: IndexArray, count: int) -> IndexArray:
    """Returns outputs that stand for equal shares of the mass, along the order."""
    sums = np.cumsum(problem.polytope.upper[order])
    places = (np.arange(count) + 0.5) * (sums[-1] / count)
    chosen = np.minimum(np.searchsorted(sums, places), order.size - 1)
    return np.asarray(order[np.unique(chosen)])


def _evaluate(problem: Problem, potentials: FloatArray) -> _Prices:
    """Returns what prices of the inputs lead to, once all are raised as one.

    By how much is known: so that the outputs hold one in sum.
    """
    size = problem.cost.shape[1]
    owner, excess = np.zeros(size, dtype=np.int32), np.full(size, np.inf)
    margin = np.full(size, np.inf)
    for begin in range(0, size, _BLOCK):
        part = slice(begin, begin + _BLOCK)
        _least_two(
            problem.cost[:, part], potentials, owner[part], excess[part], margin[part]
        )
    margin -= excess
    polytope = problem.polytope
    level = _level(excess, polytope)
    potentials, excess = potentials + level, excess - level
    held = np.where(excess > 0, polytope.lower, polytope.upper)
    value = float(problem.masses @ potentials + held @ excess)
    return _Prices(potentials, owner, excess, margin, held, value)


def _level(excess: FloatArray, polytope: ldp_polytope.LdpPolytope) -> float:
    """Returns the price below which outputs are full, if they hold one in sum."""
    widths = polytope.upper - polytope.lower
    left = 1 - float(polytope.lower.sum())
    if widths.min() == widths.max() > 0:
        last = min(max(int(left / widths[0]), 0), widths.size - 1)
        return float(np.partition(excess, last)[last])
    order = np.argsort(excess)
    place = int(np.searchsorted(np.cumsum(widths[order]), left))
    return float(excess[order[min(place, widths.size - 1)]])


def _least_two(
    cost: FloatArray,
    potentials: FloatArray,
    owner: npt.NDArray[np.int32],
    least: FloatArray,
    second: FloatArray,
) -> None:
    """Fills in the least and the second C_ij − f_i of each output, and whose it is.

    Row by row in the cache: several times faster than a minimum over columns.
    """
    reduced, better = np.empty(least.size), np.empty(least.size, dtype=np.bool_)
    for place, (row, potential) in enumerate(zip(cost, potentials, strict=True)):
        np.subtract(row, potential, out=reduced)
        np.less(reduced, least, out=better)
        np.copyto(owner, place, where=better)
        np.minimum(second, np.maximum(least, reduced), out=second)
        np.minimum(least, reduced, out=least)


def _seconds(problem: Problem, prices: _Prices, outputs: IndexArray) -> IndexArray:
    """Returns the second-best inputs of some outputs."""
    reduced = problem.cost[:, outputs] - prices.potentials[:, np.newaxis]
    reduced[prices.owner[outputs], np.arange(outputs.size)] = np.inf
    return np.asarray(reduced.argmin(axis=0))


def _ascend(problem: Problem, potentials: FloatArray) -> _Prices:
    """Returns better prices, by Newton steps as long as they pay.

    Near a change of hands of width w, the mass that moves from input a to b as f_a
    falls is what is there over w: so the curvature is counted. It is damped until a
    step raises the dual (Levenberg and Marquardt).
    """
    size, inputs = problem.cost.shape[1], problem.masses.size
    best: _Prices | None = None
    share, damping, refusals = _FIRST_SHARE, 0.0, 0
    trial = potentials
    for _ in range(_NEWTON_STEPS):
        found = _evaluate(problem, trial)
        if best is None or found.value > best.value:
            if best is not None and refusals == 0:
                share = max(0.6 * share, min(max(3 * _FREE / size, 0.01), 0.2))
                damping *= 0.3
            refusals, best = 0, found
            missing, done = _missing(problem, found)
            if done:
                break
            curvature = _curvature(problem, best, share)
            damping = damping or 1e-3 * float(np.trace(curvature)) / inputs
        else:
            refusals += 1
            if refusals >= _REFUSALS:
                break
            # What was counted too near by tells little of what lies further.
            damping, share = 10 * damping, min(2 * share, _WIDEST_SHARE)
            curvature = _curvature(problem, best, share)
        if not damping > 0:
            break
        trial = best.potentials + np.linalg.solve(
            curvature + damping * np.eye(inputs), missing
        )
    assert best is not None
    return best


@dataclasses.dataclass(frozen=True)
class _Box:
    """Prices within a radius of given ones, and what may change there.

    Attributes:
        radius: How far each price may move.
        free: Outputs that change hands or level inside of the box.
        reduced: (s, a) C_ij − f_i of these or of groups of them.
        excess: (a,) the least of these, of all inputs.
        polytope: What they may hold.
    """

    radius: float
    free: IndexArray
    reduced: FloatArray
    excess: FloatArray
    polytope: ldp_polytope.LdpPolytope


def _approach(problem: Problem, prices: _Prices) -> _Prices:
    """Returns better prices, from wide boxes in which alike outputs count as one.

    The dual of groups is above that of all outputs, by concavity, and meets it where
    no group changes hands in part. Groups are fine near a change of hands and coarse
    far from it; each round splits them where its prices would divide them.
    """
    if _missing(problem, prices)[1]:
        return prices
    size = prices.owner.size
    last = min(max(size // _FREE_SHARE, _FREE), _MOST_FREE, size) - 1
    radius = _FIRST_RADIUS * float(np.ptp(prices.potentials))
    trial, groups = prices, np.zeros(size, dtype=np.intp)
    for _ in range(_MOST_ROUNDS):
        nearness = _nearness(prices)
        if radius <= float(np.partition(nearness, last)[last]):
            break
        free = np.flatnonzero(nearness <= radius)
        width = radius / _GRAIN
        finer = _split(problem, trial, free, groups[free], width)
        groups[free] = groups.max() + 1 + finer
        box = _grouped(problem, prices, free, groups[free], radius)
        try:
            inner, _ = _inner(problem, prices, box)
            found = _solve_inner(inner, _levels(box), _GROUP_GAP)
        except linear_program.SolverError:
            radius /= _NARROWER
            continue
        trial = _evaluate(problem, prices.potentials + radius * found.potentials)
        moved = float(np.ptp(trial.potentials - prices.potentials)) / 2
        if trial.value <= prices.value:
            radius /= 2
            continue
        if moved < _AT_THE_RIM * radius:
            radius = max(moved / 2, radius / 8)
        else:
            trial = _followed(problem, prices, trial)
        prices = trial
    return prices


def _split(
    problem: Problem,
    prices: _Prices,
    outputs: IndexArray,
    groups: IndexArray,
    width: float,
) -> IndexArray:
    """Returns the (a,) numbers of finer groups, whose outputs change hands alike.

    Of one group are outputs between the same two inputs and on the same side of the
    level, whose distances from a change double from one group to the next.
    """
    inputs, size = problem.masses.size, prices.owner.size
    excess = prices.excess[outputs]
    margin = _doublings(prices.margin[outputs] / 2, width)
    level = _doublings(np.abs(excess), width)
    level = np.where(excess > 0, level, -1 - level)
    keys = prices.owner[outputs].astype(np.int64) * inputs
    keys = (keys + _seconds(problem, prices, outputs)) * _MOST_DOUBLINGS + margin
    keys = (2 * keys + 1) * _MOST_DOUBLINGS + level
    numbers = np.unique(keys, return_inverse=True)[1]
    found = np.unique(groups * size + numbers, return_inverse=True)[1]
    return np.asarray(found, dtype=np.intp)


def _grouped(
    problem: Problem,
    prices: _Prices,
    outputs: IndexArray,
    groups: IndexArray,
    radius: float,
) -> _Box:
    """Returns a box in which groups of outputs are free, with their mean costs."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    chosen = outputs[order]
    weights = problem.polytope.upper[chosen]
    lower = np.add.reduceat(problem.polytope.lower[chosen], starts)
    upper = np.add.reduceat(weights, starts)
    reduced = np.empty((problem.masses.size, starts.size))
    for row, means in zip(problem.cost, reduced, strict=True):
        np.divide(np.add.reduceat(row[chosen] * weights, starts), upper, out=means)
    reduced -= prices.potentials[:, np.newaxis]
    polytope = ldp_polytope.LdpPolytope(lower, upper)
    return _Box(radius, outputs, reduced, reduced.min(axis=0), polytope)


def _nearness(prices: _Prices) -> FloatArray:
    """Returns how far prices may move before each output changes hands or level."""
    return np.asarray(np.minimum(prices.margin / 2, np.abs(prices.excess)))


def _doublings(distances: FloatArray, width: float) -> IndexArray:
    """Returns how often a width must double to reach distances."""
    found = np.ceil(np.log2(np.maximum(distances, width) / width))
    return np.asarray(np.minimum(found, _MOST_DOUBLINGS - 1), dtype=np.intp)


def _missing(problem: Problem, prices: _Prices) -> tuple[FloatArray, bool]:
    """Returns what inputs have left over, and whether it is no more than rounding."""
    inputs = problem.masses.size
    missing = problem.masses - np.bincount(prices.owner, prices.held, minlength=inputs)
    enough = float(problem.polytope.upper.max()) * min(inputs, 20)
    return missing, bool(np.abs(missing).sum() < enough)


def _curvature(problem: Problem, prices: _Prices, share: float) -> FloatArray:
    """Returns the (s, s) curvature of the dual, counted from a share of outputs."""
    margin, size, inputs = prices.margin, prices.margin.size, problem.masses.size
    levels = np.abs(prices.excess)
    nearness = np.minimum(margin / 2, levels)
    last = min(int(share * size), size - 1)
    width = float(np.partition(nearness, last)[last])
    # Where that many are at once between two inputs, no width is too small.
    width = max(width, _ROUNDING * float(problem.cost.max()))
    moving = np.flatnonzero(margin < 2 * width)
    pairs = prices.owner[moving].astype(np.intp) * inputs + _seconds(
        problem, prices, moving
    )
    moved = prices.held[moving] / (4 * width)
    flows = np.bincount(pairs, moved, minlength=inputs * inputs)
    flows = flows.astype(float).reshape(inputs, inputs)
    curvature = -(flows + flows.T)
    places = np.arange(inputs)
    curvature[places, places] -= curvature.sum(axis=1)
    turning = levels < width
    widths = (problem.polytope.upper - problem.polytope.lower)[turning]
    turned = np.bincount(prices.owner[turning], widths / (2 * width), minlength=inputs)
    curvature[places, places] += turned.astype(float)
    return np.asarray(curvature)


@dataclasses.dataclass(frozen=True)
class _Plan:
    """Masses moved on some arcs."""

    inputs: IndexArray
    outputs: IndexArray
    amounts: FloatArray


def _box(problem: Problem, prices: _Prices, free: int, radius: float) -> _Box:
    """Returns a box in which about so many outputs are free.

    One of the radius that is asked for, if that is wider and not too many are.
    """
    size = prices.owner.size
    nearness = _nearness(prices)
    last = min(free, size) - 1
    usual = float(np.partition(nearness, last)[last])
    if radius < usual or np.count_nonzero(nearness <= radius) > _MOST_FREE:
        radius = usual
    # No price need move further than costs differ.
    widest = float(np.ptp(problem.cost)) + float(np.ptp(prices.potentials))
    least = _ROUNDING * float(problem.cost.max())
    radius = min(max(radius, least), 2 * widest) or 1.0
    chosen = np.flatnonzero(nearness <= radius)
    reduced = problem.cost[:, chosen] - prices.potentials[:, np.newaxis]
    polytope = problem.polytope.of(chosen)
    return _Box(radius, chosen, reduced, prices.excess[chosen], polytope)


def _solve_in_box(
    problem: Problem, prices: _Prices, box: _Box
) -> tuple[_Prices, _Plan | None]:
    """Returns the best prices of a box, and the plan if these are best of all.

    Raises:
        SolverError: If it cannot be solved.
    """
    inner, fixed = _inner(problem, prices, box)
    asked = _RELATIVE_GAP * abs(prices.value) + _ROUNDING * float(problem.cost.max())
    gap = min(_BOX_GAP, _BOX_SHARE * asked / box.radius)
    found = _solve_inner(inner, _levels(box), gap)
    moved = _evaluate(problem, prices.potentials + box.radius * found.potentials)
    if found.unmoved > _SLACK:
        return moved, None
    return moved, _Plan(
        np.append(inner.inputs[found.arcs], prices.owner[fixed]),
        np.append(box.free[inner.outputs[found.arcs]], fixed),
        np.append(found.amounts, prices.held[fixed]),
    )


def _inner(
    problem: Problem, prices: _Prices, box: _Box
) -> tuple[interior_point.Problem, IndexArray]:
    """Returns the problem of a box, in units of its radius, and the other outputs.

    What an input has too much or too little costs the radius: so do changes of its
    price stay in the box.
    """
    inputs = problem.masses.size
    others = np.ones(prices.owner.size, dtype=np.bool_)
    others[box.free] = False
    fixed = np.flatnonzero(others)
    spent = np.bincount(prices.owner[fixed], prices.held[fixed], minlength=inputs)
    rows, places = np.nonzero(box.reduced <= box.excess + 2 * box.radius)
    reduced = box.reduced[rows, places] / box.radius
    reduced -= (box.excess / box.radius - _levels(box))[places]
    left = problem.masses - spent
    return (
        interior_point.Problem(
            reduced, rows, places, left, box.polytope, 1.0, _FIRST_SLACK
        ),
        fixed,
    )


def _levels(box: _Box) -> FloatArray:
    """Returns how far outputs are from the level, in radii.

    Those that are far stay at their bound: how far makes no difference.
    """
    return np.clip(box.excess / box.radius, -2.0, 2.0)


def _solve_inner(
    inner: interior_point.Problem, level: FloatArray, gap: float
) -> interior_point.Optimum:
    """Through the middle of all plans; where there is none, by a linear program."""
    none = np.zeros(inner.supply.size)
    if inner.cost.size < _WORTH_MIDDLE:
        return transport_program.solve(inner)
    try:
        return interior_point.solve(inner, none, level, gap=gap, dropping=False)
    except linear_program.SolverError:
        if inner.cost.size > _MOST_PROGRAM:
            raise
        return transport_program.solve(inner)
