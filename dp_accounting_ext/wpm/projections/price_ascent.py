"""The exact projection onto many outputs, by the prices of the inputs.

Prices f of the inputs decide all: output j is served by the input with the least
C_ij − f_i, and holds its least mass where that is above zero, its most where below.
The dual's value is concave in f, and known for all outputs in one pass.

Linear programs look for better prices within a radius. Outputs that cannot change
hands there are fixed; of the others, those alike are one group with their mean costs.
Spread over the members of the groups, in proportion to their bounds, a program's plan
is a plan of all outputs: so it bounds the cost from above as the prices do from below,
and the search ends where the bounds meet. It goes from a coarse picture of the outputs
to finer ones, each with the prices and the radius of the one before.
"""

import dataclasses
import functools

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import column_generation
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections import transport_program

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# All tuning: each solution is proven by its prices, whatever these are.
# Outputs of the first picture for each input, how many times more the next has, and
# what is proven of all but the last.
_COARSE, _FEWEST, _FINER, _COARSE_GAP = 4, 300, 6, 1e-2
# Outputs of a block, which stays in the cache of a processor.
_BLOCK = 1 << 11
# Linear programs: rounds, the first radius as a share of what prices differ by, when a
# step counts as one to the rim, the parts of a radius that groups tell apart, arcs of
# each group, and outputs that are so few that each is its own group.
_MOST_ROUNDS, _FIRST_RADIUS, _AT_THE_RIM = 60, 0.02, 0.9
_GRAIN, _MOST_DOUBLINGS, _ARCS_EACH, _FEW = 4.0, 64, 6, 1500
_ROUNDING = 1e-14
_SLACK = 1e-9


@dataclasses.dataclass(frozen=True, repr=False)
class Problem:
    """One user's mass and the outputs that may hold some.

    Attributes:
        masses: (s,) positive masses.
        cost: (s, n) costs; it is faster where near outputs follow one another.
        polytope: The allowed distributions, of positive upper bounds: one and the
            same multiple of the lower ones, or one where that is less.
    """

    masses: FloatArray
    cost: FloatArray
    polytope: ldp_polytope.LdpPolytope

    @functools.cached_property
    def ranges(self) -> tuple[FloatArray, FloatArray]:
        """The (s, blocks) least and largest costs of blocks of outputs."""
        starts = np.arange(0, self.cost.shape[1], _BLOCK)
        least = np.minimum.reduceat(self.cost, starts, axis=1)
        return least, np.maximum.reduceat(self.cost, starts, axis=1)

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


@dataclasses.dataclass(frozen=True, repr=False)
class _Prices:
    """Prices of the inputs, and what the outputs make of them.

    Attributes:
        potentials: (s,) prices f.
        owner: (n,) the input with the least C_ij − f_i,
        second: (n,) and the one with the second least.
        excess: (n,) that least value, which is the price of the output.
        margin: (n,) by how much the second-best input is worse.
        held: (n,) the mass that the output holds.
        value: The dual's value: no plan costs less.
    """

    potentials: FloatArray
    owner: npt.NDArray[np.int32]
    second: npt.NDArray[np.int32]
    excess: FloatArray
    margin: FloatArray
    held: FloatArray
    value: float


def solve(problem: Problem, relative_gap: float) -> solution.Solution:
    """Returns the exact projection of one user.

    Args:
        problem: What to project.
        relative_gap: Stop where plan and prices are this share of the cost apart.

    Returns:
        A solution; where the rounds did not suffice, a feasible one with prices that
        bound it from further away.

    Raises:
        SolverError: If no program leads to a plan.
    """
    fewest = max(_COARSE * problem.masses.size, _FEWEST)
    sizes = [problem.cost.shape[1]]
    while sizes[-1] > _FINER * fewest:
        sizes.append(sizes[-1] // _FINER)
    first = problem.part(_sample(problem, min(fewest, sizes[-1])))
    start = column_generation.solve(
        first.masses, first.cost, first.polytope, _COARSE_GAP
    )
    potentials = (first.cost - start.prices).min(axis=1)
    radius = _FIRST_RADIUS * float(np.ptp(potentials))
    for size in sizes[:0:-1]:
        picture = problem.part(_sample(problem, size))
        prices, radius, _ = _search(picture, potentials, radius, _COARSE_GAP)
        potentials = prices.potentials
    return _search(problem, potentials, radius, relative_gap)[2]


def _search(
    problem: Problem, potentials: FloatArray, radius: float, relative_gap: float
) -> tuple[_Prices, float, solution.Solution]:
    """Returns better prices, within which radius to look on, and what they lead to.

    Raises:
        SolverError: If no program leads to a plan.
    """
    prices = trial = _evaluate(problem, potentials)
    few = min(_FEW, prices.owner.size) - 1
    groups = _unlike(problem.polytope)
    rounding = _ROUNDING * float(problem.cost.max())
    best, law, each, count = np.inf, None, _ARCS_EACH, 0
    while best - prices.value > relative_gap * prices.value + rounding:
        if count == _MOST_ROUNDS:
            break
        count += 1
        # How far prices may move before an output changes hands or level.
        nearness = np.minimum(prices.margin / 2, np.abs(prices.excess))
        least = float(np.partition(nearness, few)[few])
        radius = max(radius, least, rounding) or 1.0
        free = np.flatnonzero(nearness <= radius)
        finer = np.arange(free.size)
        if free.size > _FEW:
            finer = _split(problem, trial, free, groups[free], radius / _GRAIN)
        groups[free] = groups.max() + 1 + finer
        region = _region(problem, prices, free, finer, radius, each)
        try:
            plan = transport_program.solve(
                region.arcs, region.supply, region.polytope, 1.0
            )
        except linear_program.SolverError:
            radius /= 4
            continue
        trial = _evaluate(problem, prices.potentials + radius * plan.potentials)
        moved = float(np.ptp(trial.potentials - prices.potentials)) / 2
        inside = plan.unmoved <= _SLACK
        if inside:
            value, found = _spread_out(problem, prices, region, plan)
            if value < best:
                best, law = value, found
        else:
            each *= 2  # An arc may be missing.
        if trial.value <= prices.value:
            radius = max(min(radius / 2, 2 * moved), radius / 8)
        elif inside and moved < _AT_THE_RIM * radius:
            prices, radius = trial, max(moved / 2, radius / 8)
        else:
            prices, radius = trial, 2 * radius
    if law is None:
        raise linear_program.SolverError("No prices of the inputs led to a plan.")
    law = ldp_polytope.nearest(law, problem.polytope)
    return prices, radius, solution.Solution(law, prices.excess, best, count)


def _unlike(polytope: ldp_polytope.LdpPolytope) -> IndexArray:
    """Returns (n,) groups of outputs whose bounds are in proportion to one another."""
    capped = np.where(polytope.upper < 1, 0.0, polytope.lower)
    return np.unique(capped, return_inverse=True)[1].astype(np.intp)


def _sample(problem: Problem, count: int) -> IndexArray:
    """Returns outputs that stand for equal shares of the mass, in their order."""
    sums = np.cumsum(problem.polytope.upper)
    places = (np.arange(count) + 0.5) * (sums[-1] / count)
    chosen = np.minimum(np.searchsorted(sums, places), sums.size - 1)
    return np.asarray(chosen[np.diff(chosen, prepend=-1) > 0])


def _evaluate(problem: Problem, potentials: FloatArray) -> _Prices:
    """Returns what prices of the inputs lead to, once all are raised as one.

    By how much is known: so that the outputs hold one in sum.
    """
    size = problem.cost.shape[1]
    owner, second = np.zeros((2, size), dtype=np.int32)
    excess, margin = np.full((2, size), np.inf)
    least, largest = (costs - potentials[:, np.newaxis] for costs in problem.ranges)
    last = min(1, potentials.size - 1)
    # In a block two inputs are at most so far: others that are further do not count.
    near = least <= np.partition(largest, last, axis=0)[last]
    for block, counts in enumerate(near.T):
        part = slice(block * _BLOCK, (block + 1) * _BLOCK)
        found = owner[part], second[part], excess[part], margin[part]
        _least_two(problem.cost[:, part], potentials, np.flatnonzero(counts), *found)
    margin -= excess
    polytope = problem.polytope
    level = _level(excess, polytope)
    potentials, excess = potentials + level, excess - level
    held = np.where(excess > 0, polytope.lower, polytope.upper)
    value = float(problem.masses @ potentials + held @ excess)
    return _Prices(potentials, owner, second, excess, margin, held, value)


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
    inputs: IndexArray,
    owner: npt.NDArray[np.int32],
    runner_up: npt.NDArray[np.int32],
    least: FloatArray,
    second: FloatArray,
) -> None:
    """Fills in the least and the second C_ij − f_i of each output, and whose they are.

    Row by row in the cache: several times faster than a minimum over columns.
    """
    reduced, higher = np.empty(least.size), np.empty(least.size)
    better, closer = np.empty((2, least.size), dtype=np.bool_)
    for place in inputs:
        np.subtract(cost[place], potentials[place], out=reduced)
        np.less(reduced, second, out=closer)
        np.less(reduced, least, out=better)
        np.copyto(runner_up, place, where=closer)
        np.copyto(runner_up, owner, where=better)
        np.copyto(owner, place, where=better)
        np.maximum(least, reduced, out=higher)
        np.minimum(second, higher, out=second)
        np.minimum(least, reduced, out=least)


@dataclasses.dataclass(frozen=True, repr=False)
class _Region:
    """Prices within a radius of given ones, and what may change there.

    Costs are in units of the radius. What an input has too much or too little costs
    the radius: so do changes of its price stay within it.

    Attributes:
        arcs: From inputs to groups of outputs.
        supply: (s,) what the other outputs leave of the masses.
        polytope: What groups may hold.
        fixed: The other outputs.
        free: Outputs of the groups,
        groups: and the group of each.
    """

    arcs: solution.Arcs
    supply: FloatArray
    polytope: ldp_polytope.LdpPolytope
    fixed: IndexArray
    free: IndexArray
    groups: IndexArray


def _region(
    problem: Problem,
    prices: _Prices,
    free: IndexArray,
    groups: IndexArray,
    radius: float,
    each: int,
) -> _Region:
    """Returns what may change within a radius, with at most some arcs to each group.

    Outputs that are groups of their own have all arcs.
    """
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    chosen = free[order]
    weights = problem.polytope.upper[chosen]
    lower = np.add.reduceat(problem.polytope.lower[chosen], starts)
    upper = np.add.reduceat(weights, starts)
    reduced = np.empty((problem.masses.size, starts.size))
    for row, means in zip(problem.cost, reduced, strict=True):
        np.divide(np.add.reduceat(row[chosen] * weights, starts), upper, out=means)
    reduced -= prices.potentials[:, np.newaxis]
    excess = reduced.min(axis=0)
    reach = excess + 2 * radius
    if starts.size < free.size and len(reduced) > each:
        last = np.partition(reduced, each - 1, axis=0)[each - 1]
        reach = np.minimum(reach, last)
    inputs, places = np.nonzero(reduced <= reach)
    # Groups that are far from the level stay at their bound: how far is all the same.
    level = np.clip(excess / radius, -2.0, 2.0)
    scaled = (reduced[inputs, places] - excess[places]) / radius + level[places]
    others = np.ones(prices.owner.size, dtype=np.bool_)
    others[free] = False
    fixed = np.flatnonzero(others)
    spent = np.bincount(
        prices.owner[fixed], prices.held[fixed], minlength=problem.masses.size
    )
    return _Region(
        solution.Arcs(inputs, places, scaled),
        problem.masses - spent,
        ldp_polytope.LdpPolytope(lower, upper),
        fixed,
        chosen,
        np.repeat(np.arange(starts.size), np.diff(starts, append=chosen.size)),
    )


def _spread_out(
    problem: Problem, prices: _Prices, region: _Region, plan: solution.Plan
) -> tuple[float, FloatArray]:
    """Returns the cost of a plan of groups, spread over their members, and its law."""
    used = np.flatnonzero(plan.amounts > 0)
    ends = region.arcs.outputs[used]
    sizes = np.bincount(region.groups)
    firsts = (np.cumsum(sizes) - sizes)[ends]
    counts = sizes[ends]
    last = np.cumsum(counts)
    members = np.arange(int(last[-1])) + np.repeat(firsts - last + counts, counts)
    outputs = region.free[members]
    shares = problem.polytope.upper[outputs] / np.repeat(
        region.polytope.upper[ends], counts
    )
    inputs = np.append(
        np.repeat(region.arcs.inputs[used], counts), prices.owner[region.fixed]
    ).astype(np.intp)
    outputs = np.append(outputs, region.fixed)
    amounts = np.append(
        np.repeat(plan.amounts[used], counts) * shares, prices.held[region.fixed]
    )
    arcs = solution.Arcs(inputs, outputs, problem.cost[inputs, outputs])
    return transport_program.feasible(problem.masses, problem.cost, arcs, amounts)


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
    keys = (keys + prices.second[outputs]) * _MOST_DOUBLINGS + margin
    keys = (2 * keys + 1) * _MOST_DOUBLINGS + level
    numbers = np.unique(keys, return_inverse=True)[1]
    found = np.unique(groups * size + numbers, return_inverse=True)[1]
    return np.asarray(found, dtype=np.intp)


def _doublings(distances: FloatArray, width: float) -> IndexArray:
    """Returns how often a width must double to reach distances."""
    found = np.ceil(np.log2(np.maximum(distances, width) / width))
    return np.asarray(np.minimum(found, _MOST_DOUBLINGS - 1), dtype=np.intp)
