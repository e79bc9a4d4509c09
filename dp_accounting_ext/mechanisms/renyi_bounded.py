"""A mechanism that is known by its Rényi divergences alone."""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

import numpy as np
import numpy.typing as npt

from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import renyi_profile

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
FloatArray = npt.NDArray[np.float64]

_ORDERS = np.array(renyi_profile.ORDERS)
_UNIT = dominating_pair.UNIT_ROUNDOFF


@dataclasses.dataclass(frozen=True)
class RenyiBounded(interface.OnePairMechanism):
    """A mechanism that is known by its Rényi divergences alone.

    Attributes:
        values: Upper bounds on the divergence in either direction, one for each of
            `renyi_profile.ORDERS`; inf where none is known.
        told: Probability of an event, whatever the data, in which everything may be
            told: the divergences are of what is released otherwise.
    """

    values: tuple[float, ...]
    told: float = 0.0

    @classmethod
    def of(cls, values: FloatArray, told: float = 0.0) -> "RenyiBounded":
        """Returns the mechanism of (k,) bounds at `renyi_profile.ORDERS`."""
        return cls(tuple(float(value) for value in values), told)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns bounds by chords.

        Between orders (α − 1) times the divergence is convex, so that chords are
        upper bounds; below all of them the divergence is no larger than at the first.
        """
        asked = np.array([float(order) for order in orders])
        found = _chords(_ORDERS, np.array(self.values), asked)
        return interface.Divergences(found, self.told)

    def pair(self, bound: Bound, tail_mass: float) -> dominating_pair.DominatingPair:
        if bound is Bound.LOWER:
            return dominating_pair.trivial_pair(bound)
        everything = dominating_pair.trivial_pair(bound)
        if self.told == 1:
            return everything
        pair = renyi_profile.dominating_pair_of(
            renyi_profile.ORDERS, self.values, tail_mass=tail_mass
        )
        if not self.told:
            return pair
        return dominating_pair.mixture([everything, pair], [self.told, 1 - self.told])

    def claims(self) -> interface.Claims:
        return interface.Claims(is_symmetric=True)


@dataclasses.dataclass(frozen=True)
class Concentrated(interface.OnePairMechanism):
    """A mechanism whose divergence of the order α is at most ξ + ρα, in nats."""

    rho: float
    xi: float = 0.0

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        line = np.array(orders) * self.rho if self.rho else np.zeros(len(orders))
        return interface.Divergences((line + self.xi) * (1 + 8 * _UNIT))

    def pair(self, bound: Bound, tail_mass: float) -> dominating_pair.DominatingPair:
        return self._bounded().pair(bound, tail_mass)

    def parts(self, bound: Bound) -> Mapping[interface.Mechanism, int]:
        return {self._bounded(): 1}

    def claims(self) -> interface.Claims:
        return interface.Claims(is_symmetric=True)

    def _bounded(self) -> RenyiBounded:
        return RenyiBounded.of(self.rdp(renyi_profile.ORDERS).values)


def _chords(known: FloatArray, values: FloatArray, asked: FloatArray) -> FloatArray:
    """Returns (n,) bounds at n orders from those at (k,) known ones, increasing."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(asked.size, math.inf)
    alpha, bounds = known[finite], values[finite]
    with np.errstate(invalid="ignore"):
        chords = np.interp(asked, alpha, (alpha - 1) * bounds) / (asked - 1)
    chords = np.where(alpha[0] > asked, bounds[0], chords * (1 + 16 * _UNIT))
    found: FloatArray = np.where(alpha[-1] < asked, math.inf, chords)
    return found


def composition(counts: Mapping[RenyiBounded, int]) -> RenyiBounded:
    """Returns the composition: divergences add up."""
    total = np.zeros(_ORDERS.size)
    for part, count in counts.items():
        total += count * np.array(part.values)
    told = interface.chance_of_any([(part.told, n) for part, n in counts.items()])
    return RenyiBounded.of(total * (1 + 4 * (len(counts) + 1) * _UNIT), told)
