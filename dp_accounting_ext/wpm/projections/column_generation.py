"""The exact projection of a user, by column generation.

An arc is a variable of the transport program: the mass moved from an input to an
output. The first linear program has only the arcs between near inputs and outputs, and
those of one feasible plan. Each round adds arcs of negative reduced cost at the dual
prices. The search ends once the lower bound that the prices prove is close enough.
"""

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import transport_program

# Tuning: the number of first arcs of each input and output, the number that a round may
# add for each, and the number of rounds. The result is certified after any number.
_EACH, _ADDED, _MOST_ROUNDS = 6, 3, 60
ROUNDING = 1e-14


def solve(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
    guess: FloatArray | float = 0.0,
) -> ldp_polytope.Solution:
    """Returns the exact projection of one user.

    Args:
        masses: (s,) positive masses.
        cost: (s, n) costs.
        polytope: The allowed distributions, whose upper bounds are positive.
        relative_gap: The largest allowed gap between the cost of the plan and the lower
            bound by the prices, as a share of the cost.
        guess: (s,) approximate prices of the inputs, which select the first arcs.

    Returns:
        A solution. If the limit of rounds is reached, it is feasible and its prices
        prove a lower bound that is further away.

    Raises:
        SolverError: If the solver fails.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I; the demand edges are variables
        with bounds.
    """
    arcs = _first_arcs(masses, cost - np.reshape(guess, (-1, 1)), polytope)
    rounding = ROUNDING * float(cost.max())
    best_bound, best_prices = -np.inf, np.zeros(polytope.upper.size)
    rounds, alone = 0, False
    while rounds < _MOST_ROUNDS:
        rounds += 1
        plan = transport_program.solve(arcs, masses, cost, polytope)
        bound = ldp_polytope.lower_bound(masses, plan.prices, cost, polytope)
        if bound > best_bound:
            best_bound, best_prices = bound, plan.prices
        if plan.value - best_bound <= relative_gap * plan.value + rounding:
            break
        reduced = cost - plan.potentials[:, np.newaxis] - plan.prices
        grown = np.union1d(arcs, _wanted(reduced.ravel(), _ADDED * sum(cost.shape)))
        if grown.size > arcs.size:
            arcs = grown
        elif alone:
            break
        else:  # Solve the arcs in use alone, to more digits.
            arcs, alone = arcs[plan.amounts > 0], True
    law = ldp_polytope.nearest(plan.held, polytope)
    return ldp_polytope.Solution(law, best_prices, plan.value, rounds)


def _wanted(reduced: FloatArray, most: int) -> IndexArray:
    """Returns arcs whose reduced cost is below the absolute value of the least one."""
    found = np.flatnonzero(reduced < -float(reduced.min()))
    if found.size <= most:
        return found
    return np.asarray(found[np.argpartition(reduced[found], most)[:most]])


def _first_arcs(
    masses: FloatArray, reduced: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> IndexArray:
    """Returns arcs i·n + j between near places, and those of a feasible plan."""
    every = np.arange(reduced.size).reshape(reduced.shape)
    middle = ldp_polytope.nearest(
        np.full(reduced.shape[1], 1 / reduced.shape[1]), polytope
    )
    near = [
        np.take_along_axis(every, _least(reduced, axis), axis).ravel()
        for axis in (0, 1)
    ]
    return np.unique(np.concatenate([*near, _corner_arcs(masses, middle)]))


def _least(table: FloatArray, axis: int) -> IndexArray:
    """Returns the indices of the few least numbers along an axis."""
    last = min(_EACH, np.size(table, axis)) - 1
    return np.take(np.argpartition(table, last, axis), np.arange(last + 1), axis)


def _corner_arcs(masses: FloatArray, demands: FloatArray) -> IndexArray:
    """Returns the arcs of the north-west corner plan, a feasible plan."""
    left, right = np.cumsum(masses), np.cumsum(demands)
    starts = np.sort(np.concatenate([[0.0], left[:-1], right[:-1]]))
    inputs = np.minimum(np.searchsorted(left, starts, side="right"), left.size - 1)
    outputs = np.minimum(np.searchsorted(right, starts, side="right"), right.size - 1)
    # Rounding at a tie may skip an arc, which its neighbors replace.
    inputs = np.concatenate([inputs, inputs[1:]])
    outputs = np.concatenate([outputs, outputs[:-1]])
    return np.asarray(inputs * demands.size + outputs)
