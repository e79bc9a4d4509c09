"""Mechanisms known from one side only, or from two sides, or without any privacy."""

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

    known: DirectedPairs

    @property
    def bound(self) -> Bound:
        """The side that is known."""
        return self.known.remove.bound

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is self.bound:
            return self.known
        return DirectedPairs.same(dominating_pair.trivial_pair(bound))

    def basis(self, bound: Bound) -> str:
        return "the pair that was given" if bound is self.bound else interface.NOTHING

    def claims(self) -> interface.Claims:
        upper = self.pairs(Bound.UPPER, Accuracy(1.0))
        return interface.Claims(interface.largest_loss_of_atoms(upper))


@dataclasses.dataclass(frozen=True)
class UpperOnly(interface.Mechanism):
    """A mechanism that another one dominates, so that its lower bound is unknown."""

    inner: interface.Mechanism

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.LOWER:
            return DirectedPairs.same(dominating_pair.trivial_pair(bound))
        return interface.pairs_of(self.inner, bound, accuracy)

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return interface.NOTHING
        return self.inner.basis(bound)

    def parts(self, bound: Bound) -> Mapping[interface.Mechanism, int]:
        return {self.inner if bound is Bound.UPPER else self: 1}

    def claims(self) -> interface.Claims:
        return self.inner.claims()


@dataclasses.dataclass(frozen=True)
class LeastOf(interface.Mechanism):
    """A mechanism that two others dominate. Its bound is the smaller one at every κ.

    Attributes:
        first: A mechanism that dominates it. The claims are those of this one.
        second: Another mechanism that dominates it.
    """

    first: interface.Mechanism
    second: interface.Mechanism

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        if bound is Bound.LOWER:
            return DirectedPairs.same(dominating_pair.trivial_pair(bound))
        return profile_pairs.minimum(
            [
                interface.pairs_of_part(each, bound, accuracy)
                for each in (self.first, self.second)
            ]
        )

    def basis(self, bound: Bound) -> str:
        if bound is Bound.LOWER:
            return interface.NOTHING
        both = f"{self.first.basis(bound)} and by {self.second.basis(bound)}"
        return f"the smaller at each ε of the bounds by {both}"

    def claims(self) -> interface.Claims:
        return self.first.claims()


@dataclasses.dataclass(frozen=True)
class Between(interface.Mechanism):
    """A mechanism that dominates one mechanism and is dominated by another.

    Attributes:
        below: The mechanism that it dominates.
        above: The mechanism that dominates it.
        or_above: A second mechanism that dominates it, if one is known: one that is
            quick, or one that may be smaller.
    """

    below: interface.Mechanism
    above: interface.Mechanism
    or_above: interface.Mechanism | None = None

    def pairs(self, bound: Bound, accuracy: Accuracy) -> DirectedPairs:
        return interface.pairs_of(self._of(bound), bound, accuracy)

    def parts(self, bound: Bound) -> Mapping[interface.Mechanism, int]:
        return {self._of(bound): 1}

    def other_parts(self) -> Mapping[interface.Mechanism, int]:
        return {self.or_above or self.above: 1}

    def claims(self) -> interface.Claims:
        known = [self.below, self.above]
        if self.or_above:
            known.append(self.or_above)
        is_symmetric = all(each.claims().is_symmetric for each in known)
        return dataclasses.replace(self.above.claims(), is_symmetric=is_symmetric)

    def basis(self, bound: Bound) -> str:
        found = self._of(bound).basis(bound)
        if bound is Bound.LOWER or self.or_above is None:
            return found
        other = self.or_above.basis(bound)
        return f"the smaller of two bounds, by {found}, and by {other}"

    def sum_of(self, members: int) -> interface.Mechanism | None:
        return self.below.sum_of(members)

    def _of(self, bound: Bound) -> interface.Mechanism:
        return self.above if bound is Bound.UPPER else self.below


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
            known = bound is Bound.UPPER or self.is_certain()
            if known:
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

    @property
    def revealed(self) -> Probabilities:
        return self.record

    def gaussian_steps(self) -> interface.Allocation:
        probability, rest = self.record
        return interface.Allocation(
            (), null_probability=rest, infinity_mass=probability
        )

    def is_certain(self) -> bool:
        return self.record == ALWAYS or self.other == ALWAYS

    def claims(self) -> interface.Claims:
        return interface.Claims(is_symmetric=self.record == self.other)

    def on_a_sample(self, rate: float) -> "NonPrivate":
        """Returns the mechanism on a Poisson sample, where no record is replaced."""
        runs, rest = self.record
        sampled = rate * runs, (1 - rate) + rate * rest
        return NonPrivate(sampled, error=self.error + discrete_outputs.FEW_ERROR)
