"""Mechanisms known from one side only, or from two sides, or without any privacy."""

from collections.abc import Callable
from collections.abc import Hashable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses

import numpy as np

from dp_accounting_ext.common_types import Bound
from dp_accounting_ext.kernel import dominating_pair
from dp_accounting_ext.kernel import floats
from dp_accounting_ext.mechanisms import discrete_outputs
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import profile_pairs

Accuracy = interface.Accuracy
DirectedPairs = dominating_pair.DirectedPairs


@dataclasses.dataclass(frozen=True, eq=False)
class KnownPairs(interface.Mechanism):
    """A mechanism of which only the pairs of one side, upper or lower, are known."""

    known_pairs: DirectedPairs

    @property
    def bound(self) -> Bound:
        """The side that is known."""
        return self.known_pairs.remove.bound

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is self.bound:
            return self.known_pairs
        return DirectedPairs.same(dominating_pair.trivial_pair(bound))

    def basis(self, bound: Bound) -> str:
        return "the pair that was given" if bound is self.bound else interface.NOTHING

    def claims(self) -> interface.Claims:
        upper = self.pairs(Bound.UPPER, Accuracy(1.0))
        return interface.Claims(interface.largest_loss_of_atoms(upper))


@dataclasses.dataclass(frozen=True)
class ByFunction(interface.Mechanism):
    """A mechanism that is known by a function that makes its pairs.

    Attributes:
        pairs_of: The function, from `arguments`, a side and an accuracy to pairs.
        arguments: What the function is given. All of it is hashable.
        known_claims: What is claimed.
        bases: Short descriptions of the lower and of the upper bound.
        side: The one side that is known, or None if both are.
    """

    pairs_of: Callable[..., DirectedPairs]
    arguments: tuple[Hashable, ...]
    known_claims: interface.Claims = interface.NO_CLAIMS
    bases: tuple[str, str] = (interface.OWN_PAIR, interface.OWN_PAIR)
    side: Bound | None = None

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if self.side not in (None, bound):
            return DirectedPairs.same(dominating_pair.trivial_pair(bound))
        return self.pairs_of(*self.arguments, bound, accuracy)

    def claims(self) -> interface.Claims:
        return self.known_claims

    def basis(self, bound: Bound) -> str:
        if self.side not in (None, bound):
            return interface.NOTHING
        lower, upper = self.bases
        return lower if bound is Bound.LOWER else upper


@dataclasses.dataclass(frozen=True)
class Bracket(interface.Mechanism):
    """A mechanism known by others: one that it dominates, and some that dominate it.

    Attributes:
        below: A mechanism that it dominates, or None if no lower bound is known.
        above: Mechanisms that dominate it, at least one. The smallest of their bounds
            counts. The claims are those of the first.
    """

    below: interface.Mechanism | None
    above: tuple[interface.Mechanism, ...]

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        mechanisms = self._side(bound)
        if not mechanisms:
            return DirectedPairs.same(dominating_pair.trivial_pair(bound))
        pairs = [interface.pairs_of(inner, bound, accuracy) for inner in mechanisms]
        return pairs[0] if len(pairs) == 1 else profile_pairs.minimum(pairs)

    def routes(self, bound: Bound) -> Sequence[Mapping[interface.Mechanism, int]]:
        return [{part: 1} for part in self._side(bound)] or super().routes(bound)

    def claims(self) -> interface.Claims:
        claims = [part.claims() for bound in Bound for part in self._side(bound)]
        is_symmetric = all(each.is_symmetric for each in claims)
        return dataclasses.replace(self.above[0].claims(), is_symmetric=is_symmetric)

    def basis(self, bound: Bound) -> str:
        bases = [part.basis(bound) for part in self._side(bound)]
        if len(bases) > 1:
            return f"the smallest of the bounds by {', and by '.join(bases)}"
        return bases[0] if bases else interface.NOTHING

    def sum_of(self, members: int) -> interface.Mechanism | None:
        return self.below.sum_of(members) if self.below else None

    def _side(self, bound: Bound) -> Sequence[interface.Mechanism]:
        if bound is Bound.UPPER:
            return self.above
        return [self.below] if self.below else []


def between(
    below: interface.Mechanism | None, *above: interface.Mechanism
) -> interface.Mechanism:
    """Returns a mechanism known by one that it dominates and some that dominate it.

    Args:
        below: A mechanism that it dominates, or None if no lower bound is known.
        above: Mechanisms that dominate it. If one of them is `below`, it is this one.
    """
    if below is not None and below in above:
        return below
    return Bracket(below, above)


Probabilities = interface.Probabilities

NEVER: Probabilities = (0.0, 1.0)
ALWAYS: Probabilities = (1.0, 0.0)


@dataclasses.dataclass(frozen=True)
class NonPrivate(interface.OnePairMechanism):
    """A mechanism that reveals the record if it runs on it, and nothing otherwise.

    Outputs that depend on the record reveal it with certainty. All other outputs have
    the same law in both datasets. Let a be the probability under P that the mechanism
    runs on the record, b the probability under Q that it runs on the record that
    replaces it, and κ = e^ε. Then δ is a + ((1 − a) − κ (1 − b))₊.

    Attributes:
        record: The probability that it runs on the record, and that it does not.
        other: The same for the record that replaces it, if there is one.
        error: Bound on the relative error of each probability.
    """

    record: Probabilities = ALWAYS
    other: Probabilities = NEVER
    error: float = discrete_outputs.FEW_ERROR

    def pair(self, bound: Bound, accuracy: Accuracy) -> dominating_pair.DominatingPair:
        (probability, rest), (other, other_rest) = self.record, self.other
        if min(rest, other_rest) < floats.SMALLEST_MASS:
            everything = dominating_pair.trivial_pair(Bound.UPPER)
            is_bound = bound is Bound.UPPER or is_certain(self)
            if is_bound:
                return dataclasses.replace(everything, bound=bound)
            return dominating_pair.trivial_pair(bound)
        return dominating_pair.DominatingPair(
            np.array([rest / other_rest]),
            np.array([other_rest]),
            infinity_mass=probability,
            zero_mass=other,
            bound=bound,
            mass_error=self.error,
            ratio_error=2 * self.error,
        )

    def rdp(self, orders: Sequence[float]) -> interface.Divergences:
        failure = max(self.record[0], self.other[0]) * (1 + self.error)
        return interface.Divergences(np.zeros(len(orders)), min(failure, 1.0))

    def draws(self) -> interface.Draws:
        probability, rest = self.record
        return interface.Draws((), null_probability=rest, infinity_mass=probability)

    def claims(self) -> interface.Claims:
        return interface.Claims(is_symmetric=self.record == self.other)

    def on_a_sample(self, rate: float) -> "NonPrivate":
        """Returns the mechanism on a Poisson sample, where no record is replaced."""
        runs, rest = self.record
        sampled = rate * runs, (1 - rate) + rate * rest
        return NonPrivate(sampled, error=self.error + discrete_outputs.FEW_ERROR)


def is_certain(mechanism: interface.Mechanism) -> bool:
    """Returns whether every run of a mechanism reveals everything."""
    return isinstance(mechanism, NonPrivate) and mechanism.record == ALWAYS
