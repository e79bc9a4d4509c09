"""The law of the means of a few groups of steps, with as few atoms as suffice.

For some groups of steps, H is the mean of all of their likelihood ratios, and E is that
of the products of two ratios from different groups. `few_out_of_t` adds up such laws.
"""

import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.common_types import IntArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.kernel import sums

# Certified, in units of rounding: how much each step of the sum adds to the relative
# error of a vector or of a share.
ROUNDING = 64.0

# Tuning: the number of values of H in a law. (ε of 2 of 10 steps, σ = 1, δ = 1e-6:
# 4.158; with 192 values 4.18.)
_NODES = 256
# Tuning: the number of bins of the histogram by which these values are chosen.
_BINS = 4095
# Tuning: (c, number). If a value of H in one law is less than 1 / c of that in the
# other, its E hardly moves the E of the sum. So this number of values of E is enough.
# (With all values the same ε is 4.157, in four times the time.)
_VALUES = (0.0, 24), (1.0, 8), (4.0, 4)
_VALUES_OF_THREE = (1.0, 16), (4.0, 8)
_LEAST_SHARE = 0.2  # Tuning: the share of a row's values of E at equal distances.


@dataclasses.dataclass(frozen=True)
class GroupLaw:
    """The law of (H, E) for several groups of steps without the record, in (a,) atoms.

    Attributes:
        means: (n,) values of H, at least 0 and increasing.
        rows: (a,) for each atom the index of its value of H, increasing.
        products: (a,) values of E. For a single group they are 0.
        masses: (a,) probabilities of the atoms.
        sizes: Numbers of steps in the groups.
        top: An upper bound on E / H² in all atoms.
        mass_error: Bound on the relative error of a mass.
        place_error: Bound on the relative error of H, and of E.
    """

    means: FloatArray
    rows: IntArray
    products: FloatArray
    masses: FloatArray
    sizes: tuple[int, ...]
    top: float
    mass_error: float
    place_error: float

    @property
    def pairs(self) -> int:
        """Number of pairs of steps in different groups."""
        squares = sum(size**2 for size in self.sizes)
        return (sum(self.sizes) ** 2 - squares) // 2

    def versions(self, draws: int) -> list["Version"]:
        """Returns versions of the law with fewer and fewer values of E.

        They are for a sum with another law. For the ratio of three draws the first
        version has all values, as fewer values would move the smallest ratios to 0.

        Args:
            draws: The number of draws whose ratio the sum computes, 2 or 3.
        """
        if self.rows.size == self.means.size:
            return [Version.of(self, 0.0)]
        values = _VALUES if draws == 2 else _VALUES_OF_THREE
        found = [Version.of(self.coarser(most), least) for least, most in values]
        return found if draws == 2 else [Version.of(self, 0.0), *found]

    def coarser(self, most: int) -> "GroupLaw":
        """Returns the law with about `most` values of E or fewer at each H.

        A row keeps its first and its last value, and values that are dense where its
        masses are. Each other atom is split between the kept values around it, which
        keeps its mean.
        """
        first = np.append(True, np.diff(self.rows) > 0)
        last = np.append(first[1:], True)
        gaps = np.where(first, 0.0, np.diff(self.products, prepend=0.0))
        masses = self.masses + np.where(first, 0.0, np.append(0.0, self.masses[:-1]))
        wanted = np.cbrt(_shares_of(masses, self.rows))
        gaps = _shares_of(gaps, self.rows)
        wanted = (1 - _LEAST_SHARE) * _shares_of(wanted * np.cbrt(gaps) ** 2, self.rows)
        level = np.floor(np.cumsum(wanted + _LEAST_SHARE * gaps) * (most - 1))
        kept = first | last | (np.diff(level, prepend=-1.0) > 0)
        places = np.flatnonzero(kept)
        values = self.products[places]
        below = np.cumsum(kept) - 1
        above = np.where(last, below, below + 1)
        width = values[above] - values[below]
        is_one = width == 0
        width[is_one] = 1.0
        lower = np.where(is_one, 1.0, (values[above] - self.products) / width)
        upper = (self.products - values[below]) / width
        found = sums.gather(below, self.masses * lower, places.size)
        found += sums.gather(above, self.masses * upper, places.size)
        return dataclasses.replace(
            self,
            rows=self.rows[places],
            products=values,
            masses=found,
            mass_error=self.mass_error + ROUNDING * floats.UNIT_ROUNDOFF,
        )


@dataclasses.dataclass(frozen=True)
class Version:
    """A version of a law with fewer values of E, for a sum with another law.

    Attributes:
        law: The law.
        least: The version is used where the other law's H is at least this many times
            the H of this one.
        starts: (n + 1,) index of the first atom of each row, and the number of atoms.
    """

    law: GroupLaw
    least: float
    starts: IntArray

    @classmethod
    def of(cls, law: GroupLaw, least: float) -> "Version":
        """Returns a version with the atoms of a law, used from `least` on."""
        starts = np.searchsorted(law.rows, np.arange(law.means.size + 1))
        return cls(law, least, starts)


def of_one_group(mean: dominating_pair.DominatingPair, size: int) -> GroupLaw:
    """Returns the law of the mean of one group's ratios, with its values at nodes."""
    nodes = nodes_for(mean.ratios, mean.masses)
    cells, lower, upper = split_between(nodes, mean.ratios)
    masses = sums.gather(cells, mean.masses * lower, nodes.size)
    masses += sums.gather(cells + 1, mean.masses * upper, nodes.size)
    masses[0] += mean.zero_mass
    kept = masses > 0
    count = int(kept.sum())
    return GroupLaw(
        means=nodes[kept],
        rows=np.arange(count),
        products=np.zeros(count),
        masses=masses[kept],
        sizes=(size,),
        top=0.0,
        mass_error=mean.mass_error + ROUNDING * floats.UNIT_ROUNDOFF,
        place_error=mean.ratio_error + ROUNDING * floats.UNIT_ROUNDOFF,
    )


def nodes_for(values: FloatArray, masses: FloatArray) -> FloatArray:
    """Returns nodes from 0 to above the largest value, dense where masses are.

    Args:
        values: (n,) Values, at least 0. At least one is positive.
        masses: (n,) Their probabilities.
    """
    seen = values > 0
    logs = np.log(values[seen])
    low, high = float(logs.min()), floats.raised(float(values.max()))
    ends = np.linspace(low, math.log(high), _BINS + 1)
    p = masses * values
    # If all masses of a law underflow, this law has no influence on the nodes.
    wholes = [max(float(law.sum()), floats.SMALLEST_MASS) for law in (masses, p)]
    found = masses[seen] / wholes[0] + p[seen] / wholes[1]
    # Splits cost least if the density of nodes is proportional to the third root of the
    # density of mass. A constant is added for rare values.
    wanted = np.cbrt(np.histogram(logs, ends, weights=found)[0])
    wanted += 0.25 * wanted.max()
    known = np.append(0.0, np.cumsum(wanted))
    nodes = np.exp(np.interp(np.linspace(0.0, known[-1], _NODES), known, ends))
    return np.unique(np.concatenate([[0.0], nodes[nodes < high], [high]]))


def gathered(
    cells: IntArray, lower: FloatArray, upper: FloatArray, size: int
) -> FloatArray:
    """Returns (size,) sums of masses: `lower` in cells, `upper` in the cells after."""
    cells = cells.ravel()
    found = sums.gather_quickly(cells, lower.ravel(), size)
    return found + sums.gather_quickly(cells + 1, upper.ravel(), size)


def split_between(
    nodes: FloatArray, values: FloatArray
) -> tuple[IntArray, FloatArray, FloatArray]:
    """Returns the index of the node below each value, and the shares of two nodes.

    A value is the mean of the node below it and the next one, with these shares.
    """
    cells = np.searchsorted(nodes, values, side="right") - 1
    np.minimum(cells, nodes.size - 2, out=cells)
    below, above = nodes[cells], nodes[cells + 1]
    gaps = above - below
    return cells, (above - values) / gaps, (values - below) / gaps


def _shares_of(values: FloatArray, rows: IntArray) -> FloatArray:
    """Returns (n,) values over their sum in a row, or 0 where that is 0."""
    wholes = np.bincount(rows, values)[rows]
    return np.asarray(values / np.where(wholes > 0, wholes, 1.0), dtype=np.float64)
