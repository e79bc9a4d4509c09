"""How fine a lattice is, and where the middle of a law is."""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.kernel import accuracy
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

    def reach(self, step: float, resolution: accuracy.Resolution) -> int:
        """Returns how many cells of its level a piece may be from the centre."""
        reach = 2 * resolution.scales * resolution.cells
        return reach + math.ceil(self.apart / step)

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
