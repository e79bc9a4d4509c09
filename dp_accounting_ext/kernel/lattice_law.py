"""Laws of sums of independent variables: positive terms on a lattice that doubles.

The mass of a sum is a sum of products of masses, none of them negative. Computed in
this way it has a small relative error, at 1e-270 as at 1e-3; no tilt, no window and no
transform is needed. The lattice makes this fast: its cells have one width near the
middle of the law, and twice that width each time the distance from the middle doubles.
So a law is a few pieces of a thousand cells, however long its tails are. (The grid of
https://arxiv.org/abs/2602.17284 is finer where ratios are smaller, in proportion. This
lattice is finest where ratios are near their middle, with widths in powers of two: sums
of its nodes are nodes again, so that no law has to be moved to a new grid.)

It gives bounds because of the data-processing inequality, applied in two ways.

An *upper* law splits. An atom between two nodes is split between them so that its
P-mass and its Q-mass are kept. Merging the two nodes gives the atom back: the true pair
is a function of the split one, so the split pair has the larger hockey-stick divergence
at every κ, in both directions. The same holds for the tuple of all runs, and for any
function of that tuple which is released.

A *lower* law merges. All outputs in one cell become one output, with both of their
masses: this is a function of the outputs. Leaving out a cell lowers every divergence.
"""

from collections.abc import Mapping
import dataclasses
import math

import numpy as np
from scipy import special

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

Atoms = atom_laws.Atoms
Axis = atom_laws.Axis
Law = atom_laws.Law
# The index of the first cell, on the piece's level, and (rows, cells) masses.
Piece = tuple[int, FloatArray]

# Certified, in units of rounding. _HALVING: a piece that moves up one level. _SUM:
# everything else that rounds a mass of a sum.
_HALVING, _SUM = 6, 8


@dataclasses.dataclass(frozen=True)
class LatticeLaw:
    """The law of a sum, on nodes at multiples of step · 2^level.

    Attributes:
        law: The side and the axis of the law, its sinks and its errors.
        step: The width of a cell of level 0, a power of two.
        accuracy: The number of cells in a scale of the law, at least.
        pieces: The masses of each level, in increasing order of levels.
        centre: The index, on level 0, around which cells are narrowest.
        reach: How many cells of its level a piece may be away from the centre.
        lowest: The Q-probability below which ratio cells stop shrinking. For a sum it
            is the product of the terms' values.
    """

    law: Law
    step: float
    accuracy: accuracy.Accuracy
    pieces: Mapping[int, Piece]
    centre: int
    reach: int
    lowest: float = 1.0

    def atoms(self) -> Atoms:
        """Returns the nodes that have mass, as atoms."""
        return self.atoms_and_places()[0]

    def atoms_and_places(self) -> tuple[Atoms, IntArray]:
        """Returns the nodes that have mass, and their (n,) indices among all cells."""
        if not self.pieces:
            rows = 1 if self.law.bound is Bound.UPPER else len(self.law.degrees) or 2
            none = Atoms(self.law, np.zeros(0), np.zeros((rows, 0)))
            return none, np.zeros(0, np.int64)
        nodes = np.concatenate(
            [
                (start + np.arange(masses.shape[1])) * math.ldexp(self.step, level)
                for level, (start, masses) in self.pieces.items()
            ]
        )
        masses = np.concatenate([each for _, each in self.pieces.values()], axis=1)
        (places,) = np.nonzero(masses[0])
        places = places[np.argsort(nodes[places], kind="stable")]
        return Atoms(self.law, nodes[places], masses[:, places]), places

    def ends(self) -> tuple[float, float]:
        """Returns the first and the last node, whether they have mass or not."""
        first, last = [], []
        for level, (start, masses) in self.pieces.items():
            width = math.ldexp(self.step, level)
            first.append(start * width)
            last.append((start + masses.shape[1]) * width)
        return min(first, default=0.0), max(last, default=0.0)

    def p_and_q_mass(self) -> tuple[float, float]:
        """Returns the sums of P's and of Q's masses."""
        return self.atoms().p_and_q_mass()

    def _with_underflow(self, low: float, high: float) -> "LatticeLaw":
        """Returns the law with the masses that underflowed in its sinks.

        Args:
            low: The first value of the law before it was laid out here.
            high: The last one.
        """
        if not self.pieces:
            return self
        # A node that moves up a level sends a share at most one cell down.
        width = 2 * math.ldexp(self.step, max(self.pieces))
        cells = sum(masses.shape[1] for _, masses in self.pieces.values())
        # The factor 2 is for the cells of the levels below.
        lost = self.law.underflown(2 * cells, low - 2 * width, high + 2 * width)
        moves_far = self.law.axis is Axis.LOSS and width > atom_laws.FURTHEST_MOVE
        if self.law.bound is Bound.LOWER and moves_far:
            # Any mass may have become so rare by moving far that it is left out.
            lost = self.law.ledger.p.whole, self.law.ledger.q.whole
        return dataclasses.replace(self, law=self.law.after((0.0, 0.0), lost))

    def doubled(self) -> "LatticeLaw":
        """Returns the same law on cells of twice the width."""
        pieces: dict[int, Piece] = {}
        for level, piece in self.pieces.items():
            if not level:
                piece = halved(piece, self.step, self.law)
            place = max(level - 1, 0)
            pieces[place] = added(pieces.get(place), piece)
        law = dataclasses.replace(
            self,
            law=self.law.rounded(_HALVING),
            step=2 * self.step,
            pieces=pieces,
            centre=self.centre // 2,
        )
        return law._with_underflow(*self.ends())

    def levelled(self) -> "LatticeLaw":
        """Returns a lower law of losses with the sums of both rows made equal.

        A cell's mean loss is its value, plus `offset`, minus ln(second row / first
        row). Over millions of runs this logarithm grows to hundreds of nats. The part
        that all cells share is moved to `offset`. Other laws are returned unchanged.
        """
        law = self.law
        if law.bound is Bound.UPPER or law.axis is Axis.RATIO or not self.pieces:
            return self
        first, last = sum(masses.sum(axis=1) for _, masses in self.pieces.values())
        is_rare = min(first, last) < floats.TINY  # Such a law is trimmed away later.
        excess = 0.0 if is_rare else math.log(first / last)
        if abs(excess) < 1:
            return self
        factors = np.array([[1.0], [math.exp(excess)]])
        offset = law.offset + excess
        moved = 2 * floats.UNIT_ROUNDOFF * abs(offset)
        return dataclasses.replace(
            self,
            law=dataclasses.replace(
                law.rounded(_HALVING),
                offset=offset,
                ratio_error=law.ratio_error + moved,
            ),
            pieces={k: (start, factors * m) for k, (start, m) in self.pieces.items()},
        )

    def plus(self, other: "LatticeLaw") -> "LatticeLaw":
        """Returns the law of the sum of two independent variables with one step.

        On each level k, the piece of level k of one law is convolved with everything of
        the other law on levels up to k, moved up to level k: one convolution a level
        for equal laws, two for different ones.
        """
        terms = self.p_and_q_mass, other.p_and_q_mass
        if not (self.pieces and other.pieces):
            law = self.law.plus(other.law, 0.0, *terms)
            return dataclasses.replace(self, law=law, pieces={})
        same = other is self
        pieces: dict[int, Piece] = {}
        # What either law has on lower levels, moved up to the present level.
        below: Piece | None = None
        other_below: Piece | None = None
        top, shorter = max(*self.pieces, *other.pieces), 1
        for level in range(top + 1):
            narrow = math.ldexp(self.step, level - 1)
            if below is not None:
                below = halved(below, narrow, self.law)
            if other_below is not None and not same:
                other_below = halved(other_below, narrow, self.law)
            here, other_here = self.pieces.get(level), other.pieces.get(level)
            if same:
                # Either of the two laws may be the one of the higher level.
                twice = below and (below[0], 2 * below[1])
                factors = [(here, joined(here, twice))]
                below = joined(below, here)
            else:
                factors = [(here, joined(other_here, other_below)), (below, other_here)]
                below = joined(below, here)
                other_below = joined(other_below, other_here)
            for first, second in factors:
                if first is not None and second is not None:
                    (start, x), (begin, y) = first, second
                    shorter = max(shorter, min(x.shape[1], y.shape[1]))
                    product = self.law.products(x, y, sums.convolve)
                    pieces[level] = added(pieces.get(level), (start + begin, product))
        units = _HALVING * (top + 1) + _SUM + (len(self.law.degrees) or 2)
        rounding = sums.convolution_error(shorter) + units * floats.UNIT_ROUNDOFF
        total = dataclasses.replace(
            self,
            law=self.law.plus(other.law, rounding, *terms),
            centre=self.centre + other.centre,
            reach=max(self.reach, other.reach),
            lowest=self.lowest * other.lowest,
        )
        low, high = (x + y for x, y in zip(self.ends(), other.ends(), strict=True))
        return _laid_out(total, pieces)._with_underflow(low, high)


def _laid_out(law: LatticeLaw, summed: Mapping[int, Piece]) -> LatticeLaw:
    """Returns a law whose pieces are moved up to the levels of their distances."""
    waiting = dict(summed)
    pieces: dict[int, Piece] = {}
    level, first = min(waiting), min(waiting)
    while waiting:
        if level not in waiting:
            level += 1
            continue
        start, masses = waiting.pop(level)
        width = math.ldexp(law.step, level)
        middle = math.ldexp(law.centre, -level)
        size = masses.shape[1]
        low = min(max(math.ceil(middle - law.reach) - start, 0), size)
        high = min(max(math.floor(middle + law.reach) + 1 - start, low), size)
        if high > low:
            pieces[level] = start + low, masses[:, low:high]
        for begin, outer in (
            (start, masses[:, :low]),
            (start + high, masses[:, high:]),
        ):
            if outer.any():
                wider = halved((begin, outer), width, law.law)
                next_one = waiting.get(level + 1)
                waiting[level + 1] = added(next_one, wider)
        level += 1
    rounded = law.law.rounded(_HALVING * (level - first))
    return dataclasses.replace(law, law=rounded, pieces=pieces)


def halved(piece: Piece, width: float, law: Law) -> Piece:
    """Returns a piece moved up one level, to cells of twice the given width.

    Odd nodes are split between the two nodes beside them (upper) or join the lower one
    (lower).
    """
    start, masses = piece
    odd_first = start & 1
    odd = masses[:, 1 - odd_first :: 2]
    even = masses[:, odd_first::2]
    out = np.zeros((len(masses), masses.shape[1] // 2 + 2))
    out[:, odd_first : odd_first + even.shape[1]] = even
    number = odd.shape[1]
    if law.bound is Bound.UPPER:
        lower = upper = 0.5
        if law.axis is Axis.LOSS:
            lower, upper = float(special.expit(-width)), float(special.expit(width))
        out[:, :number] += lower * odd
        out[:, 1 : 1 + number] += upper * odd
    else:
        if law.axis is Axis.LOSS:
            odd = np.array([odd[0], odd[1] * math.exp(-width)])
            if width > atom_laws.FURTHEST_MOVE:
                # What would become too rare for a float is left out, in both rows.
                odd[:, odd[1] < floats.TINY] = 0.0
        out[:, :number] += odd
        if law.keeps_rests:
            # Each odd node is one width above the lower node that it joins.
            out[1, :number] += width * odd[0]
    return start >> 1, out


def added(one: Piece | None, other: Piece) -> Piece:
    """Returns the masses of two pieces of one level added up; the first may be None."""
    if one is None:
        return other
    (start, x), (begin, y) = one, other
    first = min(start, begin)
    last = max(start + x.shape[1], begin + y.shape[1])
    out = np.zeros((len(x), last - first))
    out[:, start - first : start - first + x.shape[1]] = x
    out[:, begin - first : begin - first + y.shape[1]] += y
    return first, out


def joined(one: Piece | None, other: Piece | None) -> Piece | None:
    """Returns the masses of two pieces of one level added up; either may be None."""
    return one if other is None else added(one, other)
