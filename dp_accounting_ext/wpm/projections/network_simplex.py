"""Plans by POT's network simplex, where it is installed."""

import functools
import importlib
from importlib import metadata
import re
from typing import Any
import warnings

import numpy as np
import numpy.typing as npt
from scipy import sparse

from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program
from dp_accounting_ext.wpm.projections import solution

FloatArray = npt.NDArray[np.float64]

# The first version that takes chosen arcs alone.
_OLDEST = (0, 9, 7)
# No problem of the sizes that are sent here takes nearly so many pivots.
_MOST_PIVOTS = 10**7
_OPTIMAL = 1
# In units of the largest cost: more than prices differ by.
_FORBIDDEN = 4.0


@functools.cache
def is_installed() -> bool:
    """Tells whether a POT is there that takes chosen arcs, without its import."""
    try:
        found = metadata.version("POT")
    except metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in re.findall(r"\d+", found)[:3]) >= _OLDEST


def solve(
    arcs: solution.Arcs,
    supply: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
    penalty: float | None,
) -> solution.Plan:
    """Returns the plan of `transport_program.solve`, as one between two sides.

    Each output is two sources: one of its least mass, and one of what there may be
    above that. What is left of the second goes to a sink of its own for nothing. With
    a penalty one source more has what inputs lack, one sink more takes what they have
    too much, and what is left of that source goes to both sinks for nothing.

    Raises:
        SolverError: If POT fails.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I.
    """
    inputs, size = supply.size, polytope.upper.size
    largest = max(float(np.abs(arcs.cost).max()), penalty or 0.0) or 1.0
    cost = arcs.cost / largest
    # No output holds more than everything.
    sent = np.append(polytope.lower, np.minimum(polytope.upper - polytope.lower, 1.0))
    taken = np.maximum(supply, 0.0)
    if penalty is None:
        taken = np.append(taken, max(float(sent.sum() - taken.sum()), 0.0))
        sent *= taken.sum() / sent.sum()
        if cost.size == inputs * size:
            return _with_all_arcs(cost.reshape(inputs, size), largest, sent, taken)
    outputs, held = arcs.outputs, np.arange(size)
    rows = [outputs, size + outputs, size + held]
    columns = [arcs.inputs, arcs.inputs, np.full(size, inputs)]
    costs = [cost, cost, np.zeros(size)]
    if penalty is not None:
        spare, left = 1 + float(sent.sum() + taken.sum()), float(sent[size:].sum())
        least = np.full(size, np.inf)
        np.minimum.at(least, outputs, cost)
        reached = np.flatnonzero(least < np.inf)
        taken = np.concatenate([taken, [left, spare]])
        sent = np.append(sent, taken.sum() - sent.sum())
        rows += [reached, size + reached, np.full(inputs + 2, 2 * size)]
        columns += [np.full(2 * reached.size, inputs + 1), np.arange(inputs + 2)]
        costs += [np.tile(least[reached] + penalty / largest, 2)]
        costs += [np.repeat([penalty / largest, 0.0], [inputs, 2])]
    # Costs that are not negative keep POT's artificial arcs above all others.
    lowest = min(float(cost.min()), 0.0)
    where = np.concatenate(rows), np.concatenate(columns)
    shape = sent.size, taken.size
    table = sparse.coo_matrix((np.concatenate(costs) - lowest, where), shape=shape)
    flows, prices, potentials = _emd(sent, taken, table)
    potentials = potentials[:inputs] + lowest
    unmoved = 0.0
    if penalty is not None:
        potentials += prices[-1]
        potentials[supply <= 0] = -penalty / largest
        paid = (flows.row == 2 * size) != (flows.col == inputs + 1)
        paid &= flows.col != inputs
        unmoved = float(flows.data[paid].sum() - np.minimum(supply, 0.0).sum())
    moved = (flows.row < 2 * size) & (flows.col < inputs)
    keys = flows.col[moved].astype(np.intp) * size + flows.row[moved] % size
    places = np.searchsorted(arcs.inputs * size + outputs, keys)
    amounts = np.zeros(cost.size)
    np.add.at(amounts, places, flows.data[moved])
    potentials *= largest
    prices = np.full(size, np.inf)
    np.minimum.at(prices, outputs, arcs.cost - potentials[arcs.inputs])
    return solution.Plan(amounts, potentials, prices, unmoved)


def _with_all_arcs(
    cost: FloatArray, largest: float, sent: FloatArray, taken: FloatArray
) -> solution.Plan:
    """Returns the plan of a matrix of costs, which POT is faster at."""
    inputs, size = cost.shape
    table = np.zeros((2, size, inputs + 1))
    table[:, :, :-1] = cost.T
    table[0, :, -1] = _FORBIDDEN
    flows, _, potentials = _emd(sent, taken, table.reshape(2 * size, inputs + 1))
    moved = flows.reshape(2, size, inputs + 1)[:, :, :-1].sum(axis=0)
    potentials = potentials[:-1]
    prices = (cost - potentials[:, np.newaxis]).min(axis=0)
    return solution.Plan(moved.T.ravel(), largest * potentials, largest * prices, 0.0)


def _emd(
    sent: FloatArray, taken: FloatArray, costs: Any
) -> tuple[Any, FloatArray, FloatArray]:
    """Returns the cheapest flows from sources to sinks, and the duals of both.

    Raises:
        SolverError: If POT fails.
    """
    ot: Any = importlib.import_module("ot")
    with warnings.catch_warnings():
        # A warning would tell of a private distribution.
        warnings.simplefilter("ignore")
        flows, found = ot.emd(
            sent,
            taken,
            costs,
            _MOST_PIVOTS,
            log=True,
            center_dual=False,
            check_marginals=False,
        )
    if found["result_code"] != _OPTIMAL:
        raise linear_program.SolverError("The network simplex found no plan.")
    return flows, found["u"], found["v"]
