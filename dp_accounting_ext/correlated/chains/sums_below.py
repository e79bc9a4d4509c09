"""Laws below that of a sum along a Gaussian Markov chain, in the convex order.

The chain and its sum are those of `markov_sums`. Any group of sums may be replaced by
their mean, and so may any group of factors: a mean of convex functions of them can only
become smaller.
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import state_moves
from dp_accounting_ext.kernel import floats

# Tuning: the number of neighboring states that share the factors which are added.
_STATES = 64


@dataclasses.dataclass(frozen=True)
class Grids:
    """What the steps of a chain add to a sum from below, and the grids of both.

    Attributes:
        states: (n,) The increasing grid of x.
        correlation: The correlation r of successive x, in [0, 1).
        factors: (m,) The values of a step's factor, increasing and positive.
        probabilities: (m,) Their probabilities.
        places: (l,) About the lower ends of the cells of sums, c (e^x − 1) for x = 0,
            h, 2h, …
        smallest_mass: Smaller masses of a state and a place are left out.
    """

    states: FloatArray
    correlation: float
    factors: FloatArray
    probabilities: FloatArray
    places: FloatArray
    smallest_mass: float


def lower_sum(chain: Grids, scales: FloatArray) -> tuple[FloatArray, FloatArray, float]:
    """Returns a law below that of the chain's sum.

    In each state, all sums in a cell are replaced by their mean.

    Args:
        chain: The chain with its grids. Its factors must be below the true ones in the
            convex order.
        scales: (length,) The scale a of each step.

    Returns:
        (k,) the sums, increasing; (k,) their masses; and a bound on the relative error
        of any of these numbers. The mass that left the grids is not included.

    Guarantees:
        Σ masses · (sums − k)₊ is at most the mean of (S − k)₊ for every k.
    """
    cell = float(np.diff(chain.states).max())
    innovation = (1 - chain.correlation) * (1 + chain.correlation)
    first_spread, spread = (
        state_moves.spread_to_split(part, cell) for part in (1.0, innovation)
    )
    first = state_moves.hats(chain.states, np.zeros(1), first_spread, raised=False)
    means = chain.correlation * chain.states
    columns = np.ascontiguousarray(
        state_moves.hats(chain.states, means, spread, raised=False).T
    )
    masses = np.zeros((chain.states.size, chain.places.size))
    masses[:, 0] = first[0]
    totals = np.zeros_like(masses)
    for step, scale in enumerate(scales.tolist()):
        if step:
            masses, totals = columns @ masses, columns @ totals
        ratios = np.exp(scale * chain.states - scale**2 / 2)
        for start in range(0, ratios.size, _STATES):
            rows = slice(start, start + _STATES)
            added = _grouped_after(chain, ratios[rows], masses[rows], totals[rows])
            masses[rows], totals[rows] = added
    mass, total = masses.sum(axis=0), totals.sum(axis=0)
    kept = mass > chain.smallest_mass
    # An addition does not change the state.
    gathered = chain.places.size * chain.factors.size
    operations = gathered + 4 * chain.states.size + 64
    each = operations * floats.UNIT_ROUNDOFF + 2 * state_moves.QUADRATURE_ERROR
    sums, masses = total[kept] / mass[kept], mass[kept]
    order = np.argsort(sums, kind="stable")
    # Each mean is a quotient of two sums, and the terms of the next step's sums contain
    # it. So errors accumulate at most quadratically.
    return sums[order], masses[order], 4 * scales.size**2 * each


def _grouped_after(
    chain: Grids, ratios: FloatArray, masses: FloatArray, totals: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns the masses of states and cells after an addition, and masses times sums.

    Args:
        chain: The chain with its grids.
        ratios: (n,) What the step adds in each of some states, times a factor.
        masses: (n, l) The masses of these states and of cells before the addition.
        totals: (n, l) The masses times the mean of the sums in the cell.
    """
    count = chain.places.size
    occupied = masses > chain.smallest_mass
    rows = np.nonzero(occupied)[0]
    mass = masses[occupied]
    means = totals[occupied] / mass
    new_masses, new_totals = np.zeros(masses.size), np.zeros(masses.size)
    added, firsts = ratios[rows], rows * count
    unit, each = _cells(chain)
    factors, probabilities = _merged(chain, float(ratios.max()))
    for factor, probability in zip(factors, probabilities, strict=True):
        sums = means + factor * added
        # The law stays below the true one even if rounding puts a sum into the wrong
        # cell, as a group of sums always has their mean.
        cells = (np.log1p(sums / unit) * each).astype(np.intp)
        np.minimum(cells, count - 1, out=cells)
        cells += firsts
        weights = probability * mass
        new_masses += np.bincount(cells, weights, masses.size)
        new_totals += np.bincount(cells, weights * sums, masses.size)
    return new_masses.reshape(masses.shape), new_totals.reshape(masses.shape)


def _cells(chain: Grids) -> tuple[float, float]:
    """Returns c and 1 / h for cells of sums.

    The lower ends of cells are c (e^x − 1) for x = 0, h, 2h, …
    """
    first, second = chain.places[1:3].tolist()
    each = 1 / math.log(second / first - 1)
    return first / math.expm1(1 / each), each


def _merged(chain: Grids, ratio: float) -> tuple[FloatArray, FloatArray]:
    """Returns fewer factors, for steps that add at most this ratio, and probabilities.

    Factors are replaced by their mean if a first step would move them to one cell. In
    later steps, sums are in wider cells.
    """
    unit, each = _cells(chain)
    numbers = np.floor(np.log1p(chain.factors * ratio / unit) * each)
    starts = np.flatnonzero(np.diff(numbers, prepend=-1.0))
    probabilities = np.add.reduceat(chain.probabilities, starts)
    totals = np.add.reduceat(chain.factors * chain.probabilities, starts)
    return totals / probabilities, probabilities
