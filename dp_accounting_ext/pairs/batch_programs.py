"""Concave programs: the worst case of two laws over batches, at one κ.

The program is that of `batch_laws`,

    max Σ a_i u_i − Σ b_j u_j    with u_i ≤ f_d(u_j) for d = d_ij and all i, j,

where a_i = c_i and b_j = −c_j. A barrier method solves it in floats, for many κ at
once. What is used is `certified`: a closed form that is a bound for any λ and ρ.
"""

from typing import NamedTuple

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import BoolArray
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.pairs import trade_off_curves

# The largest threshold at which profiles are asked for.
_LARGEST = 1 / floats.SMALLEST_MASS

# Tuning, all of these constants.
# Values of u at which placements are searched for a start.
_LEVELS = special.ndtr(np.linspace(-36.0, 6.0, 85))
# The smallest and the largest u.
_LEAST, _MOST = 1e-285, 1 - 1e-9
# The classes around which placements are searched.
_HUBS = 12
# The gap of the program, as a share of its value; the steps of the barrier, and by how
# much it shrinks.
_GAP, _STEPS, _SHRINK = 1e-7, 150, 0.1
# What is lost to rounding in a value, as a share of its positive part.
_ROUNDED = 4e-15
# The most halvings of a step.
_HALVINGS = 16
# Newton's method has converged if the decrement is below a share of the barrier: as far
# as is needed before the barrier shrinks, and at the end. Above the third one the
# barrier begins with too small a size.
_CLOSE, _CONVERGED, _FAR = 0.2, 1e-4, 1e4
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
    """Returns (k, n) u_j of good placements, and (k,) their values, or 0.

    In a placement all u_j are equal, or a class i is as near to all as it can be. A
    value that is a difference without digits is 0.
    """
    m, n = distances.shape
    hubs = np.argsort(-a.sum(axis=0), kind="stable")[:_HUBS]
    levels = _LEVELS[:, np.newaxis]
    levels = np.concatenate(
        [np.broadcast_to(levels, (_LEVELS.size, n))]
        + [curves.moved(levels, -distances[hub]) for hub in hubs]
    )
    levels = np.clip(levels, _LEAST, _MOST)
    few = np.array_split(levels, 1 + levels.size * m // BLOCK)
    above = np.concatenate(
        [curves.moved(part[:, np.newaxis], distances).min(axis=2) for part in few]
    )
    gained = a @ above.T
    values = gained - b @ levels.T
    best = values.argmax(axis=1)
    rows = np.arange(best.size)
    found = values[rows, best]
    found = np.where(found > ZERO * gained[rows, best], found, 0.0)
    return levels[best].copy(), found


class _Barrier:
    """The program with all but one of its constraints in a barrier of size μ.

    Given u_j, the best u_i are found exactly. So the barrier is a function of u_j. It
    is what Newton's method maximizes.
    """

    def __init__(
        self,
        a: FloatArray,
        b: FloatArray,
        distances: FloatArray,
        curves: trade_off_curves.Curves,
        lines: trade_off_curves.Lines | None,
    ) -> None:
        self.a, self.b, self.distances = a, b, distances
        self.curves, self.lines = curves, lines

    def of(self, chosen: BoolArray) -> "_Barrier":
        """Returns the barrier of the chosen ones of k programs."""
        lines = self.lines
        if lines is not None and len(lines.slopes) > 1:
            lines = trade_off_curves.Lines(lines.slopes[chosen], lines.values[chosen])
        a, b = self.a[chosen], self.b[chosen]
        return _Barrier(a, b, self.distances, self.curves, lines)

    def at(self, levels: FloatArray, mu: FloatArray) -> "_Point":
        """Returns the barrier at (k, n) u_j, for (k,) μ."""
        values, slopes, bends = self.curves.tangents(
            levels[:, np.newaxis], self.distances, self.lines
        )
        least = values.min(axis=(2, 3))
        beyond = values - least[..., np.newaxis, np.newaxis]
        # The sum of 1 / slack is a_i / μ. Its inverse is concave in the least slack.
        wanted = mu[:, np.newaxis] / self.a
        slack = wanted
        for _ in range(5):
            inverse = 1 / (beyond + slack[..., np.newaxis, np.newaxis])
            total = inverse.sum(axis=(2, 3))
            slack = slack + (wanted * total - 1) * total / (inverse**2).sum(axis=(2, 3))
        slacks = beyond + slack[..., np.newaxis, np.newaxis]
        plain = (self.a * (least - slack)).sum(axis=1) - (self.b * levels).sum(axis=1)
        logs = np.log(slacks).sum(axis=(1, 2, 3))
        logs += np.log(levels * (1 - levels)).sum(axis=1)
        return _Point(levels, least, slacks, slopes, bends, plain, plain + mu * logs)


class _Point(NamedTuple):
    levels: FloatArray
    above: FloatArray
    slacks: FloatArray
    slopes: FloatArray
    bends: FloatArray
    plain: FloatArray
    value: FloatArray

    def duals(self, mu: FloatArray) -> FloatArray:
        """Returns (k, m, n, l) multipliers of the constraints."""
        return mu[:, np.newaxis, np.newaxis, np.newaxis] / self.slacks

    def of(self, chosen: BoolArray) -> "_Point":
        """Returns the chosen ones of k programs."""
        return _Point(*(each[chosen] for each in self))

    def where(self, other: "_Point", chosen: BoolArray) -> "_Point":
        """Returns the other point for the chosen ones of k programs."""

        def of(mine: FloatArray, its: FloatArray) -> FloatArray:
            axes = (chosen.size,) + (1,) * (mine.ndim - 1)
            return np.where(chosen.reshape(axes), its, mine)

        return _Point(*map(of, self, other))


def solved(
    a: FloatArray, b: FloatArray, distances: FloatArray, curves: trade_off_curves.Curves
) -> Solved:
    """Solves k programs with the same classes on either side.

    Args:
        a: (k, m) weights c_i ≥ 0.
        b: (k, n) weights −c_j ≥ 0.
        distances: (m, n) distances.
        curves: What is known by distance.
    """
    size = max(1, BLOCK // (distances.size * (2 * trade_off_curves.MOST_LINES)))
    blocks = [slice(at, at + size) for at in range(0, len(a), size)]
    a, b = (np.maximum(each, floats.SMALLEST_MASS) for each in (a, b))
    # Points of a line search may be anywhere.
    with np.errstate(all="ignore"):
        parts = [_at_once(a[k], b[k], distances, curves) for k in blocks]
    return Solved(*map(np.concatenate, zip(*parts, strict=True)))


def _at_once(
    a: FloatArray, b: FloatArray, distances: FloatArray, curves: trade_off_curves.Curves
) -> Solved:
    levels, values = start(a, b, distances, curves)
    lines = curves.lines(distances, None)
    found = _path(a, b, distances, curves, lines, levels, values)
    if lines is None or lines.slopes.shape[3] <= trade_off_curves.MOST_LINES:
        return found
    ratios = b[:, np.newaxis] * found.costs / (a[..., np.newaxis] * found.gains)
    lines = curves.lines(distances, np.clip(ratios, 1e-30, 1e30))
    return _path(a, b, distances, curves, lines, levels, values)


def _path(
    a: FloatArray,
    b: FloatArray,
    distances: FloatArray,
    curves: trade_off_curves.Curves,
    lines: trade_off_curves.Lines | None,
    levels: FloatArray,
    values: FloatArray,
) -> Solved:
    """Follows the maximum of the barrier, as it shrinks, from good u_j on."""
    m, n = distances.shape
    # Where nothing is better than no output at all, any scale will do.
    is_zero = values == 0
    scale = np.where(is_zero, a.sum(axis=1), values)
    enough = np.where(is_zero, _GAP * scale, 0.0)
    levels = np.minimum(levels + scale[:, np.newaxis] / n / b, 0.5 + levels / 2)
    number = 2 * n + m * n * (1 if lines is None else lines.slopes.shape[3])
    mu = scale / number
    gains, costs = np.empty((2, len(a), m, n))
    barrier = _Barrier(a, b, distances, curves, lines)
    point = barrier.at(levels, mu)
    left, length = np.arange(len(a)), np.ones(len(a))
    for step in range(_STEPS):
        change, decrement = _newton(barrier, point, mu)
        # Where a step was short, the next one is likely to be.
        length = np.minimum(4 * length, 1.0)
        point, length = _better(barrier, point, mu, change, decrement, length)
        lost = _ROUNDED * (barrier.a * np.abs(point.above)).sum(axis=1)
        least = np.maximum(_GAP * point.plain, np.maximum(lost, enough[left]))
        is_small = number * mu <= least
        ended = (length == 0) | (is_small & (decrement <= _CONVERGED * mu))
        ended |= step == _STEPS - 1
        if ended.any():
            duals = point.duals(mu)
            rows = left[ended]
            gains[rows] = duals.sum(axis=3)[ended]
            costs[rows] = (duals * point.slopes).sum(axis=3)[ended]
            levels[rows] = point.levels[ended]
            if ended.all():
                break
            left, mu, decrement = left[~ended], mu[~ended], decrement[~ended]
            length = length[~ended]
            barrier, point = barrier.of(~ended), point.of(~ended)
            is_small = is_small[~ended]
        nearer = (decrement <= _CLOSE * mu) & ~is_small
        # The value may be many times that of the placement at the start.
        further = (decrement >= _FAR * mu) & (step < _STEPS // 4)
        if (nearer | further).any():
            mu = np.where(nearer, _SHRINK * mu, np.where(further, mu / _SHRINK, mu))
            point = barrier.at(point.levels, mu)
    return Solved(~is_zero, *normalized(gains, costs), levels)


def normalized(gains: FloatArray, costs: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Returns (k, m, n) gains with rows, and costs with columns, that sum to one.

    Where a sum is zero or no number, as floats do not suffice, equal shares are taken,
    which are as valid.
    """
    shares = []
    for given, axis in ((gains, 2), (costs, 1)):
        total = given.sum(axis=axis, keepdims=True)
        with np.errstate(all="ignore"):
            share = given / total
        is_number = np.isfinite(share).all(axis=axis, keepdims=True)
        shares.append(np.where(is_number, share, 1 / max(given.shape[axis], 1)))
    return shares[0], shares[1]


def _newton(
    barrier: _Barrier, point: _Point, mu: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns (k, n) Newton steps, over u_j, and (k,) decrements."""
    u, duals = point.levels, point.duals(mu)
    sharp = duals / point.slacks
    tilted = sharp * point.slopes
    cross = tilted.sum(axis=3) * u[:, np.newaxis]
    own = (tilted * point.slopes - duals * point.bends).sum(axis=(1, 3))
    size = mu[:, np.newaxis]
    own += size / u**2 + size / (1 - u) ** 2
    slope = (duals * point.slopes).sum(axis=(1, 3)) - barrier.b
    slope += size / u - size / (1 - u)
    weights = sharp.sum(axis=(2, 3))
    shared = cross / weights[..., np.newaxis]
    matrix = -np.matmul(shared.transpose(0, 2, 1), cross)
    places = np.arange(u.shape[1])
    # No matrix is singular, even where squares underflow.
    matrix[:, places, places] += own * u * u * (1 + 1e-13) + floats.SMALLEST_MASS
    gradient = slope * u
    step = np.linalg.solve(matrix, gradient[..., np.newaxis])[..., 0]
    return step, (gradient * step).sum(axis=1)


def _better(
    barrier: _Barrier,
    point: _Point,
    mu: FloatArray,
    change: FloatArray,
    decrement: FloatArray,
    length: FloatArray,
) -> tuple[_Point, FloatArray]:
    """Returns the points of a line search, and lengths of steps, 0 if none is good."""
    u = point.levels
    # No u may reach 0 or 1.
    length = np.minimum(length, 0.9 / np.maximum(-change.min(axis=1), 0.9))
    upwards = (change * u / (1 - u)).max(axis=1)
    length = np.minimum(length, 0.9 / np.maximum(upwards, 0.9))
    found = point
    good = np.zeros(len(u), dtype=np.bool_)
    for _ in range(_HALVINGS):
        moved = barrier.at(u * (1 + length[:, np.newaxis] * change), mu)
        wanted = 0.1 * length * decrement - 1e-13 * np.abs(point.value)
        better = (moved.value >= point.value + wanted) | (decrement <= _CONVERGED * mu)
        found = found.where(moved, better & ~good)
        good |= better
        if good.all():
            break
        length = np.where(good, length, length / 2)
    return found, np.where(good, length, 0.0)


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
        curves: What is known by distance.
        gains: (k, m, n) shares of c_i, which sum to one but for rounding.
        costs: (k, m, n) shares of −c_j, which sum to one but for rounding.
    """
    rounding = 4 * (sum(distances.shape) + 8) * floats.UNIT_ROUNDOFF
    most = a[..., np.newaxis] * gains * (1 + rounding) + floats.SMALLEST_MASS
    least = b[:, np.newaxis] * costs * (1 - rounding)
    # A smaller threshold has a larger profile.
    with np.errstate(over="ignore"):
        thresholds = np.minimum(least / most, _LARGEST)
    terms = most * curves.profile(distances, thresholds)
    rise = 1 + 2 * (distances.size + 8) * floats.UNIT_ROUNDOFF
    bounds: FloatArray = terms.sum(axis=(1, 2)) * rise
    return bounds
