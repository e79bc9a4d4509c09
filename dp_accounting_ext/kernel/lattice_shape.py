"""How fine a lattice is, and where a law has its middle."""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import sums

Atoms = atom_laws.Atoms
Axis = atom_laws.Axis

# Tuning, all of it but the digits.
# Both middles of a law that is read from both sides are there, if they are so near.
FURTHEST = 12.0
# A ratio's law whose scale is more than this share of its middle has cells in
# proportion to the ratio, which then are as wide as those around a middle;
_WIDE = 0.25
# Where mass falls steeply towards a threshold at zero, cells are narrow there: so much
# less in half of the distance is steep.
_STEEP, _MOST_HALVINGS = 2.3, 24
# Laws that go on for more levels have fewer cells on each of them, but some.
_MANY_LEVELS, _FEWEST_CELLS = 48, 8
# Certified: indices have so many binary digits, so that nodes are floats.
_DIGITS = 52


@dataclasses.dataclass(frozen=True)
class Resolution:
    """How fine a lattice is; its scale is about a deviation of the law's middle.

    Attributes:
        cells: In a scale, at least: the width of a bracket falls as their square.
        scales: On either side of the middle, that are on cells of one width.
    """

    cells: int = 144
    scales: int = 3

    @property
    def reach(self) -> int:
        """How many cells of its level a piece may be away from the middle."""
        return 2 * self.scales * self.cells

    def of_levels(self, levels: float) -> "Resolution":
        """Returns what is fine enough for a law of so many levels."""
        cells = round(self.cells * min(1.0, _MANY_LEVELS / max(levels, 1.0)))
        return dataclasses.replace(self, cells=max(cells, _FEWEST_CELLS))


@dataclasses.dataclass(frozen=True)
class Shape:
    """Where a law has its middle, and how wide it is, in its values.

    Attributes:
        centre: Around which cells are narrow.
        scale: Half of what the middle two thirds of the mass cover.
        apart: How far P's middle and Q's are from the centre.
    """

    centre: float
    scale: float
    apart: float = 0.0

    def reach(self, step: float, resolution: Resolution) -> int:
        """Returns how many cells of its level a piece may be away from the centre."""
        return resolution.reach + math.ceil(self.apart / step)

    def narrowest(self) -> float:
        """Returns the least width at which the centre's index fits a float."""
        if not self.centre:
            return 0.0
        return math.ldexp(1.0, math.frexp(abs(self.centre))[1] - _DIGITS)


def shape_of(atoms: Atoms, lowest: float, *, both: bool) -> Shape:
    """Returns the shape of a law.

    Args:
        atoms: The law.
        lowest: Where cells shrink with a ratio, they stop where Q has so little.
        both: Whether the law is read from Q's side as well (of losses).
    """
    # Rare losses must not coarsen the bulk.
    low, middle, high = sums.quantiles(atoms.values, atoms.masses[0])
    scale = (high - low) / 2
    if atoms.axis is Axis.RATIO:
        if scale <= _WIDE * abs(middle):
            return Shape(middle, scale)
        if atoms.values[0] < 0:
            return Shape(0.0, _scale_at_zero(atoms, scale))
        return Shape(0.0, min(scale, 2 * _quantile(atoms, lowest)))
    if not both:
        return Shape(middle, scale)
    _, other, _ = sums.quantiles(atoms.values, atoms.p_and_q()[1])
    if abs(middle - other) > FURTHEST * scale:
        return Shape(middle, scale)
    return Shape((middle + other) / 2, scale, abs(middle - other) / 2)


def _scale_at_zero(atoms: Atoms, scale: float) -> float:
    """Returns over what distance below zero the mass of a law's cells grows slowly.

    Args:
        atoms: A law of values of either sign.
        scale: Its own, the most that is returned.
    """
    found, cumulated = scale, np.append(0.0, np.cumsum(atoms.masses[0]))
    for halvings in range(_MOST_HALVINGS):
        width = math.ldexp(scale, -halvings)
        places = np.searchsorted(atoms.values, [-width, -width / 2, 0.0])
        low, half, zero = cumulated[places].tolist()
        if half >= zero:
            break
        if zero - low > _STEEP * (zero - half):
            found = width / 2
    return found


def _quantile(atoms: Atoms, share: float) -> float:
    """Returns the positive ratio up to which Q has such a share, or the least one."""
    cumulated = np.cumsum(atoms.masses[0])
    place = np.searchsorted(cumulated, share * cumulated[-1])
    first = np.searchsorted(atoms.values, 0.0, side="right")
    place = min(max(place, first), atoms.values.size - 1)
    return float(atoms.values[place])


def levels(atoms: Atoms, scale: float) -> float:
    """Returns about how many levels a law has."""
    longest = max(float(np.abs(atoms.values[[0, -1]]).max()), scale)
    return math.log2(longest) - math.log2(scale)
