"""Transport problems between bounds, by a primal-dual interior point method.

Inputs i are emptied along arcs to outputs j, which hold between a least and a most:

    least Σ c_ij x_ij + ρ Σ (p_i + m_i)   with   Σ_j x_ij + p_i − m_i = supply_i,
    Σ_i x_ij = lower_j + a_j,   a_j + b_j = upper_j − lower_j,   x, p, m, a, b ≥ 0.

What an input lacks or has too much costs ρ, so there is always a plan, and prices of
inputs stay in [−ρ, ρ]. Predictor and corrector share one factorisation of a matrix of
the inputs alone (Mehrotra). Most arcs soon cannot matter any more and are dropped:
those that cost several times the gap. Whoever needs proof checks prices on all arcs.
"""

import dataclasses
import functools

import numpy as np
import numpy.typing as npt
from scipy.linalg import lapack

from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections.exact import transport_plan

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# All tuning: a solution is proven by its prices, whatever these are.
_MOST_STEPS = 80
# Equations are missed by so much once the gap is next to nothing.
_ROUNDING = 1e-11
# Outputs start this share of their width within their bounds.
_INSIDE = 0.3
# Of the way to the nearest bound, at least and at most.
_SHORTEST, _LONGEST = 0.9, 1 - 1e-6
# Arcs are dropped once the gap is this share of the cost, and each time it has fallen
# by this factor. Of all arcs so many remain for each input and output, then half, and
# at last so many. Of 160 problems of crowds one lacked an arc at the end.
_WORTH_DROPPING, _AGAIN = 0.3, 0.1
_KEPT, _LEAST_KEPT, _FEWER = 6, 2, 0.8
# Pairs of arcs to an output, over inputs times outputs, that are summed one by one.
_FEW_PAIRS = 0.5
_MOST_LARGER = 10.0
# In units of the largest cost: far beyond what prices differ by.
_PENALTY = 4.0
_RELATIVE_GAP, _PROVEN_GAP = 1e-11, 1e-10
# Arcs of smaller masses, beside the largest, would be dropped with those that are far.
_EVEN = 1e-5
# By so much the diagonal is raised until there is a factor: the next step mends what
# that misses. Of 10 users with near places among 20,000, 3 had no factor near the end.
_RAISED = (0.0, 1e-14, 1e-12, 1e-10)
_TINY = float(np.finfo(float).tiny)


@dataclasses.dataclass(frozen=True)
class Problem:
    """What to move, along which arcs.

    Attributes:
        cost: (arcs,) costs, of about one.
        inputs: (arcs,) where they begin.
        outputs: (arcs,) where they end.
        supply: (s,) what inputs have; negative where they need some.
        polytope: (n,) least and most of the outputs, apart from one another.
        penalty: What it costs to leave a unit where it is, ρ.
        slack: How far prices of outputs start below what they may be: more where the
            first plan leaves much unmoved.
    """

    cost: FloatArray
    inputs: IndexArray
    outputs: IndexArray
    supply: FloatArray
    polytope: ldp_polytope.LdpPolytope
    penalty: float
    slack: float = 0.03

    @property
    def is_whole(self) -> bool:
        """Whether there are all arcs: then they are in the order of a matrix."""
        return self.cost.size == self.supply.size * self.polytope.lower.size

    @property
    def is_rough(self) -> bool:
        """Whether arcs will be dropped, before more than a few digits matter."""
        ends = self.supply.size + self.polytope.lower.size
        return self.is_whole and _KEPT * ends <= _FEWER * self.cost.size

    def kept(self, arcs: IndexArray) -> "Problem":
        """Returns the problem of some arcs."""
        return dataclasses.replace(
            self,
            cost=self.cost[arcs],
            inputs=self.inputs[arcs],
            outputs=self.outputs[arcs],
        )

    def sums(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the (s,) and (n,) sums of arcs' values at inputs and at outputs."""
        inputs, outputs = self.supply.size, self.polytope.lower.size
        if self.is_whole:
            # Products with ones are faster than sums along an axis.
            table = values.reshape(inputs, outputs)
            return table @ np.ones(outputs), np.ones(inputs) @ table
        return (
            np.bincount(self.inputs, values, minlength=inputs).astype(float),
            np.bincount(self.outputs, values, minlength=outputs).astype(float),
        )

    def to_inputs(self, values: FloatArray, prices: FloatArray) -> FloatArray:
        """Returns the (s,) sums of arcs' values times what is at their outputs."""
        size = self.supply.size
        if self.is_whole:
            return np.asarray(values.reshape(size, -1) @ prices)
        weights = values * prices[self.outputs]
        return np.bincount(self.inputs, weights, minlength=size).astype(float)

    def to_outputs(self, values: FloatArray, prices: FloatArray) -> FloatArray:
        """Returns the (n,) sums of arcs' values times what is at their inputs."""
        if self.is_whole:
            return np.asarray(prices @ values.reshape(prices.size, -1))
        weights = values * prices[self.inputs]
        size = self.polytope.lower.size
        return np.bincount(self.outputs, weights, minlength=size).astype(float)

    def pairs(self, left: FloatArray, right: FloatArray) -> FloatArray:
        """Returns the (arcs,) sums of what is at their two ends."""
        if self.is_whole:
            return np.add.outer(left, right).ravel()
        return np.asarray(left[self.inputs] + right[self.outputs])

    @functools.cached_property
    def _meetings(self) -> tuple[IndexArray, IndexArray]:
        """The pairs of arcs that end at one output, each with itself too."""
        order = np.argsort(self.outputs, kind="stable")
        counts = np.bincount(self.outputs, minlength=self.polytope.lower.size)
        others = counts[self.outputs[order]]
        firsts = (np.cumsum(counts) - counts)[self.outputs[order]]
        ends = np.cumsum(others)
        within = np.arange(int(ends[-1])) - np.repeat(ends - others, others)
        return np.repeat(order, others), order[np.repeat(firsts, others) + within]

    def curvature(self, ratios: FloatArray, diagonal: FloatArray) -> FloatArray:
        """Returns the (s, s) sums over outputs of r_ij r_kj over the output's d_j."""
        size = self.supply.size
        if self.is_whole:
            whole = ratios.reshape(size, -1) / np.sqrt(diagonal)
            if self.is_rough:
                whole = whole.astype(np.float32)
            return np.asarray(whole @ whole.T, dtype=np.float64)
        scaled = ratios / np.sqrt(diagonal)[self.outputs]
        if self.meets_often:
            table = np.zeros((size, diagonal.size))
            table[self.inputs, self.outputs] = scaled
            return np.asarray(table @ table.T)
        first, second = self._meetings
        places = self.inputs[first] * size + self.inputs[second]
        weights = scaled[first] * scaled[second]
        found = np.bincount(places, weights, minlength=size * size)
        return found.astype(float).reshape(size, size)

    @functools.cached_property
    def meets_often(self) -> bool:
        """Whether a product of matrices is faster than a sum over pairs of arcs."""
        counts = np.bincount(self.outputs, minlength=self.polytope.lower.size)
        pairs = float(counts @ counts)
        return pairs > _FEW_PAIRS * self.supply.size * counts.size


@dataclasses.dataclass(frozen=True)
class Optimum:
    """An optimal plan, in the middle of all optimal ones.

    Attributes:
        arcs: (a,) the arcs that were kept to the end.
        amounts: (a,) what they move.
        potentials: (s,) prices f of the inputs.
        prices: (n,) prices g of the outputs.
        unmoved: What inputs lack or have too much, in sum.
        steps: Steps of the method.
    """

    arcs: IndexArray
    amounts: FloatArray
    potentials: FloatArray
    prices: FloatArray
    unmoved: float
    steps: int


def project(
    masses: FloatArray, cost: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> solution.Solution:
    """Returns the exact projection of one user, with all arcs to begin with.

    Args:
        masses: (s,) positive masses.
        cost: (s, n) costs.
        polytope: The allowed distributions, of positive upper bounds.

    Returns:
        A solution of one row; converged if its prices prove it.

    Raises:
        SolverError: If the method does not get there.
    """
    size = float(cost.max())
    narrow = bool((polytope.upper <= polytope.lower).any())
    if narrow or not size > _TINY or _uneven(masses) or _uneven(polytope.upper):
        raise linear_program.SolverError("The middle of the plans is hard to find.")
    scaled = cost / size
    inputs = np.repeat(np.arange(cost.shape[0]), cost.shape[1])
    outputs = np.tile(np.arange(cost.shape[1]), cost.shape[0])
    problem = Problem(scaled.ravel(), inputs, outputs, masses, polytope, _PENALTY)
    start, none = scaled.min(axis=1), np.zeros(cost.shape[1])
    found = solve(problem, start, none, relative_gap=_RELATIVE_GAP)
    value, distribution = transport_plan.feasible(
        masses, cost, inputs[found.arcs], outputs[found.arcs], found.amounts
    )
    prices = size * found.prices
    bound = duality.lower_bound(masses, prices, cost, polytope)
    moved = found.unmoved <= _PROVEN_GAP
    converged = moved and abs(value - bound) <= _PROVEN_GAP * value
    law = ldp_polytope.nearest(distribution, polytope)
    return solution.one_user(law, prices, value, found.steps, converged)


def _uneven(values: FloatArray) -> bool:
    """Tells whether some are so small that rounding would hide them."""
    return float(values.min()) < _EVEN * float(values.max())


@dataclasses.dataclass(frozen=True)
class _Point:
    """Positive amounts and their reduced costs, which go to zero in pairs.

    Attributes:
        amounts: (arcs + 2n + 2s,) of the arcs, x; of the outputs above their least, a,
            and below their most, b; of what inputs lack, p, and have too much, m.
        slacks: The same shape: c − f − g, g + h, h, ρ − f and ρ + f, with the
            prices f of inputs, g of outputs and h ≥ 0 of their most.
        potentials: (s,) the f.
        prices: (n,) the g.
    """

    amounts: FloatArray
    slacks: FloatArray
    potentials: FloatArray
    prices: FloatArray


def solve(
    problem: Problem,
    potentials: FloatArray,
    prices: FloatArray,
    *,
    relative_gap: float = 0.0,
    gap: float = 0.0,
    dropping: bool = True,
) -> Optimum:
    """Returns an optimal plan and its prices.

    Args:
        problem: What to solve.
        potentials: (s,) prices f of the inputs to start from, within ±ρ.
        prices: (n,) prices g with f_i + g_j ≤ c_ij on all arcs.
        relative_gap: Stop at a gap of this share of the cost, beside `gap`.
        gap: Stop at a gap between plan and prices of so much.
        dropping: Whether arcs that cannot matter may be dropped: where most do, a
            plan on the others is far from one on all.

    Raises:
        SolverError: If the method does not get there.

    Source:
        S. Mehrotra, On the implementation of a primal-dual interior point method,
        SIAM Journal on Optimization 2 (1992).
    """
    # What leaves the floats ends in no factor, or in no end.
    with np.errstate(all="ignore"):
        return _solve(problem, potentials, prices, relative_gap, gap, dropping)


def _solve(
    problem: Problem,
    potentials: FloatArray,
    prices: FloatArray,
    relative_gap: float,
    gap: float,
    dropping: bool,
) -> Optimum:
    point, worth = _start(problem, potentials, prices), _WORTH_DROPPING
    arcs = np.arange(problem.cost.size)
    for count in range(_MOST_STEPS):
        residuals = _residuals(problem, point)
        products = point.amounts * point.slacks
        found, value = float(products.sum()), _value(problem, point)
        missing = np.abs(residuals.rows).sum() + np.abs(residuals.columns).sum()
        target = gap + relative_gap * abs(value)
        if found <= target and missing <= max(target, _ROUNDING):
            used, size = problem.cost.size, 2 * problem.supply.size
            return Optimum(
                arcs,
                point.amounts[:used],
                point.potentials,
                point.prices,
                float(point.amounts[-size:].sum()),
                count,
            )
        point = _step(problem, point, residuals, products, found, value)
        if dropping and found < worth * abs(value):
            worth = _AGAIN * found / abs(value)
            near = _near(problem, point)
            if near.size < problem.cost.size:
                point = _without(problem, point, near)
                problem, arcs = problem.kept(near), arcs[near]
    raise linear_program.SolverError("The interior point method did not end.")


def _start(problem: Problem, potentials: FloatArray, prices: FloatArray) -> _Point:
    """Returns a point at which inputs are emptied, somewhere between all bounds."""
    lower, width = problem.polytope.lower, problem.polytope.upper
    width = width - lower
    supply, size = problem.supply, float(np.abs(problem.supply).sum())
    below = prices - problem.slack
    slacks = problem.cost - problem.pairs(potentials, below)
    # Inputs go to all outputs, and to near ones most.
    weights = 1 / slacks**2
    given = np.abs(supply) + 1e-3 * size / supply.size
    totals = np.maximum(problem.sums(weights)[0], _TINY)
    moved = weights * (given / totals)[problem.inputs]
    rows, columns = problem.sums(moved)
    above = np.clip(columns - lower, _INSIDE * width, (1 - _INSIDE) * width)
    # Prices far from zero say which bound an output is at.
    high = np.maximum(-below, 0.0) + problem.slack
    above = np.where(np.abs(below) > 1, width * high / (below + 2 * high), above)
    lacking = supply - rows
    least = problem.slack * size / (moved.size * problem.penalty)
    return _Point(
        np.concatenate(
            [
                moved,
                above,
                width - above,
                np.maximum(lacking, 0.0) + least,
                np.maximum(-lacking, 0.0) + least,
            ]
        ),
        np.concatenate(
            [
                slacks,
                below + high,
                high,
                problem.penalty - potentials,
                problem.penalty + potentials,
            ]
        ),
        potentials,
        below,
    )


def _near(problem: Problem, point: _Point) -> IndexArray:
    """Returns the arcs that plans may still need, in order."""
    used = problem.cost.size
    ends = problem.supply.size + problem.polytope.lower.size
    count = (_KEPT if problem.is_whole else _LEAST_KEPT) * ends
    if count > _FEWER * used:
        return np.arange(used)
    far = point.slacks[:used] / point.amounts[:used]
    limit = float(np.partition(far, count)[count])
    return np.flatnonzero(far <= limit)


def _without(problem: Problem, point: _Point, near: IndexArray) -> _Point:
    """Returns the point on some arcs, which take over what inputs moved on others."""
    used = problem.cost.size
    before, _ = problem.sums(point.amounts[:used])
    after, _ = problem.kept(near).sums(point.amounts[near])
    larger = (before / np.maximum(after, _TINY))[problem.inputs[near]]
    moved = point.amounts[near] * np.where(larger < _MOST_LARGER, larger, 1.0)
    return _Point(
        np.concatenate([moved, point.amounts[used:]]),
        np.concatenate([point.slacks[near], point.slacks[used:]]),
        point.potentials,
        point.prices,
    )


@dataclasses.dataclass(frozen=True)
class _Residuals:
    """By how much the three kinds of equations are missed: (s,), (n,) and (n,)."""

    rows: FloatArray
    columns: FloatArray
    widths: FloatArray


def _parts(problem: Problem, values: FloatArray) -> tuple[FloatArray, ...]:
    """Returns values of arcs, a, b, p and m."""
    used, outputs = problem.cost.size, problem.polytope.lower.size
    most, lack = used + outputs, used + 2 * outputs
    spare = lack + problem.supply.size
    return (
        values[:used],
        values[used:most],
        values[most:lack],
        values[lack:spare],
        values[spare:],
    )


def _residuals(problem: Problem, point: _Point) -> _Residuals:
    moved, above, below, lacking, spare = _parts(problem, point.amounts)
    rows, columns = problem.sums(moved)
    lower, upper = problem.polytope.lower, problem.polytope.upper
    return _Residuals(
        problem.supply - rows - lacking + spare,
        lower + above - columns,
        upper - lower - above - below,
    )


def _value(problem: Problem, point: _Point) -> float:
    used, unmoved = problem.cost.size, 2 * problem.supply.size
    left = problem.penalty * float(point.amounts[-unmoved:].sum())
    return float(problem.cost @ point.amounts[:used]) + left


def _step(
    problem: Problem,
    point: _Point,
    residuals: _Residuals,
    products: FloatArray,
    gap: float,
    value: float,
) -> _Point:
    """Returns the point after one step of predictor and corrector.

    With u what prices take from the slacks w, amounts z change by h + z u / w.
    """
    amounts, slacks = point.amounts, point.slacks
    equations = _Equations.at(problem, point, residuals)
    shares = equations.predict() / slacks
    moved = 1 / max(1.0, 1 - float(shares.min()))
    priced = 1 / max(1.0, float(shares.max()))
    weighted = products * shares
    first, second = float(weighted.sum()), float(weighted @ shares)
    left = gap + moved * (first - gap) - priced * (first + moved * (second - first))
    target = max(left / gap, 0.0) ** 3 * gap / amounts.size
    aims = target / slacks + amounts * (shares * (shares - 1) - 1)
    taken, potentials, prices = equations.correct(aims)
    change = aims + equations.ratios * taken
    reach = min(max(_SHORTEST, 1 - gap / max(abs(value), _TINY)), _LONGEST)
    moved = min(1.0, reach / max(_TINY, -float((change / amounts).min())))
    priced = min(1.0, reach / max(_TINY, float((taken / slacks).max())))
    return _Point(
        amounts + moved * change,
        slacks - priced * taken,
        point.potentials + priced * potentials,
        point.prices + priced * prices,
    )


@dataclasses.dataclass(frozen=True)
class _Equations:
    """Newton's equations at a point, reduced to the inputs and factorised.

    Attributes:
        problem: What is solved.
        residuals: What is still missed.
        ratios: z / w.
        factor: (s, s) Cholesky factor.
        diagonal: (n,) what outputs were divided by.
    """

    problem: Problem
    residuals: _Residuals
    ratios: FloatArray
    factor: FloatArray
    diagonal: FloatArray

    @classmethod
    def at(cls, problem: Problem, point: _Point, residuals: _Residuals) -> "_Equations":
        """Raises SolverError where rounding leaves no factor."""
        ratios = point.amounts / point.slacks
        arcs, above, below, lacking, spare = _parts(problem, ratios)
        rows, columns = problem.sums(arcs)
        diagonal = columns + above * below / (above + below)
        matrix = -problem.curvature(arcs, diagonal)
        places = np.arange(rows.size)
        matrix[places, places] += rows + lacking + spare
        own = matrix[places, places]
        for raised in _RAISED:
            matrix[places, places] = (1 + raised) * own
            factor, failed = lapack.dpotrf(matrix.T, lower=1)
            if not failed:
                return cls(problem, residuals, ratios, factor, diagonal)
        raise linear_program.SolverError("The equations are singular.")

    def predict(self) -> FloatArray:
        """Returns the u that would close the gap: where h is −z."""
        lower, upper = self.problem.polytope.lower, self.problem.polytope.upper
        _, above, below, _, _ = _parts(self.problem, self.ratios)
        width = upper - lower
        columns = lower + above / (above + below) * width
        return self._solve(self.problem.supply, columns, -width)[0]

    def correct(self, aims: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Returns u, and the changes of f and g, where amounts change by h + z u / w.

        Args:
            aims: (arcs + 2n + 2s,) the h.
        """
        _, above, below, _, _ = _parts(self.problem, self.ratios)
        aim, aim_above, aim_below, aim_lacking, aim_spare = _parts(self.problem, aims)
        rows, columns = self.problem.sums(aim)
        too_wide = aim_above + aim_below - self.residuals.widths
        left = self.residuals.rows - rows - aim_lacking + aim_spare
        right = self.residuals.columns - columns + aim_above
        return self._solve(left, right - above / (above + below) * too_wide, too_wide)

    def _solve(
        self, left: FloatArray, right: FloatArray, too_wide: FloatArray
    ) -> tuple[FloatArray, FloatArray, FloatArray]:
        problem = self.problem
        arcs, above, below, _, _ = _parts(problem, self.ratios)
        passed = problem.to_inputs(arcs, right / self.diagonal)
        potentials, _ = lapack.dpotrs(self.factor, left - passed, lower=1)
        back = problem.to_outputs(arcs, potentials)
        prices = (right - back) / self.diagonal
        high = (too_wide - above * prices) / (above + below)
        ends = problem.pairs(potentials, prices)
        taken = np.concatenate([ends, -prices - high, -high, potentials, -potentials])
        return taken, potentials, prices
