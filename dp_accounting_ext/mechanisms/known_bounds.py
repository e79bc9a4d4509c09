"""Mechanisms of which only one side is known, or that have no privacy."""

import dataclasses

from dp_accounting_ext.amplification import poisson_subsampling
from dp_accounting_ext.kernels import floats
from dp_accounting_ext.mechanisms import interface
from dp_accounting_ext.pairs import dominating_pair

Bound = dominating_pair.Bound
Direction = dominating_pair.Direction
DirectedPairs = dominating_pair.DirectedPairs


@dataclasses.dataclass(frozen=True, eq=False)
class KnownPairs(interface.Mechanism):
    """A mechanism known by its pairs alone, on one side."""

    known: DirectedPairs

    @property
    def bound(self) -> Bound:
        """The side that is known."""
        return self.known.remove.bound

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        if bound is self.bound:
            return self.known
        return DirectedPairs.same(dominating_pair.trivial_pair(bound))


@dataclasses.dataclass(frozen=True)
class UpperOnly(interface.Mechanism):
    """A mechanism whose pair dominates another that need not attain it."""

    inner: interface.Mechanism

    def pairs(self, bound: Bound, tail_mass: float) -> DirectedPairs:
        if bound is Bound.LOWER:
            return DirectedPairs.same(dominating_pair.trivial_pair(bound))
        return interface.pairs_of(self.inner, bound, tail_mass)

    def closed_form_delta(
        self, epsilon: float, direction: Direction, bound: Bound
    ) -> float | None:
        if bound is Bound.LOWER:
            return 0.0
        return self.inner.closed_form_delta(epsilon, direction, bound)

    def gaussian_precision(self) -> float:
        return self.inner.gaussian_precision()

    def largest_loss(self) -> float:
        return self.inner.largest_loss()

    def is_symmetric(self) -> bool:
        return self.inner.is_symmetric()


@dataclasses.dataclass(frozen=True)
class NonPrivate(interface.OnePairMechanism):
    """What has no privacy: every loss counts as infinite.

    Attributes:
        chance: Probability that it ran on the record, which is what lower bounds
            count.
    """

    chance: float = 1.0

    def pair(self, bound: Bound, tail_mass: float) -> dominating_pair.DominatingPair:
        revealed = dominating_pair.trivial_pair(Bound.UPPER)
        if bound is Bound.UPPER:
            return revealed
        return poisson_subsampling.poisson_subsample(
            dataclasses.replace(revealed, bound=bound), self.chance
        )

    def on_a_sample(self, chance: float) -> "NonPrivate":
        """Returns the same where it runs with some probability."""
        return NonPrivate(self.chance * chance * (1 - floats.UNIT_ROUNDOFF))
