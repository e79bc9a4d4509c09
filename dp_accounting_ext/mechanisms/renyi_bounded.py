"""Mechanisms that are known by their Rényi divergences alone.

Divergences of at most r(α) at orders α bound the profile at every κ: δ is at most the
smallest conversion of them. The profile is convex, so that it is also at most the
convex minorant of these conversions. The pair that is made here has this minorant as
its profile.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import math

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.common_types import FloatArray
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import profile_pairs
from dp_accounting_ext.renyi import conversion

Accuracy = interface.Accuracy
# Tuning: the orders, a factor of 1.023 apart, so that δ = 1e-25 is at most 1 % too
# large.
ORDERS = tuple(float(1 + x) for x in np.geomspace(1e-3, 1e9, 1201))


@dataclasses.dataclass(frozen=True)
class RenyiBounded(interface.OnePairMechanism):
    """A mechanism that is known by its Rényi divergences alone.

    Attributes:
        values: Upper bounds on the divergence in either direction, one for each of
            `ORDERS`; inf where none is known.
        failure_probability: The probability of an event that does not depend on the
            data. If it happens, everything may be released. The divergences are those
            of the outputs if it does not happen.
        line: (ρ, ξ), such that the divergence of every order α is at most ξ + ρα, in
            nats; infinite if no such line is known.
    """

    is_known_by_divergences = True

    values: tuple[float, ...]
    failure_probability: float = 0.0
    line: tuple[float, float] = (math.inf, 0.0)

    @classmethod
    def of(cls, values: FloatArray, failure_probability: float = 0.0) -> "RenyiBounded":
        """Returns the mechanism of (k,) bounds at `ORDERS`."""
        return cls(tuple(float(value) for value in values), failure_probability)

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        """Returns bounds by the line, or by chords.

        (α − 1) times the divergence is a convex function of α, so that its chords
        between known orders are upper bounds. Below all known orders, the divergence is
        at most that of the first one.
        """
        asked = np.array([float(order) for order in orders])
        chords = _chords(np.array(ORDERS), np.array(self.values), asked)
        bounds = np.minimum(chords, _on_line(orders, *self.line))
        return interface.Divergences(bounds, self.failure_probability)

    def pair(self, bound: Bound, accuracy: Accuracy) -> dominating_pair.DominatingPair:
        if bound is Bound.LOWER:
            return dominating_pair.trivial_pair(bound)
        everything = dominating_pair.trivial_pair(bound)
        if self.failure_probability == 1:
            return everything
        pair = dominating_pair_of(
            np.array(ORDERS), np.array(self.values), accuracy.tail_mass
        )
        if not self.failure_probability:
            return pair
        return dominating_pair.mixture(
            [everything, pair], [self.failure_probability, 1 - self.failure_probability]
        )

    def basis(self, bound: Bound) -> str:
        return "its Rényi divergences" if bound is Bound.UPPER else interface.NOTHING

    def claims(self) -> interface.Claims:
        rho, xi = self.line
        return interface.Claims(is_symmetric=True, rho=math.inf if xi else rho)


def concentrated(rho: float, xi: float = 0.0) -> RenyiBounded:
    """Returns a mechanism whose divergence of each order α is at most ξ + ρα."""
    values = _on_line(ORDERS, rho, xi)
    return RenyiBounded(tuple(values.tolist()), line=(rho, xi))


def _on_line(orders: Sequence[float], rho: float, xi: float) -> FloatArray:
    """Returns (n,) values ξ + ρα at (n,) orders α, inf included, rounded up."""
    line = np.array(orders) * rho if rho else np.zeros(len(orders))
    rounded: FloatArray = (line + xi) * (1 + 8 * floats.UNIT_ROUNDOFF)
    return rounded


def _chords(orders: FloatArray, values: FloatArray, asked: FloatArray) -> FloatArray:
    """Returns (n,) bounds at (n,) `asked` from (k,) values at increasing orders."""
    finite = np.isfinite(values)
    if not finite.any():
        return np.full(asked.size, math.inf)
    alpha, bounds = orders[finite], values[finite]
    with np.errstate(invalid="ignore"):
        chords = np.interp(asked, alpha, (alpha - 1) * bounds) / (asked - 1)
    chords = np.where(
        alpha[0] > asked, bounds[0], chords * (1 + 16 * floats.UNIT_ROUNDOFF)
    )
    between: FloatArray = np.where(alpha[-1] < asked, math.inf, chords)
    return between


def composition(counts: Mapping[interface.Mechanism, int]) -> RenyiBounded:
    """Returns the composition of mechanisms, by adding their Rényi divergences."""
    total, probabilities = np.zeros(len(ORDERS)), []
    for part, count in counts.items():
        rdp = part.rdp(ORDERS)
        total += count * (rdp.values if rdp else math.inf)
        probabilities.append((rdp.failure_probability if rdp else 0.0, count))
    failure_probability = interface.probability_of_any(probabilities)
    return RenyiBounded.of(
        total * (1 + 4 * (len(counts) + 1) * floats.UNIT_ROUNDOFF), failure_probability
    )


def dominating_pair_of(
    orders: FloatArray, values: FloatArray, tail_mass: float
) -> dominating_pair.DominatingPair:
    """Returns an upper pair of a mechanism that is known by its Rényi divergences.

    Args:
        orders: (k,) orders above 1.
        values: (k,) bounds on the divergences in either direction; inf where unknown.
        tail_mass: Probability that may be moved to either sink.

    Guarantees:
        At the places of the profile, the pair's profile is at least the smallest
        conversion, which is checked at every atom, by sums of positive terms.

    Source:
        https://arxiv.org/abs/2106.08567, Proposition 11 (profiles that belong to a
        pair).
    """
    orders, values = orders[np.isfinite(values)], values[np.isfinite(values)]
    if not orders.size:
        return dominating_pair.trivial_pair(Bound.UPPER)
    if not values.any():
        return dominating_pair.identity_pair(Bound.UPPER)
    deltas = np.geomspace(1.0, tail_mass, conversion.POINTS)
    # A few at a time, with all orders.
    epsilons = np.concatenate(
        [
            conversion.epsilons(orders, values, block[:, np.newaxis]).min(axis=1)
            for block in np.array_split(deltas, 12)
        ]
    )
    epsilons = np.maximum.accumulate(epsilons)
    # Where κ fits no float, or Q's mass, about δ / κ, does not, δ may go to the sinks.
    # Of several δ at κ = 1 only the last, the smallest, is used.
    fits = (epsilons <= floats.LARGEST_LOSS) & (np.log(deltas) - epsilons > -640)
    fits[: np.count_nonzero(epsilons == 0) - 1] = False
    return profile_pairs.symmetric(np.exp(epsilons[fits]), deltas[fits])
