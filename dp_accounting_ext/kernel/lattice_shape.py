"""How fine a lattice is, and where the middle of a law is."""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.kernel import atom_laws
from dp_accounting_ext.kernel import sums

Atoms = atom_laws.Atoms
Axis = atom_laws.Axis

# Tuning, all of it but the number of digits.
# If the medians under P and Q are within this many scales of each other, one lattice
# covers both, for a law that is read from both sides.
FURTHEST = 12.0
# A law of ratios whose scale is more than this share of its median has its centre at
# zero: the widths of its cells are then in proportion to the ratio.
_WIDE = 0.25
# Where the mass falls steeply towards a threshold at zero, cells are narrow there. It
# falls steeply if an interval below zero has more than this many times the mass of its
# nearer half.
_STEEP, _MOST_HALVINGS = 2.3, 24
# A law with more levels than this has fewer cells on each, but at least this many.
_MANY_LEVELS, _FEWEST_CELLS = 48, 8
# Certified: indices have at most this many binary digits, so that nodes are floats.
_DIGITS = 52


@dataclasses.dataclass(frozen=True)
class Resolution:
    """How fine a lattice is, in scales: about a standard deviation of the law's middle.

    Attributes:
        cells: The least number of cells in a scale. The width of a bracket is in
            proportion to 1 / cells².
        scales: The number of scales, on either side of the middle, on which all cells
            have one width.
    """

    cells: int = 144
    scales: int = 3

    @property
    def reach(self) -> int:
        """The number of cells of its level that a piece may be away from the middle."""
        return 2 * self.scales * self.cells

    def of_levels(self, levels: float) -> "Resolution":
        """Returns a resolution that is fine enough for a law of so many levels."""
        cells = round(self.cells * min(1.0, _MANY_LEVELS / max(levels, 1.0)))
        return dataclasses.replace(self, cells=max(cells, _FEWEST_CELLS))


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

    def reach(self, step: float, resolution: Resolution) -> int:
        """Returns how many cells of its level a piece may be from the centre."""
        return resolution.reach + math.ceil(self.apart / step)

    def narrowest(self) -> float:
        """Returns the least width for which the index of the centre fits a float."""
        if not self.centre:
            return 0.0
        return math.ldexp(1.0, math.frexp(abs(self.centre))[1] - _DIGITS)


def shape_of(atoms: Atoms, lowest: float, *, both: bool) -> Shape:
    """Returns the shape of a law.

    Args:
        atoms: The law.
        lowest: The Q-probability below which ratio cells stop shrinking.
        both: Whether the law of losses is also read from Q's side.
    """
    # By quantiles: rare, large losses must not coarsen the middle.
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
    """Returns the distance below zero within which the mass of cells grows slowly.

    Args:
        atoms: A law of values of either sign.
        scale: The scale of the law, the largest result.
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
    """Returns the least positive ratio up to which Q has a share of its mass."""
    cumulated = np.cumsum(atoms.masses[0])
    place = np.searchsorted(cumulated, share * cumulated[-1])
    first = np.searchsorted(atoms.values, 0.0, side="right")
    place = min(max(place, first), atoms.values.size - 1)
    return float(atoms.values[place])


def levels(atoms: Atoms, scale: float) -> float:
    """Returns approximately how many levels a law has."""
    longest = max(float(np.abs(atoms.values[[0, -1]]).max()), scale)
    return math.log2(longest) - math.log2(scale)
