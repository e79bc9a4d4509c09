"""Steps of a Gaussian Markov chain: moves of its state, and what they add to a sum.

The next value of the chain has a normal law. It is split between the two states beside
it, so that its mean stays the same, by quadrature in each cell. A sum between two
places of the grid of sums is split in the same way.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np
from scipy import sparse
from scipy import special

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.kernel import conservation
from dp_accounting_ext.kernel import floats

Grids = markov_chain.Grids

# Certified: the relative error of Gauss–Legendre quadrature with _NODES nodes is below
# QUADRATURE_ERROR if the cell is at most `markov_chain.LARGEST_CELL` standard
# deviations wide and at most _FURTHEST from the mean. With _FEW_NODES nodes it is if
# the cell is at most NARROW_CELL wide. Cells further away are given the largest density
# in them, as more mass only raises an upper bound.
NARROW_CELL = 0.2
_FURTHEST = 10.0
QUADRATURE_ERROR = 1e-12
_NODES, _FEW_NODES = 12, 6
# Certified: more than what the rounding of states and of quadrature loses of a move.
_LACKING = 1e-9
# Additions to so many neighboring places of the grid of sums are computed together.
_SLICE = 256


@dataclasses.dataclass(frozen=True)
class Moves:
    """The law of the next state, given each state.

    Attributes:
        matrix: (n, n) The probabilities of moves from rows to columns.
        above: (n,) The probabilities that the next x is above the highest state.
        ratio_above: (n,) The means of e^{a x − a²/2} over these x.
        below: (n,) The probabilities that the next x is below the lowest state.
    """

    matrix: FloatArray
    above: FloatArray
    ratio_above: FloatArray
    below: FloatArray


def moves_of(
    grids: Grids,
    rows: slice,
    slope: float,
    before: float,
    variance: float,
    reached: slice,
) -> Moves:
    """Returns the moves of one step, without those of negligible probability.

    Args:
        grids: The chain with its grids.
        rows: The states that the moves start from.
        slope: The coefficient of x in the next state. It is 0 if there is no x yet.
        before: The variance of x.
        variance: The variance of the next state.
        reached: The states that the moves may reach.
    """
    shifts = grids.scale * (before - 1) / 2, grids.scale * (variance - 1) / 2
    means = slope * (grids.states[rows] + shifts[0]) - shifts[1]
    unpruned = moves(grids, means, math.sqrt(variance - slope**2 * before))
    # Moves of negligible probability under both Q and P count as moves above the grid.
    to_come = grids.most_to_come()
    weights = (grids.likelihoods(before) if slope else np.ones(to_come.size))[rows]
    ratios = np.maximum(to_come[rows, np.newaxis], to_come)
    rare = weights[:, np.newaxis] * unpruned.matrix * ratios
    left_out = rare < grids.smallest_mass * grids.places.size
    left_out[:, : reached.start] = left_out[:, reached.stop :] = True
    lost = np.where(left_out, unpruned.matrix, 0.0)
    return dataclasses.replace(
        unpruned,
        matrix=np.where(left_out, 0.0, unpruned.matrix),
        above=unpruned.above + lost.sum(axis=1),
        ratio_above=unpruned.ratio_above + floats.raised(1.0) * (lost @ to_come),
    )


class Outward(NamedTuple):
    """The moves from some neighboring states to those that they may reach.

    The rows of its moves are the states moved from, and the columns those reached.
    """

    rows: slice
    reached: slice
    moves: Moves


def moves_outward(
    grids: Grids, rows: slice, inner: float, reached: slice, outer: float
) -> list[Outward]:
    """Returns the moves from a state to the next one away from the middle.

    Args:
        grids: The chain with its grids.
        rows: The states that the moves start from.
        inner: The variance of x there.
        reached: The states that the moves may reach.
        outer: The variance of x there.
    """
    slope = grids.chain.correlation * max(outer / inner, 1.0)
    outward = []
    for start in range(rows.start, rows.stop, markov_chain.ROWS):
        block = slice(start, min(start + markov_chain.ROWS, rows.stop))
        moves = moves_of(grids, block, slope, inner, outer, reached)
        likely = np.flatnonzero(moves.matrix.any(axis=0))
        columns = slice(int(likely[0]), int(likely[-1]) + 1) if likely.size else reached
        matrix = np.ascontiguousarray(moves.matrix[:, columns])
        pruned = dataclasses.replace(moves, matrix=matrix)
        outward.append(Outward(block, columns, pruned))
    return outward


def moves(grids: Grids, means: FloatArray, spread: float) -> Moves:
    """Returns the moves to N(mean, spread²), split between neighboring states.

    Args:
        grids: The chain with its grids.
        means: (m,) The means of the next x.
        spread: Its standard deviation.

    Raises:
        MassError: If a move has lost mass.
    """
    states, scale = grids.states, grids.scale
    matrix = hats(states, means, spread)
    below = _ndtr((states[0] - means) / spread)
    matrix[:, 0] += below
    above = _ndtr((means - states[-1]) / spread)
    # The mean of the next step's ratio, beyond the last state.
    moved = means + scale * spread**2
    growth = np.exp(scale * means - scale**2 / 2 * (1 - spread**2))
    ratio_above = growth * _ndtr((moved - states[-1]) / spread)
    smallest = float((matrix.sum(axis=1) + above).min())
    conservation.check_total("moves of a state", smallest, 1.0, _LACKING, more=math.inf)
    return Moves(matrix, above, floats.raised(1.0) * ratio_above, below)


def hats(
    states: FloatArray, means: FloatArray, spread: float, *, raised: bool = True
) -> FloatArray:
    """Returns (m, n) masses of states if N(mean, spread²) is split to a grid.

    Args:
        states: (n,) The grid.
        means: (m,) The means.
        spread: The standard deviation.
        raised: Whether masses of cells far from the mean are rounded up. Otherwise they
            are left out.

    Raises:
        ValueError: If the states are too far apart for the quadrature.
    """
    cell = np.diff(states)
    if cell.max() > markov_chain.LARGEST_CELL * spread:
        raise ValueError(
            f"states must be at most {markov_chain.LARGEST_CELL} deviations apart. "
            f"Found {cell.max() / spread}."
        )
    ends = (states - means[:, np.newaxis]) / spread
    widths = np.diff(ends, axis=1)
    nearest = np.minimum(np.abs(ends[:, :-1]), np.abs(ends[:, 1:]))
    is_near = nearest <= _FURTHEST
    low = np.where(is_near, 0.0, widths * _density(nearest) / 2 if raised else 0.0)
    high = low.copy()
    near_starts, near_widths = ends[:, :-1][is_near], widths[is_near]
    is_narrow = float(cell.max()) <= NARROW_CELL * spread
    rule = np.polynomial.legendre.leggauss(_FEW_NODES if is_narrow else _NODES)
    for node, weight in zip((1 + rule[0]) / 2, rule[1] / 2, strict=True):
        mass = weight * near_widths * _density(near_starts + node * near_widths)
        low[is_near] += (1 - node) * mass
        high[is_near] += node * mass
    matrix = np.zeros(ends.shape)
    matrix[:, :-1] += low
    matrix[:, 1:] += high
    return matrix


def spread_to_split(variance: float, cell: float) -> float:
    """Returns a deviation s such that N(m, s²), split to a grid, is below N(m, V).

    It is s² = V (1 + √(1 − h² / V)) / 2, which is about V − h² / 4.

    Args:
        variance: The variance V, at least h².
        cell: The largest width h of a cell of the grid.

    Guarantees:
        The split law is below N(m, V) in the convex order, for every m and every grid
        with cells of at most this width (docs/matrix.md).
    """
    squared = variance * (1 + math.sqrt(1 - cell**2 / variance)) / 2
    return math.sqrt(floats.lowered(squared))


def _density(places: FloatArray) -> FloatArray:
    """Returns the normal density, raised if it is too small for a normal float."""
    exponents = np.maximum(-(places**2) / 2, -floats.LARGEST_EXPONENT)
    return np.asarray(np.exp(exponents) / math.sqrt(2 * math.pi))


def _ndtr(points: FloatArray) -> FloatArray:
    """Returns an upper bound on Φ, above its rounding error and any underflow."""
    return np.asarray(special.ndtr(np.maximum(points, -37.0)) * floats.raised(1.0))


class _Part(NamedTuple):
    """What a step adds in some neighboring states to sums at some neighboring places.

    Attributes:
        used: The places of the sum before the addition.
        reached: The places of the sum after it.
        shares: (k, 1, n) The probabilities of terms, given each state.
        splits: The matrix from the masses of all terms and places before the addition
            to those of the places after it. Its columns are ordered by terms.
    """

    used: slice
    reached: slice
    shares: FloatArray
    splits: sparse.csc_matrix


@dataclasses.dataclass(frozen=True)
class Addition:
    """What a step adds to the sum.

    In each state, what it adds is split between the terms of the grids. Where places
    are further apart than terms, some of the terms are left out first.

    Attributes:
        blocks: Neighboring states, with what a step adds in these states.
        lost: (n, l) The part of the sum's mean that the addition loses at each state
            and place: sums above the highest place, and what the factor's mean lacks.
        most_products: A bound on the number of products that sum to one mass.
    """

    blocks: list[tuple[slice, list[_Part]]]
    lost: FloatArray
    most_products: int

    @classmethod
    def of(cls, grids: Grids, decay: float) -> "Addition":
        """Returns what a step adds to sums that are multiplied by `decay` first."""
        places, count = grids.places, grids.states.size
        starts = range(0, count, markov_chain.ROWS)
        rows = [slice(start, min(start + markov_chain.ROWS, count)) for start in starts]
        lost = np.empty((count, places.size))
        lost[:] = grids.lost_factor * grids.ratios[:, np.newaxis]
        widths = np.append(np.diff(places), math.inf)
        blocks, most_products = [], 0
        for block in rows:
            terms, shares = grids.terms(block), _shares(grids, block)
            parts, products = [], np.zeros(places.size, np.int64)
            for start in range(0, places.size, _SLICE):
                used = slice(start, min(start + _SLICE, places.size))
                width = decay * widths[used].min()
                thinned, thinned_shares = _thinned(terms, shares, width)
                totals = thinned[:, np.newaxis] + decay * places[used]
                too_high = np.maximum(totals - places[-1], 0.0)
                lost[block, used] += thinned_shares.T @ too_high
                low, high = np.searchsorted(places, totals.ravel()[[0, -1]])
                reached = slice(max(int(low) - 1, 0), int(high) + 1)
                matrix = splits(places[reached], totals.ravel())
                products[reached] += np.bincount(
                    matrix.indices, minlength=matrix.shape[0]
                )
                shares_of_part = thinned_shares[:, np.newaxis]
                parts.append(_Part(used, reached, shares_of_part, matrix))
            blocks.append((block, parts))
            most_products = max(most_products, int(products.max()) + terms.size)
        return cls(blocks, lost, most_products + grids.factors.size + 8)

    def apply(self, masses: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Returns the masses after the addition, and the lost part of the mean.

        Args:
            masses: (n, l) The masses of states and places before the addition.
        """
        after = np.zeros_like(masses)
        # One array for all products takes less time than an array for each.
        columns = (part.splits.shape[1] for _, parts in self.blocks for part in parts)
        work = np.empty(max(columns) * markov_chain.ROWS)
        for rows, parts in self.blocks:
            masses_of_block = np.ascontiguousarray(masses[rows].T)
            summed = np.zeros_like(masses_of_block)
            for part in parts:
                before = masses_of_block[part.used]
                if before.any():
                    shape = len(part.shares), *before.shape
                    products = work[: math.prod(shape)].reshape(shape)
                    np.multiply(part.shares, before, out=products)
                    products = products.reshape(-1, before.shape[1])
                    summed[part.reached] += part.splits @ products
            after[rows] = summed.T
        return after, np.einsum("ij,ij->i", masses, self.lost)


def with_zero(
    factors: FloatArray, probabilities: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns the values of W with 0, and their probabilities."""
    of_zero = max(1 - float(probabilities.sum()), 0.0)
    return np.append(factors, 0.0), np.append(probabilities, of_zero)


def _shares(grids: Grids, rows: slice) -> FloatArray:
    """Returns (k, n) the probabilities of terms given each state, after splits."""
    factors, probabilities = with_zero(grids.factors, grids.probabilities)
    terms = grids.terms(rows)
    split = [
        splits(terms, ratio * factors) @ probabilities
        for ratio in grids.ratios[rows].tolist()
    ]
    return np.stack(split, axis=1)


def _thinned(
    terms: FloatArray, shares: FloatArray, width: float
) -> tuple[FloatArray, FloatArray]:
    """Returns the first terms of all cells, and their probabilities given each state.

    Other terms are split between the two beside them.

    Args:
        terms: (k,) The terms, increasing from 0.
        shares: (k, n) Their probabilities given each state.
        width: The width of a cell. The largest term is returned, too.
    """
    cells = np.floor(terms / max(width, 1e-300 * float(terms[-1])))
    _, firsts = np.unique(cells, return_index=True)
    thinned = terms[np.union1d(firsts, [terms.size - 1])]
    return thinned, splits(thinned, terms) @ shares


def splits(places: FloatArray, totals: FloatArray) -> sparse.csc_matrix:
    """Returns the (l, n) matrix from the masses of sums to those of the places.

    A sum between two places is split between them. One above the highest place is moved
    there. There are two entries in a column.

    Args:
        places: (l,) The places, increasing from 0.
        totals: (n,) The sums, at least 0.
    """
    totals = np.minimum(totals, places[-1])
    low = np.searchsorted(places, totals, side="right") - 1
    np.minimum(low, places.size - 2, out=low)
    share = (totals - places[low]) / np.diff(places)[low]
    np.clip(share, 0.0, 1.0, out=share)
    rows = np.stack([low, low + 1], axis=1, dtype=np.int32).ravel()
    shares = np.stack([1 - share, share], axis=1).ravel()
    starts = np.arange(0, 2 * totals.size + 1, 2, dtype=np.int32)
    return sparse.csc_matrix((shares, rows, starts), shape=(places.size, totals.size))
