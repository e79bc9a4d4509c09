"""Steps of a Gaussian Markov chain: moves of its state, and what they add to a sum.

The next value of the chain has a normal law. It is split between the two states beside
it, so that its mean stays the same, by quadrature in each cell. A sum between two
places of the grid of sums is split in the same way.
"""

import dataclasses
import functools
import math

import numpy as np
from scipy import sparse
from scipy import special

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.kernel import floats

Grids = markov_chain.Grids

# Certified: the relative error of Gauss–Legendre quadrature with _NODES nodes is below
# QUADRATURE_ERROR if the cell is at most LARGEST_CELL standard deviations wide and at
# most _FURTHEST from the mean. With _FEW_NODES nodes it is if the cell is at most
# NARROW_CELL wide. Cells further away are given the largest density in them, as more
# mass only raises an upper bound.
LARGEST_CELL, NARROW_CELL = 0.5, 0.2
_FURTHEST = 10.0
QUADRATURE_ERROR = 1e-12
_NODES, _FEW_NODES = 12, 6


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

    @functools.cached_property
    def _bands(self) -> list[tuple[slice, slice, FloatArray]]:
        """The blocks of rows of the matrix: their rows, their columns, and the block.

        The columns that are zero on both sides of a block are left out.
        """
        bands = []
        for start in range(0, len(self.above), markov_chain.ROWS):
            rows = slice(start, start + markov_chain.ROWS)
            reached = np.flatnonzero(self.matrix[rows].any(axis=0))
            if reached.size:
                columns = slice(int(reached[0]), int(reached[-1]) + 1)
                block = np.ascontiguousarray(self.matrix[rows, columns])
                bands.append((rows, columns, block))
        return bands

    def apply(self, values: FloatArray, out: FloatArray) -> None:
        """Writes for each state the mean of the values at the next state.

        Args:
            values: (n, l) The values at the next state.
            out: The array that the means are written to, for the states moved from.
        """
        for rows, columns, block in self._bands:
            np.matmul(block, values[columns], out=out[rows])


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
    gone = np.where(left_out, unpruned.matrix, 0.0)
    return dataclasses.replace(
        unpruned,
        matrix=np.where(left_out, 0.0, unpruned.matrix),
        above=unpruned.above + gone.sum(axis=1),
        ratio_above=unpruned.ratio_above + floats.raised(1.0) * (gone @ to_come),
    )


def moves_outward(
    grids: Grids, rows: slice, inner: float, reached: slice, outer: float
) -> Moves:
    """Returns the moves from a state to the next one away from the middle.

    Args:
        grids: The chain with its grids.
        rows: The states that the moves start from.
        inner: The variance of x there.
        reached: The states that the moves may reach.
        outer: The variance of x there.
    """
    slope = grids.chain.correlation * max(outer / inner, 1.0)
    return moves_of(grids, rows, slope, inner, outer, reached)


def moves(grids: Grids, means: FloatArray, spread: float) -> Moves:
    """Returns the moves to N(mean, spread²), split between neighboring states.

    Args:
        grids: The chain with its grids.
        means: (m,) The means of the next x.
        spread: Its standard deviation.
    """
    states, scale = grids.states, grids.scale
    matrix = hats(states, means, spread)
    below = _ndtr((states[0] - means) / spread)
    matrix[:, 0] += below
    above = _ndtr((means - states[-1]) / spread)
    moved = means + scale * spread**2
    growth = np.exp(scale * means - scale**2 / 2 * (1 - spread**2))
    ratio_above = growth * _ndtr((moved - states[-1]) / spread)
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
    if cell.max() > LARGEST_CELL * spread:
        raise ValueError(
            f"states must be at most {LARGEST_CELL} deviations apart. "
            f"Found {cell.max() / spread}."
        )
    ends = (states - means[:, np.newaxis]) / spread
    widths = np.diff(ends, axis=1)
    nearest = np.minimum(np.abs(ends[:, :-1]), np.abs(ends[:, 1:]))
    near = nearest <= _FURTHEST
    low = np.where(near, 0.0, widths * _density(nearest) / 2 if raised else 0.0)
    high = low.copy()
    starts, wide = ends[:, :-1][near], widths[near]
    narrow = float(cell.max()) <= NARROW_CELL * spread
    rule = np.polynomial.legendre.leggauss(_FEW_NODES if narrow else _NODES)
    for node, weight in zip((1 + rule[0]) / 2, rule[1] / 2, strict=True):
        mass = weight * wide * _density(starts + node * wide)
        low[near] += (1 - node) * mass
        high[near] += node * mass
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


@dataclasses.dataclass(frozen=True)
class Addition:
    """What a step adds to the sum, for some neighboring states.

    Attributes:
        rows: The states.
        used: The places of the sum before the addition.
        matrix: The matrix from the masses before the addition to those after it. Each
            vector has the masses of all places for the first state, then those for the
            second state, and so on.
        most_terms: A bound on the number of products that sum to one mass.
        lost: (n, l) The part of the sum's mean that the addition loses at each state
            and place: sums above the highest place, and what the factor's mean lacks.
    """

    rows: slice
    used: slice
    matrix: sparse.csc_matrix | sparse.csr_matrix
    most_terms: int
    lost: FloatArray

    @classmethod
    def of(
        cls, grids: Grids, rows: slice, decay: float, used: slice = slice(None)
    ) -> "Addition":
        """Returns what a step adds in some states to sums at some places times `decay`.

        It takes longer to make than to apply, and much memory.
        """
        places, ratios = grids.places, grids.ratios[rows]
        before = decay * places[used]
        factors, probabilities = _with_zero(grids.factors, grids.probabilities)
        size, count = ratios.size, places.size
        steps = (ratios[:, np.newaxis] * factors)[:, np.newaxis]
        totals = before[:, np.newaxis] + steps
        firsts = np.repeat(np.arange(size) * count, before.size)
        matrix = _splits(places, totals.reshape(firsts.size, -1), probabilities, firsts)
        lost = np.empty((size, before.size))
        lost[:] = grids.lost_factor * ratios[:, np.newaxis]
        for row, ratio in zip(lost, ratios.tolist(), strict=True):
            first = np.searchsorted(before, places[-1] - ratio * factors.max())
            above = before[first:, np.newaxis] + ratio * factors - places[-1]
            row[first:] += np.maximum(above, 0.0) @ probabilities
        return cls(rows, used, matrix, 2 * factors.size * before.size, lost)

    def for_many_steps(self) -> "Addition":
        """Returns the same addition, by a matrix that takes less time to apply."""
        matrix = self.matrix.tocsr()
        most_terms = int(np.diff(matrix.indptr).max())
        matrix.sum_duplicates()
        return dataclasses.replace(self, matrix=matrix, most_terms=most_terms)

    def apply(self, masses: FloatArray, out: FloatArray) -> FloatArray:
        """Writes the masses after the addition, and returns the lost part of the mean.

        Args:
            masses: (n, l) The masses of states and places before the addition.
            out: The array that the masses after it are written to.
        """
        given = masses[self.rows, self.used]
        out[self.rows] = (self.matrix @ given.ravel()).reshape(out[self.rows].shape)
        return np.asarray((given * self.lost).sum(axis=1))


def _with_zero(
    factors: FloatArray, probabilities: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns the values of W with 0, and their probabilities."""
    rest = max(1 - float(probabilities.sum()), 0.0)
    return np.append(factors, 0.0), np.append(probabilities, rest)


def scaled(
    places: FloatArray, factors: FloatArray, probabilities: FloatArray
) -> tuple[sparse.csr_matrix, FloatArray]:
    """Returns the matrix that multiplies sums by a random factor, split to the places.

    Args:
        places: (l,) The places, increasing from 0.
        factors: (m,) The values of the factor, increasing and positive.
        probabilities: (m,) Their probabilities. The factor is 0 with the remaining
            probability.

    Returns:
        The (l, l) matrix from the masses before to those after; and (l,) the mean of
        the part of a sum that is above the highest place.
    """
    values, weights = _with_zero(factors, probabilities)
    totals = np.outer(places, values)
    above = np.maximum(totals - places[-1], 0.0)
    matrix = _splits(places, totals, weights, np.zeros(places.size, np.int64)).tocsr()
    return matrix, np.asarray(above @ weights)


def _splits(
    places: FloatArray, totals: FloatArray, weights: FloatArray, firsts: IndexArray
) -> sparse.csc_matrix:
    """Returns the matrix from the masses of random sums to those of the places.

    A sum between two places is split between them. One above the highest place is moved
    there.

    Args:
        places: (l,) The places, increasing from 0.
        totals: (n, m) The values of each random sum, at least 0.
        weights: (m,) Their probabilities.
        firsts: (n,) The row of the lowest place for each sum, increasing.
    """
    totals = np.minimum(totals, places[-1])
    low = np.searchsorted(places, totals, side="right") - 1
    np.minimum(low, places.size - 2, out=low)
    share = (totals - places[low]) / np.diff(places)[low]
    np.clip(share, 0.0, 1.0, out=share)
    # The rows are the lower ends of the cells of all values, and then the upper ones.
    low += firsts[:, np.newaxis]
    rows = np.concatenate([low, low + 1], axis=1, dtype=np.int32)
    upper = weights * share
    shares = np.concatenate([weights - upper, upper], axis=1)
    starts = np.arange(len(totals) + 1, dtype=np.int32) * rows.shape[1]
    columns = shares.ravel(), rows.ravel(), starts
    shape = int(firsts[-1]) + places.size, len(totals)
    return sparse.csc_matrix(columns, shape=shape)
