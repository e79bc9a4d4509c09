"""What a step of a Gaussian Markov chain adds to a sum, on a grid of sums.

A sum between two places of the grid is split: it is moved to one of the two at random,
so that its mean stays the same.
"""

import dataclasses

import numpy as np
from scipy import sparse

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IndexArray
from dp_accounting_ext.correlated.chains import markov_chain
from dp_accounting_ext.kernel import sums

Grids = markov_chain.Grids


@dataclasses.dataclass(frozen=True)
class Addition:
    """What a step adds to the sum, for some neighboring states.

    Attributes:
        rows: The states.
        matrix: The matrix from the masses before the addition to those after it. Each
            vector has the masses of all places for the first state, then those for the
            second state, and so on.
        most_terms: The largest number of products that sum to one mass.
        lost: (n, l) The part of the sum's mean that the addition loses at each state
            and place: sums above the highest place, and what the factor's mean lacks.
    """

    rows: slice
    matrix: sparse.csr_matrix
    most_terms: int
    lost: FloatArray

    @classmethod
    def of(cls, grids: Grids, rows: slice, decay: float) -> "Addition":
        """Returns what a step adds in the given states, to a sum times `decay`."""
        places, ratios = grids.places, grids.ratios[rows]
        cells = np.diff(places)
        half = (grids.chain.length + 1) // 2
        even = float(cells.max(where=places[1:] <= half, initial=0.0))
        factors, probabilities = _thinned(
            grids, grids.factor_gap * even / float(ratios[-1])
        )
        size, count = ratios.size, places.size
        steps = (ratios[:, np.newaxis] * factors)[:, np.newaxis]
        totals = decay * places[:, np.newaxis] + steps
        low, share = _cells(places, np.minimum(totals, places[-1]))
        # The columns are the lower ends of the cells for each factor, and the upper.
        low = low + np.arange(0, size * count, count)[:, np.newaxis, np.newaxis]
        goals = np.concatenate([low, low + 1], axis=2, dtype=np.int32)
        upper = probabilities * share
        shares = np.concatenate([probabilities - upper, upper], axis=2)
        starts = np.arange(size * count + 1, dtype=np.int32) * goals.shape[2]
        columns = shares.ravel(), goals.ravel(), starts
        matrix = sparse.csc_matrix(columns, shape=(size * count,) * 2).tocsr()
        most_terms = int(np.diff(matrix.indptr).max())
        matrix.sum_duplicates()
        lost = np.empty((size, count))
        lost[:] = grids.lost_factor * ratios[:, np.newaxis]
        for row, ratio in zip(lost, ratios.tolist(), strict=True):
            first = np.searchsorted(places, places[-1] - ratio * factors.max())
            above = decay * places[first:, np.newaxis] + ratio * factors - places[-1]
            row[first:] += np.maximum(above, 0.0) @ probabilities
        return cls(rows, matrix, most_terms, lost)

    def apply(self, masses: FloatArray, out: FloatArray) -> FloatArray:
        """Writes the masses after the addition, and returns the lost part of the mean.

        Args:
            masses: (n, l) The masses of states and places before the addition.
            out: The array that the masses after it are written to.
        """
        given = masses[self.rows]
        out[self.rows] = (self.matrix @ given.ravel()).reshape(given.shape)
        return np.asarray((given * self.lost).sum(axis=1))


def added_once(
    grids: Grids, masses: FloatArray, rows: slice, *, decay: float = 1.0
) -> tuple[FloatArray, FloatArray]:
    """Returns the laws of sums after a step, given its state, without an `Addition`.

    An `Addition` takes longer to make than to apply, and much memory. Here each mass
    is a sum of at most 2 (m + 1) terms for each place with a mass, where m is the
    number of factors.

    Args:
        grids: The chain with its grids.
        masses: (n, l) The masses of states and places before the step.
        rows: The states that are given. The others get no masses.
        decay: What a sum is multiplied by before the step, at most 1.

    Returns:
        (n, l) the masses after the step; and (n,) the part of the sum's mean that is
        not in them.
    """
    places, ratios = grids.places, grids.ratios
    used = np.flatnonzero(masses[rows].any(axis=0))
    factors, probabilities = _with_zero(grids.factors, grids.probabilities)
    found, lost = np.zeros_like(masses), np.zeros(len(masses))
    for state in range(rows.start, rows.stop):
        given, ratio = masses[state, used], float(ratios[state])
        sums = decay * places[used, np.newaxis] + ratio * factors
        above = np.maximum(sums - places[-1], 0.0)
        low, share = _cells(places, sums - above)
        weights = given[:, np.newaxis] * probabilities
        upper = weights * share
        lower, low = (weights - upper).ravel(), low.ravel()
        found[state] = np.bincount(low, lower, places.size)
        found[state] += np.bincount(low + 1, upper.ravel(), places.size)
        lost[state] = grids.lost_factor * ratio * float(given.sum())
        lost[state] += float(given @ (above @ probabilities))
    return found, lost


def _with_zero(
    factors: FloatArray, probabilities: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Returns the values of W with 0, and their probabilities."""
    rest = max(1 - float(probabilities.sum()), 0.0)
    return np.append(factors, 0.0), np.append(probabilities, rest)


def _thinned(grids: Grids, gap: float) -> tuple[FloatArray, FloatArray]:
    """Returns factors that are a gap apart, or a factor of two, and the probabilities.

    The factors that are left out are split between their neighbors. Small sums decide
    in the direction ADD, so that small factors are kept where they are a factor of two
    apart: otherwise most of their mass would go to the smallest one. The last factor is
    zero.
    """
    factors, probabilities = grids.factors, grids.probabilities
    kept, last = [0], float(factors[0])
    for index, factor in enumerate(factors.tolist()):
        if factor >= last + min(gap, last) and index:
            kept.append(index)
            last = factor
    if kept[-1] != factors.size - 1:
        kept.append(factors.size - 1)
    if len(kept) == factors.size:
        return _with_zero(factors, probabilities)
    few = factors[kept]
    low = np.clip(np.searchsorted(few, factors, side="right") - 1, 0, few.size - 2)
    share = (factors - few[low]) / (few[low + 1] - few[low])
    share = np.clip(share, 0.0, 1.0)
    found = sums.gather_quickly(low, probabilities * (1 - share), few.size)
    found += sums.gather_quickly(low + 1, probabilities * share, few.size)
    return _with_zero(few, found)


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
    low, share = _cells(places, totals - above)
    goals = np.concatenate([low, low + 1], axis=1, dtype=np.int32)
    parts = np.concatenate([weights * (1 - share), weights * share], axis=1)
    starts = np.arange(places.size + 1, dtype=np.int32) * goals.shape[1]
    columns = parts.ravel(), goals.ravel(), starts
    matrix = sparse.csc_matrix(columns, shape=(places.size, places.size)).tocsr()
    return matrix, np.asarray(above @ weights)


def _cells(places: FloatArray, sums: FloatArray) -> tuple[IndexArray, FloatArray]:
    """Returns the cells that sums are in, and the shares that go to the upper ends.

    Args:
        places: (l,) The places, increasing from 0.
        sums: The sums, from 0 to the highest place.
    """
    low = np.searchsorted(places, sums, side="right") - 1
    np.minimum(low, places.size - 2, out=low)
    share = (sums - places[low]) / np.diff(places)[low]
    np.clip(share, 0.0, 1.0, out=share)
    return low, share
