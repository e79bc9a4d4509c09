"""Transport plans by the network simplex of POT, if it is installed."""

import functools
import importlib
from importlib import metadata
import re
from typing import Any
import warnings

import numpy as np
from scipy import sparse

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.wpm.projections import ldp_polytope
from dp_accounting_ext.wpm.projections import linear_program

# A limit that no problem of the sizes here comes near.
_MOST_PIVOTS = 10**7


@functools.cache
def is_installed() -> bool:
    """Returns whether a version of POT that supports chosen arcs is installed."""
    try:
        found = metadata.version("POT")
    except metadata.PackageNotFoundError:
        return False
    return tuple(int(part) for part in re.findall(r"\d+", found)[:3]) >= (0, 9, 7)


def solve(
    inputs: IndexArray,
    outputs: IndexArray,
    paid: FloatArray,
    masses: FloatArray,
    polytope: ldp_polytope.LdpPolytope,
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Returns the mass moved on each arc, and the duals of inputs and outputs.

    Each output is two sources: one of its least mass, and one of the difference of its
    most and its least mass. The unused part of the second moves to a sink at no cost.

    Args:
        inputs: (arcs,) the input of each arc.
        outputs: (arcs,) the output of each arc.
        paid: (arcs,) the cost of a unit of mass on each arc. Arcs are sorted by input,
            then by output.
        masses: (s,) the masses of the inputs.
        polytope: The least and the most masses of the n outputs.

    Raises:
        SolverError: If POT fails.

    Source:
        https://arxiv.org/abs/2605.10015, Appendix I.
    """
    size, rest = polytope.upper.size, masses.size
    sent = np.append(polytope.lower, polytope.upper - polytope.lower)
    taken = np.append(masses, max(float(sent.sum() - masses.sum()), 0.0))
    held, largest = np.arange(size), float(paid.max()) or 1.0
    table = sparse.coo_matrix(
        (
            np.concatenate([paid / largest, paid / largest, np.zeros(size)]),
            (
                np.concatenate([outputs, size + outputs, size + held]),
                np.concatenate([inputs, inputs, np.full(size, rest)]),
            ),
        ),
        shape=(sent.size, taken.size),
    )
    with warnings.catch_warnings():
        # A warning would reveal information about a private distribution. Those of
        # POT's compiled code carry none.
        warnings.simplefilter("ignore")
        ot: Any = importlib.import_module("ot")
        flows, found = ot.emd(
            sent * (taken.sum() / sent.sum()),
            taken,
            table,
            _MOST_PIVOTS,
            log=True,
            center_dual=False,
            check_marginals=False,
        )
    if found["result_code"] != 1:
        raise linear_program.SolverError("The network simplex found no plan.")
    moved = flows.col < rest
    keys = flows.col[moved].astype(np.intp) * size + flows.row[moved] % size
    places = np.searchsorted(inputs * size + outputs, keys)
    amounts = np.zeros(paid.size)
    np.add.at(amounts, places, flows.data[moved])
    potentials = largest * found["v"][:rest]
    prices = np.full(size, np.inf)
    np.minimum.at(prices, outputs, paid - potentials[inputs])
    return amounts, potentials, prices
