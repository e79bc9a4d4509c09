"""Upper bounds on privacy profiles that need not be profiles of two laws."""

from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.pairs import profile_pairs

DirectedPairs = dominating_pair.DirectedPairs
DominatingPair = dominating_pair.DominatingPair


@dataclasses.dataclass(frozen=True)
class Hinges:
    """An upper bound on a profile that need not be the profile of any two laws.

    H_κ(P‖Q) ≤ infinity_mass + Σ mass · (ratio − κ)₊ at every κ ≥ 0. The masses may sum
    to more than one: a bound may be above one where κ is small.

    Attributes:
        ratios: (n,) places of the hinges, increasing.
        masses: (n,) masses of the hinges, at least 0.
        infinity_mass: The bound beyond all places.
        mass_error: A bound on the relative error of any mass.
        ratio_error: A bound on the relative error of any place.
    """

    ratios: FloatArray
    masses: FloatArray
    infinity_mass: float
    mass_error: float
    ratio_error: float

    @classmethod
    def of(cls, pair: DominatingPair) -> "Hinges":
        """Returns the profile H(P‖Q) of an upper pair."""
        return cls(
            pair.ratios,
            pair.masses,
            pair.infinity_mass,
            pair.mass_error,
            pair.ratio_error,
        )

    def values(self, places: FloatArray) -> FloatArray:
        """Returns the (m,) bounds at κ ≥ 0, errors included."""
        shift, factor = dominating_pair.allowance(
            Bound.UPPER, self.ratios.size, self.mass_error, self.ratio_error
        )
        found = profile_pairs.values_at(
            places * math.exp(shift), self.ratios, self.masses, self.infinity_mass
        )
        bounds: FloatArray = factor * found
        return bounds


# Tuning: the number of κ at which bounds are compared that need not be tight.
_COMPARED = 1 << 12


# The bound one, which always holds.
TRIVIAL = Hinges(np.ones(1), np.zeros(1), 1.0, 0.0, 0.0)


def least(known: Sequence[Hinges], *, most: int | None = None) -> DominatingPair:
    """Returns the pair of the smallest of several bounds on H(P‖Q).

    It bounds H(P‖Q) only. Bounds on H(Q‖P) are computed with the duals.

    Args:
        known: The bounds.
        most: The largest number of places of each at which they are compared, or None
            for all places.
    """
    places = np.unique(np.concatenate([_some(each.ratios, most) for each in known]))
    values = np.ones(places.size)
    for each in known:
        np.minimum(values, each.values(places), out=values)
    # A value that underflowed is not zero.
    return profile_pairs.pair_above(places, np.maximum(values, profile_pairs.SMALLEST))


def _some(places: FloatArray, most: int | None) -> FloatArray:
    """Returns at most `most` of the places, the first and the last among them."""
    if most is None or places.size <= most:
        return places
    return places[np.linspace(0, places.size - 1, most).astype(np.int64)]


def minimum(pairs: Sequence[DirectedPairs]) -> DirectedPairs:
    """Returns pairs whose profiles are nearly the smallest of several.

    Each direction has its own pair, so that its own tail is accurate. Profiles are
    compared at some thousand κ. The lines between these are above all of them.

    Args:
        pairs: Upper bounds.

    Source:
        That of `atoms_above`.
    """
    remove = [Hinges.of(pair.remove) for pair in pairs]
    add = [Hinges.of(dominating_pair.dual(pair.add)) for pair in pairs]
    return DirectedPairs(
        least(remove, most=_COMPARED),
        dominating_pair.dual(least(add, most=_COMPARED)),
    )
