"""Laws of sums of independent variables: positive terms on a lattice that doubles.

The mass of a sum is a sum of products of masses, none of them negative. Computed as
such it is exact but for a few roundings, relatively, at 1e-270 as at 1e-3; no tilt, no
window and no transform is needed. What makes that quick is the lattice: its cells have
one width near the middle of the law, and twice as much each time the distance from
there doubles. So a law is a few pieces of a thousand cells, however long its tails are.
(The grid of https://arxiv.org/abs/2602.17284 is finer where ratios are smaller, in
proportion. This one is finer where ratios are near their middle, in powers of two: sums
of its nodes are nodes, and nothing is laid anew.)

Why it is a bound: data processing, twice.

An *upper* law splits. An atom that lies between two nodes moves to both, so that its
P-mass and its Q-mass are kept. Who merges the two nodes again has the atom: the true
pair is a function of ours, so that ours is further apart at every κ, in both
directions; so is the tuple of all runs, and any function of it that is told.

A *lower* law merges. Outputs that fall into one cell become one, with both masses: a
function of the outputs. To leave a cell out lowers every divergence.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import enum
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import special

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

Bound = dominating_pair.Bound
FloatArray = npt.NDArray[np.float64]
# Where a piece begins, in cells of its level, and its (rows, cells) masses.
Piece = tuple[int, FloatArray]

_UNIT = floats.UNIT_ROUNDOFF
# Certified: what has less mass goes to the sinks (upper) or is dropped (lower), so that
# no float with fewer digits is ever multiplied by something large; and what a sum of
# products may have lost where these are less than a float can be.
TINY = 1e-280
_UNDERFLOW = 1e-316
# Certified, in units of rounding: of an atom's share of a node, a quotient of two
# exponentials or so, and of what meets there; of a piece that goes up a level; and of
# what else is done to a mass of a sum.
_SHARE, _HALVING, _SUM = 24, 6, 8
# Certified: sums of masses that go to a sink are raised by so much.
_OF_SINKS = 1e-9
# Certified: no Q-mass of a lower law moves by more nats, beside which masses fit.
_FURTHEST_MOVE, _LARGEST_MOVED = 40.0, 1e90
# Tuning: more than this is counted anew, as what the sum of Q's masses lacks.
_MUCH = 1e-25
# Sums have so many terms one after another, and then so many of these sums.
_BLOCK = 256

# Tuning, all of it.
# So many empty cells are worth two sums in place of one.
_HOLE = 64
# Both middles of a law that is read from both sides are there, if they are so near.
_FURTHEST = 12.0
# A ratio's law whose scale is more than this share of its middle has cells in
# proportion to the ratio, which then are as wide as those around a middle;
_WIDE = 0.5
# half of that share is enough if what must not reach zero is so near, over the middle.
_NEAR_ZERO = 0.125
# Rare losses must not coarsen the bulk: the scale is that of the middle two thirds, at
# least so small a share of the deviation.
_LEAST_SCALE = 2.0**-24
# Where mass falls steeply towards a threshold at zero, cells are narrow there: so much
# less in half of the distance is steep.
_STEEP, _MOST_HALVINGS = 2.3, 24
# Laws that go on for more levels have fewer cells on each of them, but some.
_MANY_LEVELS, _FEWEST_CELLS = 48, 8
# Sums of more have more cells in a scale, so that brackets are as narrow; so have sums
# of a few copies, which take little time.
_DOUBLINGS, _FEW_COPIES, _FINER = 14, 64, 2.0
# A limit: the narrowest width has all its digits.
_SMALLEST_SCALE = 1e-285
# Certified: indices have so many binary digits, so that nodes are floats.
_DIGITS = 52
_QUANTILES = np.array([0.16, 0.5, 0.84])


class Axis(enum.Enum):
    """What adds up.

    Losses ln(dP/dQ), with P's probabilities, where mechanisms are composed; ratios
    dP/dQ, with Q's, where one step of many is drawn.
    """

    LOSS = "loss"
    RATIO = "ratio"


@dataclasses.dataclass(frozen=True)
class Resolution:
    """How fine a lattice is; its scale is about a deviation of the law's middle.

    Attributes:
        cells: In a scale, at least: the width of a bracket falls as their square.
        scales: On either side of the middle, that are on cells of one width.
        lowest: Where a ratio's cells shrink with it, they stop where Q has so little.
    """

    cells: int = 144
    scales: int = 3
    lowest: float = 1e-9

    @property
    def reach(self) -> int:
        """How many cells of its level a piece may be away from the middle."""
        return 2 * self.scales * self.cells

    def for_sum(self, count: int, tail_mass: float) -> "Resolution":
        """Returns what is fine enough for a sum of so many, but for a tail.

        Every doubling rounds; and ratios must not reach zero before the sum does.
        """
        doublings = max(count.bit_length(), _DOUBLINGS)
        finer = _FINER if count < _FEW_COPIES else 1.0
        cells = round(self.cells * finer * math.sqrt(doublings / _DOUBLINGS))
        lowest = min(self.lowest, tail_mass ** (1 / max(count, 1)))
        return dataclasses.replace(self, cells=cells, lowest=lowest)

    def of_levels(self, levels: float) -> "Resolution":
        """Returns what is fine enough for a law of so many levels."""
        cells = round(self.cells * min(1.0, _MANY_LEVELS / max(levels, 1.0)))
        return dataclasses.replace(self, cells=max(cells, _FEWEST_CELLS))


@dataclasses.dataclass(frozen=True)
class Atoms:
    """A law of atoms: where they are, and the masses of one law or of both.

    Upper laws have one row of masses: P's (LOSS) or Q's (RATIO). The other law's follow
    from the value: p e^{−loss}, or q · ratio. Lower ones have a second row, which keeps
    the mean of what was merged: Q's masses times e^{value} (LOSS: so they are no more
    than a cell away from P's, however large the loss is), or the sums of q · ratio.
    Lower laws of ratios may have more rows, each of a degree: of a sum the row of
    degree d is the sum of products of rows whose degrees add up to d, as for the
    coefficients of power series. Then values say no more than which outputs are merged.

    Values of ratios are differences of such, where they may be negative; then P's mass
    is what the positive ones have, which bounds what a sum's positive part may lose.

    Attributes:
        axis: What is summed.
        bound: Which side it is on.
        values: (n,) values, increasing.
        masses: (rows, n) masses, positive.
        over: P's mass at an infinite ratio; for RATIO the sum of all steps'.
        under: Q's mass at a ratio of zero, but for an atom there.
        error: Masses are those of a bound within a factor of e^±error,
        rounding: in which both rows of a lower law agree but for e^±rounding each.
        shift: And values within so much: nats (LOSS), or relatively (RATIO).
        degrees: Of the rows of a lower law of ratios.
    """

    axis: Axis
    bound: Bound
    values: FloatArray
    masses: FloatArray
    over: float = 0.0
    under: float = 0.0
    error: float = 0.0
    rounding: float = 0.0
    shift: float = 0.0
    degrees: tuple[int, ...] = (0, 1)

    def p_and_q(self) -> tuple[FloatArray, FloatArray]:
        """Returns the (n,) masses of P and of Q, where they fit a float.

        No mass of P above TINY has a loss below −700: Q would have more than one there.
        """
        first, last = self.masses[0], self.masses[-1]
        if self.axis is Axis.LOSS:
            with np.errstate(over="ignore", under="ignore"):
                exponents = np.minimum(-self.values, floats.LARGEST_EXPONENT)
                return first, last * np.exp(exponents)
        if self.bound is Bound.LOWER:
            return last, first
        return first * np.maximum(self.values, 0.0), first

    def mean(self) -> float:
        """Returns the sum of masses times values; of ratios the positive ones."""
        if self.axis is Axis.RATIO:
            return sums.dot(self.masses[0], np.maximum(self.values, 0.0))
        return sums.dot(self.masses[0], self.values)

    def without_tiny(self, q_mass: float) -> "Atoms":
        """Returns the law of a sum without masses below TINY, which go to the sinks.

        With them goes what is less than any float: a sum has that where it has others
        that are as small, nearly, or no smallest mass at all.

        Args:
            q_mass: What Q has of finite losses, as far as none of it was lost.
        """
        gone = np.asarray((self.masses < TINY).any(axis=0))
        lost_p, lost_q = _lost(self, gone) if self.bound is Bound.UPPER else (0.0, 0.0)
        kept = dataclasses.replace(
            self, values=self.values[~gone], masses=self.masses[:, ~gone]
        )
        if lost_q > _MUCH and self.axis is Axis.LOSS:
            lost_q = min(lost_q, _missing(q_mass, kept.q_mass(), self.error))
        return dataclasses.replace(
            kept, over=self.over + lost_p, under=min(self.under + lost_q, 1.0)
        )

    def q_mass(self) -> float:
        """Returns the sum of Q's masses."""
        return float(self.p_and_q()[1].sum())


def _missing(before: float, after: float, error: float) -> float:
    """Returns an upper bound on what a law has lost of Q's mass."""
    rounding = _OF_SINKS + 4 * error
    return max(before * (1 + rounding) - after * (1 - rounding), 0.0)


def _underflown(axis: Axis, cells: int, low: float, high: float) -> tuple[float, float]:
    """Returns what P's and Q's mass may lack where masses were less than a float.

    Args:
        axis: What is summed.
        cells: How many of its masses were.
        low: No value of them is smaller,
        high: and none is larger.
    """
    lost = _UNDERFLOW * cells
    if axis is Axis.RATIO:
        return lost * max(high, 1.0), lost
    return lost, floats.exponential(math.log(lost) - min(low, 0.0)) if cells else 0.0


def _lost(atoms: Atoms, gone: npt.NDArray[np.bool_]) -> tuple[float, float]:
    """Returns P's and Q's mass of atoms that go to the sinks, with what floats lost."""
    p, q = atoms.p_and_q()
    ends = float(atoms.values[0]), float(atoms.values[-1])
    lost_p, lost_q = _underflown(atoms.axis, atoms.values.size, *ends)
    lost_p += float(p[gone].sum())
    lost_q += float(np.minimum(q[gone], 1.0).sum())
    return lost_p * (1 + _OF_SINKS), lost_q * (1 + _OF_SINKS)


@dataclasses.dataclass(frozen=True)
class LatticeLaw:
    """The law of a sum, on step · 2^level · integers.

    Attributes:
        axis: As of `Atoms`, and so are `bound`, `over`, `under`, `error`, `rounding`,
            `shift` and `degrees`.
        step: Width of a cell of level 0, a power of two.
        resolution: How many of these are in a scale.
        pieces: By their level, in increasing order.
        centre: The index, on level 0, around which cells are narrow.
        reach: How many cells of its level a piece may be away from there.
    """

    axis: Axis
    bound: Bound
    step: float
    resolution: Resolution
    pieces: Mapping[int, Piece]
    centre: int
    reach: int
    over: float = 0.0
    under: float = 0.0
    error: float = 0.0
    rounding: float = 0.0
    shift: float = 0.0
    degrees: tuple[int, ...] = (0, 1)

    def atoms(self) -> Atoms:
        """Returns the law's nodes that have mass."""
        if not self.pieces:
            return self._nothing()
        values = np.concatenate(
            [
                (start + np.arange(masses.shape[1])) * math.ldexp(self.step, level)
                for level, (start, masses) in self.pieces.items()
            ]
        )
        masses = np.concatenate([each for _, each in self.pieces.values()], axis=1)
        (kept,) = np.nonzero(masses[0])
        order = kept[np.argsort(values[kept], kind="stable")]
        return Atoms(
            self.axis,
            self.bound,
            values[order],
            masses[:, order],
            self.over,
            self.under,
            self.error,
            self.rounding,
            self.shift,
            self.degrees,
        )

    def _nothing(self) -> Atoms:
        """Returns the law of what is lost altogether."""
        rows = 1 if self.bound is Bound.UPPER else 2
        return Atoms(
            self.axis,
            self.bound,
            np.zeros(0),
            np.zeros((rows, 0)),
            over=self.over,
            under=self.under,
        )

    def mean(self) -> float:
        """Returns the sum of masses times values, as `Atoms.mean` does."""
        return self.atoms().mean()

    def ends(self) -> tuple[float, float]:
        """Returns the first and the last node, with mass or without."""
        first, last = [], []
        for level, (start, masses) in self.pieces.items():
            width = math.ldexp(self.step, level)
            first.append(start * width)
            last.append((start + masses.shape[1]) * width)
        return min(first, default=0.0), max(last, default=0.0)

    def q_mass(self) -> float:
        """Returns the sum of Q's masses."""
        return self.atoms().q_mass()

    def _with_underflow(
        self, ends: tuple[float, float], q_mass: Callable[[], float]
    ) -> "LatticeLaw":
        """Returns the law with what masses less than a float had, in its sinks.

        Args:
            ends: The first and the last value of what was laid out here.
            q_mass: Tells what Q had there.
        """
        if self.bound is Bound.LOWER or not self.pieces:
            return self
        # A node that goes up a level has its share a cell below, at most.
        width = 2 * math.ldexp(self.step, max(self.pieces))
        cells = sum(masses.shape[1] for _, masses in self.pieces.values())
        # Twice: what was on cells of lower levels, and on these.
        lost_p, lost_q = _underflown(
            self.axis, 2 * cells, ends[0] - 2 * width, ends[1] + 2 * width
        )
        if lost_q > _MUCH and self.axis is Axis.LOSS:
            lost_q = min(lost_q, _missing(q_mass(), self.q_mass(), self.error))
        return dataclasses.replace(
            self, over=self.over + lost_p, under=min(self.under + lost_q, 1.0)
        )

    def doubled(self) -> "LatticeLaw":
        """Returns the same on cells of twice the width."""
        pieces: dict[int, Piece] = {}
        for level, piece in self.pieces.items():
            if not level:
                piece = self._halved(0, piece)
            place = max(level - 1, 0)
            pieces[place] = _added(pieces.get(place), piece)
        law = dataclasses.replace(
            self,
            step=2 * self.step,
            pieces=pieces,
            centre=self.centre // 2,
            error=self.error + _HALVING * _UNIT,
            rounding=self.rounding + _HALVING * _UNIT,
        )
        return law._with_underflow(self.ends(), self.q_mass)

    def plus(self, other: "LatticeLaw") -> "LatticeLaw":
        """Returns the law of the sum of two independent variables, of one step.

        What is on levels below k, added up on level k, meets the piece of level k: one
        convolution a level, or two for different laws.
        """
        if not (self.pieces and other.pieces):
            sinks = sinks_of_sum(self, other)
            return dataclasses.replace(
                self, pieces={}, over=sinks.over, under=sinks.under, shift=sinks.shift
            )
        same = other is self
        law = dataclasses.replace(
            self,
            centre=self.centre + other.centre,
            reach=max(self.reach, other.reach),
        )
        found: dict[int, Piece] = {}
        mine: Piece | None = None
        theirs: Piece | None = None
        top, terms = max(*self.pieces, *other.pieces), 1
        for level in range(top + 1):
            if mine is not None:
                mine = law._halved(level - 1, mine)
            if theirs is not None and not same:
                theirs = law._halved(level - 1, theirs)
            x, y = self.pieces.get(level), other.pieces.get(level)
            if same:
                # Either of two takes the part of the other.
                jobs = [(x, _joined(y, mine and (mine[0], 2 * mine[1])))]
            else:
                jobs = [(x, _joined(y, theirs)), (mine, y)]
            for one, two in jobs:
                if one is None or two is None:
                    continue
                for side in _sides(one):
                    terms = max(terms, min(side[1].shape[1], two[1].shape[1]))
                    sums_here = law._convolved(side, two)
                    found[level] = _added(found.get(level), sums_here)
            mine = _joined(mine, x)
            theirs = mine if same else _joined(theirs, y)
        sinks = sinks_of_sum(self, other)
        rounding = convolution_error(terms) + (_HALVING * (top + 1) + _SUM) * _UNIT
        rounding += len(self.degrees) * _UNIT
        law = dataclasses.replace(
            law,
            error=self.error + other.error + rounding,
            rounding=self.rounding + other.rounding + rounding,
            over=sinks.over,
            under=sinks.under,
            shift=sinks.shift,
        )
        low, high = (x + y for x, y in zip(self.ends(), other.ends(), strict=True))
        return _laid_out(law, found)._with_underflow(
            (low, high), lambda: self.q_mass() * other.q_mass()
        )

    def _halved(self, level: int, piece: Piece) -> Piece:
        """Returns a piece on cells twice as wide: a level up.

        Odd nodes are split between both neighbours (upper) or join the lower one.
        """
        start, masses = piece
        odd_first = start & 1
        odd = masses[:, 1 - odd_first :: 2]
        even = masses[:, odd_first::2]
        out = np.zeros((len(masses), masses.shape[1] // 2 + 2))
        out[:, odd_first : odd_first + even.shape[1]] = even
        number = odd.shape[1]
        width = math.ldexp(self.step, level)
        if self.bound is Bound.UPPER:
            lower = upper = 0.5
            if self.axis is Axis.LOSS:
                lower, upper = float(special.expit(-width)), float(special.expit(width))
            out[:, :number] += lower * odd
            out[:, 1 : 1 + number] += upper * odd
        elif self.axis is Axis.RATIO or width <= _FURTHEST_MOVE:
            out[0, :number] += odd[0]
            moved = math.exp(-width) if self.axis is Axis.LOSS else 1.0
            out[1:, :number] += moved * odd[1:]
        return start >> 1, out

    def _convolved(self, one: Piece, other: Piece) -> Piece:
        """Returns the sums of nodes of one level."""
        (start, x), (begin, y) = one, other
        if self.bound is Bound.LOWER and self.axis is Axis.RATIO:
            return start + begin, products(x, y, self.degrees, convolve)
        found = [convolve(*rows) for rows in zip(x, y, strict=True)]
        return start + begin, np.array(found)


def products(
    x: FloatArray,
    y: FloatArray,
    degrees: Sequence[int],
    product: Callable[[FloatArray, FloatArray], FloatArray],
) -> FloatArray:
    """Returns rows of a product: for each degree all that have it together.

    Args:
        x: (k, n) rows.
        y: (k, m) rows.
        degrees: (k,) their degrees.
        product: Of two rows.
    """
    return np.array(
        [
            sum(
                product(x[degrees.index(low)], y[degrees.index(degree - low)])
                for low in degrees
                if degree - low in degrees
            )
            for degree in degrees
        ]
    )


def convolve(x: FloatArray, y: FloatArray) -> FloatArray:
    """Returns the (n + m − 1,) sums of products of masses, in blocks."""
    if x.size < y.size:
        x, y = y, x
    if y.size <= 2 * _BLOCK:
        return np.convolve(x, y)
    out = np.zeros(x.size + y.size - 1)
    for first in range(0, y.size, _BLOCK):
        part = y[first : first + _BLOCK]
        out[first : first + x.size + part.size - 1] += np.convolve(x, part)
    return out


def convolution_error(terms: int) -> float:
    """Bounds the relative error of a sum of so many products, as `convolve` has it."""
    return (min(terms, 2 * _BLOCK) + terms // _BLOCK + 4) * _UNIT


def _added(one: Piece | None, other: Piece) -> Piece:
    """Returns the sum of two pieces of one level, the first of which may be nothing."""
    if one is None:
        return other
    (start, x), (begin, y) = one, other
    first = min(start, begin)
    last = max(start + x.shape[1], begin + y.shape[1])
    out = np.zeros((len(x), last - first))
    out[:, start - first : start - first + x.shape[1]] = x
    out[:, begin - first : begin - first + y.shape[1]] += y
    return first, out


def _joined(one: Piece | None, other: Piece | None) -> Piece | None:
    """Returns the sum of two pieces of one level, either of which may be nothing."""
    return one if other is None else _added(one, other)


def _sides(piece: Piece) -> list[Piece]:
    """Returns a piece in two, if there is a hole in its middle."""
    start, masses = piece
    (there,) = np.nonzero(masses[0])
    gaps = np.diff(there)
    if not gaps.size or gaps.max() < _HOLE:
        return [piece]
    place = int(gaps.argmax())
    last, first = int(there[place]) + 1, int(there[place + 1])
    return [(start, masses[:, :last]), (start + first, masses[:, first:])]


class Sinks(NamedTuple):
    """What a sum has in its sinks, and how far its values may be off."""

    over: float
    under: float
    shift: float


def sinks_of_sum(one: "Atoms | LatticeLaw", other: "Atoms | LatticeLaw") -> Sinks:
    """Returns the sinks and the shift of the sum of two laws.

    RATIO: where either is lost, so is the sum, with what the other has of P's mass.
    """
    rounding = _OF_SINKS if one.bound is Bound.UPPER else -_OF_SINKS
    if one.axis is Axis.LOSS:
        over = one.over + other.over - one.over * other.over
        under = one.under + other.under - one.under * other.under
        shift = one.shift + other.shift
    else:
        over, under = one.over + other.over, one.under + other.under
        if under:
            over += one.under * other.mean() + other.under * one.mean()
        shift = max(one.shift, other.shift)
    return Sinks(over * (1 + rounding), min(under * (1 + rounding), 1.0), shift)


def _laid_out(law: LatticeLaw, found: Mapping[int, Piece]) -> LatticeLaw:
    """Returns a law with pieces moved up to the levels of their distances."""
    waiting = dict(found)
    pieces: dict[int, Piece] = {}
    level, first = min(waiting), min(waiting)
    while waiting:
        if level not in waiting:
            level += 1
            continue
        start, masses = waiting.pop(level)
        middle = math.ldexp(law.centre, -level)
        size = masses.shape[1]
        low = min(max(math.ceil(middle - law.reach) - start, 0), size)
        high = min(max(math.floor(middle + law.reach) + 1 - start, low), size)
        if high > low:
            pieces[level] = start + low, masses[:, low:high]
        for begin, part in (
            (start, masses[:, :low]),
            (start + high, masses[:, high:]),
        ):
            if part.any():
                further = law._halved(level, (begin, part))
                waiting[level + 1] = _added(waiting.get(level + 1), further)
        level += 1
    rounding = _HALVING * (level - first) * _UNIT
    return dataclasses.replace(
        law,
        pieces=pieces,
        error=law.error + rounding,
        rounding=law.rounding + rounding,
    )


@dataclasses.dataclass(frozen=True)
class _Shape:
    """Where a law has its middle, and how wide it is, in its values.

    Attributes:
        centre: Around which cells are narrow.
        scale: Half of what the middle two thirds of the mass cover.
        apart: How far P's middle and Q's are from the centre.
    """

    centre: float
    scale: float
    apart: float = 0.0


def _shape(atoms: Atoms, lowest: float, both: bool) -> _Shape:
    """Returns the shape of a law.

    Args:
        atoms: The law.
        lowest: Where cells shrink with a ratio, they stop where Q has so little.
        both: Whether the law is read from Q's side as well (of losses).
    """
    values, first = atoms.values, atoms.masses[0]
    cumulated = np.cumsum(first)
    places = np.searchsorted(cumulated, _QUANTILES * cumulated[-1])
    low, middle, high = values[places].tolist()
    largest = float(np.abs(values[[0, -1]]).max()) or 1.0
    apart = (values - atoms.mean() / cumulated[-1]) / largest
    deviation = math.sqrt(sums.dot(first, apart**2) / cumulated[-1]) * largest
    scale = max((high - low) / 2, deviation * _LEAST_SCALE)
    if atoms.axis is Axis.RATIO:
        if values[0] < 0:
            if scale <= _WIDE * abs(middle):
                return _Shape(middle, scale)
            return _Shape(0.0, _scale_at_zero(values, cumulated, scale))
        least = _quantile(atoms, lowest)
        wide = _WIDE if least > _NEAR_ZERO * middle else _WIDE / 2
        if scale <= wide * middle:
            return _Shape(middle, scale)
        return _Shape(0.0, min(scale, 2 * least))
    if not both:
        return _Shape(middle, scale)
    q = np.cumsum(atoms.p_and_q()[1])
    other = float(values[np.searchsorted(q, q[-1] / 2)])
    if abs(middle - other) > _FURTHEST * scale:
        return _Shape(middle, scale)
    return _Shape((middle + other) / 2, scale, abs(middle - other) / 2)


def _scale_at_zero(values: FloatArray, cumulated: FloatArray, scale: float) -> float:
    """Returns over what distance below zero the mass of a law's cells grows slowly.

    Args:
        values: (n,) values, increasing, of either sign.
        cumulated: (n,) masses up to them.
        scale: The law's own, the most that is returned.
    """
    found = scale
    for halvings in range(_MOST_HALVINGS):
        width = math.ldexp(scale, -halvings)
        places = np.searchsorted(values, [-width, -width / 2, 0.0])
        low, half, zero = np.append(0.0, cumulated)[places].tolist()
        if half >= zero:
            break
        if zero - low > _STEEP * (zero - half):
            found = width / 2
    return found


def _quantile(atoms: Atoms, share: float) -> float:
    """Returns the value below which Q has such a share of all positive ratios."""
    positive = atoms.values > 0
    cumulated = np.cumsum(atoms.masses[0][positive])
    if not cumulated.size:
        return 0.0
    place = np.searchsorted(cumulated, share * cumulated[-1])
    return float(atoms.values[positive][place])


def _levels(atoms: Atoms, scale: float) -> float:
    """Returns about how many levels a law has."""
    longest = max(float(np.abs(atoms.values[[0, -1]]).max()), scale)
    return math.log2(longest) - math.log2(scale)


def _reach(shape: _Shape, step: float, resolution: Resolution) -> int:
    return resolution.reach + math.ceil(shape.apart / step)


def on_lattice(atoms: Atoms, resolution: Resolution, *, both: bool) -> LatticeLaw:
    """Returns the law on a lattice: split (upper), or merged (lower).

    Args:
        atoms: n atoms.
        resolution: How fine the lattice is.
        both: Whether the law is read from Q's side as well (of losses).
    """
    shape = _shape(atoms, resolution.lowest, both)
    scale = max(shape.scale or abs(shape.centre) or 1.0, _SMALLEST_SCALE)
    resolution = resolution.of_levels(_levels(atoms, scale))
    step = 2.0 ** math.floor(math.log2(scale / resolution.cells))
    step = max(step, _narrowest(shape.centre))
    reach = _reach(shape, step, resolution)
    centre = round(shape.centre / step)
    # The first level at which the distance is no more than the reach.
    digits, exponents = np.frexp(np.abs(atoms.values - centre * step))
    unit, exponent = math.frexp(reach * step)
    levels = np.maximum(exponents - exponent + (digits > unit), 0)
    levels[digits == 0] = 0  # Whose exponent is that of 1.
    pieces: dict[int, Piece] = {}
    for level in np.unique(levels).tolist():
        (here,) = np.nonzero(levels == level)
        some = dataclasses.replace(
            atoms, values=atoms.values[here], masses=atoms.masses[:, here]
        )
        pieces[level] = placed(some, math.ldexp(step, level))
    law = LatticeLaw(
        atoms.axis,
        atoms.bound,
        step,
        resolution,
        pieces,
        centre,
        reach,
        atoms.over,
        atoms.under,
        atoms.error + _SHARE * _UNIT,
        atoms.rounding + _SHARE * _UNIT,
        atoms.shift,
        atoms.degrees,
    )
    ends = float(atoms.values[0]), float(atoms.values[-1])
    return law._with_underflow(ends, atoms.q_mass)


def _narrowest(centre: float) -> float:
    """Returns the width at which the index of a place is an integer in floats."""
    return math.ldexp(1.0, math.frexp(abs(centre))[1] - _DIGITS) if centre else 0.0


def placed(atoms: Atoms, width: float) -> Piece:
    """Returns atoms on nodes so far apart: split (upper), or merged (lower)."""
    places, masses = atoms.values / width, atoms.masses
    if atoms.bound is Bound.LOWER:
        nearest = np.rint(places)
        cells = nearest.astype(np.int64)
        if atoms.axis is Axis.LOSS:
            exponents = (nearest - places) * width
            fits = np.abs(exponents) <= _FURTHEST_MOVE
            moved = masses[1] * np.exp(np.where(fits, exponents, 0.0))
            # What moves further is left out: a row would not fit a float.
            masses = np.where(fits, np.array([masses[0], moved]), 0.0)
        start = int(cells.min())
        return start, np.array([sums.gather(cells - start, row) for row in masses])
    floors = np.floor(places)
    cells = floors.astype(np.int64)
    above = places - floors
    lower, upper = 1 - above, above
    if atoms.axis is Axis.LOSS:
        # Both from exact differences, so that either share has all its digits.
        whole = math.expm1(-width)
        lower = np.exp(-width * above) * np.expm1(-width * lower) / whole
        upper = np.expm1(-width * above) / whole
    start = int(cells.min())
    cells -= start
    size = int(cells.max()) + 2
    found = sums.gather(cells, lower * masses[0], size)
    found[1:] += sums.gather(cells, upper * masses[0], size - 1)
    return start, found[np.newaxis]


def trimmed(law: LatticeLaw, atoms: Atoms, tail_mass: float) -> LatticeLaw:
    """Returns a law without tails, and without masses below TINY.

    Of the tails that go P has less than the tail mass above, and both laws below; of
    ratios none go below.

    Args:
        law: The law.
        atoms: Its atoms.
        tail_mass: What the tails may have.
    """
    values = atoms.values
    p, q = atoms.p_and_q()
    highest = int(np.searchsorted(-np.cumsum(p[::-1])[::-1], -tail_mass)) - 1
    last = float(values[max(highest, 0)])
    first = float(values[0])
    if law.axis is Axis.RATIO:
        last = max(last, 0.0)
    else:
        below = np.cumsum(np.maximum(p, np.minimum(q, 1.0)))
        lowest = int(np.searchsorted(below, tail_mass))
        first = float(values[min(lowest, values.size - 1)])
    first = min(first, last)
    pieces = {}
    for level, (start, masses) in law.pieces.items():
        width = math.ldexp(law.step, level)
        size = masses.shape[1]
        low = math.ceil(min(max(first / width - start, 0.0), size))
        high = math.floor(min(max(last / width - start + 1, low), size))
        kept = masses[:, low:high]
        small = (kept < TINY).any(axis=0)
        if law.bound is Bound.LOWER and law.axis is Axis.LOSS:
            # Moved so often that sums would not fit a float.
            small |= kept[-1] > _LARGEST_MOVED
        if small.any():
            kept = np.where(small, 0.0, kept)
        if kept.any():
            pieces[level] = start + low, kept
    if law.bound is Bound.LOWER:
        return dataclasses.replace(law, pieces=pieces)
    gone = (values < first) | (values > last) | (atoms.masses[0] < TINY)
    lost_p, lost_q = _lost(atoms, gone)
    if lost_q > _MUCH and law.axis is Axis.LOSS:
        lost_q = min(lost_q, _missing(float(q.sum()), float(q[~gone].sum()), law.error))
    return dataclasses.replace(
        law,
        pieces=pieces,
        over=law.over + lost_p,
        under=min(law.under + lost_q, 1.0),
    )


def settled(law: LatticeLaw, tail_mass: float, *, both: bool) -> LatticeLaw:
    """Returns a law without tails, on cells that are wide enough for its scale."""
    if not law.pieces:
        return law
    atoms = law.atoms()
    if not atoms.values.size:
        # All that was finite is less than a float, and counted in the sinks.
        return dataclasses.replace(law, pieces={})
    law = trimmed(law, atoms, tail_mass)
    shape = _shape(atoms, tail_mass, both)
    widest = 2 * law.resolution.cells
    while shape.scale > widest * law.step or law.step < _narrowest(shape.centre):
        law = law.doubled()
    return dataclasses.replace(
        law,
        centre=round(shape.centre / law.step),
        reach=_reach(shape, law.step, law.resolution),
    )


def times(law: LatticeLaw, count: int, tail_mass: float, *, both: bool) -> LatticeLaw:
    """Returns the law of the sum of independent copies, from the first digit on.

    Args:
        law: That of one.
        count: How many, at least 1.
        tail_mass: What may be cut off, in all.
        both: Whether the sum is read from Q's side as well (of losses).
    """
    total, number, share = law, 1, tail_mass / (4 * count.bit_length())
    for digit in bin(count)[3:]:
        total, number = total.plus(total), 2 * number
        if digit == "1":
            while law.step < total.step:
                law = law.doubled()
            total, number = total.plus(law), number + 1
        total = settled(total, share * number / count, both=both)
    return total


def sum_of(laws: Sequence[LatticeLaw], tail_mass: float, *, both: bool) -> LatticeLaw:
    """Returns the law of the sum of independent variables, narrow ones first.

    Args:
        laws: What is added up.
        tail_mass: What each addition may cut off.
        both: Whether the sum is read from Q's side as well (of losses).
    """
    laws = sorted(laws, key=lambda law: law.step)
    total = laws[0]
    for law in laws[1:]:
        while total.step < law.step:
            total = total.doubled()
        while law.step < total.step:
            law = law.doubled()
        total = settled(total.plus(law), tail_mass, both=both)
    return total
