"""The exact projection of a user, by programs that grow by the arcs they lack.

A program knows only arcs between near inputs and outputs, and those of one feasible
plan; its prices name the arcs that it lacks. The lower bound that they prove ends the
search. Small problems have all arcs at once.
"""

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.wpm.projections import duality
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import network_simplex
from dp_accounting_ext.wpm.projections import solution
from dp_accounting_ext.wpm.projections import transport_program

FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.intp]

# Tuning: arcs of each input and output, and multiples of what an output may hold, from
# which on inputs have arcs of their own; columns that tell how near arcs are; pairs
# that POT is given at once. What is best after so many programs is certified too.
_EACH, _LARGE, _SAMPLED, _AT_ONCE = 3, (0, 1, 8, 64), 32, 40_000
_MOST_ROUNDS = 60
_ROUNDING = 1e-14


def solve(
    masses: FloatArray,
    cost: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    relative_gap: float,
) -> solution.Solution:
    """Returns the exact projection of one user.

    Args:
        masses: (s,) positive masses.
        cost: (s, n) costs.
        polytope: The allowed distributions, of positive upper bounds.
        relative_gap: Stop where plan and prices are this share of the cost apart.

    Returns:
        A solution; where the programs were too many, a feasible one with
        prices that bound it from further away.

    Raises:
        SolverError: If the solver fails.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I; the demand edges are variables
        with bounds.
    """
    arcs = _first_arcs(masses, cost, polytope)
    rounding = _ROUNDING * float(cost.max())
    best_bound, best_prices = -np.inf, np.zeros(polytope.upper.size)
    rounds, alone = 0, False
    while rounds < _MOST_ROUNDS:
        rounds += 1
        known = solution.Arcs(*np.divmod(arcs, cost.shape[1]), cost.ravel()[arcs])
        plan = transport_program.solve(known, masses, polytope)
        value, held = transport_program.feasible(masses, cost, known, plan.amounts)
        bound = duality.lower_bound(masses, plan.prices, cost, polytope)
        if bound > best_bound:
            best_bound, best_prices = bound, plan.prices
        if value - best_bound <= relative_gap * value + rounding:
            break
        reduced = cost - plan.potentials[:, np.newaxis] - plan.prices
        wanted = _wanted(reduced.ravel(), _EACH * sum(cost.shape))
        grown = np.union1d(arcs, wanted)
        if grown.size > arcs.size:
            arcs = grown
        elif alone:
            break
        else:  # Those in use are solved alone, to more digits.
            arcs, alone = arcs[plan.amounts > 0], True
    law = ldp_polytope.nearest(held, polytope)
    return solution.Solution(law, best_prices, value, rounds)


def _wanted(reduced: FloatArray, most: int) -> IndexArray:
    """Returns arcs of reduced costs no further above zero than the least is below."""
    found = np.flatnonzero(reduced < -float(reduced.min()))
    if found.size <= most:
        return found
    return np.asarray(found[np.argpartition(reduced[found], most)[:most]])


def _first_arcs(
    masses: FloatArray, cost: FloatArray, polytope: ldp_polytope.LdpPolytope
) -> IndexArray:
    """Returns arcs i·k_v + j between near ones, and those of a plan that is feasible.

    What is near an output may not suffice to fill it: so the inputs of some mass, those
    of more and those of much more have arcs, too.
    """
    inputs, size = cost.shape
    if cost.size <= _AT_ONCE and network_simplex.is_installed():
        return np.arange(cost.size)
    share = float(polytope.upper.mean())
    middle = np.full(size, 1 / size)
    arcs = [
        np.arange(inputs) * size + cost.argmin(axis=1),
        _corner_arcs(masses, ldp_polytope.nearest(middle, polytope)),
    ]
    for least in _LARGE:
        arcs.append(_near(cost, np.flatnonzero(masses >= least * share)))
    return np.unique(np.concatenate(arcs))


def _near(cost: FloatArray, inputs: IndexArray) -> IndexArray:
    """Returns arcs of some inputs, those that cost little more than an output's least.

    From some columns it is known what the arcs cost that are not too many.
    """
    if not inputs.size:
        return inputs
    rows = cost[inputs]
    rows -= rows.min(axis=0)
    some = rows[:, :: max(1, rows.shape[1] // _SAMPLED)].ravel()
    share = min(_EACH * sum(rows.shape) / rows.size, 1.0)
    last = int(share * (some.size - 1))
    found = np.flatnonzero(rows.ravel() <= np.partition(some, last)[last])
    # Many may cost the same.
    found = found[:: max(1, found.size // (2 * _EACH * sum(rows.shape)))]
    places, outputs = np.divmod(found, rows.shape[1])
    return np.asarray(inputs[places] * rows.shape[1] + outputs)


def _corner_arcs(masses: FloatArray, demands: FloatArray) -> IndexArray:
    """Arcs of the north-west corner plan: both margins laid along one line."""
    left, right = np.cumsum(masses), np.cumsum(demands)
    starts = np.sort(np.concatenate([[0.0], left[:-1], right[:-1]]))
    inputs = np.minimum(np.searchsorted(left, starts, side="right"), left.size - 1)
    outputs = np.minimum(np.searchsorted(right, starts, side="right"), right.size - 1)
    # Rounding at a tie may skip an arc: its neighbours make up for it.
    inputs = np.concatenate([inputs, inputs[1:]])
    outputs = np.concatenate([outputs, outputs[:-1]])
    return np.asarray(inputs * demands.size + outputs)
