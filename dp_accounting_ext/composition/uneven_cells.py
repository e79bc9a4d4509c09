"""A law on a lattice, of which it takes every index where it is, and few elsewhere.

Most of the reach of a sample's loss is a tail that is hardly ever there. Cells there
may be long: what a cell adds to the variance is its mass times the square of its
length.
"""

import dataclasses
import itertools
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.composition import loss_distribution
from dp_accounting_ext.kernels import lattice
from dp_accounting_ext.kernels import sums
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]
IndexArray = npt.NDArray[np.int64]

# Tuning. Cells' sizes change at multiples of a power of two, so many in a doubling;
# before the first of these powers, from zero, all are alike.
_FIRST_EDGE = 64
_IN_A_DOUBLING = 4
# What a stretch of cells adds to the variance is no more than so much of what a law of
# cells of size one has added.
_ADDED = 0.0005
# Of lower bounds, which move more, and are asked for less often.
_ADDED_BELOW = 0.0001
# Certified: the longest cell, in nats; see `composed_atoms`.
LONGEST = 2.0**-6


@dataclasses.dataclass(frozen=True)
class UnevenCells:
    """Lattice indices that losses are moved to.

    Attributes:
        edges: (k + 1,) indices, increasing, between which cells are of one size.
        sizes: (k,) powers of two, which divide the edges at either end.
    """

    edges: IndexArray
    sizes: IndexArray

    @classmethod
    def of(
        cls,
        losses: FloatArray,
        masses: FloatArray,
        interval: float,
        bound: Bound = Bound.UPPER,
    ) -> "UnevenCells | None":
        """Returns cells for a law; None where all are best of size one.

        Args:
            losses: (n,) its losses, or a few that stand for them, increasing.
            masses: (n,) their masses, under the tilt that matters.
            interval: The lattice's step, in nats.
            bound: The law's side.
        """
        reach = max(-float(losses[0]), float(losses[-1])) / interval
        doublings = max(math.ceil(math.log2(max(reach / _FIRST_EDGE, 1.0))), 1)
        parts = _IN_A_DOUBLING + np.arange(_IN_A_DOUBLING)
        scales = (_FIRST_EDGE // _IN_A_DOUBLING) << np.arange(doublings)
        ends = np.append(np.multiply.outer(scales, parts), 2 * parts[0] * scales[-1])
        edges = np.append(-ends[::-1], ends)
        # Those that stand for others may lie where these are, or anywhere between.
        below = np.append(0.0, np.cumsum(masses))
        ends_at = edges * interval
        between = np.interp(ends_at, losses, below[1:], left=0.0)
        there = below[losses.searchsorted(ends_at)]
        shares = np.maximum(np.diff(between), np.diff(there)) / below[-1]
        # All edges of a doubling are multiples of its scale.
        most = np.repeat(scales, _IN_A_DOUBLING)
        most = np.concatenate([most[::-1], [1], most])
        added = _ADDED if bound is Bound.UPPER else _ADDED_BELOW
        wanted = np.sqrt(added / np.maximum(shares, added * LONGEST**2))
        wanted = np.minimum(np.minimum(wanted, LONGEST / interval), most)
        sizes = np.exp2(np.floor(np.log2(np.maximum(wanted, 1.0)))).astype(np.int64)
        if not (sizes > 1).any():
            return None
        first = np.append(True, sizes[1:] != sizes[:-1])
        return cls(np.append(edges[:-1][first], edges[-1]), sizes[first])

    def holding(self, positions: FloatArray) -> "tuple[UnevenCells, list[slice]]":
        """Returns those that hold (n,) increasing positions, and which each holds."""
        cuts = np.searchsorted(positions, self.edges)
        cuts[0], cuts[-1] = 0, positions.size
        (used,) = np.nonzero(np.diff(cuts))
        first, end = int(used[0]), int(used[-1]) + 1
        sizes, edges = self.sizes[first:end], self.edges[first : end + 1].copy()
        edges[0] = math.floor(positions[0] / sizes[0]) * sizes[0]
        edges[-1] = (math.floor(positions[-1] / sizes[-1]) + 1) * sizes[-1]
        ends = itertools.pairwise(cuts[first : end + 1].tolist())
        return UnevenCells(edges, sizes), [slice(*each) for each in ends]

    def indices(self) -> IndexArray:
        """Returns the (m,) lattice indices of the cells' ends."""
        ends = itertools.pairwise(self.edges.tolist())
        stretches = [
            np.arange(*each, size)
            for each, size in zip(ends, self.sizes.tolist(), strict=True)
        ]
        return np.concatenate([*stretches, self.edges[-1:]])


def on_lattice(
    law: loss_distribution.LossDistribution, interval: float, cells: UnevenCells
) -> tuple[lattice.Factor, lattice.Factor | None]:
    """Returns what `loss_distribution.on_lattice` does, with cells of many sizes.

    Args:
        law: n losses.
        interval: The lattice's step, in nats.
        cells: Between the ends of which losses are split, or at the nearest end of
            which they are grouped.
    """
    upper = law.bound is Bound.UPPER
    positions = law.losses / interval
    # Losses that are equal but for rounding need not be in order: an upper bound may
    # raise them to those before.
    ordered = np.maximum.accumulate(positions, out=positions if upper else None)
    cells, stretches = cells.holding(ordered)
    indices = cells.indices()
    starts = np.append(0, np.cumsum(np.diff(cells.edges) // cells.sizes))
    parts = list(zip(stretches, cells.sizes.tolist(), strict=True))
    for part, size in parts:
        positions[part] /= size  # A power of two.
    ends = np.floor(positions) if upper else np.rint(positions)
    numbers = ends.astype(np.int64)
    for (part, size), start, edge in zip(parts, starts, cells.edges, strict=False):
        numbers[part] += start - edge // size
    lengths = [(part, interval * size) for part, size in parts]
    if upper:
        lowered, raised = loss_distribution.split(law.masses, positions, ends, lengths)
        masses, above = sums.gather_neighbours(numbers, [lowered, raised], indices.size)
        masses[1:] += above[:-1]
        return _factor(indices, masses, law.count), None
    others = loss_distribution.grouped(law.masses, positions, ends, lengths)
    return (
        _factor(indices, sums.gather(numbers, law.masses, indices.size), law.count),
        _factor(indices, sums.gather(numbers, others, indices.size), law.count),
    )


def _factor(indices: IndexArray, masses: FloatArray, count: int) -> lattice.Factor:
    start = int(indices[0])
    return lattice.Factor(start, masses, count, gaps=indices - start)
