"""From atoms to a lattice, and sums of many laws on it.

How fine the lattice of a law is, how its atoms are laid on it, and when a sum is moved
to wider cells. What a law on a lattice is, and how two of them are added, is
`lattice_law`.
"""

from collections.abc import Sequence
import dataclasses
import math
import operator

import numpy as np

from dp_accounting_ext.kernel import accuracy
from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import lattice_law
from dp_accounting_ext.kernel import sums

Atoms = atom_laws.Atoms
Axis = atom_laws.Axis
LatticeLaw = lattice_law.LatticeLaw
Accuracy = accuracy.Accuracy

# Certified, in units of rounding: the share of an atom that a node gets, a quotient of
# two exponentials, and the sum of the shares that meet there.
_SHARE = 24
# A limit: the narrowest width is still a float with all its digits.
_SMALLEST_SCALE = 1e-285

# Tuning, all of it but the number of digits.
# If the medians of losses under P and Q are within this many scales of each other, one
# lattice covers both, so that the law may also be read from Q's side.
FURTHEST = 12.0
# A law of ratios whose scale is more than this share of its median has its centre at
# zero: the widths of its cells are then in proportion to the ratio.
_WIDE = 0.25
# Where the mass falls steeply towards a threshold at zero, cells are narrow there. It
# falls steeply if an interval below zero has more than this many times the mass of its
# nearer half.
_STEEP, _MOST_HALVINGS = 2.3, 24
# Certified: indices have at most this many binary digits, so that nodes are floats.
_DIGITS = 52


@dataclasses.dataclass(frozen=True)
class Shape:
    """Where the middle of a law is, and how wide the law is, in its values.

    Attributes:
        centre: The value around which cells are narrowest.
        scale: Half of the interval that holds the middle two thirds of the mass.
        apart: The distance of P's and of Q's median from the centre.
    """

    centre: float
    scale: float
    apart: float = 0.0

    def reach(self, step: float, accuracy: Accuracy) -> int:
        """Returns how many cells of its level a piece may be from the centre."""
        reach = 2 * accuracy.scales * accuracy.cells
        return reach + math.ceil(self.apart / step)

    def narrowest(self) -> float:
        """Returns the least width for which the index of the centre fits a float."""
        if not self.centre:
            return 0.0
        return math.ldexp(1.0, math.frexp(abs(self.centre))[1] - _DIGITS)


def shape_of(atoms: Atoms, lowest: float) -> Shape:
    """Returns the shape of a law.

    Args:
        atoms: The law.
        lowest: The Q-probability below which ratio cells stop shrinking.
    """
    # By quantiles: rare, large losses must not coarsen the middle.
    low, middle, high = sums.quantiles(atoms.values, atoms.masses[0])
    scale = (high - low) / 2
    if atoms.law.axis is Axis.RATIO:
        if scale <= _WIDE * abs(middle):
            return Shape(middle, scale)
        if atoms.values[0] < 0:
            return Shape(0.0, _scale_at_zero(atoms, scale))
        return Shape(0.0, min(scale, 2 * _quantile(atoms, lowest)))
    _, other, _ = sums.quantiles(atoms.values, atoms.p_and_q[1])
    if abs(middle - other) > FURTHEST * scale:
        return Shape(middle, scale)
    return Shape((middle + other) / 2, scale, abs(middle - other) / 2)


def _scale_at_zero(atoms: Atoms, scale: float) -> float:
    """Returns the distance below zero within which the mass of cells grows slowly.

    Args:
        atoms: A law of values of either sign.
        scale: The scale of the law, the largest result.
    """
    steep_from, cumulated = scale, np.append(0.0, np.cumsum(atoms.masses[0]))
    for halvings in range(_MOST_HALVINGS):
        width = math.ldexp(scale, -halvings)
        places = np.searchsorted(atoms.values, [-width, -width / 2, 0.0])
        low, half, zero = cumulated[places].tolist()
        if half >= zero:
            break
        if zero - low > _STEEP * (zero - half):
            steep_from = width / 2
    return steep_from


def _quantile(atoms: Atoms, share: float) -> float:
    """Returns the least positive ratio up to which Q has a share of its mass."""
    cumulated = np.cumsum(atoms.masses[0])
    place = np.searchsorted(cumulated, share * cumulated[-1])
    first = np.searchsorted(atoms.values, 0.0, side="right")
    place = min(max(place, first), atoms.values.size - 1)
    return float(atoms.values[place])


def on_lattice(atoms: Atoms, accuracy: Accuracy, lowest: float) -> LatticeLaw:
    """Returns the law on a lattice: split (upper), or merged (lower).

    On the loss axis, losses are shifted so that the last heavy atom, and so its
    multiples in sums, is a node of every level. A few runs of a mechanism with bounded
    losses have an ε near the largest loss, where a cell would move it.

    Args:
        atoms: The law of n atoms.
        accuracy: How fine the lattice is.
        lowest: As in `LatticeLaw`.
    """
    if lowest < (1e-3 if atoms.law.axis is Axis.LOSS else 0.5):
        # A sum of a few losses has edges, and a sum of a few ratios comes near zero.
        # Both are small, so that a finer lattice costs little.
        accuracy = dataclasses.replace(accuracy, cells=2 * accuracy.cells)
    if atoms.law.axis is Axis.LOSS:
        atoms = atoms.centred()
    else:
        # `lowest` is a share of the positive ratios: mass at zero comes on top of it.
        zero = float(atoms.masses[0][atoms.values <= 0].sum())
        lowest += (1 - lowest) * zero / float(atoms.masses[0].sum())
    shape = shape_of(atoms, lowest)
    scale = max(
        shape.scale or abs(shape.centre + atoms.law.offset) or 1.0, _SMALLEST_SCALE
    )
    longest = max(float(np.abs(atoms.values[[0, -1]]).max()), scale)
    accuracy = accuracy.of_levels(math.log2(longest) - math.log2(scale))
    step = 2.0 ** math.floor(math.log2(scale / accuracy.cells))
    step = max(step, shape.narrowest())
    reach = shape.reach(step, accuracy)
    centre = round(shape.centre / step)
    # The first level on which the distance to the centre is at most the reach.
    digits, exponents = np.frexp(np.abs(atoms.values - centre * step))
    unit, exponent = math.frexp(reach * step)
    levels = np.maximum(exponents - exponent + (digits > unit), 0)
    levels[digits == 0] = 0  # The exponent of zero is given as that of 1.
    cells, masses = atom_laws.on_nodes(atoms, np.ldexp(step, levels))
    levels = np.resize(levels, cells.size)
    # One row of a table for each level, which begins some cells below the piece.
    begin = np.array([(centre >> k) - reach - 2 for k in range(int(levels.max()) + 1)])
    size = 2 * reach + 6
    index = cells - begin[levels] + size * levels
    table = np.array([sums.gather(index, row, size * begin.size) for row in masses])
    pieces: dict[int, lattice_law.Piece] = {}
    for level, start in enumerate(begin.tolist()):
        piece = table[:, size * level : size * (level + 1)]
        (occupied,) = np.nonzero(piece[0])
        if occupied.size:
            first, last = int(occupied[0]), int(occupied[-1])
            pieces[level] = start + first, piece[:, first : last + 1]
    law = LatticeLaw(
        atoms.law.rounded(_SHARE),
        step=step,
        accuracy=accuracy,
        pieces=pieces,
        centre=centre,
        reach=reach,
        lowest=lowest,
    )
    return law._with_underflow(float(atoms.values[0]), float(atoms.values[-1]))


def trimmed(law: LatticeLaw, tail_mass: float) -> tuple[LatticeLaw, Atoms]:
    """Returns a law without tails and tiny masses, and its atoms.

    Args:
        law: The law.
        tail_mass: The largest mass of P in the upper tail, and of either law in the
            lower one.
    """
    atoms, places = law.atoms_and_places()
    gone = atoms.in_tails(tail_mass) | atoms.is_rare()
    cells = sum(masses.shape[1] for _, masses in law.pieces.values())
    is_kept = np.zeros(cells, np.bool_)
    is_kept[places[~gone]] = True
    pieces, end = {}, 0
    for level, (start, masses) in law.pieces.items():
        begin, end = end, end + masses.shape[1]
        (occupied,) = np.nonzero(is_kept[begin:end])
        if occupied.size:
            span = slice(int(occupied[0]), int(occupied[-1]) + 1)
            trimmed_masses = np.where(is_kept[begin:end][span], masses[:, span], 0.0)
            pieces[level] = start + span.start, trimmed_masses
    atoms = atoms.without(gone)
    return dataclasses.replace(law, law=atoms.law, pieces=pieces), atoms


def settled(law: LatticeLaw, tail_mass: float) -> LatticeLaw:
    """Returns a law without tails, on cells as wide as its scale allows."""
    if not law.pieces:
        return law
    law, atoms = trimmed(law.levelled(), tail_mass)
    if not law.pieces:
        # All finite masses underflowed. The sinks hold them.
        return law
    shape = shape_of(atoms, law.lowest)
    widest = 2 * law.accuracy.cells
    while shape.scale > widest * law.step or law.step < shape.narrowest():
        law = law.doubled()
    return dataclasses.replace(
        law,
        centre=round(shape.centre / law.step),
        reach=shape.reach(law.step, law.accuracy),
    )


def times(law: LatticeLaw, count: int, tail_mass: float) -> LatticeLaw:
    """Returns the law of a sum of independent copies, by repeated doubling.

    Args:
        law: The law of one copy.
        count: The number of copies, at least 1.
        tail_mass: The probability that may be cut off in all.
    """
    total, number, share = law, 1, tail_mass / (4 * count.bit_length())
    for digit in bin(count)[3:]:
        total, number = total.plus(total), 2 * number
        if digit == "1":
            while law.step < total.step:
                law = law.doubled()
            total, number = total.plus(law), number + 1
        total = settled(total, share * number / count)
    return total


def sum_of(laws: Sequence[LatticeLaw], tail_mass: float) -> LatticeLaw:
    """Returns the law of the sum of independent variables, narrow ones first.

    Args:
        laws: The laws of the terms.
        tail_mass: The probability that each addition may cut off.
    """
    laws = sorted(laws, key=operator.attrgetter("step"))
    total = laws[0]
    for law in laws[1:]:
        while total.step < law.step:
            total = total.doubled()
        while law.step < total.step:
            law = law.doubled()
        total = settled(total.plus(law), tail_mass)
    return total
