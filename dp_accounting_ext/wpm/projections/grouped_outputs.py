"""The exact projection onto many outputs, by groups of outputs that are alike.

The dual prices f of the inputs determine a solution. Output j receives its mass from
the input with the least C_ij − f_i. It holds its least mass if this number is positive,
and its most mass if it is negative. The dual objective is concave in f, and is computed
for all outputs in one pass.

Each linear program is for groups of outputs, with their mean costs. Its plan, divided
among the members of the groups in proportion to their bounds, is a plan for all
outputs. So it gives an upper bound on the cost, and its prices a lower bound. The
search ends when the bounds meet. Otherwise outputs are grouped anew by the prices:
outputs that a small change of prices would give to another input or bound are groups of
one, and the others are grouped with those that would change in the same way.
"""

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm.projections import column_generation
from dp_accounting_ext.wpm.projections import ldp_polytope

# All of these are tuning, as the prices of a solution prove its lower bound. They are
# the least number of outputs that form groups of one; the number of groups in the first
# program, for each input; the gap to which a program is solved, as a share of the gap
# that remains; the number of outputs in a block, which fits a processor's cache; and
# the largest number of times that a width is doubled to group outputs.
_ALONE, _FIRST_GROUPS = 500, 4
_SHARE_OF_GAP = 0.05
_BLOCK = 1 << 11
_DOUBLINGS = 64


def solve(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
) -> ldp_polytope.Solution:
    """Returns the exact projection of one user.

    Args:
        masses: (s,) positive masses.
        cost: (s, n) costs. Outputs that are near should be adjacent, for speed.
        polytope: The allowed distributions. Their upper bounds are positive, and the
            smaller of one and a common multiple of the lower bounds.
        relative_gap: The largest allowed gap between the cost of the plan and the lower
            bound by the prices, as a share of the cost.

    Returns:
        A solution. If no group can be divided further, it is feasible and its prices
        prove a lower bound that may be further away.

    Raises:
        SolverError: If a linear program fails.
    """
    size, alone = cost.shape[1], _ALONE
    rounding = column_generation.ROUNDING * (float(cost.max()) or 1.0)
    # All outputs of a group have bounds in the same proportion.
    capped = np.where(polytope.upper < 1, 0.0, polytope.lower)
    unlike = np.unique(capped, return_inverse=True)[1] * (2 * size)
    first = min(max(_FIRST_GROUPS * masses.size, alone), size)
    numbers = np.arange(size) * first // size
    best, bound, left, guess = np.inf, -np.inf, 1.0, np.zeros(masses.size)
    rounds = 0
    while True:
        rounds += 1
        groups = np.unique(unlike + numbers, return_inverse=True)[1]
        means, inner = _means(cost, polytope, groups)
        is_whole = inner.upper.size == size
        gap = relative_gap if is_whole else max(relative_gap / 2, _SHARE_OF_GAP * left)
        found = column_generation.solve(masses, means, inner, gap, guess)
        if found.value < best:
            shares = polytope.upper / inner.upper[groups]
            best, law = found.value, found.distribution[groups] * shares
        guess = (means - found.prices).min(axis=1)
        owner, second, least, margin = _least_two(cost, guess)
        cheapest = ldp_polytope.cheapest(least, polytope)
        proven = float(masses @ guess + least @ cheapest)
        if proven > bound:
            bound, prices = proven, least
        if is_whole or best - bound <= relative_gap * best + rounding:
            break
        before, left = left, (best - bound) / best
        if left > before / 4:
            alone *= 2
        above = least - ldp_polytope.level(least, cheapest, polytope)
        # The smallest change of prices for which an output changes its input or bound.
        nearness = np.minimum(margin, np.abs(above))
        nearest = np.argsort(nearness, kind="stable")[:alone]
        width = max(float(nearness[nearest[-1]]), rounding)
        numbers = (owner * masses.size + second) * _DOUBLINGS + _steps(margin, width)
        numbers = (2 * numbers + (above > 0)) * _DOUBLINGS + _steps(above, width)
        numbers = np.unique(numbers, return_inverse=True)[1]
        numbers[nearest] = size + np.arange(nearest.size)
    law = ldp_polytope.nearest(law, polytope)
    return ldp_polytope.Solution(law, prices, best, rounds)


def _means(
    cost: FloatArray, polytope: ldp_polytope.LdpPolytope, groups: IndexArray
) -> tuple[FloatArray, ldp_polytope.LdpPolytope]:
    """Returns the (s, g) mean costs of groups of outputs, and the sums of bounds."""
    order = np.argsort(groups, kind="stable")
    starts = np.flatnonzero(np.diff(groups[order], prepend=-1))
    weights = polytope.upper[order]
    lower = np.add.reduceat(polytope.lower[order], starts)
    upper = np.add.reduceat(weights, starts)
    means = np.empty((len(cost), starts.size))
    for row, found in zip(cost, means, strict=True):
        np.divide(np.add.reduceat(row[order] * weights, starts), upper, out=found)
    return means, ldp_polytope.LdpPolytope(lower, upper)


def _least_two(
    cost: FloatArray, potentials: FloatArray
) -> tuple[IndexArray, IndexArray, FloatArray, FloatArray]:
    """Returns, for each output, the inputs with the least and second least C_ij − f_i.

    It also returns the least number, and half of the difference of the two.
    """
    size = cost.shape[1]
    owner, second = np.zeros((2, size), dtype=np.intp)
    least, margin = np.empty((2, size))
    for begin in range(0, size, _BLOCK):
        part = slice(begin, begin + _BLOCK)
        reduced = cost[:, part] - potentials[:, np.newaxis]
        every = np.arange(reduced.shape[1])
        owner[part] = reduced.argmin(axis=0)
        least[part] = reduced[owner[part], every]
        reduced[owner[part], every] = np.inf
        second[part] = reduced.argmin(axis=0)
        margin[part] = (reduced[second[part], every] - least[part]) / 2
    return owner, second, least, margin


def _steps(distances: FloatArray, width: float) -> IndexArray:
    """Returns how often a width must be doubled to reach each of some distances."""
    apart = np.clip(np.abs(distances), width, 2.0 ** (_DOUBLINGS - 1) * width)
    return np.ceil(np.log2(apart / width)).astype(np.intp)
