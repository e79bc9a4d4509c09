"""Concave programs: the worst case of two laws over batches, at one κ.

The program is that of `batch_laws`,

    max Σ a_i u_i − Σ b_j u_j    with u_i ≤ f_d(u_j) for d = d_ij and all i, j,

where a_i = c_i and b_j = −c_j. A primal-dual barrier method solves it in floats, for
many κ at once. What is used is `certified`: a closed form that is a bound for any λ, ρ.
"""

from typing import NamedTuple
from typing import TypeVar

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import trade_off_curves

T = TypeVar("T", bound=NamedTuple)

# The largest threshold at which profiles are asked for.
_LARGEST = 1 / floats.SMALLEST_MASS

# Tuning, all of these constants.
# Values of u at which placements are searched for a start.
_LEVELS = special.ndtr(np.linspace(-36.0, 6.0, 85))
# The smallest and the largest u.
_LEAST, _MOST = 1e-285, 1 - 1e-9
# The classes around which placements are searched.
_HUBS = 12
# The gap of the program, as a share of its value, and the most steps of the barrier.
_GAP, _STEPS = 1e-7, 120
# For curves of more lines than are taken at once: the gap of rough solutions, and how
# many of them are solved before the last one.
_ROUGH, _PASSES = 0.1, 3
# The size of the barrier is at least this share of the value, over the number of
# constraints, until its maximum is first found; by how much it shrinks then.
_FIRST, _SHRINK = 0.1, 0.03
# The maximum is found if no error is above so many times the size of the barrier; the
# program is solved if none is above so many times the gap.
_CLOSE, _SOLVED = 10.0, 10.0
# What is lost to rounding in a value, as a share of its positive part.
_ROUNDED = 4e-15
# The size of the barrier at the end, times the number of constraints, as a share of
# the gap.
_END = 0.3
_WITHIN = 0.99  # The share of the way to its end that a step may go.
# The most halvings of a step, and the least length at which the next one begins.
_HALVINGS, _LEAST_LENGTH = 16, 1e-3
_SHORT = 0.1  # After a shorter step multipliers are those of the barrier again.
_CONVERGED = 1e-4  # A rise, in sizes of the barrier, that may be rounding.
# The numbers of a block of programs that are solved at once.
BLOCK = 1 << 19
# A difference below this share of what it is the difference of is zero.
ZERO = 1e-13


class Solved(NamedTuple):
    """What is known of programs for k values of κ that have the same classes on a side.

    Attributes:
        has_digits: (k,) whether a placement was found whose value is positive.
        gains: (k, m, n) shares of c_i for i in I, which sum to one in each row.
        costs: (k, m, n) shares of −c_j for j in J, which sum to one in each column.
        below: (k, n) u_j.
    """

    has_digits: BoolArray
    gains: FloatArray
    costs: FloatArray
    below: FloatArray


def start(
    a: FloatArray, b: FloatArray, distances: FloatArray, curves: trade_off_curves.Curves
) -> tuple[FloatArray, FloatArray]:
    """Returns the best of many placements, for each of k programs.

    In some of them all u_j are equal. In the others, each u_j is the smallest for which
    u_i has a given value, for one class i: f_d(u_j) = u_i with d = d_ij. The classes i
    are those with the largest sums of weights.

    Args:
        a: (k, m) weights c_i.
        b: (k, n) weights −c_j.
        distances: (m, n) distances.
        curves: The trade-off curves by distance.

    Returns:
        (k, n) u_j, and the (k,) values of the programs. A value that is not positive,
        or is rounding alone, is returned as 0.
    """
    m, n = distances.shape
    hubs = np.argsort(-a.sum(axis=0), kind="stable")[:_HUBS]
    levels = _LEVELS[:, np.newaxis]
    levels = np.concatenate(
        [np.broadcast_to(levels, (_LEVELS.size, n))]
        + [curves.moved(levels, -distances[hub]) for hub in hubs]
    )
    levels = np.clip(levels, _LEAST, _MOST)
    blocks = np.array_split(levels, 1 + levels.size * m // BLOCK)
    above = np.concatenate([curves.allowed(block, distances) for block in blocks])
    gained = a @ above.T
    values = gained - b @ levels.T
    best = values.argmax(axis=1)
    rows = np.arange(best.size)
    best_values = values[rows, best]
    best_values = np.where(best_values > ZERO * gained[rows, best], best_values, 0.0)
    return levels[best].copy(), best_values


class _Barrier:
    """The program with all but one of its constraints in a barrier of size μ.

    Given u_j, the best u_i are found exactly. So the barrier is a function of u_j. It
    is what is maximized, by steps that its multipliers bend, too: these are followed on
    their own, as in any primal-dual method.
    """

    def __init__(
        self,
        distances: FloatArray,
        curves: trade_off_curves.Curves,
        lines: trade_off_curves.Lines | None,
    ) -> None:
        m, n = distances.shape
        self.distances, self.curves, self.lines = distances, curves, lines
        self.number = 2 * n + m * n * (1 if lines is None else lines.slopes.shape[3])

    def of(self, chosen: BoolArray | IndexArray) -> "_Barrier":
        """Returns the barrier of the chosen ones of k programs."""
        if self.lines is None or len(self.lines.slopes) == 1:
            return self
        return _Barrier(self.distances, self.curves, _chosen(self.lines, chosen))

    def at(self, weights: "_Weights", levels: FloatArray, mu: FloatArray) -> "_Point":
        """Returns the values of the barrier, and its derivatives, at given u_j.

        Args:
            weights: The weights of k programs.
            levels: (k, n) u_j.
            mu: (k,) sizes of the barrier.
        """
        tangents = self.curves.tangents(
            levels[:, np.newaxis], self.distances, self.lines
        )
        return self._of_size(weights, levels, tangents, mu)

    def resized(self, weights: "_Weights", point: "_Point", mu: FloatArray) -> "_Point":
        """Returns the barrier at the same (k, n) u_j, for other (k,) μ."""
        tangents = point.values, point.rises, point.bends
        return self._of_size(weights, point.levels, tangents, mu)

    def _of_size(
        self,
        weights: "_Weights",
        levels: FloatArray,
        tangents: tuple[FloatArray, FloatArray, FloatArray],
        mu: FloatArray,
    ) -> "_Point":
        """Returns the barrier from what `Curves.tangents` returns at the (k, n) u_j."""
        a, b = weights.a, weights.b
        above = tangents[0].min(axis=(2, 3))
        beyond = tangents[0] - above[..., np.newaxis, np.newaxis]
        # At the best u_i the sum of 1 / slack is a_i / μ. Its inverse is concave in the
        # smallest slack, so that Newton's steps increase to the solution.
        goal = mu[:, np.newaxis] / a  # Of the inverse.
        slack = goal
        for _ in range(5):
            inverse = 1 / (beyond + slack[..., np.newaxis, np.newaxis])
            total = inverse.sum(axis=(2, 3))
            slack = slack + (goal * total - 1) * total / (inverse**2).sum(axis=(2, 3))
        slacks = beyond + slack[..., np.newaxis, np.newaxis]
        worth = (a * above).sum(axis=1) - (b * levels).sum(axis=1)
        logs = np.log(slacks).sum(axis=(1, 2, 3))
        logs += np.log(levels * (1 - levels)).sum(axis=1)
        barrier = worth - (a * slack).sum(axis=1) + mu * logs
        return _Point(levels, *tangents, above, slacks, worth, barrier)


class _Weights(NamedTuple):
    """The weights of k programs: (k, m) a_i, and (k, n) b_j."""

    a: FloatArray
    b: FloatArray


class _Point(NamedTuple):
    """The barrier of k programs at (k, n) u_j.

    Attributes:
        levels: (k, n) u_j.
        values: (k, m, n, l) curves at u_j, whose minimum over l is f_d.
        rises: (k, m, n, l) their slopes times u_j.
        bends: (k, m, n, l) their second derivatives times u_j².
        above: (k, m) the largest u_i that these u_j allow.
        slacks: (k, m, n, l) by how much the curves are above the best u_i.
        worth: (k,) value of the program.
        barrier: (k,) value of the barrier.
    """

    levels: FloatArray
    values: FloatArray
    rises: FloatArray
    bends: FloatArray
    above: FloatArray
    slacks: FloatArray
    worth: FloatArray
    barrier: FloatArray


class _Multipliers(NamedTuple):
    """Multipliers λ of u_i ≤ f_d(u_j); and those of 0 ≤ u_j ≤ 1, times their slacks.

    Attributes:
        pairs: (k, m, n, l) λ.
        low: (k, n) those of 0 ≤ u_j, times u_j.
        high: (k, n) those of u_j ≤ 1, times 1 − u_j.
    """

    pairs: FloatArray
    low: FloatArray
    high: FloatArray

    def products(self, point: _Point) -> FloatArray:
        """Returns (k, number of constraints) multipliers times slacks.

        At the maximum of the barrier each of them is μ.
        """
        pairs = (self.pairs * point.slacks).reshape(len(self.low), -1)
        return np.concatenate([pairs, self.low, self.high], axis=1)

    def unbalanced(self, weights: _Weights, point: _Point) -> FloatArray:
        """Returns (k,) by how much no maximum over u_j is reached, as a value."""
        u = point.levels
        slope = (self.pairs * point.rises).sum(axis=(1, 3)) - weights.b * u
        slope += self.low - self.high * u / (1 - u)
        total: FloatArray = np.abs(slope).sum(axis=1)
        return total


def _at_barrier(point: _Point, mu: FloatArray) -> _Multipliers:
    """Returns multipliers whose products with slacks are μ."""
    products = np.repeat(mu[:, np.newaxis], point.levels.shape[1], axis=1)
    return _Multipliers(_outer(mu) / point.slacks, products, products)


def _outer(sizes: FloatArray) -> FloatArray:
    """Returns (k, 1, 1, 1) sizes."""
    return sizes[:, np.newaxis, np.newaxis, np.newaxis]


def _chosen(arrays: T, chosen: BoolArray | IndexArray) -> T:
    """Returns the chosen rows of arrays."""
    return arrays._make(array[chosen] for array in arrays)


def _where(chosen: BoolArray, arrays: T, others: T) -> T:
    """Returns the chosen rows of arrays, and rows of others elsewhere."""

    def of(one: FloatArray, other: FloatArray) -> FloatArray:
        axes = (chosen.size,) + (1,) * (one.ndim - 1)
        return np.where(chosen.reshape(axes), one, other)

    return arrays._make(map(of, arrays, others))


def solved(
    a: FloatArray, b: FloatArray, distances: FloatArray, curves: trade_off_curves.Curves
) -> Solved:
    """Solves k programs with the same classes on either side.

    Args:
        a: (k, m) weights c_i ≥ 0.
        b: (k, n) weights −c_j ≥ 0.
        distances: (m, n) distances.
        curves: The trade-off curves by distance.
    """
    size = max(1, BLOCK // (distances.size * (2 * trade_off_curves.MOST_LINES)))
    blocks = [slice(at, at + size) for at in range(0, len(a), size)]
    a, b = (np.maximum(weights, floats.SMALLEST_MASS) for weights in (a, b))
    # Points of a line search may be anywhere.
    with np.errstate(all="ignore"):
        parts = [_at_once(_Weights(a[k], b[k]), distances, curves) for k in blocks]
    solution = Solved(*map(np.concatenate, zip(*parts, strict=True)))
    # Far beyond all losses floats may not suffice for the program. There, λ and ρ in
    # proportion to the weights give the smaller bound.
    gains, costs = np.broadcast_arrays(
        (b / b.sum(axis=1, keepdims=True))[:, np.newaxis],
        (a / a.sum(axis=1, keepdims=True))[..., np.newaxis],
    )
    proportional = solution._replace(gains=gains, costs=costs)
    bounds, proportional_bounds = (
        certified(a, b, distances, curves, shares.gains, shares.costs)
        for shares in (solution, proportional)
    )
    return _where(bounds <= proportional_bounds, solution, proportional)


def _at_once(
    weights: _Weights, distances: FloatArray, curves: trade_off_curves.Curves
) -> Solved:
    """Solves k programs by following the barrier, with all their numbers in memory."""
    levels, values = start(*weights, distances, curves)
    lines = curves.lines(distances, None)
    if lines is None or lines.slopes.shape[3] <= trade_off_curves.MOST_LINES:
        barrier = _Barrier(distances, curves, lines)
        return _path(weights, barrier, levels, values, _GAP)
    # Lines are dense near slopes that a rough solution has, and so on.
    for gap in (*[_ROUGH] * _PASSES, _GAP):
        solution = _path(
            weights, _Barrier(distances, curves, lines), levels, values, gap
        )
        ratios = weights.b[:, np.newaxis] * solution.costs
        ratios /= weights.a[..., np.newaxis] * solution.gains
        lines = curves.lines(distances, np.clip(ratios, 1e-30, 1e30))
    return solution


def _path(
    weights: _Weights,
    barrier: _Barrier,
    levels: FloatArray,
    values: FloatArray,
    gap: float,
) -> Solved:
    """Follows the maximum of the barrier, as it shrinks, from good u_j on."""
    # Where nothing is better than no output at all, any scale will do.
    is_zero = values == 0
    scale = np.where(is_zero, weights.a.sum(axis=1), values)
    enough = np.where(is_zero, ZERO * scale, 0.0)
    k, n = levels.shape
    # The maximum of a large barrier is at larger u_j.
    raised = levels + scale[:, np.newaxis] / n / weights.b
    levels = np.minimum(raised, 0.5 + levels / 2)
    gains, costs = np.empty((2, k, *barrier.distances.shape))
    mu = scale / barrier.number
    point = barrier.at(weights, levels, mu)
    multipliers = _at_barrier(point, mu)
    unsolved, length, last_length = np.arange(k), np.ones(k), np.ones(k)
    is_rising = np.ones(k, dtype=np.bool_)
    for step in range(_STEPS + 1):
        rounding = _ROUNDED * (weights.a * np.abs(point.above)).sum(axis=1)
        allowed = np.maximum(gap * point.worth, np.maximum(rounding, enough[unsolved]))
        products = multipliers.products(point)
        unbalanced = multipliers.unbalanced(weights, point)
        ended = (products.sum(axis=1) <= 2 * allowed) & (
            unbalanced <= _SOLVED * allowed
        )
        ended |= (np.maximum(length, last_length) == 0) | (step == _STEPS)
        if ended.any():
            rows = unsolved[ended]
            gains[rows] = multipliers.pairs.sum(axis=3)[ended]
            costs[rows] = (multipliers.pairs * point.rises).sum(axis=3)[ended]
            levels[rows] = point.levels[ended]
            if ended.all():
                break
            on = ~ended
            barrier, weights = barrier.of(on), _chosen(weights, on)
            point, multipliers = _chosen(point, on), _chosen(multipliers, on)
            unsolved, mu, length = unsolved[on], mu[on], length[on]
            products, unbalanced = products[on], unbalanced[on]
            rounding, allowed, is_rising = rounding[on], allowed[on], is_rising[on]
        error = np.abs(products - mu[:, np.newaxis]).max(axis=1)
        end = _END * allowed / barrier.number
        is_close = (np.maximum(error, unbalanced) <= _CLOSE * mu) & (mu > end)
        is_rising &= ~is_close
        first = np.maximum(mu, _FIRST * point.worth / barrier.number)
        last_mu = mu
        mu = np.where(is_close, np.maximum(_SHRINK * mu, end), mu)
        mu = np.where(is_rising, first, mu)
        if (mu != last_mu).any():
            point = barrier.resized(weights, point, mu)
        is_short = length < _SHORT
        if is_short.any():
            multipliers = _where(is_short, _at_barrier(point, mu), multipliers)
        change, rise, changes = _newton(weights, point, multipliers, mu)
        last_length = length
        moved, length = _better(
            barrier, weights, point, mu, change, rise, rounding, 4 * length
        )
        multipliers = _shifted(multipliers, changes, point, moved)
        point = moved
    return Solved(~is_zero, *normalized(gains, costs), levels)


def _newton(
    weights: _Weights, point: _Point, multipliers: _Multipliers, mu: FloatArray
) -> tuple[FloatArray, FloatArray, _Multipliers]:
    """Returns (k, n) steps over u_j, slopes along them, and steps of multipliers."""
    u, sizes = point.levels, mu[:, np.newaxis]
    odds = u / (1 - u)
    sharp = multipliers.pairs / point.slacks
    tilted = sharp * point.rises
    cross = tilted.sum(axis=3)
    shared = cross / sharp.sum(axis=(2, 3))[..., np.newaxis]
    own = (tilted * point.rises - multipliers.pairs * point.bends).sum(axis=(1, 3))
    own += multipliers.low + multipliers.high * odds**2
    matrix = -np.matmul(shared.transpose(0, 2, 1), cross)
    places = np.arange(u.shape[1])
    # No matrix is singular, even where squares underflow.
    matrix[:, places, places] += own * (1 + 1e-13) + floats.SMALLEST_MASS
    gradient = (_outer(mu) / point.slacks * point.rises).sum(axis=(1, 3))
    gradient += sizes * (1 - odds) - weights.b * u
    change = np.linalg.solve(matrix, gradient[..., np.newaxis])[..., 0]
    above = np.matmul(shared, change[..., np.newaxis])[..., np.newaxis]
    slacks = point.rises * change[:, np.newaxis, :, np.newaxis] - above
    changes = _Multipliers(
        (_outer(mu) - multipliers.pairs * slacks) / point.slacks - multipliers.pairs,
        sizes - multipliers.low * (1 + change),
        sizes - multipliers.high * (1 - odds * change),
    )
    return change, (gradient * change).sum(axis=1), changes


def _shifted(
    multipliers: _Multipliers, changes: _Multipliers, point: _Point, moved: _Point
) -> _Multipliers:
    """Returns multipliers as far along their step as all of them stay positive."""
    falls = [
        (-change / multiplier).reshape(len(multiplier), -1).max(axis=1)
        for change, multiplier in zip(changes, multipliers, strict=True)
    ]
    length = 1 / np.maximum(np.maximum.reduce(falls) / _WITHIN, 1.0)
    lengths = length[:, np.newaxis]
    low = (multipliers.low + lengths * changes.low) * moved.levels / point.levels
    high = multipliers.high + lengths * changes.high
    high *= (1 - moved.levels) / (1 - point.levels)
    pairs = multipliers.pairs + _outer(length) * changes.pairs
    return _Multipliers(pairs, low, high)


def _better(
    barrier: _Barrier,
    weights: _Weights,
    point: _Point,
    mu: FloatArray,
    change: FloatArray,
    rise: FloatArray,
    lost: FloatArray,
    longest: FloatArray,
) -> tuple[_Point, FloatArray]:
    """Returns the points of a line search, and lengths of steps, 0 if none is good."""
    u = point.levels
    # No u may reach 0 or 1.
    falls = np.maximum(-change.min(axis=1), (change * u / (1 - u)).max(axis=1))
    length = np.minimum(1.0, np.maximum(longest, _LEAST_LENGTH))
    length = np.minimum(length, _WITHIN / np.maximum(falls, _WITHIN))
    rounding = 1e-13 * np.abs(point.barrier) + lost
    best = _Point(*(values.copy() for values in point))
    rows = np.arange(mu.size)
    for _ in range(_HALVINGS):
        lengths = length[rows, np.newaxis]
        moved = barrier.of(rows).at(
            _chosen(weights, rows), u[rows] * (1 + lengths * change[rows]), mu[rows]
        )
        goal = point.barrier[rows] + 0.01 * lengths[:, 0] * rise[rows] - rounding[rows]
        is_good = (moved.barrier >= goal) | (rise[rows] <= _CONVERGED * mu[rows])
        for values, new in zip(best, moved, strict=True):
            values[rows[is_good]] = new[is_good]
        rows = rows[~is_good]
        if not rows.size:
            break
        length[rows] /= 2
    length[rows] = 0.0
    return best, length


def normalized(gains: FloatArray, costs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns (k, m, n) gains with rows, and costs with columns, that sum to one.

    Where a sum is zero or no number, as floats do not suffice, equal shares are taken,
    which are as valid.
    """
    shares = []
    for values, axis in ((gains, 2), (costs, 1)):
        total = values.sum(axis=axis, keepdims=True)
        with np.errstate(all="ignore"):
            share = values / total
        is_number = np.isfinite(share).all(axis=axis, keepdims=True)
        shares.append(np.where(is_number, share, 1 / max(values.shape[axis], 1)))
    return shares[0], shares[1]


def certified(
    a: FloatArray,
    b: FloatArray,
    distances: FloatArray,
    curves: trade_off_curves.Curves,
    gains: FloatArray,
    costs: FloatArray,
) -> FloatArray:
    """Returns (k,) upper bounds on k programs: Σ λ h(ρ / λ).

    Args:
        a: (k, m) c_i.
        b: (k, n) −c_j.
        distances: (m, n) distances.
        curves: The trade-off curves by distance.
        gains: (k, m, n) shares of c_i, which sum to one but for rounding.
        costs: (k, m, n) shares of −c_j, which sum to one but for rounding.
    """
    rounding = 4 * (sum(distances.shape) + 8) * floats.UNIT_ROUNDOFF
    lambdas = a[..., np.newaxis] * gains * (1 + rounding) + floats.SMALLEST_MASS
    rhos = b[:, np.newaxis] * costs * (1 - rounding)
    # A smaller threshold has a larger profile.
    with np.errstate(over="ignore"):
        thresholds = np.minimum(rhos / lambdas, _LARGEST)
    terms = lambdas * curves.profile(distances, thresholds)
    rise = 1 + 2 * (distances.size + 8) * floats.UNIT_ROUNDOFF
    bounds: FloatArray = terms.sum(axis=(1, 2)) * rise
    return bounds
